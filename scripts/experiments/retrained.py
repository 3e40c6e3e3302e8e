"""Train one model for many jobs in turn, without building or compiling it anew."""

import itertools

import keras
import numpy as np

from dselectk_keras.batches import Batches


class Retrained:
    """A model that is trained again and again, each time from the start.

    To compile a small model takes longer than to train it. Where jobs differ in the
    values of variables and of the data only, one model serves all: the learning rate
    is such a variable. On JAX, an epoch is one program.

    Args:
        build: A function of settings, by name, that returns a compiled model.
        batch_size: Examples per training step.
    """

    def __init__(self, build, batch_size):
        self._build = build
        self._batch_size = batch_size
        self._epoch = None
        self.model = None
        self.history = {}

    def train(self, data, seed, epochs, *, validation=None, callbacks=(), **settings):
        """Train from the start; `history` has the losses of each epoch, as in `fit`.

        Args:
            data: Inputs and labels, such as `dataset.train`.
            seed: Seed of all random numbers.
            epochs: The number of epochs.
            validation: The same, to validate on after every epoch.
            callbacks: Callbacks, for which `fit` takes the place of the program.
            **settings: Arguments of `build`.
        """
        batches = Batches(data, self._batch_size, seed)
        if self.model is None:
            self.model = self._build(**settings)
            # This creates all variables.
            self.model.train_on_batch(*(array[:2] for array in batches.data))
        keras.utils.set_random_seed(seed)
        fresh = self._build(**settings)
        fresh.optimizer.build(fresh.trainable_variables)
        both = (itertools.chain(*_variables(model)) for model in (self.model, fresh))
        for mine, new in zip(*both, strict=True):
            mine.assign(keras.ops.convert_to_numpy(new.value))
        if validation is not None:
            validation = tuple(validation)
        if callbacks or keras.backend.backend() != "jax":
            options = {"callbacks": list(callbacks), "shuffle": False, "verbose": 0}
            if validation is not None:
                options |= {
                    "validation_data": validation,
                    "validation_batch_size": len(validation[0]),
                }
            self.history = self.model.fit(batches, epochs=epochs, **options).history
        else:
            self._scan(batches, epochs, validation)
        return self.model

    def _scan(self, batches, epochs, validation):
        """Train by a program of JAX for each epoch."""
        import jax  # pyright: ignore[reportMissingImports]

        self._epoch = self._epoch or _program(self.model, self._batch_size)
        arrays = jax.device_put((batches.data, validation))
        parts = _variables(self.model)
        state = tuple([variable.value for variable in part] for part in parts)
        logs = []
        for _ in range(epochs):
            state, found = self._epoch(state, batches.order, *arrays)
            logs.append(found)
            batches.shuffle()
        logs = jax.device_get(logs)
        self.history = {name: [float(log[name]) for log in logs] for name in logs[0]}
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
    """An epoch, with its validation, as one program of JAX."""
    import jax  # pyright: ignore[reportMissingImports]

    model.reset_metrics()
    metrics = [np.array(variable.value) for variable in model.metrics_variables]

    def epoch(state, order, data, validation):
        def step(state, chosen):
            logs, state = model.train_step(state, [array[chosen] for array in data])
            return state, logs

        size = min(batch_size, len(order))
        full = len(order) // size * size
        state = *state, metrics
        state, logs = jax.lax.scan(step, state, order[:full].reshape(-1, size))
        logs = jax.tree.map(lambda each: each[-1], logs)
        if full < len(order):
            state, logs = step(state, order[full:])
        *state, _ = state
        if validation is not None:
            trainable, others, _ = state
            found, _ = model.test_step((trainable, others, metrics), validation)
            logs |= {f"val_{name}": number for name, number in found.items()}
        return tuple(state), logs

    return jax.jit(epoch)
