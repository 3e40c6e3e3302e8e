"""The mass of selectors on codes without an expert."""

from keras import ops

from dselectk_keras.metrics._base import METRICS, MeanMetric
from dselectk_keras.metrics._inputs import gate_tensor
from dselectk_keras.utils import Tensor


@METRICS.register("unreachable_mass")
class UnreachableMass(MeanMetric):
    r"""Mean mass of a DSelect-k gate's selectors on codes without an expert.

    $$
    \frac{1}{N k} \sum_{x, s} \max\Bigl(0, \; 1 - \sum_{e=1}^{n} r_e(z_s(x))\Bigr)
    $$

    Such codes exist if $n$ is not a power of two. The sum of the gate's weights lacks
    their mass.

    Args:
        name: The metric's name in logs.

    Call arguments:
        selectors: Tensor `(..., k, n)`, the result of
            `gate.selector_outputs`. The examples are the first axis.
        sample_weight: One weight per example, or, such as a mask, one per token.

    Returns:
        A float32 scalar: the mean over the calls so far, 0 before the first.

    Example:
        >>> metric = UnreachableMass()
        >>> float(metric([[0.0, 1.0, 0.0], [0.25, 0.25, 0.0]]))
        0.25

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix B.2.
    """

    def __init__(self, name: str = "unreachable_mass") -> None:
        super().__init__(name)

    def update_state(self, selectors: Tensor, sample_weight: Tensor = None) -> None:
        """Add the masses of a batch."""
        r = gate_tensor("selectors", selectors, "(..., k, n)", 2)
        self.add_batch(ops.maximum(1.0 - ops.sum(r, axis=-1), 0.0), sample_weight)
