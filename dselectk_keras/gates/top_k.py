"""The top-k gate."""

from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.gates.chosen_experts import ChosenExperts, require_static
from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.gates.logits import Logits
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import keep_top_k, softmax, top_k_probability
from dselectk_keras.regularizers.load import LoadRegularizer
from dselectk_keras.schedules import check_schedule, value_at
from dselectk_keras.utils import MAX_EXPERTS, Initializer, Tensor, check_count


@GATES.register("top_k")
class TopKGate(LogitGate):
    r"""Sparse weights: a softmax over the k largest logits.

    $$
    g(x) = \mathrm{softmax}\bigl(\mathrm{KeepTopK}(H(x), k)\bigr), \qquad
    H(x) = W x + c \, \varepsilon \cdot \mathrm{softplus}(W_{noise} x)
    $$

    with $\varepsilon \sim N(0, 1)$. The second term is used only in training and with
    `noise`. A static gate has parameters in place of $W x$. Only the k largest logits
    get a gradient, except in the first `dense_steps` steps: the gate is then
    $\mathrm{softmax}(H(x))$ over all experts.

    Args:
        num_nonzeros: The number of experts to keep, $k$.
        noise: Whether to add trainable noise to the logits in training. A number or
            schedule is the factor $c$ of the noise; `True` is 1. To train first with
            noise and then without, pass `Ramp(1.0, 0.0, end=steps, kind="linear")`.
        load_reg: With `noise`, the load balancing loss: a `LoadRegularizer`, or its
            weight. It is 0 in the first `dense_steps` steps, where the load is equal.
        dense_steps: The number of training steps in which the gate is dense, before it
            keeps k experts. A gate with `dense_steps` is not dispatched automatically.
        kernel_initializer: For the kernel or static logits. `None` is uniform in ±0.05.
        use_bias: Whether per-example logits have a bias.
        normalize: Whether to layer-normalize the routing inputs and experts' kernels.
        **kwargs: `z_reg`, the weight of the router z-loss, and the arguments of `Gate`.
            Shazeer's importance loss is
            `weights_regularizer=ImportanceRegularizer(w, squared=True)`.

    Example:
        >>> gate = TopKGate(num_nonzeros=2)
        >>> mixed = gate([keras.ops.ones((1, 3))] * 4)
        >>> int(keras.ops.sum(gate.expert_weights() > 0))
        2

    Reference:
        Shazeer et al., "Outrageously Large Neural Networks" (ICLR 2017),
        Equations 3 to 5.
    """

    def __init__(
        self,
        num_nonzeros: int = 2,
        noise: Any = False,
        load_reg: Any = None,
        dense_steps: int = 0,
        kernel_initializer: Initializer = None,
        use_bias: bool = False,
        normalize: bool = False,
        **kwargs: Any,
    ):
        super().__init__(kernel_initializer, use_bias, normalize, **kwargs)
        check_count("num_nonzeros", num_nonzeros, maximum=MAX_EXPERTS)
        check_count("dense_steps", dense_steps, minimum=0)
        if not isinstance(noise, bool):
            noise = check_schedule(noise, "noise", positive=True)
        if load_reg is not None and not noise:
            raise ValueError(
                "`load_reg` needs noise=True. Received: noise=False. Set noise=True, "
                "or use weights_regularizer=ImportanceRegularizer(...) for load "
                "balancing."
            )
        self.num_nonzeros = num_nonzeros
        self.noise = noise
        self.load_reg = LoadRegularizer.get(load_reg, "load_reg")
        self.dense_steps = dense_steps
        if noise:
            self.make_generator()

    def build_logits(self) -> None:
        """Create the logits and the scale of the noise."""
        if self.num_nonzeros > self.num_experts:
            raise ValueError(
                f"`num_nonzeros` must not exceed the {self.num_experts} experts. "
                f"Received: num_nonzeros={self.num_nonzeros}."
            )
        super().build_logits()
        if self.noise:
            shape = (*self.gate_shape, self.num_experts)
            self._noise = Logits(self, "noise", shape, "zeros", use_bias=False)

    def max_experts(self, once_decided: bool = False) -> int | None:
        """The number of experts to keep; in dense steps there is no limit."""
        return self.num_nonzeros if once_decided or not self.dense_steps else None

    def compute_weights(self, routing_inputs, training, step) -> Routing:
        """Compute the softmax of the kept logits."""
        logits = noisy = self._logits(routing_inputs)
        load = None
        if self.noise:
            scale = ops.softplus(self._noise(routing_inputs))
            scale = scale * ops.cast(value_at(self.noise, step), "float32")
            if training:
                shape = ops.shape(logits)
                draw = keras.random.normal(shape, seed=self.generator, dtype="float32")
                noisy = logits + scale * draw
            if self.load_reg is not None:
                load = top_k_probability(logits, noisy, scale, self.num_nonzeros)
        noisy = self.drop_by_logits(noisy, training)
        kept = keep_top_k(noisy, self.num_nonzeros)
        if self.dense_steps:
            dense = step <= self.dense_steps  # Steps count from 1.
            kept = ops.where(dense, noisy, kept)
            if load is not None:
                load = ops.where(dense, 1.0, load)
        return Routing(softmax(kept), logits=logits, load=load)

    def compute_penalties(self, routing: Routing, step: Tensor) -> dict:
        """Compute the load term and the router z-loss."""
        penalties = super().compute_penalties(routing, step)
        if self.load_reg is not None:
            load = routing.as_batch(routing.load)
            penalties["load"] = self.load_reg(load, step)
        return penalties

    def chosen_experts(self) -> ChosenExperts:
        """The experts to keep and their logits.

        All distances are 0, or in dense steps the total weight on the other experts.
        """
        require_static(self)
        logits = ops.convert_to_numpy(self._logits(None))
        choices = np.argsort(-logits, axis=-1, kind="stable")[..., : self.num_nonzeros]
        others = np.array(ops.convert_to_numpy(self.expert_weights()))
        np.put_along_axis(others, choices, 0.0, axis=-1)
        distance = np.broadcast_to(others.sum(-1, keepdims=True), choices.shape)
        kept = np.take_along_axis(logits, choices, axis=-1)
        return ChosenExperts(choices, distance, kept)
