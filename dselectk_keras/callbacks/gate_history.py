"""The history of the gates of a model."""

import collections
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dselectk_keras.archive import damaged, read_arrays, write_arrays
from dselectk_keras.utils import check_choice, optional_import


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

    def frame(self, quantity: str = "weights") -> Any:
        """Convert one quantity to a pandas frame with one row per number.

        Args:
            quantity: The name of a quantity, such as `"weights"`, `"active"` or
                `"binary"`.

        Returns:
            A `pandas.DataFrame` with the columns `layer`, `step`, the quantity, and,
            if the quantity has these axes, `task` and `expert` or `selector`.
        """
        pd = optional_import("pandas", extra="data", purpose="`frame`")
        check_choice("quantity", quantity, sorted({name for _, name in self._records}))
        last = {"weights": "expert", "binary": "selector", "reachable": "selector"}
        parts = []
        for layer, names in self.tasks.items():
            values = self[layer].get(quantity)
            if values is None:
                continue
            axes: dict[str, Any] = {"step": self.steps}
            if values.ndim > 1:
                axes["task"] = names
            if values.ndim > 2:
                axes[last[quantity]] = range(values.shape[2])
            index = pd.MultiIndex.from_product(axes.values(), names=axes)
            part = pd.DataFrame({quantity: values.reshape(-1)}, index).reset_index()
            part.insert(0, "layer", layer)
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def save(self, path: Any) -> None:
        """Write the records to an `.npz` file; its folder is created if needed."""
        write_arrays(_with_suffix(path), self.to_arrays(), compress=True)

    @classmethod
    def load(cls, path: Any) -> "GateHistory":
        """Read a history that `save` wrote."""
        path = _with_suffix(path)
        arrays = read_arrays(path)
        try:
            return cls.from_arrays(arrays)
        except (LookupError, TypeError, ValueError) as error:
            raise damaged(path, error) from error

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the records as arrays by name, and the names of the tasks."""
        arrays: dict[str, Any] = {"steps": self.steps}
        for layer, names in self.tasks.items():
            arrays[f"tasks|{layer}"] = np.array(names)
            for quantity, values in self[layer].items():
                arrays[f"{quantity}|{layer}"] = values
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, np.ndarray], layers: list[str] | None = None
    ) -> "GateHistory":
        """Make a history of what `to_arrays` returned; `layers` are new names."""
        history = cls()
        steps = arrays["steps"]
        history._steps = steps.tolist()
        keys = [key.split("|", 1) for key in arrays if key != "steps"]
        old = [layer for kind, layer in keys if kind == "tasks"]
        new = dict(zip(old, layers or old, strict=True))
        for quantity, layer in keys:
            array = arrays[f"{quantity}|{layer}"]
            if quantity == "tasks":
                history.tasks[new[layer]] = array.tolist()
            elif array.shape[:1] != steps.shape:
                raise ValueError(
                    f"{quantity!r} of {layer!r} has the shape {array.shape}, but there "
                    f"are {len(steps)} steps"
                )
            else:
                history._records[new[layer], quantity] = list(array)
        return history


def _with_suffix(path):
    """Add the suffix `.npz`, as NumPy does when it writes."""
    path = pathlib.Path(path)
    return path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz")
