"""The Gumbel-softmax gate."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.inputs import complete_inputs
from dselectk_keras.gates.logits import Logits
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import relaxed_bernoulli, softmax
from dselectk_keras.regularizers import SparsityRegularizer
from dselectk_keras.schedules import check_schedule, value_at
from dselectk_keras.utils import (
    Initializer,
    Tensor,
    check_choice,
    check_flags,
    get_from,
)


@GATES.register("gumbel_softmax")
class GumbelSoftmaxGate(Gate):
    r"""Sparse weights: a softmax times a random binary variable for each expert.

    $$
    g_i = \mathrm{softmax}(\alpha)_i \, U_i, \qquad
    U_i \sim \mathrm{Bernoulli}(\psi_i), \quad \psi_i = \mathrm{sigmoid}(z_i)
    $$

    $\psi_i$ is the probability that expert $i$ is open. In training the draws are
    relaxed (see `ops.relaxed_bernoulli`). At inference an expert is open if
    $\psi_i > 1/2$. The weights do not sum to one. The number of open experts is
    learned: the penalty $\lambda \sum_i \log \psi_i$ lowers it, and
    `expected_nonzeros` returns its expected value. A static gate draws once per batch.

    Args:
        temperature: $\tau$: a number, or a schedule of the step. A lower temperature
            gives draws closer to 0 and 1.
        sparsity_reg: A `SparsityRegularizer`, or its weight as a number or schedule.
        z_initializer: For the logits $z$. `None` is uniform in [0, 2] for static
            logits and biases, so that $\psi$ is between 0.5 and 0.88, and uniform in
            ±0.05 for the kernel.
        kernel_initializer: For $\alpha$ (its kernel or static logits). `None` is
            uniform in ±0.05.
        use_bias: Whether a per-example $\alpha$ has a bias; $z$ always has one.
        reduction: `"mean"` or `"sum"` of a per-example gate's penalty over the
            batch. The default differs from that of `DSelectKGate`.
        **kwargs: The arguments of `Gate`.

    Example:
        >>> gate = GumbelSoftmaxGate(sparsity_reg=0.01, z_initializer="zeros", seed=0)
        >>> mixed = gate([keras.ops.ones((1, 3))] * 4, training=True)
        >>> keras.ops.convert_to_numpy(gate.expected_nonzeros()).tolist()
        2.0

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix D.
    """

    def __init__(
        self,
        temperature: Any = 1.0,
        sparsity_reg: Any = None,
        z_initializer: Initializer = None,
        kernel_initializer: Initializer = None,
        use_bias: bool = False,
        reduction: str = "mean",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_choice("reduction", reduction, ("sum", "mean"))
        self.sparsity_reg = SparsityRegularizer.get(sparsity_reg, "sparsity_reg")
        self.z_initializer = get_from(
            keras.initializers, "z_initializer", z_initializer
        )
        self.kernel_initializer = get_from(
            keras.initializers, "kernel_initializer", kernel_initializer
        )
        check_flags(use_bias=use_bias)
        self.use_bias = use_bias
        self.reduction = reduction
        self.temperature = check_schedule(temperature, "temperature", positive=True)
        self.make_generator()

    def build_logits(self) -> None:
        shape = (*self.gate_shape, self.num_experts)
        initializer = self.kernel_initializer or "random_uniform"
        self._logits = Logits(self, "gate", shape, initializer, self.use_bias)
        z_initializer = self.z_initializer or self._mostly_open
        self._z = Logits(self, "z", shape, z_initializer)

    def compute_weights(self, inputs, training, step) -> Routing:
        z, alpha = (each(inputs.routing_inputs) for each in (self._z, self._logits))
        if training:
            temperature = value_at(self.temperature, step)
            draws = relaxed_bernoulli(z, temperature, self.generator)
        else:
            # Of NaN, zeros would hide it.
            draws = ops.where(ops.isnan(z), z, ops.cast(z > 0, "float32"))
        weights = softmax(alpha) * draws
        return Routing(weights, logits=z, reduction=self.reduction)

    def compute_penalties(self, routing: Routing, step: Tensor) -> dict:
        if self.sparsity_reg is None:
            return {}
        args = self.sparsity_reg, ops.log_sigmoid(routing.logits), step
        return {"sparsity": routing.penalty(*args)}

    def expected_nonzeros(self, routing_inputs: Tensor = None) -> Tensor:
        r"""Compute the expected number of open experts in training, $\sum_i \psi_i$."""
        z = self._z(complete_inputs(self, routing_inputs).routing_inputs)
        return ops.sum(ops.sigmoid(z), axis=-1)

    def _mostly_open(self, shape, dtype=None):
        """Draw logits of probabilities above one half, whatever the routing inputs."""
        is_kernel = self.per_example and len(shape) == 2
        low, high = (-0.05, 0.05) if is_kernel else (0.0, 2.0)
        return keras.random.uniform(shape, low, high, dtype=dtype)
