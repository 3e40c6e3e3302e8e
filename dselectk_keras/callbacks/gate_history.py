"""The history of the gates of a model."""

import collections
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dselectk_keras.archive import damaged, read_arrays, write_arrays


class GateHistory(Mapping):
    """Records of the gates of a model: arrays whose first axis is the record.

    A mapping from the name of each layer with gates to a dict of these arrays. The axis
    for the tasks has length one if the layer has one gate.

    - `"weights"` `(records, tasks, n)`: the expert weights, for per-example gates
      averaged over a probe batch, or over its tokens without padding;
    - `"active"` `(records, tasks)`: the mean number of experts per example whose weight
      is not 0;
    - `"binary"` and `"reachable"` `(records, tasks, k)`: for DSelect-k, whether each
      selector is binary, and how much of its weight is on experts;
    - `"penalty_..."` `(records,)`: the terms that are added to the loss, by all
      calls of the gate in a step.

    The attribute `events` lists, by layer name, pairs of a step and what happened then,
    such as `(120, "decided, 34 % kept")`. `epoch_ends` has the steps at the ends of the
    epochs of the last `fit`, by epoch.

    Args:
        tasks: A dict of lists of task names, by layer name.

    Example:
        >>> history = GateHistory({"mmoe": ["click", "like"]})
        >>> history.append(0, {"mmoe": {"weights": np.full((2, 4), 0.25)}})
        >>> history["mmoe"]["weights"].shape
        (1, 2, 4)
        >>> list(history), list(history["mmoe"]), history.steps.tolist()
        (['mmoe'], ['weights'], [0])
    """

    def __init__(self, tasks: dict[str, list[str]] | None = None):
        self.tasks = dict(tasks or {})
        self.events = collections.defaultdict(list)
        self.epoch_ends = {}
        self._steps = []
        self._records = collections.defaultdict(list)

    @property
    def steps(self) -> np.ndarray:
        """The step of each record."""
        return np.array(self._steps, "int64")

    def append(self, step: int, records: dict[str, dict[str, Any]]) -> None:
        """Add a record: a dict of arrays by quantity, by layer name."""
        before = len(self._steps)
        self._steps.append(int(step))
        for layer, quantities in records.items():
            for quantity, value in quantities.items():
                values, array = self._records[layer, quantity], np.asarray(value)
                # A condensed gate has selectors, which a Top-k gate had not.
                missing = before - len(values)
                values += [np.full(array.shape, np.nan)] * missing
                values.append(array)
        for (layer, _), values in self._records.items():
            # A condensed gate has no penalties: record 0. Nothing is known of others.
            if len(values) < len(self._steps):
                missing = 0.0 if layer in records else np.nan
                values.append(np.full(values[-1].shape, missing))

    def cut(self, step: int) -> None:
        """Forget what was after a step."""
        self._steps = [each for each in self._steps if each <= step]
        for values in self._records.values():
            del values[len(self._steps) :]
        for layer, events in self.events.items():
            self.events[layer] = [each for each in events if each[0] <= step]
        self.epoch_ends = {e: end for e, end in self.epoch_ends.items() if end <= step}

    def __getitem__(self, layer: str) -> dict[str, np.ndarray]:
        """Get the arrays of a layer, by quantity."""
        if layer not in self.tasks:
            raise KeyError(
                f"No gates were recorded in a layer {layer!r}. "
                f"Recorded: {', '.join(self.tasks) or 'none'}."
            )
        return {
            quantity: np.stack(values)
            for (owner, quantity), values in self._records.items()
            if owner == layer
        }

    def __iter__(self) -> Iterator[str]:
        """The names of the layers."""
        return iter(self.tasks)

    def __len__(self) -> int:
        """The number of layers; that of the records is `len(history.steps)`."""
        return len(self.tasks)

    def save(self, path: Any) -> None:
        """Write the records to an `.npz` file; its folder is created if needed."""
        events = [
            (layer, *each) for layer, some in self.events.items() for each in some
        ]
        arrays: dict[str, Any] = {
            "steps": self.steps,
            "epoch_ends": np.reshape(list(self.epoch_ends.items()), (-1, 2)),
            "events": np.reshape(np.array(events, str), (-1, 3)),
        }
        for layer, names in self.tasks.items():
            arrays[f"tasks|{layer}"] = np.array(names)
            for quantity, values in self[layer].items():
                arrays[f"{quantity}|{layer}"] = values
        write_arrays(with_suffix(path), arrays, compress=True)

    @classmethod
    def load(cls, path: Any) -> "GateHistory":
        """Read a history that `save` wrote."""
        path = with_suffix(path)
        arrays = read_arrays(path)
        try:
            return cls._from_arrays(arrays)
        except (LookupError, TypeError, ValueError) as error:
            raise damaged(path, error) from error

    @classmethod
    def _from_arrays(cls, arrays):
        history = cls()
        steps = arrays.pop("steps")
        history._steps = steps.tolist()
        # Older files have neither events nor the ends of epochs.
        for layer, step, text in arrays.pop("events", ()):
            history.events[str(layer)].append((int(step), str(text)))
        for epoch, step in arrays.pop("epoch_ends", ()):
            history.epoch_ends[int(epoch)] = int(step)
        for key, array in arrays.items():
            quantity, layer = key.split("|", 1)
            if quantity == "tasks":
                history.tasks[layer] = array.tolist()
                continue
            if array.shape[:1] != steps.shape:
                raise ValueError(
                    f"{quantity!r} of {layer!r} has the shape {array.shape}, but there "
                    f"are {len(steps)} steps"
                )
            history._records[layer, quantity] = list(array)
        if unknown := {layer for layer, _ in history._records} - {*history.tasks}:
            raise ValueError(f"no tasks of {sorted(unknown)}")
        return history


def with_suffix(path: Any) -> pathlib.Path:
    """Add the suffix `.npz`, as NumPy does when it writes."""
    path = pathlib.Path(path)
    return path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz")
