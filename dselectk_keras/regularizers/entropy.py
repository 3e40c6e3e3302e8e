"""Entropy regularizer."""

from keras import ops

from dselectk_keras.ops import entropy
from dselectk_keras.regularizers.registry import REGULARIZERS
from dselectk_keras.regularizers.scheduled import ScheduledRegularizer


@REGULARIZERS.register("entropy")
class EntropyRegularizer(ScheduledRegularizer):
    r"""The entropy of the selectors: its weight sets how soon a gate decides.

    $$
    \lambda(t) \sum_{s} \sum_i - r_{s,i} \log(r_{s,i} + 10^{-6})
    $$

    summed over all selectors, where $t$ is the gate's step, the first being 1.

    Args:
        weight: $\lambda$: a number, a serializable schedule such as `Ramp`, or a
            callable of the number of calls (which cannot be saved).
        target: What the gate measures the entropy of: `"selectors"`, the weights
            of each selector (the release), or `"bits"`, each relaxed bit of S(Z)
            (the alternative of Section 3.1).

    Call arguments:
        inputs: Tensor of probabilities, of any shape.

    Example:
        >>> regularizer = EntropyRegularizer(0.5)
        >>> round(float(regularizer([[0.5, 0.5]])), 4)
        0.3466

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 3.1.
    """

    def __init__(self, weight=1e-6, target="selectors"):
        if target not in {"selectors", "bits"}:
            raise ValueError(
                f'`target` must be "selectors" or "bits". Received: target={target!r}.'
            )
        super().__init__(weight)
        self.target = target

    def term(self, inputs):
        """The entropy of `inputs`, summed."""
        return ops.sum(entropy(inputs))

    def get_config(self):
        """The arguments of `__init__`."""
        return {**super().get_config(), "target": self.target}
