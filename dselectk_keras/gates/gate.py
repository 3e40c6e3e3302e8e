"""What every gate is."""

import abc
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.gates.selection import Selection
from dselectk_keras.ops import mix
from dselectk_keras.regularizers import ScheduledRegularizer
from dselectk_keras.utils import check_count


class Gate(keras.Layer, abc.ABC):
    r"""Weights over experts, and the mixture that they make.

    $$
    y = \sum_{i=1}^{n} g_i \, f_i, \qquad g_i \ge 0, \quad \sum_i g_i = 1
    $$

    A gate is static when it is called on the experts alone: its weights are then
    parameters. Called on a tuple of experts and routing inputs it is per-example:
    the weights are computed from the routing inputs. The first call decides which.

    A subclass creates its variables in `build_logits` and computes the weights in
    `compute_weights`; what it adds to the loss in training comes from
    `compute_penalties`.

    Args:
        num_gates: How many gates the layer holds, in one batched set of weights;
            `None` for a single gate without an axis for it.
        weights_regularizer: A regularizer of the weights over the batch, such as
            `ImportanceRegularizer(0.1)`.
        expert_dropout: The probability with which an expert is dropped in training.
            The weights of the others are scaled up to the same sum; where all would
            be dropped, none is. A gate that chooses some experts by their logits
            chooses among those that are left.
        seed: Seed of what the gate draws in training.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: The experts, as a list of `n` tensors `(batch, ...)` or one tensor
            `(batch, n, ...)`; or a tuple of the experts and the routing inputs, a
            tensor `(batch, features)`. Several gates may look at one each:
            `(batch, num_gates, features)`, which is not a sequence.
        training: Whether to add the penalties to the loss, and to draw, where a
            gate draws anything.

    Returns:
        The mixture, `(batch, ...)`, or `(batch, num_gates, ...)`.
    """

    # Whether the gate draws anything in training, with `generator`.
    draws = False
    # Whether the gate itself calls `drop_experts`, on its logits.
    drops_logits = False
    # Whether weights are exactly zero from the first step on.
    sparse_at_once = False
    # Whether there is no static gate of the kind.
    per_example_only = False
    # Whether the gate looks at the experts' hidden outputs beside the inputs.
    sees_hidden = False
    # The ranks that routing inputs may have, for one gate.
    routing_ranks = (2,)

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
        if not 0 <= expert_dropout < 1:
            raise ValueError(
                "`expert_dropout` must be a probability below 1. "
                f"Received: expert_dropout={expert_dropout}."
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
        self._schedules = []
        # A model that runs a step twice turns this off for the second time.
        self.counts_calls = True
        random = self.draws or expert_dropout
        self.generator = keras.random.SeedGenerator(seed) if random else None
        self.track_schedule(self.weights_regularizer)

    # What a gate defines.

    @abc.abstractmethod
    def build_logits(self):
        """Create the variables, for `num_experts` and `routing_dim`."""

    @abc.abstractmethod
    def compute_weights(self, routing_inputs, training) -> tuple[Any, dict]:
        """The weights over the experts, and what the penalties need.

        Args:
            routing_inputs: Tensor `(batch, features)`, or `None` if static.
            training: Whether this is a training call.

        Returns:
            A float32 tensor `([batch,] [num_gates,] n)` and a dict of tensors.
        """

    def compute_penalties(self, weights, parts) -> dict:
        """The terms that a training call adds to the loss, by name.

        Args:
            weights: The weights that `compute_weights` returned.
            parts: The dict that it returned beside them.

        Returns:
            A dict of scalars, in the order in which they are added.
        """
        return {}

    def compute_diagnostics(self, parts) -> dict:
        """What is worth watching about each selector; nothing for most gates.

        Args:
            parts: The dict that `compute_weights` returned beside the weights.

        Returns:
            A dict of tensors `([batch,] [num_gates,] k)`.
        """
        return {}

    # What a gate is asked for.

    def expert_weights(self, routing_inputs=None):
        """The weights over the experts, as at inference.

        Args:
            routing_inputs: Tensor `(batch, features)` for a per-example gate.

        Returns:
            A float32 tensor `(n,)`, or `(batch, n)` for a per-example gate, with
            an axis for the gates before the last if there are several.
        """
        weights, _ = self.compute_weights(self._routing(routing_inputs), False)
        return weights

    def report(self, routing_inputs=None):
        """All there is to watch, from one evaluation of the gate.

        Args:
            routing_inputs: Tensor `(batch, features)` for a per-example gate.

        Returns:
            A dict with `"weights"`, as from `expert_weights`; `"penalties"`, a dict of
            the terms that a training step would add to the loss now; and
            `"selectors"`, a dict of tensors `([batch,] [num_gates,] k)`, for gates
            that have selectors.
        """
        routing_inputs = self._routing(routing_inputs)
        weights, parts = self.compute_weights(routing_inputs, False)
        return {
            "weights": weights,
            "penalties": self._all_penalties(weights, parts, routing_inputs),
            "selectors": self.compute_diagnostics(parts),
        }

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

    # The layer.

    @property
    def per_example(self):
        """Whether the gate looks at routing inputs; known once it is built."""
        return self.routing_dim is not None

    def build(self, input_shape):
        """Create the variables for these shapes of experts and routing inputs."""
        experts, routing = split_pair(input_shape)
        if _is_shape(experts):
            if len(experts) < 2 or experts[1] is None:
                raise ValueError(
                    "Experts in one tensor must have the shape (batch, num_experts, "
                    f"...) with num_experts known. Received: {_text(experts)}. Pass "
                    "a list of tensors, or stack them on axis 1."
                )
            self.num_experts = experts[1]
        else:
            experts = experts or []  # Keras gives None as the shapes of an empty list.
            _check_same_shape(experts)
            self.num_experts = len(experts)
        if routing is not None:
            self.read_routing_shape(routing)
        regularizer = self.weights_regularizer
        if regularizer is not None and regularizer.sees_inputs and routing is None:
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
        self.built = True

    def call(self, inputs, training=None):
        """Mix the experts."""
        if self.per_example and isinstance(inputs, list) and len(inputs) == 2:
            # A model that is loaded from a file has lists where it had tuples.
            inputs = tuple(inputs)
        experts, routing_inputs = split_pair(inputs)
        if isinstance(experts, list):
            _check_same_shape([expert.shape for expert in experts])
        count = len(experts) if isinstance(experts, list) else experts.shape[1]
        if count != self.num_experts:
            raise ValueError(
                f"This gate was built for {self.num_experts} experts. Received: "
                f"{count}. Make a new gate for another number of experts."
            )
        weights = self.route(routing_inputs, training)
        return mix(experts, weights, self.per_example, self.used_experts)

    def route(self, routing_inputs=None, training=None):
        """The weights for one step: what a layer needs that mixes in its own way.

        In training this counts the call, adds the penalties to the loss and drops
        experts.

        Args:
            routing_inputs: Tensor `(batch, features)` for a per-example gate.
            training: Whether this is a training call.

        Returns:
            A float32 tensor `([batch,] [num_gates,] n)`.
        """
        routing_inputs = self._routing(routing_inputs)
        if training and self.counts_calls:
            for schedule in self._schedules:
                schedule.advance()
        weights, parts = self.compute_weights(routing_inputs, bool(training))
        if training:
            for penalty in self._all_penalties(weights, parts, routing_inputs).values():
                self.add_loss(penalty)
            if self.expert_dropout and not self.drops_logits:
                weights = self._without_dropped(weights)
        return weights

    def drop_experts(self, logits, training):
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

    def track_schedule(self, schedule):
        """Count the training calls of this gate in something that has a schedule.

        Args:
            schedule: A `ScheduledValue`, a `ScheduledRegularizer` or `None`. Its
                counter is saved with the gate but is not one of its weights.
        """
        if schedule is None:
            return
        setattr(self, f"_counter_{len(self._schedules)}", schedule.num_calls)
        self._schedules.append(schedule)

    @property
    def weights(self):
        """The weights of the gate, in the order of the original release."""
        counters = {id(schedule.num_calls) for schedule in self._schedules}
        return [weight for weight in super().weights if id(weight) not in counters]

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

    def get_build_config(self):
        """What the gate was built for; nothing before that."""
        if not self.built:
            return None
        return {"num_experts": self.num_experts, "routing_dim": self.routing_dim}

    def build_from_config(self, config):
        """Build from `get_build_config`."""
        experts, routing_dim = (None, config["num_experts"]), config["routing_dim"]
        self.build(experts if routing_dim is None else (experts, (None, routing_dim)))

    @property
    def gate_shape(self):
        """The leading axes of the logits: one for the gates, if there is one."""
        return () if self.num_gates is None else (self.num_gates,)

    def read_routing_shape(self, shape):
        """Check the shape of the routing inputs, and learn their features.

        Args:
            shape: Shape of the routing inputs, with the batch.
        """
        ranks = {*self.routing_ranks}
        if self.num_gates is not None:
            ranks.add(3)
        known = _is_shape(shape) and len(shape) in ranks and shape[-1] is not None
        if not known and not (_is_shape(shape) and len(shape) == 1 and 1 in ranks):
            raise ValueError(
                "Routing inputs must be one tensor of shape (batch, features) "
                f"with features known. Received: {_text(shape)}. Flatten or "
                "pool them first; `MoE` and `MMoE` take a layer for that, "
                "routing=keras.layers.GlobalAveragePooling1D(). (A tuple means "
                "experts and routing inputs; pass experts alone as a list.)"
            )
        if len(shape) == 3 and shape[1] != self.num_gates:
            raise ValueError(
                f"{self.num_gates} gates need as many routing inputs, (batch, "
                f"{self.num_gates}, features), or one for all, (batch, features). "
                f"Received: {_text(shape)}."
            )
        self.routing_dim = 1 if len(shape) == 1 else shape[-1]

    def read_routing_inputs(self, routing_inputs) -> Any:
        """Check the routing inputs of a call, and give them an axis of features.

        Args:
            routing_inputs: What the gate is called with.

        Returns:
            A tensor `(batch, [num_gates,] features)`.
        """
        routing_inputs = ops.convert_to_tensor(routing_inputs)
        if len(routing_inputs.shape) == 1 and 1 in self.routing_ranks:
            routing_inputs = ops.expand_dims(routing_inputs, -1)
        if routing_inputs.shape[-1] != self.routing_dim or tuple(
            routing_inputs.shape[1:-1]
        ) not in {(), (self.num_gates,)}:
            raise ValueError(
                f"Routing inputs must have the shape (batch, {self.routing_dim}), as "
                f"when the gate was built. Received: {_text(routing_inputs.shape)}."
            )
        return routing_inputs

    def inputs_of(self, routing_inputs):
        """What the gate looks at, as a regularizer of the weights sees it."""
        return routing_inputs

    def _without_dropped(self, weights):
        """The weights of the experts that are left, scaled up to the same sum."""
        dropped = self.drop_experts(ops.zeros_like(weights), True) < 0
        total = ops.sum(weights, axis=-1, keepdims=True)
        kept = ops.where(dropped, 0.0, weights)
        left = ops.sum(kept, axis=-1, keepdims=True)
        scaled = kept * total / ops.where(left > 0, left, 1.0)
        return ops.where(left > 0, scaled, weights)

    def _all_penalties(self, weights, parts, routing_inputs):
        penalties = self.compute_penalties(weights, parts)
        regularizer = self.weights_regularizer
        if regularizer is not None:
            # Where the weights are drawn, what they are drawn from.
            weights = parts.get("probabilities", weights)
            batch = weights if self.per_example else ops.expand_dims(weights, 0)
            penalties["weights"] = regularizer.value(
                (batch, self.inputs_of(routing_inputs))
                if regularizer.sees_inputs
                else batch
            )
        return penalties

    def _routing(self, routing_inputs):
        if not self.built:
            raise ValueError(
                f"The gate {self.name!r} has no weights yet. Call it on experts "
                "first, or build it."
            )
        if self.per_example != (routing_inputs is not None):
            expected, mend = (
                ("per-example", "pass routing inputs (with experts: as a tuple)")
                if self.per_example
                else ("static", "leave the routing inputs out")
            )
            raise ValueError(
                f"The gate {self.name!r} was built {expected}: {mend}. Received: "
                f"routing inputs {'missing' if self.per_example else 'given'}."
            )
        return (
            None if routing_inputs is None else self.read_routing_inputs(routing_inputs)
        )


def split_pair(inputs) -> tuple[Any, Any]:
    """Split what a gate, or a layer with one, is called on.

    Args:
        inputs: A tuple of two, or anything else. Shapes are tuples as well: one
            of numbers is not a pair.

    Returns:
        The two members of the pair, or `inputs` and `None`.
    """
    if isinstance(inputs, tuple) and not _is_shape(inputs):
        if len(inputs) != 2:
            raise ValueError(
                "A tuple must hold two things: (experts, routing_inputs) for a "
                "gate, (inputs, routing_inputs) for a layer with a gate. Received: "
                f"{len(inputs)}. Pass experts as a list or as one tensor."
            )
        return inputs
    return inputs, None


def _is_shape(value):
    return isinstance(value, tuple) and all(
        size is None or isinstance(size, int) for size in value
    )


def _check_same_shape(shapes):
    shapes = [tuple(shape) for shape in shapes]
    if not shapes or len(set(shapes)) > 1:
        raise ValueError(
            "A gate needs one expert or more, all of the same shape. Received "
            f"shapes: {', '.join(_text(shape) for shape in shapes) or 'none'}. Give "
            "the experts the same number of units."
        )


def _text(shape):
    return str(tuple(shape))
