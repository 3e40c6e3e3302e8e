"""The entropy of the expert weights of single examples."""

import keras

from dselectk_keras.metrics._base import MeanMetric, exact_entropy
from dselectk_keras.utils import Tensor, check_number


@keras.saving.register_keras_serializable("dselectk_keras")
class SampleEntropy(MeanMetric):
    r"""Mean over the examples of the entropy of their expert weights.

    $$
    H_s = -\frac{1}{N} \sum_x \sum_e p(e|x) \log_b p(e|x)
    $$

    It is 0 if every example uses a single expert. With several gates it is also the
    mean over the gates.

    Args:
        base: The base $b$ of the logarithm: 2 for bits, `math.e` for nats.
        name: The metric's name in logs.

    Call arguments:
        weights: Tensor `(batch, n)` or `(batch, g, n)`, the gate's weights.
        sample_weight: One weight per example, or, such as a mask, one per token.

    Returns:
        A float32 scalar: the mean over the calls so far, 0 before the first.

    Example:
        >>> metric = SampleEntropy()
        >>> float(metric([[0.5, 0.5], [1.0, 0.0]]))
        0.5

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Equation 1.
    """

    def __init__(self, base: float = 2, name: str = "sample_entropy") -> None:
        super().__init__(name)
        self.base = check_number("base", base, above=1)

    def values(self, weights: Tensor) -> Tensor:
        """Compute the entropies."""
        return exact_entropy(weights, self.base)
