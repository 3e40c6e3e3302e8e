"""The mutual information of the chosen expert and the class."""

import math

import keras
from keras import ops

from dselectk_keras.metrics._base import SelectionMetric, safe_log
from dselectk_keras.utils import Tensor, check_number


@keras.saving.register_keras_serializable("dselectk_keras")
class MutualInformation(SelectionMetric):
    r"""Mutual information of the chosen expert and the class.

    $$
    I(E;Y) = \sum_{e,y} p(e,y) \log_b \frac{p(e,y)}{p(e) \, p(y)}
    $$

    where an example chooses the expert with its largest weight, the first one if tied.
    It is 0 if the choice is independent of the class, and at most the smaller of the
    entropies $H(E)$ and $H(Y)$.

    Args:
        num_experts: The number of experts.
        num_classes: The number of classes.
        base: The base $b$ of the logarithm: 2 for bits, `math.e` for nats.
        name: The metric's name in logs.

    Call arguments:
        labels: Tensor `(batch,)` or `(batch, 1)` of classes. Examples with a label
            outside [0, num_classes), or NaN, are ignored.
        weights: Tensor `(batch, n)`, the weights of one gate.
        sample_weight: One weight per example, or, such as a mask, one per token.

    Returns:
        A float32 scalar: the mutual information so far, 0 before the first call.

    Example:
        >>> metric = MutualInformation(num_experts=2, num_classes=2)
        >>> float(metric([0, 1], [[0.9, 0.1], [0.2, 0.8]]))
        1.0

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Equations 3 and
        11 to 16.
    """

    def __init__(
        self,
        num_experts: int,
        num_classes: int,
        base: float = 2,
        name: str = "mutual_information",
    ) -> None:
        super().__init__(num_experts, num_classes, name)
        self.base = check_number("base", base, above=1)

    def result(self) -> Tensor:
        """The mutual information in the counts so far."""
        joint = ops.divide_no_nan(self.total, ops.sum(self.total))
        experts = ops.sum(joint, axis=0, keepdims=True)
        classes = ops.sum(joint, axis=1, keepdims=True)
        ratio = ops.divide_no_nan(joint, experts * classes)
        information = ops.sum(joint * safe_log(ratio)) / math.log(self.base)
        # Rounding gives about -1e-8 for independent counts.
        return ops.maximum(information, 0.0)
