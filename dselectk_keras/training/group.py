"""Copies that one JAX program can train."""

from typing import Any, NamedTuple

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
        epoch: The `TracedEpoch` of one of the copies.
    """

    def __init__(self, epoch):
        self.epoch = epoch
        self.form = epoch.form
        self.members = []
        self.varying: list[int] = []
        self.lanes = self.workers = 1
        self.program: Any = None

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
            return self.epoch(mine, state, order, train, validation)

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
