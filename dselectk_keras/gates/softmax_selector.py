"""The gate of softmax selectors."""

from keras import ops

from dselectk_keras.gates.logits import Logits
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.selection import Selection, require_static
from dselectk_keras.gates.selector_gate import SelectorGate
from dselectk_keras.ops import tempered_softmax
from dselectk_keras.schedules import check_schedule, serialize_schedule, value_at


@GATES.register("softmax_selector")
class SoftmaxSelectorGate(SelectorGate):
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
        temperature: $\tau$: a number, or a schedule of the step. Below 1e-16
            it counts as that; there the gradient is finite, and 0 unless logits tie.
        entropy_reg: An `EntropyRegularizer`, or the number or schedule for one.
        z_initializer: For the selectors' logits, $\beta$. `None` is uniform in ±0.05.
        w_initializer: For the selectors' weights, $\alpha$. `None` is uniform in
            ±0.05.
        reduction: `"sum"` or `"mean"`: over the batch, in the penalty of a
            per-example gate.
        **kwargs: The arguments of `Gate`.

    Call arguments:
        experts, routing_inputs, training: See `Gate`.

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
        super().__init__(
            num_nonzeros,
            entropy_reg,
            z_initializer,
            w_initializer,
            reduction,
            **kwargs,
        )
        if self.entropy_reg is not None and self.entropy_reg.target != "selectors":
            raise ValueError(
                "The selectors of this gate have no bits. Received: an entropy "
                f"regularizer with target={self.entropy_reg.target!r}. Give it "
                'target="selectors".'
            )
        self.temperature = check_schedule(temperature, "temperature", positive=True)

    def build_logits(self):
        """Create the logits of the selectors, and of their weights."""
        shape = (*self.gate_shape, self.num_nonzeros)
        z_initializer = self.z_initializer or "random_uniform"
        w_initializer = self.w_initializer or "random_uniform"
        self._z = Logits(self, "z", (*shape, self.num_experts), z_initializer)
        self._w = Logits(self, "w", (*shape, 1), w_initializer)

    def compute_selectors(self, routing_inputs, step):
        """The softmax of each selector's logits."""
        temperature = value_at(self.temperature, step)
        return tempered_softmax(self._z(routing_inputs), temperature), None

    def describe_selectors(self, outputs):
        """Which selectors have decided.

        Args:
            outputs: What `compute_weights` returned.

        Returns:
            A dict of a tensor `([batch,] [num_gates,] k)`. `"binary"` is 1.0 where
            the selector gives all its weight to one expert.
        """
        decided = ops.max(outputs.selectors, axis=-1) == 1.0
        return {"binary": ops.cast(decided, "float32")}

    def selection(self):
        """Which expert each selector is on, and how much of it is elsewhere.

        Returns:
            A `Selection`.
        """
        require_static(self)
        selectors = ops.convert_to_numpy(self.selector_outputs())
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
            "temperature": serialize_schedule(self.temperature, "temperature"),
        }
