"""The share of selectors that have converged to one expert."""

from keras import ops

from dselectk_keras.metrics._base import METRICS, MeanMetric
from dselectk_keras.metrics._inputs import gate_tensor
from dselectk_keras.utils import Tensor, check_number


@METRICS.register("binary_selectors")
class BinarySelectors(MeanMetric):
    r"""Share of a DSelect-k gate's selectors whose outputs are all 0 or 1.

    $$
    \frac{1}{N k} \sum_{x, s} \bigl[\forall e : \min(|r_e|, |1 - r_e|) \le
    \text{tolerance}\bigr], \qquad r = r(z_s(x))
    $$

    At 1, every selector has converged to one expert, and the gate is sparse. A selector
    on codes without an expert has only zeros and counts too: see `UnreachableMass`.

    Args:
        tolerance: The largest distance to 0 or 1 that counts as 0.
        name: The metric's name in logs.

    Call arguments:
        selectors: Tensor `(..., k, n)`, the result of
            `gate.selector_outputs`. The examples are the first axis.
        sample_weight: One weight per example, or, such as a mask, one per token.

    Returns:
        A float32 scalar: the share in the calls so far, 0 before the first.

    Example:
        >>> metric = BinarySelectors()
        >>> float(metric([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]))
        0.5

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 3.1.3.
    """

    def __init__(self, tolerance: float = 0.0, name: str = "binary_selectors") -> None:
        super().__init__(name)
        self.tolerance = check_number("tolerance", tolerance, minimum=0)

    def update_state(self, selectors: Tensor, sample_weight: Tensor = None) -> None:
        """Add the shares of a batch."""
        r = gate_tensor("selectors", selectors, "(..., k, n)", 2)
        distance = ops.minimum(ops.abs(r), ops.abs(1.0 - r))
        binary = ops.all(distance <= self.tolerance, axis=-1)
        self.add_batch(ops.cast(binary, "float32"), sample_weight)
