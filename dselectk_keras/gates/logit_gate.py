"""What gates with one logit for each expert have in common."""

import abc

import keras

from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.logits import Logits


class LogitGate(Gate, abc.ABC):
    """A gate whose weights are some function of one logit for each expert.

    A subclass computes them in `compute_weights`, from `kept_logits`.

    Args:
        kernel_initializer: For static logits, or the kernel of per-example ones;
            `None` is uniform in +-0.05.
        use_bias: Whether per-example logits have a bias.
        normalize: Whether to normalize the routing inputs and the kernel.
        **kwargs: The arguments of `Gate`.
    """

    def __init__(self, kernel_initializer, use_bias, normalize, **kwargs):
        super().__init__(**kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.use_bias = use_bias
        self.normalize = normalize

    def build_logits(self):
        """Create the logits."""
        self._logits = Logits(
            self,
            "gate",
            (*self.gate_shape, self.num_experts),
            self.kernel_initializer or "random_uniform",
            self.use_bias,
            self.normalize,
        )

    def kept_logits(self, routing_inputs, training):
        """The logits, minus infinity for experts that training drops."""
        return self.drop_logits(self._logits(routing_inputs), training)

    def drop_weights(self, weights):
        """The weights as they are: experts have been dropped by their logits."""
        return weights

    def get_config(self):
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "use_bias": self.use_bias,
            "normalize": self.normalize,
        }
