"""The base class of regularizers of a gate's weights."""

import abc
from typing import Any

from dselectk_keras.regularizers.scheduled import ScheduledRegularizer
from dselectk_keras.utils import Tensor


class WeightsRegularizer(ScheduledRegularizer, abc.ABC):
    """A regularizer that may be the `weights_regularizer` of a gate.

    By default its term is of a batch of weights, `(batch, [num_gates,] n)`, in which a
    static gate has one row. A subclass that needs more overrides `penalty`.

    Args:
        weight: A number, a schedule, or a callable of the step.
    """

    def penalty(self, routing: Any, step: Any, reduction: str) -> Tensor:
        """Compute the term times its weight at a step, from a `Routing`.

        The `reduction`, `"sum"` or `"mean"`, is of terms that are sums over examples.
        """
        return self(learned_weights(routing), step)


def learned_weights(routing: Any) -> Tensor:
    """A batch of weights; of drawn ones their probabilities, which have a gradient."""
    drawn = routing.probabilities is not None
    return routing.as_batch(routing.probabilities if drawn else routing.weights)
