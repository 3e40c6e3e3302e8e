"""How evenly the experts are used over all examples (load balance)."""

import keras

from dselectk_keras.metrics._base import MeanMetric, exact_entropy
from dselectk_keras.utils import MAX_EXPERTS, Tensor, check_count, check_number


@keras.saving.register_keras_serializable("dselectk_keras")
class UtilizationEntropy(MeanMetric):
    r"""Entropy of the mean of the expert weights over all examples.

    $$
    H_u = -\sum_e p(e) \log_b p(e), \qquad p(e) = \frac{1}{N} \sum_x p(e|x)
    $$

    It is $\log_b n$ if all experts are used equally (perfect load balance), and 0 if
    one expert is used for everything; it is never less than `SampleEntropy`. With
    several gates the mean is also over the gates: for a single one, pass its weights
    alone.

    Args:
        num_experts: The number of experts, $n$.
        base: The base $b$ of the logarithm: 2 for bits, `math.e` for nats.
        name: The metric's name in logs.

    Call arguments:
        weights: Tensor `(batch, n)` or `(batch, g, n)`, the gate's weights.
        sample_weight: One weight per example, or, such as a mask, one per token.

    Returns:
        A float32 scalar: the entropy for the calls so far, 0 before the first.

    Example:
        >>> metric = UtilizationEntropy(num_experts=2)
        >>> float(metric([[1.0, 0.0], [0.0, 1.0]]))
        1.0

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Equation 2.
    """

    def __init__(
        self, num_experts: int, base: float = 2, name: str = "utilization_entropy"
    ) -> None:
        check_count("num_experts", num_experts, maximum=MAX_EXPERTS)
        super().__init__(name, shape=(num_experts,))
        self.num_experts = num_experts
        self.base = check_number("base", base, above=1)

    def values(self, weights: Tensor) -> Tensor:
        """The weights themselves: the entropy is that of their mean."""
        return weights

    def result(self) -> Tensor:
        """The entropy of the mean so far."""
        return exact_entropy(super().result(), self.base)
