"""A shared bottom whose towers each read fewer and fewer of its units.

The model is trained like a shared bottom. `prune` then leaves each task the units with
the largest weights, a few times, until it reads `num_units`. It is what sparse gates
compete with at the same cost of serving one task.
"""

import keras
import numpy as np
from keras import ops

from dselectk_keras import MultitaskModel
from dselectk_keras.models.task import group_tasks
from dselectk_keras.models.towers import add_towers

# A unit is cut at one of several times, between these parts of the training.
BETWEEN, NUM_CUTS = (0.3, 0.7), 6


class TaskUnits(keras.Layer):
    """Copies of the same units for each task, with zeros for those that were cut."""

    def __init__(self, num_tasks, **kwargs):
        super().__init__(**kwargs)
        self.num_tasks = num_tasks

    def build(self, shape):
        """Create the mask, which keeps all units."""
        shape = self.num_tasks, shape[-1]
        self.mask = self.add_weight(shape, "ones", trainable=False, name="mask")

    def call(self, inputs):
        """Map `(batch, units)` to `(batch, tasks, units)`."""
        return ops.expand_dims(inputs, 1) * self.mask


def build_pruned_bottom(num_inputs, tasks, bottom, **options):
    """Build a shared bottom, one expert, with a mask of its units for each task."""
    inputs = keras.Input((num_inputs,))
    bottom.name = "bottom"
    units = TaskUnits(len(tasks), name="units")(bottom(inputs)[:, 0])
    outputs = add_towers(units, tasks, stacked=True)
    return MultitaskModel(inputs, outputs, tasks=tasks, **options)


def units_at(part, num_units, total):
    """The number of all units that a task reads after a part of the training."""
    number = int((np.linspace(*BETWEEN, NUM_CUTS) <= part + 1e-9).sum())
    return round(total * (num_units / total) ** (number / NUM_CUTS))


def prune(model, x, num_units):
    """Keep the units of each task whose weight times standard deviation is largest."""
    units = model.get_layer("units")
    spread = ops.convert_to_numpy(model.get_layer("bottom")(x)).std(axis=0)
    mask = ops.convert_to_numpy(units.mask)
    importance = np.empty(mask.shape)
    # Tasks of each kind have towers of their own.
    for label, tasks in group_tasks(model.tasks).items():
        kernel = ops.convert_to_numpy(model.get_layer(f"towers_{label}").kernel(0))
        importance[tasks] = np.linalg.norm(kernel, axis=-1) * spread
    # Dead units have no importance, and those that were cut less.
    kept = np.argsort(np.where(mask > 0, importance, -1.0))[:, -num_units:]
    mask = np.zeros_like(mask)
    np.put_along_axis(mask, kept, 1.0, axis=-1)
    units.mask.assign(mask)


class PruneUnits(keras.callbacks.Callback):
    """Prunes at the beginning of the epochs whose time has come.

    Args:
        x: Inputs of the model, for the standard deviations of its units.
        num_units: The number of units that are left to each task.
    """

    def __init__(self, x, num_units):
        super().__init__()
        self.x, self.num_units = x, num_units

    def on_epoch_begin(self, epoch, logs=None):
        """Prune, if it is time."""
        total = self.model.get_layer("units").mask.shape[-1]
        left = units_at(epoch / self.params["epochs"], self.num_units, total)
        if left < total:
            prune(self.model, self.x, left)
