"""How evenly the examples together use the experts."""

import keras

from dselectk_keras.metrics._entropy import check_base, exact_entropy
from dselectk_keras.metrics._gate_metric import MeanMetric
from dselectk_keras.metrics._inputs import gate_tensor
from dselectk_keras.utils import check_count


@keras.saving.register_keras_serializable(package="dselectk_keras")
class UtilizationEntropy(MeanMetric):
    r"""Entropy of the mean of the expert weights over all examples.

    $$
    H_u = -\sum_e p(e) \log_b p(e), \qquad p(e) = \frac{1}{N} \sum_x p(e|x)
    $$

    It is $\log_b n$ when the experts are used alike, and 0 when one does all the
    work; never less than `SampleEntropy`. With several gates the mean is over the
    gates as well: for one gate of them, pass its weights alone.

    Args:
        num_experts: The number of experts, $n$.
        base: The base $b$ of the logarithm: 2 for bits, `math.e` for nats.
        name: The metric's name in logs.

    Call arguments:
        weights: Tensor `(batch, n)` or `(batch, g, n)`, the gate's weights.
        sample_weight: Tensor `(batch,)`, the weight of each example.

    Returns:
        A float32 scalar: the entropy for the calls so far, 0 before the first.

    Example:
        >>> metric = UtilizationEntropy(num_experts=2)
        >>> float(metric([[1.0, 0.0], [0.0, 1.0]]))
        1.0

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization in Mixture of
        Experts".
    """

    def __init__(self, num_experts, base=2, name="utilization_entropy"):
        check_count("num_experts", num_experts)
        check_base(base)
        super().__init__(name, shape=(num_experts,))
        self.num_experts = num_experts
        self.base = base

    def update_state(self, weights, sample_weight=None):
        """Add the weights of a batch."""
        layout = "(batch, n) or (batch, g, n)"
        weights = gate_tensor(
            "weights",
            weights,
            layout,
            lowest=2,
            highest=3,
            num_experts=self.num_experts,
        )
        self.add(weights, sample_weight)

    def result(self):
        """The entropy of the mean so far."""
        return exact_entropy(super().result(), self.base)

    def get_config(self):
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "num_experts": self.num_experts,
            "base": self.base,
        }
