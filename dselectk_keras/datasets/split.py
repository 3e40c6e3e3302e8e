"""A part of a data set."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Split(NamedTuple):
    """Inputs and labels of one part of a data set.

    A split is a pair, so that `model.fit(*data.train, validation_data=data.validation)`
    works.

    Args:
        x: The inputs, an array (samples, ...) or a mapping from input names to such
            arrays.
        y: The labels, an array (samples, tasks) when every task has a scalar label,
            else a mapping from task names to arrays (samples, ...).
    """

    # `Any`, because users know which of the two a data set has.
    x: Any
    y: Any

    @property
    def num_samples(self) -> int:
        """The number of examples."""
        first = next(iter(self.x.values())) if isinstance(self.x, Mapping) else self.x
        return len(first)
