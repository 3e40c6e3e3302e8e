"""A regularizer whose weight may follow a schedule."""

import abc
from typing import Any

import keras

from dselectk_keras.schedules import check_schedule, serialize_schedule, value_at
from dselectk_keras.utils import deserialize_if_config


class ScheduledRegularizer(keras.regularizers.Regularizer, abc.ABC):
    """A weight, fixed or scheduled, times a term that a subclass defines.

    A regularizer has no state: the gate that uses it passes its own step. One
    regularizer may serve several gates.

    Args:
        weight: A number, a `LearningRateSchedule`, or a callable of the step.
    """

    # Whether a gate may take it as `weights_regularizer`.
    of_weights = True
    # Whether `inputs` is a pair: the weights and the routing inputs.
    sees_inputs = False

    def __init__(self, weight):
        self.weight = check_schedule(weight, "weight")

    @classmethod
    def get(cls, identifier):
        """A regularizer from itself, its config, a number, a schedule or `None`."""
        identifier = deserialize_if_config(identifier)
        if identifier is None or isinstance(identifier, ScheduledRegularizer):
            return identifier
        if cls is ScheduledRegularizer:
            raise ValueError(
                "Expected a regularizer of this package, such as "
                f"`ImportanceRegularizer(0.1)`. Received: {identifier!r}."
            )
        return cls(identifier)

    @abc.abstractmethod
    def term(self, inputs) -> Any:
        """The scalar to be weighted."""

    def __call__(self, inputs, step=1):
        """The weighted term.

        Args:
            inputs: What the regularizer measures.
            step: The training step at which a scheduled weight is taken, from 1.

        Returns:
            A float32 scalar.
        """
        return value_at(self.weight, step) * self.term(inputs)

    def get_config(self):
        """The arguments of `__init__`."""
        return {"weight": serialize_schedule(self.weight, "weight")}
