"""The REINFORCE gate."""

import threading
import warnings
from typing import Any

import keras
from keras import ops

from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.gates.logits import float32_weight
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import first_largest, gumbel_noise, softmax
from dselectk_keras.utils import Initializer, Tensor, check_count, check_number


@GATES.register("reinforce")
class ReinforceGate(LogitGate):
    r"""One expert, drawn at random and learned by REINFORCE from its reward.

    $$
    L = - w_p \log p_a(x) \, \mathrm{sg}(r - b(x)) \; + \; w_e H(p(x))
    \; + \; w_b \, \mathrm{Huber}(b(x), r), \qquad a \sim p(x) = \mathrm{softmax}(W x)
    $$

    The reward $r$ is minus the example's task loss. Where tokens are routed, each token
    draws an expert, all tokens of an example share its reward, and $L$ is summed over
    them, without padding. The baseline $b$ learns to predict
    the reward. It is a network of one hidden layer, which is linear as in SMEAR's
    release, on the routing inputs, which are normalized if the logits' inputs are. At
    inference the gate chooses the most probable expert.

    Only the model knows the reward: train the gate in a `RoutedModel`. Elsewhere, as in
    a `MultitaskModel`, it does not learn, and warns. In a training loop of your own,
    set `gate.rewarded = True`, and add `gate.policy_loss(losses)` to the loss.

    Args:
        policy_weight: $w_p$, the weight of the policy loss.
        entropy_weight: $w_e$, the weight of the entropy. As in the paper, a positive
            weight penalizes entropy; a negative one rewards exploration.
        baseline_weight: $w_b$, the weight of the baseline's loss.
        baseline_units: Width of the baseline's hidden layer; `None` is an eighth of
            the number of features. A static gate's baseline is one number.
        kernel_initializer: For the kernel or static logits. `None` is uniform in ±0.05.
        use_bias: Whether per-example logits have a bias.
        normalize: Whether to layer-normalize the routing inputs and experts' kernels.
        **kwargs: `z_reg`, the weight of the router z-loss, and the arguments of `Gate`.

    Example:
        >>> gate = ReinforceGate(seed=0)
        >>> chosen = gate([keras.ops.ones((1, 2)), 3 * keras.ops.ones((1, 2))])
        >>> sorted(keras.ops.convert_to_numpy(gate.expert_weights()).tolist())
        [0.0, 1.0]

    Reference:
        Muqeeth et al., "SMEAR" (2023), Section 2; Clark et al., "Unified Scaling Laws
        for Routed Language Models" (ICML 2022).
    """

    # Whether somebody calls `policy_loss` in each training step.
    rewarded = False

    def __init__(
        self,
        policy_weight: float = 0.01,
        entropy_weight: float = 5e-4,
        baseline_weight: float = 0.01,
        baseline_units: int | None = None,
        kernel_initializer: Initializer = None,
        use_bias: bool = False,
        normalize: bool = False,
        **kwargs: Any,
    ):
        super().__init__(kernel_initializer, use_bias, normalize, **kwargs)
        if baseline_units is not None:
            baseline_units = check_count("baseline_units", baseline_units)
        self.policy_weight = check_number("policy_weight", policy_weight)
        self.entropy_weight = check_number("entropy_weight", entropy_weight)
        self.baseline_weight = check_number("baseline_weight", baseline_weight)
        self.baseline_units = baseline_units
        self._memory = _Memory()
        self.make_generator()

    def build_logits(self) -> None:
        super().build_logits()

        def variable(name, shape, initializer="zeros"):
            return float32_weight(self, f"baseline_{name}", shape, initializer)

        self._baseline = [variable("bias", self.gate_shape or (1,))]
        if self.per_example:
            units = self.baseline_units or max(1, self.routing_dim // 8)
            small = (keras.initializers.RandomNormal(stddev=0.01) for _ in range(2))
            self._baseline += [
                variable("kernel_0", (self.routing_dim, units), next(small)),
                variable("bias_0", (units,)),
                variable("kernel_1", (units, self.num_gates or 1), next(small)),
            ]

    def max_experts(self, once_decided: bool = False) -> int:
        return 1

    def compute_weights(self, inputs, training, step) -> Routing:
        logits, kept = self.kept_logits(inputs, training)
        if not training:
            self.forget()
            chosen = ops.cast(first_largest(kept), "float32")
            # Of NaN none is the largest: zeros would hide it.
            chosen = ops.where(ops.isnan(kept), kept, chosen)
            return Routing(chosen, softmax(kept), logits=logits)
        if not self.rewarded:
            warnings.warn(
                f"`ReinforceGate` learns only from rewards. Received: {self.name!r} in "
                "training without them. Train it in a `RoutedModel`.",
                stacklevel=2,
            )
        noise = gumbel_noise(ops.shape(kept), self.generator)
        chosen = ops.cast(first_largest(kept + noise), "float32")
        # Kept for `policy_loss`, which the model calls when it knows the task losses.
        self._memory.drawn = kept, chosen, inputs
        return Routing(chosen, softmax(kept), logits=logits)

    def policy_loss(self, losses: Tensor, sample_weight: Tensor = None) -> Tensor:
        """Compute the loss of the gate for its last training call.

        Args:
            losses: Task loss of each example, `(batch,)` or `(batch, num_gates)`, which
                is minus the reward, of each of its tokens if tokens are routed.
            sample_weight: Weights of the examples, of the same shape.

        Returns:
            A scalar; 0.0 if there was no training call.
        """
        if self._memory.drawn is None:
            return 0.0
        logits, chosen, inputs = self._memory.drawn
        valid = inputs.valid
        self.forget()
        losses = ops.stop_gradient(ops.cast(losses, "float32"))
        weight = (
            ops.ones_like(losses)
            if sample_weight is None
            else ops.cast(sample_weight, "float32")
        )
        if self.num_gates is None:
            losses, weight = losses[:, None], weight[:, None]
            logits, chosen = ops.expand_dims(logits, -2), ops.expand_dims(chosen, -2)
        if not self.per_example:
            # One draw per batch: its reward is the mean over the batch.
            count = ops.sum(weight, axis=0, keepdims=True)
            losses = ops.sum(losses * weight, axis=0, keepdims=True)
            losses = losses / ops.maximum(count, 1e-7)
            weight = ops.cast(count > 0, "float32")
            logits, chosen = logits[None], chosen[None]
        total = ops.sum(weight, axis=0)
        if self.per_example:
            rows = ops.shape(logits)[0]
            losses = _for_each_token(losses, rows)
            weight = _for_each_token(weight, rows)
        if self.per_example and valid is not None:
            weight = weight * ops.cast(ops.expand_dims(valid, 1), "float32")
        log_p = ops.log_softmax(logits, axis=-1)
        p = ops.exp(log_p)
        log_p = ops.where(p > 0, log_p, 0.0)
        entropy = -ops.sum(p * log_p, axis=-1)
        reward, baseline = -losses, self._predict_reward(inputs.routing_inputs)
        advantage = ops.stop_gradient(reward - baseline)
        terms = (
            -self.policy_weight * ops.sum(chosen * log_p, axis=-1) * advantage
            + self.entropy_weight * entropy
            + self.baseline_weight * _huber(baseline - reward)
        )
        return ops.sum(ops.sum(terms * weight, axis=0) / ops.maximum(total, 1e-7))

    def forget(self) -> None:
        """Discard the draw of the last training call, without a reward."""
        self._memory.drawn = None

    def _predict_reward(self, routing_inputs):
        """The baseline, `(batch, gates)` or, for a static gate, `(1, gates)`."""
        bias, *layers = self._baseline
        if not layers:
            return bias[None]
        kernel_0, bias_0, kernel_1 = layers
        x = ops.stop_gradient(self._logits.normalized(routing_inputs))
        hidden = ops.matmul(x, kernel_0) + bias_0
        if len(x.shape) == 3:
            return ops.einsum("bgu,ug->bg", hidden, kernel_1) + bias
        return ops.matmul(hidden, kernel_1) + bias


class _Memory(threading.local):
    """The draw of the last training call. Keras does not track it as state.

    Replicas of `tf.distribute` are threads, each with a draw of its own.
    """

    drawn: Any = None


def _for_each_token(values, rows):
    """Repeat the values of each example for its tokens, which follow one another."""
    batch = ops.shape(values)[0]
    examples = max(batch, 1) if isinstance(batch, int) else ops.maximum(batch, 1)
    return ops.repeat(values, rows // examples, axis=0)


def _huber(error):
    size = ops.absolute(error)
    return ops.where(size <= 1.0, 0.5 * ops.square(error), size - 0.5)
