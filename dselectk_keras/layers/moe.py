"""A mixture of experts."""

import math
import numbers
from typing import Any

import keras
from keras import ops

from dselectk_keras.distribution import is_model_parallel, is_on_cpu
from dselectk_keras.experts import DenseExperts
from dselectk_keras.gates.chosen import ChosenGate
from dselectk_keras.gates.dispatch import saved_rows
from dselectk_keras.gates.inputs import RouterInputs
from dselectk_keras.gates.record import record_call
from dselectk_keras.gates.routing import sum_in_call
from dselectk_keras.layers.gated_experts import GatedExperts
from dselectk_keras.ops import put_side_by_side
from dselectk_keras.utils import Tensor, add_counter, check_flags

# With a smaller ratio of all experts to chosen experts, or with smaller kernels, the
# overhead of dispatch is larger than its gain.
MIN_RATIO = 4
MIN_KERNEL = 16_384
# If dispatch saves fewer multiplications, a GPU evaluates all experts sooner than it
# moves examples. These numbers are estimates; float32 is TF32, but on torch.
MIN_ON_GPU = {"float32": 3e10, "bfloat16": 6e10, "float16": 6e10, "torch": 4.5e9}


@keras.saving.register_keras_serializable(package="dselectk_keras")
class MoE(GatedExperts):
    r"""Mixture of experts: a bank of experts, mixed by a gate.

    $$
    y = \sum_{i=1}^{n} g_i(v) \, f_i(x)
    \qquad \text{or, side by side,} \qquad
    y = \bigl(f_{c_1}(x), \dots, f_{c_k}(x)\bigr)
    $$

    A per-example gate chooses experts for each position of the leading axes of its
    routing inputs. With inputs `(batch, features)` that is one choice per example, with
    `(batch, length, features)` one for each token of a sequence. For one choice per
    sequence, pass routing inputs `(batch, features)`, or a `routing_network` that
    pools. Experts are applied to what is routed: to tokens, or to whole examples.

    Args:
        experts: A bank of experts, or a list of Keras layers.
        gate: A gate that is not built yet. A gate with `num_gates=g` gives $g$
            mixtures.
        per_example: Whether the weights depend on the inputs. Otherwise they are the
            same for all examples. With `"by_gate"` they depend on `routing_inputs`
            `(batch, num_gates, features)`, one for each gate.
        routing_network: A Keras layer between the inputs and a per-example gate, such
            as a pooling layer.
        dispatch: Whether experts are evaluated only for the examples that chose them.
            This needs a sparse per-example gate, and `DenseExperts` without dropout.
            The outputs are the same. `"auto"` dispatches if it is expected to be
            faster, for the device and the size of the batch. A number is a capacity
            factor: the capacity of each expert is this multiple of an even share of the
            choices. Choices beyond it are dropped, and `num_dropped` counts them. A
            capacity needs a gate that is sparse from the first step.
        sum_features: Whether each expert is the sum of its features, as in Appendix C.1
            of the paper of DSelect-k. The mixture is then one number. Experts are
            summed before they are mixed, which is cheaper than after it.
        side_by_side: Whether the outputs of the k chosen experts stand side by side on
            the last axis, instead of being mixed. This needs a `ChosenGate`. Its shares
            have no effect: the layer has a copy of the gate without `train_shares`.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: The experts' input $x$.
        routing_inputs: The inputs of a per-example gate, $v$; by default, `inputs`.
        training: Passed on to the experts and the gate.
        mask: Which positions count, booleans `(batch, length)`, or `(batch,)` for whole
            examples; by default, the Keras mask of `inputs`, or else of
            `routing_inputs`. What does not count takes no capacity of an expert, adds
            no penalty, and gets zeros: tokens, if tokens are routed, and else examples.
            The mask of `inputs` is passed on.

    Returns:
        The mixture `(batch, ...)`, or `(batch, num_gates, ...)`. Of tokens, the mixture
        `(batch, length, ...)`, or `(batch, length, num_gates, ...)`.

    Example:
        >>> moe = MoE(DenseExperts(4, [8]), DSelectKGate(2), per_example=True)
        >>> moe(keras.ops.ones((2, 3))).shape
        (2, 8)
        >>> moe = MoE(DenseExperts(4, [8]), SwitchGate(), per_example=True)
        >>> moe(keras.ops.ones((2, 5, 3))).shape
        (2, 5, 8)

    Reference:
        Jacobs et al., "Adaptive Mixtures of Local Experts" (1991); Krishnamurthy et
        al., "Improving Expert Specialization" (2023), Section 1, Figure 1; Ma et al.,
        "MMoE" (KDD 2018), Equation 5.
    """

    default_name = "moe"

    def __init__(
        self,
        experts: Any,
        gate: Any,
        per_example: bool | str = False,
        routing_network: Any = None,
        dispatch: Any = "auto",
        sum_features: bool = False,
        side_by_side: bool = False,
        **kwargs: Any,
    ):
        check_flags(sum_features=sum_features, side_by_side=side_by_side)
        if side_by_side and getattr(gate, "train_shares", False) and not gate.built:
            gate = gate.unbuilt_copy(train_shares=False, name=gate.name)
        super().__init__(experts, gate, per_example, routing_network, **kwargs)
        self.sum_features = sum_features
        if side_by_side and (
            not isinstance(self.gate, ChosenGate)
            or self.gate.expert_dropout
            or self.gate.weights_regularizer is not None
        ):
            raise ValueError(
                "Experts stand side by side in the places of a `ChosenGate`, without "
                "expert_dropout and weights_regularizer, since their weights have no "
                f"effect. Received: side_by_side=True and {self.gate!r} with "
                f"expert_dropout={self.gate.expert_dropout} and weights_regularizer="
                f"{self.gate.weights_regularizer!r}. Use ChosenGate(2)."
            )
        self.side_by_side = side_by_side
        words = "auto", True, False
        is_word = isinstance(dispatch, (str, bool)) and dispatch in words
        if not is_word and not (
            isinstance(dispatch, numbers.Real) and 1 <= float(dispatch) < math.inf
        ):
            raise ValueError(
                '`dispatch` must be "auto", True, False, or a capacity of 1 or more. '
                f"Received: dispatch={dispatch!r}."
            )
        self._capacity = None if is_word else float(dispatch)
        self.dispatch = dispatch if is_word else self._capacity
        self.num_dropped: Any = None
        if dispatch in ("auto", False):
            return
        if not per_example or not self.experts.can_dispatch:
            raise ValueError(
                "Dispatch needs a per-example gate, and `DenseExperts` without dropout "
                f"and `activity_regularizer`. Received: per_example={per_example} and "
                f"{type(self.experts).__name__}."
            )

    def build(self, inputs_shape: Any, routing_inputs_shape: Any = None) -> None:
        super().build(inputs_shape, routing_inputs_shape)
        most = self.gate.max_experts(once_decided=self._capacity is None)
        if self.dispatch not in ("auto", False) and not most:
            raise ValueError(
                "Dispatch needs a gate such as `TopKGate`, which limits the number of "
                "experts per example; a capacity, which drops choices, one that does "
                f"so from the first step. Received: dispatch={self.dispatch} and "
                f"{type(self.gate).__name__}. Use dispatch=False, or True without a "
                "capacity; in a gate of your own, define `max_experts`."
            )
        self._num_features = inputs_shape[-1]
        self.decide_dispatch()
        if self._capacity is not None:
            self.num_dropped = add_counter(self, "num_dropped")

    def decide_dispatch(self) -> None:
        """Decide whether to dispatch, with the present experts and gate."""
        self.dispatches = bool(self.dispatch)
        if self.dispatch == "auto":
            self.dispatches = self._dispatch_is_faster(self._num_features)

    def combine(
        self, inputs: Tensor, router_inputs: RouterInputs, training: bool | None
    ) -> Tensor:
        outputs = None
        # Inputs: (b, ..., d). Weights: ([b,] [g,] n).
        dispatches = self.dispatches and not is_symbolic(inputs)
        # Whether it dispatches is True or False, or a tensor for unknown sizes.
        if dispatches and (when := self._pays(inputs)) is not False:
            routing = self.gate.route(router_inputs, training)
            # (b, [g,] ..., units)
            mixture, dropped = routing.dispatch(
                self.experts,
                inputs,
                self._capacity,
                when if self.gate.max_experts() is not None else None,
            )
            mixture = self.summed(mixture)
            if dropped is not None:
                dropped = sum_in_call(self, dropped)
                # It stops at the largest integer of 32 bits.
                left = (2**31 - 1) - ops.convert_to_tensor(self.num_dropped)
                self.num_dropped.assign_add(ops.minimum(dropped, left))
        else:
            # (b, n, ..., units), or with `sum_features` (b, n, ..., 1)
            outputs = self.summed(self.experts(inputs, training=training))
            routing = self.gate.route(router_inputs, training)
            if self.side_by_side:
                # (b, [g,] ..., k * units)
                mixture = put_side_by_side(outputs, self.gate.choices)
            else:
                mixture = routing.mix(outputs)  # (b, [g,] ..., units)
        mixture = ops.cast(mixture, self.gate.compute_dtype)
        record_call(self.gate, routing, outputs, mixture)
        return mixture

    def summed(self, x: Tensor) -> Tensor:
        """Sum the features of experts, if each expert is their sum."""
        return ops.sum(x, axis=-1, keepdims=True) if self.sum_features else x

    def _dispatch_is_faster(self, num_features):
        """Estimate whether dispatch is faster than evaluating all experts."""
        experts, most = self.experts, self.gate.max_experts()
        known = isinstance(experts, DenseExperts) and experts.can_dispatch
        if not (self.per_example and most and known):
            return False
        # With split experts, JAX would gather the examples of all devices.
        return not is_model_parallel() and (
            experts.num_experts >= MIN_RATIO * most * (self.gate.num_gates or 1)
            and num_features * experts.units[0] >= MIN_KERNEL
        )

    def _pays(self, inputs):
        """Estimate whether dispatch is faster for these inputs, if it is on a CPU."""
        if self.dispatch != "auto" or is_on_cpu(inputs):
            return True
        experts, dtype = self.experts, self.experts.compute_dtype
        if keras.backend.backend() == "torch" and dtype == "float32":
            dtype = "torch"
        chosen = self.gate.max_experts() * (self.gate.num_gates or 1)
        saved = saved_rows(experts, inputs, min(chosen, experts.num_experts))
        least = MIN_ON_GPU.get(dtype, 0.0)
        return saved * experts.count_params() >= least * experts.num_experts


def is_symbolic(tensor: Tensor) -> bool:
    """Check whether a tensor has no values, because Keras only infers shapes."""
    backend = keras.backend.backend()
    if backend == "jax":
        return not all(isinstance(size, int) for size in tensor.shape)
    return backend == "torch" and tensor.device.type == "meta"
