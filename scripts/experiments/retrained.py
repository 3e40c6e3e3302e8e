"""Train one model for many jobs in turn, without building or compiling it anew."""

import itertools

import keras
import numpy as np

from dselectk_keras.batches import Batches


class Retrained:
    """A model that is trained again and again, each time from the start.

    To compile a small model takes longer than to train it. Where jobs differ in the
    values of variables only, such as the learning rate, one model serves all. On JAX,
    an epoch is one program.

    Args:
        build: A function of settings, by name, that returns a compiled model.
        train: Inputs and labels, such as `dataset.train`.
        batch_size: Examples per training step.
    """

    def __init__(self, build, train, batch_size):
        self._build = build
        self._train = tuple(np.asarray(array) for array in train)
        self._batch_size = batch_size
        self._epoch = None
        self.model = None

    def train(self, seed, epochs, callbacks=(), **settings):
        """Train from the start.

        Args:
            seed: Seed of all random numbers.
            epochs: The number of epochs.
            callbacks: Callbacks, for which `fit` takes the place of the program.
            **settings: Arguments of `build`.
        """
        if self.model is None:
            self.model = self._build(**settings)
            # This creates all variables.
            self.model.train_on_batch(*(array[:2] for array in self._train))
        keras.utils.set_random_seed(seed)
        fresh = self._build(**settings)
        fresh.optimizer.build(fresh.trainable_variables)
        both = (itertools.chain(*_variables(model)) for model in (self.model, fresh))
        for mine, new in zip(*both, strict=True):
            mine.assign(keras.ops.convert_to_numpy(new.value))
        batches = Batches(self._train, self._batch_size, seed)
        if callbacks or keras.backend.backend() != "jax":
            options = {"callbacks": list(callbacks), "shuffle": False, "verbose": 0}
            self.model.fit(batches, epochs=epochs, **options)
        else:
            self._scan(batches, epochs)
        return self.model

    def _scan(self, batches, epochs):
        """Train by a program of JAX for each epoch."""
        self._epoch = self._epoch or _program(self.model, self._batch_size)
        parts = [*_variables(self.model), self.model.metrics_variables]
        state = tuple([variable.value for variable in part] for part in parts)
        for _ in range(epochs):
            state = self._epoch(state, batches.order, *self._train)
            batches.shuffle()
        both = itertools.chain(*parts), itertools.chain(*state)
        for variable, value in zip(*both, strict=True):
            variable.assign(value)


def _variables(model):
    """The variables of a model but those of its metrics, as `train_step` has them."""
    return [
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
    ]


def _program(model, batch_size):
    """An epoch of training as one program of JAX."""
    import jax  # pyright: ignore[reportMissingImports]

    def epoch(state, order, x, y):
        def step(state, chosen):
            return model.train_step(state, (x[chosen], y[chosen]))[1], None

        full = len(order) // batch_size * batch_size
        state, _ = jax.lax.scan(step, state, order[:full].reshape(-1, batch_size))
        return step(state, order[full:])[0] if full < len(order) else state

    return jax.jit(epoch)
