"""The base class of all gates."""

import abc
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from dselectk_keras.distribution import num_replicas
from dselectk_keras.gates.inputs import (
    as_arguments,
    by_features,
    check_experts,
    check_same_shape,
    count_experts,
    count_features,
)
from dselectk_keras.gates.registry import arguments
from dselectk_keras.gates.selection import Selection
from dselectk_keras.ops import mix, softmax
from dselectk_keras.regularizers.scheduled import ScheduledRegularizer
from dselectk_keras.utils import (
    MAX_EXPERTS,
    Tensor,
    add_counter,
    check_count,
    check_number,
    check_seed,
    deserialize_if_config,
    init_arguments,
)


class GateOutputs(NamedTuple):
    """The weights of a gate, and the tensors that penalties and plots need.

    Args:
        weights: The weights over the experts, `([batch,] [num_gates,] n)`.
        probabilities: The distribution from which a stochastic gate draws its weights.
        selectors: The weights of each selector, `([batch,] [num_gates,] k, n)`.
        bits: The relaxed bits of each selector, `([batch,] [num_gates,] k, m)`.
        logits: The logits of the experts, `([batch,] [num_gates,] n)`.
        load: The probability of each expert of being chosen under noise.
        valid: Which examples count, booleans `(batch,)`; `None` is all.
    """

    weights: Tensor
    probabilities: Tensor = None
    selectors: Tensor = None
    bits: Tensor = None
    logits: Tensor = None
    load: Tensor = None
    valid: Tensor = None


class _KeepsArguments:
    """Stores the arguments of `__init__`, for `unbuilt_copy`."""

    # Not a method of `Gate`: `inspect.signature` would read it for the arguments.
    def __new__(cls, *args, **kwargs):
        layer: Any = super().__new__(cls, *args, **kwargs)
        layer.given_arguments = args, kwargs
        return layer


