"""A regularizer whose weight may follow a schedule."""

import abc
from typing import Any

import keras

from dselectk_keras.schedules import ScheduledValue
from dselectk_keras.utils import deserialize_if_config


class ScheduledRegularizer(keras.regularizers.Regularizer, abc.ABC):
    """A weight, fixed or scheduled, times a term that a subclass defines.

    Calling the regularizer counts the call and returns the weighted term; the
    schedule sees 1 at the first call. A gate counts once a training step.

    Args:
        weight: A number, a `LearningRateSchedule`, or a callable of the number of
            calls.
    """

    weight_name = "weight"
    # Whether `inputs` are a gate's weights over the experts, or may be.
    of_weights = True
    # Whether `inputs` is a pair, the weights and the routing inputs.
    sees_inputs = False

    def __init__(self, weight):
        self.scheduled = ScheduledValue(weight, self.weight_name)

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

    @property
    def num_calls(self):
        """The variable that counts the calls."""
        return self.scheduled.num_calls

    @abc.abstractmethod
    def term(self, inputs) -> Any:
        """The scalar to be weighted."""

    def advance(self):
        """Count a call."""
        self.scheduled.advance()

    def value(self, inputs):
        """The weighted term at the present count, without counting a call."""
        return self.scheduled() * self.term(inputs)

    def __call__(self, inputs):
        """Count a call and return the weighted term."""
        self.advance()
        return self.value(inputs)

    def get_config(self):
        """The arguments of `__init__`."""
        return {self.weight_name: self.scheduled.serialize()}
