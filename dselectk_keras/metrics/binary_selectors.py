"""How many selectors have decided."""

import keras
from keras import ops

from dselectk_keras.metrics._chosen import check_tolerance
from dselectk_keras.metrics._gate_metric import MeanMetric
from dselectk_keras.metrics._inputs import gate_tensor


@keras.saving.register_keras_serializable(package="dselectk_keras")
class BinarySelectors(MeanMetric):
    r"""Share of a DSelect-k gate's selectors with nothing but zeros and ones.

    $$
    \frac{1}{N k} \sum_{x, s} \bigl[\forall e : \min(|r_e|, |1 - r_e|) \le
    \text{tolerance}\bigr], \qquad r = r(z_s(x))
    $$

    At 1, every selector has settled on an expert, and the gate is sparse. A
    selector on codes that belong to no expert has only zeros, and counts:
    `UnreachableMass` tells of it.

    Args:
        tolerance: The largest distance to 0 or 1 that still counts as none.
        name: The metric's name in logs.

    Call arguments:
        selectors: Tensor `(..., k, n)`, as `gate.selector_outputs` gives. The
            examples are the first axis.
        sample_weight: Tensor `(batch,)`, the weight of each example.

    Returns:
        A float32 scalar: the share in the calls so far, 0 before the first.

    Example:
        >>> metric = BinarySelectors()
        >>> float(metric([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]))
        0.5

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 3.1.
    """

    def __init__(self, tolerance=0.0, name="binary_selectors"):
        super().__init__(name)
        check_tolerance(tolerance)
        self.tolerance = tolerance

    def update_state(self, selectors, sample_weight=None):
        """Add the shares of a batch."""
        r = gate_tensor("selectors", selectors, "(..., k, n)", lowest=2)
        distance = ops.minimum(ops.abs(r), ops.abs(1.0 - r))
        binary = ops.all(distance <= self.tolerance, axis=-1)
        self.add(ops.cast(binary, "float32"), sample_weight)

    def get_config(self):
        """The arguments of `__init__`."""
        return {**super().get_config(), "tolerance": self.tolerance}
