"""The top-k gate."""

import warnings
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.gates.chosen_experts import (
    ChosenExperts,
    check_expert_weights,
    log_weights,
    require_static,
)
from dselectk_keras.gates.inputs import check_enough_experts
from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.gates.logits import Logits, float32_weight
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing, sum_in_call
from dselectk_keras.ops import (
    filled,
    first_largest,
    keep_top_k,
    largest,
    softmax,
    top_k_probability,
)
from dselectk_keras.regularizers import LoadRegularizer
from dselectk_keras.schedules import check_schedule, value_at
from dselectk_keras.utils import (
    MAX_EXPERTS,
    Initializer,
    Tensor,
    check_choice,
    check_count,
    check_number,
)

# Compiling more passes takes seconds.
MOST_UNROLLED = 8


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

    With $k = 1$, the only weight is always 1, so that the task's loss does not train
    the logits: at most `load_reg`, `z_reg` or a `SwitchLoadRegularizer` do. The gate
    warns. To choose one expert, use `SwitchGate`, or `dense_steps`.

    With scores $s = \mathrm{sigmoid}(H)$, or else $s = \mathrm{softmax}(H)$, and a
    bias $b$ of the experts, the gate is

    $$
    g_i = \frac{s_i \, 1[i \in T]}{\sum_{j \in T} s_j}, \qquad
    T = \mathrm{TopK}(s + b, k), \qquad
    b_i \leftarrow b_i + u \, \mathrm{sign}(\bar c - c_i)
    $$

    After each training step, the bias balances the loads $c_i$, the numbers of examples
    of the batch that chose expert $i$, without an auxiliary loss. $\bar c$ is their
    mean. A gate with `trainable=False` keeps its bias.

    Args:
        num_nonzeros: The number of experts to keep, $k$.
        noise: Whether to add trainable noise to the logits in training. A number or
            schedule is the factor $c$ of the noise; `True` is 1. To train first with
            noise and then without, pass `Ramp(1.0, 0.0, end=steps, kind="linear")`.
        load_reg: With `noise`, the load balancing loss: a `LoadRegularizer`, or its
            weight. It is 0 in the first `dense_steps` steps, where the load is equal.
        dense_steps: The number of training steps in which the gate is dense, before it
            keeps k experts. A gate with `dense_steps` is not dispatched automatically.
        scores: `"softmax"`, or `"sigmoid"` for weights that are sigmoids, divided by
            their sum over the chosen experts.
        bias_rate: The change $u$ of the bias in each training step, such as 0.001; 0
            is no bias. Only a per-example gate has one.
        kernel_initializer: For the kernel or static logits. `None` is uniform in ±0.05.
        **kwargs: `use_bias`, whether per-example logits have a bias, `normalize` and
            `z_reg` (see `SoftmaxGate`), and the arguments of `Gate`. Shazeer's
            importance loss is
            `weights_regularizer=ImportanceRegularizer(w, squared=True)`.

    Example:
        >>> gate = TopKGate(num_nonzeros=2)
        >>> mixed = gate([keras.ops.ones((1, 3))] * 4)
        >>> int(keras.ops.sum(gate.expert_weights() > 0))
        2

    Reference:
        Shazeer et al., "Outrageously Large Neural Networks" (ICLR 2017),
        Equations 3 to 5; DeepSeek-AI, "DeepSeek-V3 Technical Report" (2024),
        Equations 13 to 16; Wang et al., "Auxiliary-Loss-Free Load Balancing Strategy
        for Mixture-of-Experts" (2024), Algorithm 1.
    """

    def __init__(
        self,
        num_nonzeros: int = 2,
        noise: Any = False,
        load_reg: Any = None,
        dense_steps: int = 0,
        scores: str = "softmax",
        bias_rate: float = 0.0,
        kernel_initializer: Initializer = None,
        **kwargs: Any,
    ):
        super().__init__(kernel_initializer, **kwargs)
        self.num_nonzeros = check_count(
            "num_nonzeros", num_nonzeros, maximum=MAX_EXPERTS
        )
        self.dense_steps = check_count("dense_steps", dense_steps, minimum=0)
        check_choice("scores", scores, ("softmax", "sigmoid"))
        self.bias_rate = check_number("bias_rate", bias_rate, minimum=0)
        if not isinstance(noise, bool):
            noise = check_schedule(noise, "noise", positive=True)
        if load_reg is not None and (not noise or bias_rate):
            raise ValueError(
                "`load_reg` needs noise=True, and bias_rate=0. Received: "
                f"noise={noise} and bias_rate={bias_rate}. For load balancing without "
                "noise, use weights_regularizer=ImportanceRegularizer(...)."
            )
        self.noise = noise
        self.load_reg = LoadRegularizer.get(load_reg, "load_reg")
        self.scores = scores
        if noise:
            self.make_generator()

    def build_logits(self) -> None:
        check_enough_experts(self)
        super().build_logits()
        one_of_many = self.num_nonzeros == 1 < self.num_experts
        if one_of_many and not self.dense_steps and self.trainable:
            warnings.warn(
                "The task's loss does not train the router of a `TopKGate` with "
                "num_nonzeros=1: the weight of the chosen expert is always 1, without "
                "a gradient. Use `SwitchGate`, whose weight is the expert's "
                "probability, or `dense_steps`, or num_nonzeros=2.",
                stacklevel=2,
            )
        shape = (*self.gate_shape, self.num_experts)
        if self.noise:
            self._noise = Logits(self, "noise", shape, "zeros", use_bias=False)
        if self.bias_rate:
            if not self.per_example:
                raise ValueError(
                    "A static gate has no loads to balance: it chooses the same "
                    f"experts for all examples. Received: bias_rate={self.bias_rate}. "
                    "Pass routing inputs, or leave it out."
                )
            self._bias = float32_weight(self, "choice_bias", shape, trainable=False)

    def max_experts(self, once_decided: bool = False) -> int | None:
        return self.num_nonzeros if once_decided or not self.dense_steps else None

    def compute_weights(self, inputs, training, step) -> Routing:
        logits = noisy = self._logits(inputs.routing_inputs)
        load = None
        if self.noise:
            scale = ops.softplus(self._noise(inputs.routing_inputs))
            scale = scale * ops.cast(value_at(self.noise, step), "float32")
            if training:
                shape = ops.shape(logits)
                draw = keras.random.normal(shape, seed=self.generator, dtype="float32")
                noisy = logits + scale * draw
            if self.load_reg is not None:
                load = top_k_probability(logits, noisy, scale, self.num_nonzeros)
        noisy = self.drop_by_logits(noisy, training)
        chosen = self._choose(noisy)
        if self.bias_rate:
            load = ops.cast(chosen, "float32")
        if self.dense_steps:
            dense = step <= self.dense_steps  # Steps count from 1.
            chosen = ops.logical_or(dense, chosen)
            if load is not None:
                load = ops.where(dense, 1.0, load)
        kept = ops.logical_not(chosen)
        kept = filled(self._log_scores(noisy), kept, -float("inf"))
        routing = Routing(softmax(kept), logits=logits, load=load, valid=inputs.valid)
        if training and self.bias_rate and self.trainable:
            self._balance(routing)
        return routing

    def _choose(self, logits):
        """Find the experts to keep, booleans; of equal scores, the larger logits."""
        if not self.bias_rate:
            return keep_top_k(logits, self.num_nonzeros) != -float("inf")
        logits = ops.stop_gradient(logits)  # A choice has no gradient.
        scores = ops.sigmoid(logits) if self.scores == "sigmoid" else softmax(logits)
        # Experts that are dropped stay so, whatever their bias.
        biased = ops.where(logits > -float("inf"), scores + self._bias, logits)

        def choose_one(_, state):
            left, chosen = state
            best = left == largest(left)
            # Far from 0, rounding makes scores equal.
            best = first_largest(ops.where(best, logits, -float("inf")))
            left = ops.where(best, -float("inf"), left)
            return left, ops.logical_or(chosen, best)

        state, k = (biased, ops.isnan(logits)), self.num_nonzeros  # NaN stays visible.
        unrolled = min(k, MOST_UNROLLED)
        for i in range(unrolled):
            state = choose_one(i, state)
        if k > unrolled:
            # Not sorted, which takes ten times as long on JAX.
            state = ops.fori_loop(unrolled, k, choose_one, state)
        return ops.logical_and(state[1], logits != -float("inf"))

    def _log_scores(self, logits):
        """Compute logits whose softmax over the chosen experts gives the weights."""
        # The softmax of log-sigmoids is the sigmoids divided by their sum.
        return ops.log_sigmoid(logits) if self.scores == "sigmoid" else logits

    def _balance(self, routing):
        """Change the bias."""
        load = sum_in_call(self, ops.sum(routing.only_valid(routing.load), axis=0))
        # Not the mean, whose rounding would unbalance equal loads.
        total = ops.sum(load, axis=-1, keepdims=True)
        change = ops.sign(total - self.num_experts * load)
        self._bias.assign_add(self.bias_rate * change)

    def compute_penalties(self, routing: Routing, step: Tensor) -> dict:
        penalties = super().compute_penalties(routing, step)
        if self.load_reg is not None:
            load = routing.as_batch(routing.load)
            penalties["load"] = self.load_reg(load, step)
        return penalties

    def assign_logits(self, weights: np.ndarray, slack: float) -> None:
        """Set the logits to those of the weights, and the bias to zero.

        The largest of sigmoid scores is 1/2.
        """
        weights = check_expert_weights(weights, self.num_experts)
        logits = log_weights(weights, slack)
        if self.scores == "sigmoid":
            ratios = logits - logits.max(axis=-1, keepdims=True)
            logits = ratios - np.log(2.0 - np.exp(ratios))
        self._logits.assign(logits)
        if self.bias_rate:
            self._bias.assign(np.zeros(self._bias.shape))

    def chosen_experts(self) -> ChosenExperts:
        """The experts to keep and the logits of their shares.

        All distances are 0, or in dense steps the total weight on the other experts.
        """
        require_static(self)
        logits = self._logits(None)
        log_scores = ops.convert_to_numpy(self._log_scores(logits))
        logits = ops.convert_to_numpy(logits)
        choices = np.argsort(-logits, axis=-1, kind="stable")[..., : self.num_nonzeros]
        others = np.array(ops.convert_to_numpy(self.expert_weights()))
        np.put_along_axis(others, choices, 0.0, axis=-1)
        distance = np.broadcast_to(others.sum(-1, keepdims=True), choices.shape)
        kept = np.take_along_axis(log_scores, choices, axis=-1)
        return ChosenExperts(choices, distance, kept)
