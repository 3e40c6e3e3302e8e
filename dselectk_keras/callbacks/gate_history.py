"""What the gates of a model did over training."""

import collections
import pathlib
from typing import Any

import numpy as np

from dselectk_keras.utils import optional_import


class GateHistory:
    """Records of the gates of a model: arrays that begin with an axis for records.

    For each layer that has gates there are, with an axis for its tasks (of length
    one if it has one gate):

    - `"weights"` `(records, tasks, n)`: the expert weights, over a probe batch on
      average if the gates are per-example;
    - `"active"` `(records, tasks)`: how many experts have a weight, an example;
    - `"binary"` and `"reachable"` `(records, tasks, k)`: for DSelect-k, which
      selectors are decided, and the mass of each that reaches an expert;
    - `"penalty_..."` `(records,)`: the terms added to the loss.

    Args:
        tasks: A dict of the names of the tasks, by layer name.

    Example:
        >>> history = GateHistory({"mmoe": ["click", "like"]})
        >>> history.append(0, {"mmoe": {"weights": np.full((2, 4), 0.25)}})
        >>> history["mmoe"]["weights"].shape
        (1, 2, 4)
    """

    def __init__(self, tasks=None):
        self.tasks = dict(tasks or {})
        self._steps = []
        self._records = collections.defaultdict(list)

    @property
    def steps(self):
        """The step of each record."""
        return np.array(self._steps, "int64")

    def append(self, step, records):
        """Add a record.

        Args:
            step: The training step.
            records: A dict of arrays by quantity, by layer name.
        """
        self._steps.append(int(step))
        for layer, quantities in records.items():
            for quantity, value in quantities.items():
                self._records[layer, quantity].append(np.asarray(value))
        for (layer, _), values in self._records.items():
            # A gate that is condensed has no more penalties.
            if layer in records and len(values) < len(self._steps):
                values.append(np.zeros_like(values[-1]))

    def __getitem__(self, layer):
        """The arrays of a layer, by quantity."""
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

    def __len__(self):
        """The number of records."""
        return len(self._steps)

    def frame(self, quantity="weights"):
        """A tidy pandas frame of one quantity: a row for each number.

        Args:
            quantity: The name of a quantity, such as `"weights"`, `"active"` or
                `"binary"`.

        Returns:
            A `pandas.DataFrame` with the columns `layer`, `step`, `task` and
            `expert` or `selector`, where the quantity has them, and the quantity.
        """
        pd = optional_import("pandas", extra="data", purpose="`frame`")
        known = sorted({name for _, name in self._records})
        if quantity not in known:
            raise ValueError(
                f"There is no record of {quantity!r}. Recorded: {', '.join(known)}."
            )
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

    def save(self, path):
        """Write the records to an `.npz` file.

        Args:
            path: The file's path; its folder is made if need be.
        """
        path = _with_suffix(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, Any] = {"steps": self.steps}
        for layer, names in self.tasks.items():
            arrays[f"tasks|{layer}"] = np.array(names)
            for quantity, values in self[layer].items():
                arrays[f"{quantity}|{layer}"] = values
        np.savez_compressed(path, **arrays)

    @classmethod
    def load(cls, path):
        """The history written by `save`.

        Args:
            path: The file's path.

        Returns:
            A `GateHistory`.
        """
        history = cls()
        with np.load(_with_suffix(path)) as arrays:
            history._steps = arrays["steps"].tolist()
            for key in arrays.files[1:]:
                quantity, layer = key.split("|", 1)
                if quantity == "tasks":
                    history.tasks[layer] = arrays[key].tolist()
                else:
                    history._records[layer, quantity] = list(arrays[key])
        return history


def _with_suffix(path):
    """The path with the suffix that NumPy gives it when it writes."""
    path = pathlib.Path(path)
    return path if path.suffix == ".npz" else path.with_name(f"{path.name}.npz")
