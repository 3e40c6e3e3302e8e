"""The base classes of regularizers."""

import abc
from typing import Any

import keras

from dselectk_keras.schedules import check_schedule, value_at
from dselectk_keras.utils import Configured, Tensor


class ScheduledRegularizer(Configured, keras.regularizers.Regularizer, abc.ABC):
    """An auxiliary loss: a constant or scheduled weight times a term.

    A subclass defines the term. A regularizer has no state: the gate passes its step.
    Under `tf.distribute`, the term is that of each replica's part of the batch.

    Args:
        weight: A number, a `LearningRateSchedule`, or a callable of the step.
    """

    def __init__(self, weight: Any):
        self.weight = check_schedule(weight, "weight")

    @classmethod
    def get(cls, identifier: Any, name: str) -> Any:
        """Convert the argument of this name, perhaps a weight, to a regularizer."""
        if identifier is None:
            return None
        if isinstance(identifier, cls):
            return identifier
        if cls.__abstractmethods__:
            kind = "this package" if cls is ScheduledRegularizer else "a gate's weights"
            wanted = f"a regularizer of {kind}, such as `ImportanceRegularizer(0.1)`"
        elif isinstance(identifier, keras.regularizers.Regularizer):
            # It is callable, but no schedule.
            wanted = f"a `{cls.__name__}`, or its weight"
        else:
            try:
                return cls(identifier)
            except ValueError as error:
                raise ValueError(f"`{name}`: {error}") from None
        raise ValueError(f"`{name}` must be {wanted}. Received: {name}={identifier!r}.")

    @abc.abstractmethod
    def term(self, inputs: Any) -> Tensor:
        """Compute the scalar that is multiplied by the weight."""

    def __call__(self, inputs: Any, step: Any = 1) -> Tensor:
        """Compute the term times its weight at a training step, from 1, in float32."""
        return value_at(self.weight, step) * self.term(inputs)


class WeightsRegularizer(ScheduledRegularizer, abc.ABC):
    """A regularizer that may be the `weights_regularizer` of a gate.

    Its term is of a batch of weights, `(batch, [num_gates,] n)`, in which a static gate
    has one row, unless a subclass overrides `penalty`.

    Args:
        weight: A number, a schedule, or a callable of the step.
    """

    def penalty(self, routing: Any, step: Any) -> Tensor:
        """Compute the term times its weight at a step, from a `Routing`."""
        return self(learned_weights(routing), step)


def learned_weights(routing: Any) -> Tensor:
    """A batch of weights; of drawn ones their probabilities, which have a gradient."""
    drawn = routing.probabilities is not None
    return routing.as_batch(routing.probabilities if drawn else routing.weights)
