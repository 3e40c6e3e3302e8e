"""The base class of all gates."""

import abc
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import restart_slots
from dselectk_keras.gates.chosen_experts import ChosenExperts
from dselectk_keras.gates.dropout import drop_weights
from dselectk_keras.gates.inputs import (
    RouterInputs,
    as_arguments,
    check_built,
    check_is_shape,
    complete_inputs,
    count_experts,
    count_features,
)
from dselectk_keras.gates.record import record_call
from dselectk_keras.gates.routing import Routing
from dselectk_keras.regularizers import WeightsRegularizer
from dselectk_keras.utils import (
    MAX_EXPERTS,
    NUM_SEEDS,
    CalledOnce,
    Configured,
    Tensor,
    add_counter,
    argument_names,
    check_count,
    check_integers,
    check_number,
    infer_outputs,
    is_concrete,
    shown,
)


class Gate(CalledOnce, Configured, keras.Layer, abc.ABC):
    r"""Computes weights over the experts, and mixes their outputs.

    $$
    y = \sum_{i=1}^{n} g_i \, f_i, \qquad g_i \ge 0, \quad \sum_i g_i = 1
    $$

    The first call decides whether the gate is static or per-example. Without routing
    inputs it is static: its weights are parameters. With routing inputs it is
    per-example: it computes the weights from them.

    A subclass creates its variables in `build_logits`, computes the weights in
    `compute_weights` and the auxiliary losses in `compute_penalties`. The weight `step`
    counts the training calls, of all layers that share the gate. With
    `trainable=False`, what the gate has learned stays as it is, but the step, on which
    schedules depend, is counted on.

    Args:
        num_gates: The number of gates in the layer, which are computed together.
            `None` is a single gate, without an axis for gates.
        weights_regularizer: An auxiliary loss on the weights, for load balancing or
            specialization, such as `ImportanceRegularizer(0.1)`.
        expert_dropout: The probability with which an expert is dropped in training.
            The other weights are scaled up to the same sum. If all experts would be
            dropped, none is. Gates with logits choose among the experts that are left.
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
            `(batch, ...)`; by default, the routing inputs.
        valid: Which examples of a per-example gate count, booleans `(batch,)`. The
            others, such as padding, have weights of zero and add no penalty.

    Returns:
        The mixture, `(batch, ...)`, or `(batch, num_gates, ...)`.
    """

    # Whether the gate needs routing inputs.
    per_example_only = False
    # Whether the gate uses routing inputs; known once it is built.
    per_example = False

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
            num_gates = check_count("num_gates", num_gates, maximum=MAX_EXPERTS)
        self.num_gates = num_gates
        # The leading axes of the logits.
        self.gate_shape = () if num_gates is None else (num_gates,)
        self.expert_dropout = check_number(
            "expert_dropout", expert_dropout, minimum=0, below=1
        )
        # The rate with which `route` drops experts by their weights. It is 0 for a gate
        # that chooses among the experts that are left.
        self.weight_dropout = self.expert_dropout
        self.weights_regularizer = WeightsRegularizer.get(
            weights_regularizer, "weights_regularizer"
        )
        # Keras takes no integers of NumPy as seeds.
        self.seed = (
            None if seed is None else check_count("seed", seed, 0, NUM_SEEDS - 1)
        )
        self.num_experts: Any = None
        self.routing_dim: Any = None
        self.step: Any = None
        self.generator: Any = None
        # The experts of a static gate, integers `([num_gates,] k)`, -1 for none yet.
        # `DecideGates`, `ChooseExperts` and `condense` set this weight.
        self.choices: Any = None
        # The `Logits` of their shares, `([num_gates,] k, ...)`.
        self.shares: Any = None
        if expert_dropout:
            self.make_generator()

    def make_generator(self) -> None:
        """Create the generator of random numbers, unless there is one."""
        if self.generator is None:
            self.generator = keras.random.SeedGenerator(self.seed)

    # Methods that a subclass defines.

    @abc.abstractmethod
    def build_logits(self) -> None:
        """Create the variables for `num_experts` experts and `routing_dim` features."""

    @abc.abstractmethod
    def compute_weights(
        self, inputs: RouterInputs, training: bool, step: Tensor
    ) -> Routing:
        """Compute a `Routing` with float32 weights `([batch,] [num_gates,] n)`.

        The `inputs.routing_inputs` of a static gate are `None`. The `step` is the
        number of training calls, this one included. What training changes outside of
        gradient descent, it changes here.
        """

    def compute_penalties(self, routing: Routing, step: Tensor) -> dict:
        """Compute the auxiliary losses of a training call by name, in their order."""
        return {}

    def max_experts(self, once_decided: bool = False) -> int | None:
        """The most nonzero weights of one gate, or `None` if there is no limit.

        The limit holds from the first step on, or only `once_decided`.
        """
        return None

    def assign_logits(self, weights: np.ndarray, slack: float) -> None:
        """Set the logits so that the gate has these weights (see the next method)."""
        raise ValueError(
            f"{type(self).__name__} cannot be set to given weights. Use a gate with "
            "logits or selectors, such as `DSelectKGate`, `TopKGate` or "
            "`SoftmaxGate`; in a gate of your own, define `assign_logits`."
        )

    def chosen_experts(self) -> ChosenExperts:
        """The experts that a static gate has chosen, and how far it is from binary."""
        raise ValueError(
            f"{type(self).__name__} does not choose among experts permanently. All "
            "experts are needed. Use `DSelectKGate` or `TopKGate`; in a gate of your "
            "own, define `chosen_experts`."
        )

    # Methods for users and layers.

    def assign_expert_weights(
        self, weights: Any, slack: float = 0.0, optimizer: Any = None
    ) -> None:
        """Warm-start the gate: set its logits so that it has the given weights.

        A per-example gate, which needs a bias, has them for every example. A gate with
        one logit per expert chooses as if its softmax had learned these weights.

        Args:
            weights: Array `(n,)`, or `(num_gates, n)`, non-negative and summing to one,
                such as the `expert_weights()` of a trained gate. A gate with selectors
                needs at most `num_nonzeros` nonzeros (see `ops.keep_largest`).
            slack: A number from 0 to 1. With 0 the weights are exact, but selectors and
                weights of zero get no gradient. With a small slack they can be
                trained: it is the share of each softmax that is spread evenly, and of
                `DSelectKGate`, the distance of the bits' logits from the ends of the
                smooth step, as a fraction of `gamma / 2`.
            optimizer: In a training, the optimizer of the model. It forgets what it
                keeps of the logits, such as momentum and averages.

        Example:
            >>> gate = TopKGate(num_nonzeros=2)
            >>> gate.build((None, 4))
            >>> gate.assign_expert_weights([0.375, 0.25, 0.125, 0.25])
            >>> weights = keras.ops.convert_to_numpy(gate.expert_weights())
            >>> [round(float(weight), 4) for weight in weights]
            [0.6, 0.4, 0.0, 0.0]
        """
        check_built(self)
        check_number("slack", slack, minimum=0, maximum=1)
        weights = ops.convert_to_numpy(weights)
        expected = (*self.gate_shape, self.num_experts)
        if weights.shape != expected:
            raise ValueError(
                f"`weights` must have the shape {expected}. Received: {weights.shape}."
            )
        self.assign_logits(weights, slack)
        for variable in self.variables:
            restart_slots(optimizer, variable)

    def expert_weights(self, routing_inputs: Any = None) -> Tensor:
        """Compute the weights over the experts at inference.

        A per-example gate needs its routing inputs, or `RouterInputs`. Returns a
        float32 tensor `([batch,] [num_gates,] n)`.
        """
        weights = self._routing(routing_inputs, training=False).weights
        if is_concrete(weights) and bool(ops.any(weights < 0)):
            raise ValueError(
                f"{type(self).__name__}.compute_weights must return weights that are "
                f"not negative. Received: {ops.convert_to_numpy(weights).min()}."
            )
        return weights

    def report(self, routing_inputs: Any = None) -> dict:
        """Compute all monitored quantities in one evaluation of the gate.

        The argument is that of `expert_weights`, or the `Routing` of a call. Returns a
        dict with `"weights"`; `"penalties"`, a dict of the auxiliary losses of a
        training call at the present step; and `"selectors"`, a dict of tensors.
        """
        routing = routing_inputs
        if not isinstance(routing, Routing):
            routing = self._routing(routing_inputs, training=False)
        report = {
            "weights": routing.weights,
            "penalties": self._penalties(routing),
            "selectors": routing.describe_selectors(),
        }
        # Without a mask there is no entry: compiled functions return tensors only.
        return report if routing.valid is None else {**report, "valid": routing.valid}

    def choose(self, choices: Any, shares: Any = None, optimizer: Any = None) -> None:
        """Set the experts of a static gate that has `choices`.

        Args:
            choices: Integers of the shape of `choices`, below the number of experts; -1
                is no expert of a `ChosenGate`, and a soft selector of other gates.
            shares: The logits of the shares, of this shape. By default, the shares of
                a gate whose experts change become equal.
            optimizer: In a training, the optimizer of the model. It forgets what it
                keeps of the shares that are set, such as momentum and averages.
        """
        if self.choices is None:
            raise ValueError(
                "Experts can be set of a static gate that is built and has `choices`, "
                f"such as `ChosenGate` and `DSelectKGate`. Received: {self!r}."
            )
        choices = check_integers("choices", choices, -1, self.num_experts - 1)
        given = [np.shape(each) for each in (choices, shares) if each is not None]
        if {*given} != {(shape := tuple(self.choices.shape))}:
            raise ValueError(
                f"`choices` and `shares` must have the shape {shape}, a number for "
                f"each place of each gate. Received: {', '.join(map(str, given))}."
            )
        if shares is not None and not np.isfinite(shares).all():
            raise ValueError(
                "`shares` are logits, which must be finite. Received: "
                f"shares={shown(shares)}."
            )
        logits = self.shares.static
        before, old = map(ops.convert_to_numpy, (self.choices, logits))
        changed = (before != choices).any(axis=-1, keepdims=True)
        changed = changed.reshape((*changed.shape, *[1] * (old.ndim - before.ndim)))
        if shares is None:
            new = np.where(changed, 0.0, old)
        else:
            new, changed = np.reshape(shares, old.shape), True
        self.choices.assign(choices)
        logits.assign(new)
        restart_slots(optimizer, logits, changed)

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
        layer = keras.Layer.get_config(self)
        layer.pop("name")
        cls: Any = type(self)
        own = {name: getattr(self, name) for name in argument_names(cls)}
        return cls(**{**layer, **own, **changes})

    # Methods of `keras.Layer`.

    def __call__(
        self, experts: Any, routing_inputs: Tensor = None, **kwargs: Any
    ) -> Tensor:
        return super().__call__(*as_arguments(experts, routing_inputs), **kwargs)

    def build_for(self, experts_shape: Any, *shapes: Any) -> None:
        """Build the gate of a layer, or check that it was built for as many experts."""
        if self.activity_regularizer is not None:
            raise ValueError(
                "A layer asks its gate for weights only, so that the gate's "
                "`activity_regularizer` has no effect. Received: "
                f"{self.activity_regularizer!r}. Give it to the layer, or pass a "
                "`weights_regularizer`."
            )
        if not self.built:
            self.build(experts_shape, *shapes)
        elif (count := count_experts(experts_shape)) != self.num_experts:
            raise ValueError(
                f"This gate was built for {self.num_experts} experts. Received: "
                f"{count}. Create a new gate for another number of experts."
            )

    def build(self, experts_shape: Any = None, routing_inputs_shape: Any = None):
        check_is_shape("experts_shape", experts_shape)
        check_is_shape("routing_inputs_shape", routing_inputs_shape)
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
            self.per_example = True
        self.build_logits()
        learns = self.trainable_weights or not self.trainable
        if self.weights_regularizer is not None and not learns:
            raise ValueError(
                f"{type(self).__name__} has no trainable weights to regularize. "
                "Received: a weights_regularizer. Leave it out."
            )
        self.step = add_counter(self, "step")
        self._max_experts = self.max_experts(once_decided=True)
        self.built = True

    def call(
        self,
        experts: Any,
        routing_inputs: Tensor = None,
        training: bool | None = None,
        examples: Tensor = None,
        valid: Tensor = None,
    ) -> Tensor:
        inputs = RouterInputs(routing_inputs, examples, valid)
        return self.mixture(experts, inputs, training)

    def mixture(self, experts: Any, inputs: Any, training: bool | None) -> Tensor:
        """Mix the experts of a direct call."""
        routing = self.route(inputs, training)
        mixture = routing.mix(experts)
        record_call(self, routing, experts, mixture)
        return mixture

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return infer_outputs(self, args, kwargs)

    def __repr__(self) -> str:
        """Show the name, and whether the gate is static; the first call decides."""
        kind = "per-example" if self.per_example else "static"
        kind = kind if self.built else "not built"
        return f"<{type(self).__name__} name={self.name}: {kind}>"

    def route(self, inputs: Any = None, training: bool | None = None) -> Routing:
        """Compute the weights of one call, for layers that combine the experts.

        In training this counts the step, adds the auxiliary losses and drops experts.
        The inputs are routing inputs, or `RouterInputs`.
        """
        if training:
            # Keras would copy the number to the device on torch.
            self.step.assign(ops.convert_to_tensor(self.step) + 1)
        routing = self._routing(inputs, training)
        weights = routing.only_valid(routing.weights)
        if training:
            for penalty in self._penalties(routing).values():
                self.add_loss(penalty)
            weights = drop_weights(weights, self.weight_dropout, self.generator)
        return routing._replace(weights=weights)

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

    def _routing(self, inputs, training):
        """Compute the weights, and complete the value of the subclass."""
        inputs = complete_inputs(self, inputs)
        routing = self.compute_weights(inputs, bool(training), self.step)
        per_example = inputs.routing_inputs is not None
        self._check_routing(routing, per_example)
        return routing._replace(
            per_example=per_example,
            max_experts=self._max_experts,
            valid=inputs.valid,
            examples=inputs.examples,
        )

    def _check_routing(self, routing, per_example):
        """Raise an error for what `compute_weights` must not return."""
        shape = tuple(routing.weights.shape) if isinstance(routing, Routing) else ()
        wanted = (*["batch"] * per_example, *self.gate_shape, self.num_experts)
        # Sizes may be unknown, or symbols.
        if len(shape) != len(wanted) or any(
            int is type(size) is type(own) and size != own
            for size, own in zip(shape, wanted, strict=True)
        ):
            raise ValueError(
                f"{type(self).__name__}.compute_weights must return a `Routing` whose "
                f"weights have the shape ({', '.join(map(str, wanted))}). Received: "
                f"{f'weights of shape {shape}' if shape else type(routing)}. "
                "Return Routing(weights)."
            )

    def _penalties(self, routing):
        """Compute the auxiliary losses of a training call, by name."""
        penalties = self.compute_penalties(routing, self.step)
        if self.weights_regularizer is not None:
            penalty = self.weights_regularizer.penalty(routing, self.step)
            penalties["weights"] = penalty
        return penalties
