"""A model of several tasks in which REINFORCE gates are rewarded."""

import keras
from keras import ops

from dselectk_keras.models import MultitaskModel

LOSSES = {
    "regression": keras.losses.mean_squared_error,
    "binary": keras.losses.binary_crossentropy,
    "multiclass": keras.losses.sparse_categorical_crossentropy,
}


@keras.saving.register_keras_serializable(package="gate_comparison")
class RewardedModel(MultitaskModel):
    """Rewards the `ReinforceGate` of each task by minus the loss of this task.

    `dselectk_keras.RoutedModel` gives all gates the sum of the losses.
    """

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Add the policy loss of the gates, one per task, of the layer `"mmoe"`."""
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        gate = self.get_layer("mmoe").gate
        gate.rewarded = True
        labels = ops.cast(y, "float32")
        known = ops.logical_not(ops.isnan(labels))
        labels = ops.where(known, labels, 0.0)
        losses = [
            task.weight * LOSSES[task.kind](labels[:, i : i + 1], y_pred[task.name])
            for i, task in enumerate(self.tasks)
        ]
        losses = ops.stack(losses, axis=1)
        return loss + gate.policy_loss(losses, ops.cast(known, "float32"))
