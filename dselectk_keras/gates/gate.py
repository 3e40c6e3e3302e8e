"""What every gate is."""

import abc
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from dselectk_keras.gates.selection import Selection
from dselectk_keras.ops import mix
from dselectk_keras.regularizers.scheduled import ScheduledRegularizer
from dselectk_keras.utils import check_count, num_replicas


class GateOutputs(NamedTuple):
    """What a gate computes: its weights, and what penalties and plots need.

    Args:
        weights: The weights over the experts, `([batch,] [num_gates,] n)`.
        probabilities: Where the weights are drawn, what they are drawn from.
        selectors: The weights of each selector, `([batch,] [num_gates,] k, n)`.
        bits: The relaxed bits of each selector, `([batch,] [num_gates,] k, m)`.
        logits: Of gates that open experts one by one, the logits of being open.
        load: The probability that noise keeps each expert.
    """

    weights: Any
    probabilities: Any = None
    selectors: Any = None
    bits: Any = None
    logits: Any = None
    load: Any = None


class _KeepsArguments:
    """Keeps what a layer was made with, so that it can be made again."""

    def __new__(cls, *args, **kwargs):
        layer: Any = super().__new__(cls, *args, **kwargs)
        layer.init_arguments = args, kwargs
        return layer


class Gate(_KeepsArguments, keras.Layer, abc.ABC):
    r"""Weights over experts, and the mixture that they make.

    $$
    y = \sum_{i=1}^{n} g_i \, f_i, \qquad g_i \ge 0, \quad \sum_i g_i = 1
    $$

    A gate is static when it is called on the experts alone: its weights are then
    parameters. Called with routing inputs it is per-example: the weights are computed
    from them. The first call decides which.

    A subclass creates its variables in `build_logits` and computes the weights in
    `compute_weights`; what it adds to the loss in training comes from
    `compute_penalties`. All three are functions of `step`, the number of training
    calls, which the gate counts in its last weight.

    Args:
        num_gates: The number of gates that the layer holds, in one batched set of
            weights; `None` for a single gate without an axis for it.
        weights_regularizer: A regularizer of the weights over the batch, such as
            `ImportanceRegularizer(0.1)`.
        expert_dropout: The probability with which an expert is dropped in training.
            The weights of the others are scaled up to the same sum; where all would
            be dropped, none is. A gate that chooses some experts by their logits
            chooses among those that are left.
        seed: Seed of what the gate draws in training.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        experts: The experts' outputs, as a list of `n` tensors `(batch, ...)` or one
            tensor `(batch, n, ...)`. A tuple of experts and routing inputs, as in
            the original release, stands for the two arguments.
        routing_inputs: For a per-example gate, a tensor `(batch, features)`. Several
            gates may look at one each: `(batch, num_gates, features)`.
        training: Whether to add the penalties to the loss, and to draw, where a
            gate draws anything.

    Returns:
        The mixture, `(batch, ...)`, or `(batch, num_gates, ...)`.
    """

    # Whether weights are exactly zero from the first step on.
    always_sparse = False
    # How penalties of a per-example gate are reduced over the batch, where it has any.
    reduction = "sum"
    # Whether there is no static gate of the kind.
    per_example_only = False

    def __init__(
        self,
        num_gates=None,
        weights_regularizer=None,
        expert_dropout=0.0,
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if num_gates is not None:
            check_count("num_gates", num_gates)
        if not isinstance(expert_dropout, (int, float)) or not 0 <= expert_dropout < 1:
            raise ValueError(
                "`expert_dropout` must be a probability below 1. "
                f"Received: expert_dropout={expert_dropout!r}."
            )
        self.num_gates = num_gates
        self.weights_regularizer = ScheduledRegularizer.get(weights_regularizer)
        if not getattr(self.weights_regularizer, "of_weights", True):
            raise ValueError(
                f"{type(self.weights_regularizer).__name__} is not a regularizer of a "
                "gate's weights. `ImportanceRegularizer`, `LoadRegularizer`, "
                "`EntropyRegularizer` and `SampleSimilarityRegularizer` are."
            )
        self.expert_dropout = expert_dropout
        self.seed = seed
        self.num_experts: Any = None
        self.routing_dim: Any = None
        self.step: Any = None
        self.generator: Any = None
        # A function that is given a report of each call; `GateRecorder` sets it.
        self.observer: Any = None
        if expert_dropout:
            self.make_generator()

    # What a gate defines.

    @abc.abstractmethod
    def build_logits(self):
        """Create the variables, for `num_experts` and `routing_dim`."""

    @abc.abstractmethod
    def compute_weights(self, routing_inputs, training, step) -> GateOutputs:
        """The weights over the experts, and what the penalties need.

        Args:
            routing_inputs: Tensor `(batch, features)`, or `None` if static.
            training: Whether this is a training call.
            step: The number of training calls, this one included.

        Returns:
            A `GateOutputs` with float32 weights `([batch,] [num_gates,] n)`.
        """

    def compute_penalties(self, outputs, step) -> dict:
        """The terms that a training call adds to the loss, by name.

        Args:
            outputs: What `compute_weights` returned.
            step: The number of training calls, this one included.

        Returns:
            A dict of scalars, in the order in which they are added.
        """
        return {}

    def over_batch(self, penalty, outputs):
        """A penalty of a batch: its sum over the examples, or their mean.

        Args:
            penalty: The sum over the examples of this call.
            outputs: What `compute_weights` returned.

        Returns:
            A scalar: the sum over all replicas that share the batch, or with
            `reduction="mean"` the mean.
        """
        if not self.per_example:
            return penalty
        if self.reduction == "mean":
            return penalty / ops.cast(ops.shape(outputs.weights)[0], "float32")
        return penalty * num_replicas()

    def describe_selectors(self, outputs) -> dict:
        """What is worth watching about each selector; nothing for most gates.

        Args:
            outputs: What `compute_weights` returned.

        Returns:
            A dict of tensors `([batch,] [num_gates,] k)`.
        """
        return {}

    # What a gate is asked for.

    def expert_weights(self, routing_inputs=None, **context):
        """The weights over the experts, as at inference.

        Args:
            routing_inputs: Tensor `(batch, features)` for a per-example gate.
            **context: What else the gate looks at, by the name of its call argument.

        Returns:
            A float32 tensor `(n,)`, or `(batch, n)` for a per-example gate, with
            an axis for the gates before the last if there are several.
        """
        routing_inputs = self.check_routing_inputs(routing_inputs)
        return self.compute_weights(routing_inputs, False, self.step, **context).weights

    def report(self, routing_inputs=None, **context):
        """All there is to watch, from one evaluation of the gate.

        Args:
            routing_inputs: Tensor `(batch, features)` for a per-example gate.
            **context: What else the gate looks at, by the name of its call argument.

        Returns:
            A dict with `"weights"`, as from `expert_weights`; `"penalties"`, a dict of
            the terms that the next training step will add to the loss; and
            `"selectors"`, a dict of tensors `([batch,] [num_gates,] k)`, for gates
            that have selectors.
        """
        routing_inputs = self.check_routing_inputs(routing_inputs)
        outputs = self.compute_weights(routing_inputs, False, self.step, **context)
        return self._report(outputs, routing_inputs, self.step + 1)

    def selection(self) -> Selection:
        """What a static gate has decided: which experts, and how firmly.

        Returns:
            A `Selection`.
        """
        raise ValueError(
            f"{type(self).__name__} does not choose among experts for good, so that "
            "none can be left out. `DSelectKGate`, `SoftmaxSelectorGate` and "
            "`TopKGate` do."
        )

    @property
    def max_experts(self) -> int | None:
        """How many weights of one gate are not zero at most, if that is known."""
        return None

    @property
    def used_experts(self) -> np.ndarray | None:
        """Booleans `([num_gates,] n)`: the experts in use, where they are settled."""
        return None

    def with_num_gates(self, num_gates) -> "Gate":
        """The gate for a number of gates: a copy, unless it has that number.

        Args:
            num_gates: The number.

        Returns:
            A gate that is not built, or this one.
        """
        if self.num_gates == num_gates:
            return self
        if self.num_gates is not None or self.built:
            raise ValueError(
                f"A gate with num_gates={num_gates} is needed here. Received: one with "
                f"num_gates={self.num_gates}{', built already' if self.built else ''}. "
                "Pass a new gate with num_gates=None."
            )
        return self.unbuilt_copy(num_gates=num_gates)

    def unbuilt_copy(self, **changes) -> "Gate":
        """A gate with the same settings, without weights yet.

        Args:
            **changes: Arguments that are to change.

        Returns:
            A gate that is not built.
        """
        args, kwargs = self.init_arguments
        return type(self)(*args, **{**kwargs, **changes})

    # The layer.

    @property
    def per_example(self):
        """Whether the gate looks at routing inputs; known once it is built."""
        return self.routing_dim is not None

    def __call__(self, experts, routing_inputs=None, **kwargs):
        """Mix the experts; see the class."""
        return super().__call__(*as_arguments(experts, routing_inputs), **kwargs)

    def build(self, experts_shape=None, routing_inputs_shape=None):
        """Create the variables for these shapes of experts and routing inputs."""
        self.num_experts = _count_experts(experts_shape)
        if self.per_example_only and routing_inputs_shape is None:
            raise ValueError(
                f"{type(self).__name__} is per-example: there is no static one. "
                "Received: no routing inputs. Call it as gate(experts, "
                "routing_inputs); in a layer, set per_example=True."
            )
        if routing_inputs_shape is not None:
            self.routing_dim = self._read_routing_dim(tuple(routing_inputs_shape))
        regularizer = self.weights_regularizer
        if regularizer is not None and regularizer.sees_inputs and not self.per_example:
            raise ValueError(
                f"{type(regularizer).__name__} compares the weights of examples, and "
                "a static gate has the same for all. Pass routing inputs, or take "
                "another regularizer."
            )
        self.build_logits()
        if regularizer is not None and not self.weights:
            raise ValueError(
                f"{type(self).__name__} has nothing to learn, so that a regularizer "
                "does nothing. Received: a weights_regularizer. Leave it out."
            )
        self.step = self.add_weight(
            name="step",
            shape=(),
            dtype="int32",
            initializer="zeros",
            trainable=False,
        )
        self.built = True

    def call(self, experts, routing_inputs=None, training=None):
        """Mix the experts."""
        return self.mixture(experts, self.weigh_experts(routing_inputs, training))

    def mixture(self, experts, weights):
        """The sum of the experts' outputs, weighed.

        Args:
            experts: The experts' outputs, as for a call.
            weights: What `weigh_experts` returned.

        Returns:
            A tensor `(batch, ...)`, or `(batch, num_gates, ...)`.
        """
        if isinstance(experts, list):
            _check_same_shape([expert.shape for expert in experts])
        count = len(experts) if isinstance(experts, list) else experts.shape[1]
        if count != self.num_experts:
            raise ValueError(
                f"This gate was built for {self.num_experts} experts. Received: "
                f"{count}. Make a new gate for another number of experts."
            )
        return mix(experts, weights, self.per_example, self.used_experts)

    def weigh_experts(self, routing_inputs=None, training=None, **context):
        """The weights of one call, for a layer that combines experts in its own way.

        In training this counts the step, adds the penalties to the loss and drops
        experts.

        Args:
            routing_inputs: Tensor `(batch, features)` for a per-example gate.
            training: Whether this is a training call.
            **context: What else the gate looks at, by the name of its call argument.

        Returns:
            A float32 tensor `([batch,] [num_gates,] n)`.
        """
        training = bool(training)
        routing_inputs = self.check_routing_inputs(routing_inputs)
        if training:
            self.step.assign_add(1)
        outputs = self.compute_weights(routing_inputs, training, self.step, **context)
        if self.observer is not None:
            step = self.step + int(not training)
            self.observer(self._report(outputs, routing_inputs, step))
        weights = outputs.weights
        if training:
            penalties = self._penalties(outputs, routing_inputs, self.step)
            for penalty in penalties.values():
                self.add_loss(penalty)
            if self.expert_dropout:
                weights = self.drop_weights(weights)
        return weights

    # Dropping experts.

    def make_generator(self):
        """Make the generator of what is drawn in training, unless there is one."""
        if self.generator is None:
            self.generator = keras.random.SeedGenerator(self.seed)

    def drop_logits(self, logits, training):
        """Logits with minus infinity where training drops an expert.

        Args:
            logits: Tensor `(..., n)`.
            training: Whether this is a training call.

        Returns:
            A tensor of the shape of `logits`.
        """
        if not (training and self.expert_dropout):
            return logits
        draw = keras.random.uniform(ops.shape(logits), seed=self.generator)
        keep = draw >= self.expert_dropout
        keep = ops.logical_or(keep, ops.logical_not(ops.any(keep, -1, keepdims=True)))
        return ops.where(keep, logits, -float("inf"))

    def drop_weights(self, weights):
        """The weights of the experts that are left, scaled up to the same sum.

        A gate that has dropped logits returns the weights as they are.

        Args:
            weights: Tensor `(..., n)`.

        Returns:
            A tensor of the shape of `weights`.
        """
        dropped = self.drop_logits(ops.zeros_like(weights), True) < 0
        total = ops.sum(weights, axis=-1, keepdims=True)
        kept = ops.where(dropped, 0.0, weights)
        left = ops.sum(kept, axis=-1, keepdims=True)
        scaled = kept * total / ops.where(left > 0, left, 1.0)
        return ops.where(left > 0, scaled, weights)

    # Weights, saving and checks.

    def set_weights(self, weights):
        """Set the weights from arrays, such as the original release's.

        Args:
            weights: Arrays in the order of `weights`. The last, the step, may be left
                out: it then stays as it is.
        """
        weights = list(weights)
        if len(weights) == len(self.weights) - 1:
            weights.append(ops.convert_to_numpy(self.step))
        super().set_weights(weights)

    def get_config(self):
        """The arguments of `__init__`."""
        return {
            **super().get_config(),
            "num_gates": self.num_gates,
            "weights_regularizer": keras.regularizers.serialize(
                self.weights_regularizer
            ),
            "expert_dropout": self.expert_dropout,
            "seed": self.seed,
        }

    @property
    def gate_shape(self):
        """The leading axes of the logits: one for the gates, if there is one."""
        return () if self.num_gates is None else (self.num_gates,)

    def check_routing_inputs(self, routing_inputs) -> Any:
        """Check the routing inputs of a call, and give them an axis of features.

        Args:
            routing_inputs: What the gate is called with, or `None`.

        Returns:
            A tensor `(batch, [num_gates,] features)`, or `None`.
        """
        if not self.built:
            raise ValueError(
                f"The gate {self.name!r} has no weights yet. Call it on experts "
                "first, or build it."
            )
        if self.per_example != (routing_inputs is not None):
            expected, mend = (
                ("per-example", "pass routing inputs, gate(experts, routing_inputs)")
                if self.per_example
                else ("static", "leave the routing inputs out")
            )
            raise ValueError(
                f"The gate {self.name!r} was built {expected}: {mend}. Received: "
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

    def _read_routing_dim(self, shape):
        """The number of features, of the shape of the routing inputs."""
        if len(shape) == 1:
            return 1
        rank = len(shape) if all(map(_is_size, shape)) else 0
        if rank not in ({2} if self.num_gates is None else {2, 3}) or not shape[-1]:
            raise ValueError(
                "Routing inputs must be one tensor of shape (batch, features) "
                f"with features known. Received: {shape}. Flatten or pool them first; "
                "`MoE` and `MMoE` take a layer for that, "
                "routing_network=keras.layers.GlobalAveragePooling1D()."
            )
        if rank == 3 and shape[1] != self.num_gates:
            raise ValueError(
                f"{self.num_gates} gates need as many routing inputs, (batch, "
                f"{self.num_gates}, features), or one for all, (batch, features). "
                f"Received: {shape}."
            )
        return shape[-1]

    def _penalties(self, outputs, routing_inputs, step):
        penalties = self.compute_penalties(outputs, step)
        regularizer = self.weights_regularizer
        if regularizer is not None:
            # Where the weights are drawn, what they are drawn from.
            drawn_from = outputs.probabilities
            weights = outputs.weights if drawn_from is None else drawn_from
            batch = weights if self.per_example else ops.expand_dims(weights, 0)
            seen = (batch, routing_inputs) if regularizer.sees_inputs else batch
            penalties["weights"] = regularizer(seen, step)
        return penalties

    def _report(self, outputs, routing_inputs, step):
        return {
            "weights": outputs.weights,
            "penalties": self._penalties(outputs, routing_inputs, step),
            "selectors": self.describe_selectors(outputs),
        }


def as_arguments(inputs, routing_inputs=None):
    """The arguments of a gate, or of a layer with one, that may come as a tuple.

    Args:
        inputs: The first argument; or a tuple of the two, as in the original release.
        routing_inputs: The second argument, or `None`.

    Returns:
        A tuple of the arguments that are given.
    """
    if isinstance(inputs, tuple):
        if len(inputs) != 2 or routing_inputs is not None:
            raise ValueError(
                "A tuple stands for two arguments: (experts, routing_inputs) of a "
                "gate, (inputs, routing_inputs) of a layer with a gate. Received: "
                f"a tuple of {len(inputs)}"
                f"{'' if routing_inputs is None else ' and routing inputs besides'}. "
                "Pass experts as a list or as one tensor."
            )
        inputs, routing_inputs = inputs
    return (inputs,) if routing_inputs is None else (inputs, routing_inputs)


def _is_size(value):
    return value is None or isinstance(value, int)


def _count_experts(shape):
    """The number of experts, of the shape of their outputs or a list of shapes."""
    shape = shape or []  # Keras gives None as the shapes of an empty list.
    if not shape or not all(map(_is_size, shape)):
        _check_same_shape(shape)
        return len(shape)
    if len(shape) < 2 or shape[1] is None:
        raise ValueError(
            "Experts in one tensor must have the shape (batch, num_experts, "
            f"...) with num_experts known. Received: {tuple(shape)}. Pass "
            "a list of tensors, or stack them on axis 1."
        )
    return shape[1]


def _check_same_shape(shapes):
    shapes = [tuple(shape) for shape in shapes]
    if not shapes or len(set(shapes)) > 1:
        raise ValueError(
            "A gate needs one expert or more, all of the same shape. Received "
            f"shapes: {', '.join(map(str, shapes)) or 'none'}. Give "
            "the experts the same number of units."
        )
