"""The history of the gates of a model."""

import collections
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dselectk_keras.utils import check_count, check_type


class GateHistory(Mapping):
    """Records of the gates of a model: arrays whose first axis is the record.

    A mapping from the name of each layer with gates to a dict of these arrays. The axis
    for the tasks has length one if the layer has one gate.

    - `"weights"` `(records, tasks, n)`: the expert weights, for per-example gates
      averaged over a probe batch, or over its tokens without padding;
    - `"load"` `(records, tasks, n)`: the share of the examples that choose each expert,
      which has a weight that is not 0;
    - `"active"` `(records, tasks)`: the mean number of experts per example whose weight
      is not 0;
    - `"binary"` and `"reachable"` `(records, tasks, k)`: for gates with selectors,
      whether each is binary, and how much of its weight is on experts;
    - `"penalty_..."` `(records,)`: the terms that are added to the loss, by all
      calls of the gate in a step.

    A record without a penalty has 0 for it. What else a record lacks is NaN.

    Args:
        tasks: A dict of lists of task names, by layer name.

    Attributes:
        events: A dict from layer names to lists of a step and what happened then, such
            as `(120, "decided, 34 % kept")`.

    Example:
        >>> history = GateHistory({"mmoe": ["click", "like"]})
        >>> history.append(0, {"mmoe": {"weights": np.full((2, 4), 0.25)}})
        >>> history["mmoe"]["weights"].shape
        (1, 2, 4)
        >>> list(history), list(history["mmoe"]), history.steps.tolist()
        (['mmoe'], ['weights'], [0])
    """

    def __init__(self, tasks: dict[str, list[str]] | None = None):
        tasks = {} if tasks is None else tasks
        wanted = "a dict of lists of task names, by layer name"
        check_type("tasks", tasks, Mapping, wanted)
        self.tasks = dict(tasks)
        self.events = collections.defaultdict(list)
        self._records: list[tuple[int, dict]] = []

    @property
    def steps(self) -> np.ndarray:
        """The step of each record, as the gates count them."""
        return np.array([step for step, _ in self._records], "int64")

    def append(self, step: int, records: dict[str, dict[str, Any]]) -> None:
        """Add a record: a dict of arrays by quantity, by layer name."""
        self._records.append((check_count("step", step, minimum=0), records))

    def cut(self, step: int) -> None:
        """Forget what was after a step."""
        check_count("step", step, minimum=-1)
        self._records = [each for each in self._records if each[0] <= step]
        for events in self.events.values():
            events[:] = [each for each in events if each[0] <= step]

    def __getitem__(self, layer: str) -> dict[str, np.ndarray]:
        if layer not in self.tasks:
            raise KeyError(
                f"No gates were recorded in a layer {layer!r}. "
                f"Recorded: {', '.join(self.tasks) or 'none'}."
            )
        rows = [records.get(layer, {}) for _, records in self._records]
        shapes = {name: np.shape(value) for row in rows for name, value in row.items()}
        arrays = {}
        for name, shape in shapes.items():
            # Condensing removes penalties.
            zero = name.startswith("penalty_")
            missing = [np.full(shape, 0.0 if zero and row else np.nan) for row in rows]
            values = zip(rows, missing, strict=True)
            arrays[name] = np.stack([row.get(name, other) for row, other in values])
        return arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self.tasks)

    def __len__(self) -> int:
        """The number of layers; that of the records is `len(history.steps)`."""
        return len(self.tasks)

    def save(self, path: Any) -> None:
        """Write the records to an `.npz` file; its folder is created if needed."""
        events = [
            (layer, *event) for layer, some in self.events.items() for event in some
        ]
        arrays: dict[str, Any] = {
            "steps": self.steps,
            "events": np.reshape(np.array(events, str), (-1, 3)),
        }
        for layer, names in self.tasks.items():
            arrays[f"tasks|{layer}"] = np.array(names)
            for quantity, values in self[layer].items():
                arrays[f"{quantity}|{layer}"] = values
        path = check_path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        # A process that ends meanwhile leaves the file as it was.
        part = path.with_name(f"{path.name}.part")
        with part.open("wb") as file:
            # The names are an array as well: that of a file may be lost unnoticed.
            np.savez_compressed(file, *arrays.values(), names=list(arrays))
        part.replace(path)

    @classmethod
    def load(cls, path: Any) -> "GateHistory":
        """Read a history that `save` wrote."""
        with check_path(path).open("rb") as file:
            try:
                with np.load(file, allow_pickle=False) as arrays:
                    # NumPy alone does not see all damage.
                    if damaged := arrays.zip.testzip():
                        raise ValueError(f"{damaged!r} was altered")
                    names = enumerate(arrays["names"].tolist())
                    return cls._from_arrays({k: arrays[f"arr_{i}"] for i, k in names})
            except Exception as error:  # Damaged files raise errors of many kinds.
                raise ValueError(
                    f"The file {path} is damaged or is no history of gates: {error}. "
                    "Restore it from a copy, or remove it."
                ) from error

    @classmethod
    def _from_arrays(cls, arrays):
        history = cls()
        for layer, step, text in arrays.pop("events"):
            history.events[str(layer)].append((int(step), str(text)))
        rows: list[dict] = [collections.defaultdict(dict) for _ in arrays["steps"]]
        history._records = list(zip(arrays.pop("steps").tolist(), rows, strict=True))
        for key, values in arrays.items():
            quantity, layer = key.split("|", 1)
            if quantity == "tasks":
                history.tasks[layer] = values.tolist()
                continue
            for row, value in zip(rows, values, strict=True):
                row[layer][quantity] = value
        return history


def check_path(path: Any) -> pathlib.Path:
    """Convert an argument to a path, or raise an error if it is none."""
    check_type("path", path, (str, os.PathLike), "a path")
    return pathlib.Path(path)
