"""Copies that one JAX program can train."""

from typing import Any, NamedTuple

import keras
import numpy as np

from dselectk_keras.training.copies import Copy
from dselectk_keras.training.traced_epoch import num_samples, spec


class Member(NamedTuple):
    """A copy that waits to be trained: its variables and its numbers at the start."""

    copy: Copy
    state: Any
    numbers: list


class Group:
    """Copies whose epochs have the same form, so that one program trains them all.

    Args:
        model: The model of one of the copies.
        epoch: Its `TracedEpoch`.
    """

    def __init__(self, model, epoch):
        self.model = model
        self.epoch = epoch
        self.form = epoch.form
        self.members = []
        self.varying: list[int] = []
        self.lanes = self.workers = 1
        self.program: Any = None
        self._reads = self._can_read()

    def compile(self, data, lanes):
        """Compile the program that trains so many copies at once.

        State, numbers and order have an axis for them in front; the data have not.

        Args:
            data: A `Data`.
            lanes: How many copies it trains.
        """
        import jax  # pyright: ignore[reportMissingImports]

        self.lanes = lanes
        first = self.members[0]
        columns = zip(*(member.numbers for member in self.members), strict=True)
        self.varying = [
            place
            for place, column in enumerate(columns)
            if any(not np.array_equal(column[0], other, True) for other in column[1:])
        ]

        def epoch(state, numbers, order, train, validation):
            mine = list(first.numbers)
            for place, number in zip(self.varying, numbers, strict=True):
                mine[place] = number
            state, found = self.epoch(mine, state, order, train, validation)
            return state, tuple(map(self._read, found)) if self._reads else found

        def program(state, numbers, order, train, validation):
            if lanes > 1:
                axes = (0, 0, 0, None, None)
                several: Any = jax.vmap(epoch, axes)
                return several(state, numbers, order, train, validation)
            state, numbers, order = jax.tree.map(
                lambda a: a[0], (state, numbers, order)
            )
            found = epoch(state, numbers, order, train, validation)
            return jax.tree.map(lambda a: a[None], found)

        numbers = [first.numbers[place] for place in self.varying]
        order = np.arange(num_samples(data.train), dtype="int32")
        own = jax.tree.map(lambda a: spec(a, lanes), (first.state, numbers, order))
        shared = jax.tree.map(spec, (data.train, data.validation))
        self.program = jax.jit(program, donate_argnums=0).lower(*own, *shared).compile()

    def results(self, found):
        """What a copy reports of an epoch, by name, from what the program gave."""
        if not self._reads:
            found = map(self._read, found)
        return {
            prefix + name: float(value)
            for prefix, results in zip(("", "val_"), found, strict=True)
            for name, value in results.items()
        }

    def _read(self, values):
        """What the metrics say, from their variables."""
        if not values:
            return {}
        mapping = zip(self.model.metrics_variables, values, strict=True)
        with keras.StatelessScope(state_mapping=list(mapping)):
            return self.model.get_metrics_result()

    def _can_read(self):
        """Whether JAX can trace what the metrics say."""
        import jax  # pyright: ignore[reportMissingImports]

        try:
            jax.eval_shape(self._read, [spec(v) for v in self.model.metrics_variables])
        except jax.errors.JAXTypeError:  # Some metrics are read by NumPy.
            return False
        return True
