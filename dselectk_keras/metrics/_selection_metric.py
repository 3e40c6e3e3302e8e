"""The base class of metrics of chosen experts and labels."""

import abc
from typing import Any

from keras import ops

from dselectk_keras.metrics._gate_metric import GateMetric
from dselectk_keras.metrics._inputs import example_vector, example_weights, gate_tensor
from dselectk_keras.utils import Tensor, check_count


class SelectionMetric(GateMetric):
    """Counts how often examples of each class choose each expert.

    An example chooses the expert with its largest weight, the first one if tied.

    Args:
        num_experts: The number of experts.
        num_classes: The number of classes.
        name: The metric's name in logs.
    """

    def __init__(self, num_experts, num_classes, name):
        super().__init__(name)
        check_count("num_experts", num_experts)
        check_count("num_classes", num_classes)
        self.num_experts = num_experts
        self.num_classes = num_classes
        self.counts = self.add_sum("counts", (num_classes, num_experts))

    def update_state(
        self, labels: Tensor, weights: Tensor, sample_weight: Tensor = None
    ) -> None:
        """Count the choices of a batch."""
        weights = gate_tensor(
            "weights",
            weights,
            "(batch, n)",
            lowest=2,
            highest=2,
            num_experts=self.num_experts,
        )
        labels = example_vector("labels", labels, weights, "int32")
        amounts = example_weights(sample_weight, weights)
        known = ops.logical_and(labels >= 0, labels < self.num_classes)
        cells = ops.where(known, labels, 0) * self.num_experts
        # Not a product of one-hot matrices, which would round the sample weights on
        # devices that multiply in lower precision.
        counts = ops.segment_sum(
            ops.where(known, amounts, 0.0),
            cells + ops.argmax(weights, axis=-1),
            num_segments=self.num_classes * self.num_experts,
        )
        self.counts.assign(self.counts + ops.reshape(counts, self.counts.shape))

    @abc.abstractmethod
    def result(self) -> Tensor:
        """The metric, computed from the counts."""

    def get_config(self) -> dict[str, Any]:
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "num_experts": self.num_experts,
            "num_classes": self.num_classes,
        }
