"""The gate of softmax selectors."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.gates._temperature import track_temperature
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.logits import Logits
from dselectk_keras.gates.selection import Selection, require_static
from dselectk_keras.ops import softmax, tempered_softmax
from dselectk_keras.regularizers import EntropyRegularizer
from dselectk_keras.utils import check_count


@keras.saving.register_keras_serializable(package="dselectk_keras")
class SoftmaxSelectorGate(Gate):
    r"""Weights from k selectors, each of them a softmax over the experts.

    $$
    g = \sum_{s=1}^{k} \mathrm{softmax}(\alpha)_s \,
    \mathrm{softmax}\Bigl(\frac{\beta_s}{\tau}\Bigr)
    $$

    What DSelect-k would be without its binary codes and its smooth step. A softmax
    never gives an exact zero by itself: the gate becomes sparse by annealing the
    temperature, `Ramp(1.0, 1e-16, end=steps)`, or by an entropy term.

    Args:
        num_nonzeros: The number of selectors, $k$.
        temperature: $\tau$: a number, or a schedule of training calls. Below 1e-16
            it counts as that; there the gradient is finite, and 0 unless logits tie.
        entropy_reg: An `EntropyRegularizer`, or the number or schedule for one.
        z_initializer: For the selectors' logits, $\beta$. `None` is uniform in ±0.05.
        w_initializer: For the selectors' weights, $\alpha$. `None` is uniform in
            ±0.05.
        reduction: `"sum"` or `"mean"`: over the batch, in the penalty of a
            per-example gate.
        **kwargs: `num_gates`, `weights_regularizer`, `expert_dropout` and `seed` (see
            `Gate`), and the arguments of `keras.Layer`.

    Call arguments:
        inputs: The experts, or a tuple of experts and routing inputs (see `Gate`).
        training: Whether to add the penalties to the loss.

    Returns:
        The mixture of the experts.

    Example:
        >>> gate = SoftmaxSelectorGate(num_nonzeros=2, temperature=1e-16)
        >>> mixed = gate([keras.ops.ones((1, 3))] * 4)
        >>> int(keras.ops.sum(gate.expert_weights() > 0)) <= 2
        True

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix C.1.
    """

    def __init__(
        self,
        num_nonzeros,
        temperature=1.0,
        entropy_reg=None,
        z_initializer=None,
        w_initializer=None,
        reduction="sum",
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_count("num_nonzeros", num_nonzeros)
        if reduction not in {"sum", "mean"}:
            raise ValueError(
                f'`reduction` must be "sum" or "mean". Received: {reduction!r}.'
            )
        self.num_nonzeros = num_nonzeros
        self.entropy_reg = EntropyRegularizer.get(entropy_reg)
        if self.entropy_reg is not None and self.entropy_reg.target != "selectors":
            raise ValueError(
                "The selectors of this gate have no bits. Received: an entropy "
                f"regularizer with target={self.entropy_reg.target!r}. Give it "
                'target="selectors".'
            )
        self.z_initializer = keras.initializers.get(z_initializer)
        self.w_initializer = keras.initializers.get(w_initializer)
        self.reduction = reduction
        self.track_schedule(self.entropy_reg)
        self._temperature = track_temperature(self, temperature)

    @property
    def temperature(self):
        """The temperature of the selectors: a number or a schedule."""
        return self._temperature.value

    def build_logits(self):
        """Create the logits of the selectors, and of their weights."""
        shape = (*self.gate_shape, self.num_nonzeros)
        z_initializer = self.z_initializer or "random_uniform"
        w_initializer = self.w_initializer or "random_uniform"
        self._z = Logits(self, "z", (*shape, self.num_experts), z_initializer)
        self._w = Logits(self, "w", (*shape, 1), w_initializer)

    def compute_weights(self, routing_inputs, training) -> tuple[Any, dict]:
        """The weighted sum of the selectors."""
        selectors = self._select(routing_inputs)
        shares = softmax(self._w(routing_inputs), axis=-2)
        return ops.sum(shares * selectors, axis=-2), {"selectors": selectors}

    def compute_penalties(self, weights, parts):
        """The entropy term."""
        if self.entropy_reg is None:
            return {}
        value = self.entropy_reg.value(parts["selectors"])
        if self.per_example and self.reduction == "mean":
            value = value / ops.cast(ops.shape(weights)[0], "float32")
        return {"entropy": value}

    def compute_diagnostics(self, parts):
        """Which selectors have decided.

        Args:
            parts: The dict that `compute_weights` returned beside the weights.

        Returns:
            A dict of a tensor `([batch,] [num_gates,] k)`. `"binary"` is 1.0 where
            the selector gives all its weight to one expert.
        """
        decided = ops.max(parts["selectors"], axis=-1) == 1.0
        return {"binary": ops.cast(decided, "float32")}

    def selector_outputs(self, routing_inputs=None):
        """The weights of each selector over the experts.

        Args:
            routing_inputs: Tensor `(batch, features)` for a per-example gate.

        Returns:
            A float32 tensor `(k, n)`, or `(batch, k, n)`, with an axis for the
            gates before k if there are several.
        """
        return self._select(self._routing(routing_inputs))

    def selection(self):
        """Which expert each selector is on, and how much of it is elsewhere.

        Returns:
            A `Selection`.
        """
        require_static(self)
        selectors = ops.convert_to_numpy(self._select(None))
        return Selection(
            selectors.argmax(axis=-1),
            1.0 - selectors.max(axis=-1),
            self._w.static,
            lambda logits: logits[..., 0],
        )

    def get_config(self):
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "num_nonzeros": self.num_nonzeros,
            "temperature": self._temperature.serialize(),
            "entropy_reg": keras.regularizers.serialize(self.entropy_reg),
            "z_initializer": keras.initializers.serialize(self.z_initializer),
            "w_initializer": keras.initializers.serialize(self.w_initializer),
            "reduction": self.reduction,
        }

    def _select(self, routing_inputs):
        return tempered_softmax(self._z(routing_inputs), self._temperature())