class Gate(_KeepsArguments, keras.Layer, abc.ABC):
    r"""Computes weights over the experts, and mixes their outputs.

    $$
    y = \sum_{i=1}^{n} g_i \, f_i, \qquad g_i \ge 0, \quad \sum_i g_i = 1
    $$

    The first call decides whether the gate is static or per-example. Without routing
    inputs it is static: its weights are parameters. With routing inputs it is
    per-example: it computes the weights from them.

    A subclass creates its variables in `build_logits`, computes the weights in
    `compute_weights` and the auxiliary losses in `compute_penalties`. The gate counts
    its training calls in the weight `step`, and passes it to the last two. A gate that
    several layers share counts each of their calls, so that its schedules run faster.

    Args:
        num_gates: The number of gates in the layer, which are computed together.
            `None` is a single gate, without an axis for gates.
        weights_regularizer: An auxiliary loss on the weights, for load balancing or
            specialization, such as `ImportanceRegularizer(0.1)`.
        expert_dropout: The probability with which an expert is dropped in training.
            The weights of the other experts are scaled up to the same sum. If all
            experts would be dropped, none is. A gate that chooses experts by their
            logits chooses among the experts that are left.
        seed: Seed of the random numbers in training.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        experts: The experts' outputs: a list of `n` tensors `(batch, ...)`, or one
            tensor `(batch, n, ...)`. As in the original release, it may be the tuple
            `(experts, routing_inputs)`.
        routing_inputs: For a per-example gate, a tensor `(batch, features)`, or
            `(batch, num_gates, features)` with different inputs for each gate.
        training: Whether to add the auxiliary losses, drop experts and draw random
            numbers.
        examples: The examples that `SampleSimilarityRegularizer` compares, a tensor
            `(batch, ...)`; by default, the routing inputs. A layer with a
            `routing_network` passes the network's inputs.
        valid: Which examples of a per-example gate count, booleans `(batch,)`. The
            others, such as padding, have weights of zero and add no penalty. A layer
            passes its mask.

    Returns:
        The mixture, `(batch, ...)`, or `(batch, num_gates, ...)`.
    """

    # The most nonzero weights of one gate, once it has decided; `None` if not known.
    max_experts: int | None = None
    # Whether `max_experts` holds from the first step on.
    always_sparse = False
    # How a per-example gate reduces its penalties over the batch, if it has any.
    reduction = "sum"
    # Booleans `([num_gates,] n)`: the experts in use, if they are fixed.
    used_experts: Any = None
    # Whether the gate needs routing inputs.
    per_example_only = False
    # Whether the gate has one logit for each expert.
    has_logits = False
    # Whether the gate itself drops experts, by their logits.
    drops_experts = False
    # The name of an integer argument that fixes the routing, and that `None` draws.
    drawn_argument: str | None = None

    def __init__(
        self,
        num_gates: int | None = None,
        weights_regularizer: Any = None,
        expert_dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if num_gates is not None:
            check_count("num_gates", num_gates, maximum=MAX_EXPERTS)
        check_number("expert_dropout", expert_dropout, minimum=0, below=1)
        self.num_gates = num_gates
        self.weights_regularizer = ScheduledRegularizer.get(
            weights_regularizer, "weights_regularizer"
        )
        if not getattr(self.weights_regularizer, "of_weights", True):
            raise ValueError(
                f"{type(self.weights_regularizer).__name__} is not a regularizer of a "
                "gate's weights. Use `ImportanceRegularizer`, `LoadRegularizer`, "
                "`SwitchLoadRegularizer`, `EntropyRegularizer` or "
                "`SampleSimilarityRegularizer`."
            )
        self.expert_dropout = expert_dropout
        # Keras takes no integers of NumPy as seeds.
        self.seed = check_seed(seed)
        self.num_experts: Any = None
        self.routing_dim: Any = None
        self.step: Any = None
        self.generator: Any = None
        # A function that receives the report of each call. `GateRecorder` sets it.
        self.observer: Any = None
        if expert_dropout:
            self.make_generator()

    # Methods that a subclass defines.

    @abc.abstractmethod
    def build_logits(self) -> None:
        """Create the variables for `num_experts` experts and `routing_dim` features."""

    @abc.abstractmethod
    def compute_weights(
        self, routing_inputs: Tensor, training: bool, step: Tensor
    ) -> GateOutputs:
        """Compute the weights over the experts.

        Args:
            routing_inputs: Tensor `(batch, features)`; `None` for a static gate.
            training: Whether this is a training call.
            step: The number of training calls, this one included.

        Returns:
            A `GateOutputs` with float32 weights `([batch,] [num_gates,] n)`.
        """

    def compute_penalties(self, outputs: GateOutputs, step: Tensor) -> dict:
        """Compute the auxiliary losses of a training call by name, in their order."""
        return {}

    def over_batch(self, penalty: Tensor, outputs: GateOutputs) -> Tensor:
        """Sum or average a penalty, a sum over this call's examples, over the batch."""
        if not self.per_example:
            return penalty
        if self.reduction == "mean":
            return penalty / self.num_examples(outputs)
        # Keras averages over the replicas.
        return penalty * num_replicas()

    def num_examples(self, outputs: GateOutputs) -> Tensor:
        """Count the examples of this call that are valid, at least 1, in float32."""
        if outputs.valid is None:
            count = ops.cast(ops.shape(outputs.weights)[0], "float32")
        else:
            count = ops.sum(ops.cast(outputs.valid, "float32"))
        return ops.maximum(count, 1.0)

    def only_valid(self, x: Tensor, outputs: GateOutputs, other: float = 0.0) -> Tensor:
        """Replace the rows of examples that are not valid by a number."""
        if outputs.valid is None or x is None:
            return x
        rows = ops.reshape(outputs.valid, (-1, *[1] * (len(x.shape) - 1)))
        return ops.where(rows, x, other)

    def as_batch(self, x: Tensor, outputs: GateOutputs) -> Tensor:
        """Set rows that are not valid to zero; a static gate's `x` becomes one row."""
        x = self.only_valid(x, outputs)
        return x if self.per_example else ops.expand_dims(x, 0)

    def describe_selectors(self, outputs: GateOutputs) -> dict:
        """Compute tensors `([batch,] [num_gates,] k)` to monitor, by name."""
        return {}

    def assign_logits(self, weights: np.ndarray, slack: float) -> None:
        """Set the logits so that the gate has these weights (see the next method)."""
        raise ValueError(
            f"{type(self).__name__} cannot be set to given weights. Use a gate with "
            "logits or selectors, such as `DSelectKGate`, `TopKGate` or `SoftmaxGate`."
        )

    # Methods for users and layers.

    def assign_expert_weights(self, weights: Any, slack: float = 0.0) -> None:
        """Warm-start the gate: set its logits so that it has the given weights.

        Until it is trained, a per-example gate has these weights for every example. It
        needs a bias. A gate with one logit per expert chooses among the experts as if
        its softmax had learned these weights.

        Args:
            weights: Array `(n,)`, or `(num_gates, n)`, non-negative and summing to one,
                such as the `expert_weights()` of a trained gate. A gate with selectors
                needs at most `num_nonzeros` nonzeros (see `ops.keep_largest`).
            slack: A number from 0 to 1. With 0 the weights are exact, but selectors and
                weights of zero get no gradient. With a small slack they can be
                trained. It is the share of each softmax that is spread evenly over all
                experts. For the bits of `DSelectKGate`, it is the distance of their
                logits from the ends of the smooth step, as a fraction of `gamma / 2`.

        Example:
            >>> gate = TopKGate(num_nonzeros=2)
            >>> gate.build((None, 4))
            >>> gate.assign_expert_weights([0.375, 0.25, 0.125, 0.25])
            >>> weights = keras.ops.convert_to_numpy(gate.expert_weights())
            >>> [round(float(weight), 4) for weight in weights]
            [0.6, 0.4, 0.0, 0.0]
        """
        self._check_built()
        check_number("slack", slack, minimum=0, maximum=1)
        weights = ops.convert_to_numpy(weights)
        expected = (*self.gate_shape, self.num_experts)
        if weights.shape != expected:
            raise ValueError(
                f"`weights` must have the shape {expected}. Received: {weights.shape}."
            )
        self.assign_logits(weights, slack)

    def expert_weights(self, routing_inputs: Tensor = None, **context: Any) -> Tensor:
        """Compute the weights over the experts at inference.

        Args:
            routing_inputs: Tensor `(batch, features)` for a per-example gate.
            **context: Other call arguments of the gate, such as `hidden`.

        Returns:
            A float32 tensor `([batch,] [num_gates,] n)`.
        """
        routing_inputs = self.check_routing_inputs(routing_inputs)
        return self.compute_weights(routing_inputs, False, self.step, **context).weights

    def report(
        self, routing_inputs: Tensor = None, examples: Tensor = None, **context: Any
    ) -> dict:
        """Compute all monitored quantities in one evaluation of the gate.

        The arguments are those of a call of the gate, without the experts.

        Returns:
            A dict with `"weights"`, as from `expert_weights`; `"penalties"`, a dict of
            the auxiliary losses of the next training step; `"selectors"`, the dict
            from `describe_selectors`. The report of a call with a mask, which an
            observer gets, has `"valid"` too.
        """
        routing_inputs = self.check_routing_inputs(routing_inputs)
        outputs = self.compute_weights(routing_inputs, False, self.step, **context)
        examples = by_features(examples, routing_inputs)
        return self._report(outputs, examples, self.step + 1)

    def selection(self) -> Selection:
        """The experts that a static gate has chosen, and how far it is from binary."""
        raise ValueError(
            f"{type(self).__name__} does not choose among experts permanently. All "
            "experts are needed. Use `DSelectKGate`, `SoftmaxSelectorGate` or "
            "`TopKGate`."
        )

    def with_num_gates(self, num_gates: int | None) -> "Gate":
        """Return this gate if it has this number of gates, and else an unbuilt copy."""
        if self.num_gates == num_gates:
            return self
        if self.num_gates is not None or self.built:
            raise ValueError(
                f"A gate with num_gates={num_gates} is needed here. Received: one with "
                f"num_gates={self.num_gates}{', built already' if self.built else ''}. "
                "Pass a new gate with num_gates=None."
            )
        return self.unbuilt_copy(num_gates=num_gates)

    def unbuilt_copy(self, **changes: Any) -> "Gate":
        """Return a gate that is not built, with these arguments replaced."""
        args, kwargs = self.given_arguments
        copy = type(self)(*args, **{**kwargs, **changes})
        copy.trainable = self.trainable
        name = self.drawn_argument
        if name is not None and name not in changes:
            setattr(copy, name, getattr(self, name))
        return copy

    # Methods of `keras.Layer`.

    @property
    def per_example(self) -> bool:
        """Whether the gate uses routing inputs; known once it is built."""
        return self.routing_dim is not None

    def __call__(
        self, experts: Any, routing_inputs: Tensor = None, **kwargs: Any
    ) -> Tensor:
        """Mix the experts; see the class."""
        arguments = as_arguments(experts, routing_inputs)
        check_experts(*arguments)
        return super().__call__(*arguments, **kwargs)

    def build(self, experts_shape: Any = None, routing_inputs_shape: Any = None):
        """Create the variables for these shapes of experts and routing inputs."""
        self.num_experts = check_count(
            "num_experts", count_experts(experts_shape), maximum=MAX_EXPERTS
        )
        if self.per_example_only and routing_inputs_shape is None:
            raise ValueError(
                f"{type(self).__name__} is per-example and needs routing inputs. "
                "Received: no routing inputs. Call the gate as gate(experts, "
                "routing_inputs); in a layer, set per_example=True."
            )
        if routing_inputs_shape is not None:
            self.routing_dim = count_features(routing_inputs_shape, self.num_gates)
        self.build_logits()
        if self.weights_regularizer is not None:
            self._check_regularizer(self.weights_regularizer)
        self.step = add_counter(self, "step")
        self.built = True

    def call(
        self,
        experts: Any,
        routing_inputs: Tensor = None,
        training: bool | None = None,
        examples: Tensor = None,
        valid: Tensor = None,
    ) -> Tensor:
        """Mix the experts."""
        weights = self.weigh_experts(routing_inputs, training, examples, valid)
        return self.mixture(experts, weights)

    def mixture(self, experts: Any, weights: Tensor) -> Tensor:
        """Compute the sum of the experts' outputs with weights of `weigh_experts`."""
        if isinstance(experts, list):
            check_same_shape([expert.shape for expert in experts])
        count = len(experts) if isinstance(experts, list) else experts.shape[1]
        if count != self.num_experts:
            raise ValueError(
                f"This gate was built for {self.num_experts} experts. Received: "
                f"{count}. Create a new gate for another number of experts."
            )
        return mix(experts, weights, self.per_example, self.used_experts)

    def weigh_experts(
        self,
        routing_inputs: Tensor = None,
        training: bool | None = None,
        examples: Tensor = None,
        valid: Tensor = None,
        **context: Any,
    ) -> Tensor:
        """Compute the weights of one call, for layers that combine the experts.

        In training this counts the step, adds the auxiliary losses and drops experts.
        The arguments are those of a call of the gate, without the experts. The result
        is a float32 tensor `([batch,] [num_gates,] n)`.
        """
        training = bool(training)
        routing_inputs = self.check_routing_inputs(routing_inputs)
        if training:
            self.step.assign_add(1)
        outputs = self.compute_weights(routing_inputs, training, self.step, **context)
        if valid is not None and self.per_example:
            outputs = outputs._replace(valid=valid)
        examples = by_features(examples, routing_inputs)
        if self.observer is not None:
            step = self.step + int(not training)
            self.observer(self._report(outputs, examples, step))
        weights = self.only_valid(outputs.weights, outputs)
        if training:
            penalties = self._penalties(outputs, examples, self.step)
            for penalty in penalties.values():
                self.add_loss(penalty)
            if self.expert_dropout and not self.drops_experts:
                weights = self.drop_weights(weights)
        return weights

    # Expert dropout.

    def make_generator(self) -> None:
        """Create the generator of random numbers, unless there is one."""
        if self.generator is None:
            self.generator = keras.random.SeedGenerator(self.seed)

    def drop_logits(self, logits: Tensor, training: bool) -> Tensor:
        """Set the logits of experts that training drops to minus infinity."""
        if not (training and self.expert_dropout):
            return logits
        shape = ops.shape(logits)
        draw = keras.random.uniform(shape, seed=self.generator, dtype="float32")
        keep = draw >= self.expert_dropout
        keep = ops.logical_or(keep, ops.logical_not(ops.any(keep, -1, keepdims=True)))
        return ops.where(keep, logits, -float("inf"))

    def drop_weights(self, weights: Tensor) -> Tensor:
        """Set weights `(..., n)` of dropped experts to zero, and scale others up."""
        dropped = self.drop_logits(ops.zeros_like(weights), True) < 0
        total = ops.sum(weights, axis=-1, keepdims=True)
        kept = ops.where(dropped, 0.0, weights)
        left = ops.sum(kept, axis=-1, keepdims=True)
        scaled = kept * total / ops.where(left > 0, left, 1.0)
        return ops.where(left > 0, scaled, weights)

    # Weights, saving and checks.

    def set_weights(self, weights: Sequence[np.ndarray]) -> None:
        """Set the weights from arrays, such as those of the original release.

        If the step and what follows it are left out, these do not change.
        """
        own = self.weights
        place = next(i for i, weight in enumerate(own) if weight is self.step)
        if place <= len(weights) < len(own):
            left_out = own[len(weights) :]
            weights = [*weights, *map(ops.convert_to_numpy, left_out)]
        super().set_weights(weights)

    def save_own_variables(self, store: Any) -> None:
        """Save the variables, and what was drawn to fix the routing."""
        super().save_own_variables(store)
        if self.drawn_argument is not None:
            drawn = getattr(self, self.drawn_argument)
            store[self.drawn_argument] = np.asarray(drawn, "int64")

    def load_own_variables(self, store: Any) -> None:
        """Load the variables, and what was drawn to fix the routing."""
        found = {key: store[key] for key in store.keys()}  # noqa: SIM118 (no dict)
        # Older files do not have it.
        drawn = found.pop(self.drawn_argument, None)
        if drawn is not None:
            setattr(self, str(self.drawn_argument), int(np.asarray(drawn)))
        super().load_own_variables(found)

    def get_config(self) -> dict:
        """The arguments of `__init__`, from attributes of the same names."""
        return {**super().get_config(), **init_arguments(self, arguments(type(self)))}

    @classmethod
    def from_config(cls, config: dict) -> "Gate":
        """Make a gate from what `get_config` returned."""
        own = {
            name: deserialize_if_config(config[name])
            for name in arguments(cls)
            if name in config
        }
        return super().from_config({**config, **own})

    @property
    def gate_shape(self) -> tuple[int, ...]:
        """The leading axes of the logits: `()`, or `(num_gates,)`."""
        return () if self.num_gates is None else (self.num_gates,)

    def check_routing_inputs(self, routing_inputs: Tensor) -> Tensor:
        """Check the routing inputs, and add an axis of features to ids `(batch,)`."""
        self._check_built()
        if self.per_example != (routing_inputs is not None):
            expected, fix = (
                ("per-example", "pass routing inputs, gate(experts, routing_inputs)")
                if self.per_example
                else ("static", "leave the routing inputs out")
            )
            raise ValueError(
                f"The gate {self.name!r} was built {expected}: {fix}. Received: "
                f"routing inputs {'missing' if self.per_example else 'given'}."
            )
        if routing_inputs is None:
            return None
        routing_inputs = ops.convert_to_tensor(routing_inputs)
        if len(routing_inputs.shape) == 1:
            routing_inputs = ops.expand_dims(routing_inputs, -1)
        if routing_inputs.shape[-1] != self.routing_dim or tuple(
            routing_inputs.shape[1:-1]
        ) not in {(), (self.num_gates,)}:
            raise ValueError(
                f"Routing inputs must have the shape (batch, {self.routing_dim}), as "
                f"when the gate was built. Received: {tuple(routing_inputs.shape)}."
            )
        return routing_inputs

    def _check_built(self):
        if not self.built:
            raise ValueError(
                f"The gate {self.name!r} has no weights yet. Call it on experts "
                "first, or call `build`."
            )

    def _check_regularizer(self, regularizer):
        """Raise an error if the gate does not have what its regularizer needs."""
        if regularizer.sees_inputs and not self.per_example:
            raise ValueError(
                f"{type(regularizer).__name__} compares the weights of examples. A "
                "static gate has the same weights for all examples. Pass routing "
                "inputs, or use another regularizer."
            )
        if regularizer.sees_probabilities and not (
            self.has_logits and self.max_experts
        ):
            raise ValueError(
                f"{type(regularizer).__name__} needs a sparse gate with one logit per "
                "expert, such as `SwitchGate` or `TopKGate`. Received: "
                f"{type(self).__name__}. Use `ImportanceRegularizer`."
            )
        if not self.weights:
            raise ValueError(
                f"{type(self).__name__} has no trainable weights to regularize. "
                "Received: a weights_regularizer. Leave it out."
            )

    def _penalties(self, outputs, examples, step):
        penalties = self.compute_penalties(outputs, step)
        regularizer = self.weights_regularizer
        if regularizer is not None:
            seen, drawn = outputs.weights, outputs.probabilities
            if drawn is not None and not regularizer.sees_probabilities:
                # Drawn weights have no useful gradient; their probabilities do.
                seen = drawn
            seen = self.as_batch(seen, outputs)
            if regularizer.sees_probabilities:
                seen = seen, self.as_batch(softmax(outputs.logits), outputs)
            if regularizer.sees_inputs:
                # Large numbers in padding would cost digits of all distances.
                counting = self.only_valid(examples, outputs)
                seen = (seen, counting, self.num_examples(outputs))
            penalty = regularizer(seen, step)
            if regularizer.sums_examples:
                penalty = self.over_batch(penalty, outputs)
            penalties["weights"] = penalty
        return penalties

    def _report(self, outputs, examples, step):
        report = {
            "weights": outputs.weights,
            "penalties": self._penalties(outputs, examples, step),
            "selectors": self.describe_selectors(outputs),
        }
        # What has no mask has no entry, since compiled functions return tensors.
        return report if outputs.valid is None else {**report, "valid": outputs.valid}
