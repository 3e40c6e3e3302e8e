"""Copies that one JAX program can train."""

import threading
from typing import Any, NamedTuple

import numpy as np

from dselectk_keras.training.copies import Copy
from dselectk_keras.training.traced_epoch import array_spec, num_samples


class Member(NamedTuple):
    """A copy, with the initial values of its variables and its constants."""

    copy: Copy
    state: Any
    constants: list


class Group:
    """Copies whose epochs differ only in constants, so that one program trains all."""

    def __init__(self, epoch):
        self.epoch = epoch
        self.members = []
        self.varying: list[int] = []
        self.lanes = self.workers = 1
        self.program: Any = None
        # A model to change the state of a copy with, for one thread at a time.
        self.model: Any = None
        self.lock = threading.Lock()

    def compile(self, data, lanes):
        """Compile the program that trains several copies at once.

        Its state, constants and order begin with an axis for the copies.
        """
        import jax  # pyright: ignore[reportMissingImports]

        self.lanes = lanes
        first = self.members[0]
        columns = zip(*(member.constants for member in self.members), strict=True)
        self.varying = [
            i
            for i, column in enumerate(columns)
            if any(not np.array_equal(column[0], other, True) for other in column[1:])
        ]

        def epoch(state, varying, order, train, validation):
            constants = list(first.constants)
            for i, constant in zip(self.varying, varying, strict=True):
                constants[i] = constant
            return self.epoch(constants, state, order, train, validation)

        def program(state, varying, order, train, validation):
            if lanes > 1:
                vectorized: Any = jax.vmap(epoch, (0, 0, 0, None, None))
                return vectorized(state, varying, order, train, validation)
            state, varying, order = jax.tree.map(
                lambda a: a[0], (state, varying, order)
            )
            found = epoch(state, varying, order, train, validation)
            return jax.tree.map(lambda a: a[None], found)

        varying = [first.constants[i] for i in self.varying]
        order = np.arange(num_samples(data.train), dtype="int32")
        own = (first.state, varying, order)
        own = jax.tree.map(lambda a: array_spec(a, lanes), own)
        shared = jax.tree.map(array_spec, (data.train, data.validation))
        self.program = jax.jit(program, donate_argnums=0).lower(*own, *shared).compile()
