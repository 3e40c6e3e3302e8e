"""Train copies of a model side by side: an epoch is one program of JAX."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops


class Results(NamedTuple):
    """The results of an epoch, with an axis for the copies.

    Args:
        logs: A dict of the metrics over the epoch, by the names of Keras.
        metrics: A list of the variables of the metrics.
    """

    logs: dict
    metrics: list


class Program:
    """Epochs of copies of a model, which differ in the values of its variables.

    The state of the copies is that of Keras' `train_step`: the trainable variables, the
    others, and those of the optimizer, lists of arrays with an axis for the copies. A
    call of `train` or `test` may reuse the memory of the state that it is given.

    Args:
        model: A compiled Keras model whose variables exist.
        batch_size: Examples per training step.
    """

    def __init__(self, model: Any, batch_size: int) -> None:
        self.model, self.batch_size = model, batch_size
        model.reset_metrics()
        self._metrics = list(map(on_host, model.metrics_variables))
        self._compiled: dict[Any, Any] = {}

    def train(self, state: tuple, order: np.ndarray, data: Any) -> tuple:
        """Train for an epoch on the rows of each copy, `order` `(copies, rows)`.

        Returns the new state, and the `Results`.
        """
        return self.epoch(True, self.batch_size)(state, order, data)

    def test(
        self, state: tuple, order: np.ndarray, data: Any, batch_size: int | None = None
    ) -> tuple:
        """Evaluate; the arguments and results are those of `train`."""
        return self.epoch(False, batch_size or self.batch_size)(state, order, data)

    def text(self, state: tuple, order: np.ndarray, *data: Any) -> str:
        """The program of JAX that trains on data, and that of tests on others.

        It has all constants, but not the values of variables.
        """
        programs = self.epoch(True, self.batch_size), self.epoch(False, 1)
        lowered = zip(programs, data, strict=False)
        return "\n".join(
            each.lower(state, order, own).as_text() for each, own in lowered
        )

    def read(self, models: Sequence[Any]) -> tuple:
        """The state of some models."""
        return tuple(
            [np.stack(list(map(on_host, same))) for same in zip(*parts, strict=True)]
            for parts in zip(*map(self.variables, models), strict=True)
        )

    def write(self, model: Any, state: tuple, copy: int) -> None:
        """Set the variables of a model to those of one copy."""
        for variables, values in zip(self.variables(model), state, strict=True):
            for variable, value in zip(variables, values, strict=True):
                # A copy: the next call of the program reuses the memory of the state.
                variable.assign(np.array(value[copy]))

    @staticmethod
    def variables(model: Any) -> tuple:
        """The variables of a model, in the order of a state."""
        return (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
        )

    def epoch(self, is_training: bool, batch_size: int) -> Any:
        """The program of JAX for an epoch."""
        import jax  # pyright: ignore[reportMissingImports]

        def step(state, batch):
            if is_training:
                logs, state = self.model.train_step(state, batch)
                return state, logs
            *variables, optimizer, metrics = state
            logs, state = self.model.test_step((*variables, metrics), batch)
            *variables, metrics = state
            return (*variables, optimizer, metrics), logs

        def epoch(state, order, data):
            def advance(state, rows):
                return step(state, rows_of(data, rows))

            size = min(batch_size, len(order))
            full = len(order) // size * size
            state = *state, self._metrics
            state, logs = jax.lax.scan(advance, state, order[:full].reshape(-1, size))
            logs = jax.tree.map(lambda each: each[-1], logs)
            if full < len(order):
                state, logs = advance(state, order[full:])
            *state, metrics = state
            return tuple(state), Results(logs, metrics)

        def epochs(state, order, data):
            if len(order) > 1:
                return jax.vmap(epoch, (0, 0, None))(state, order, data)
            # Without `vmap`, which would compute both branches of a condition.
            state, order = jax.tree.map(lambda array: array[0], (state, order))
            return jax.tree.map(lambda array: array[None], epoch(state, order, data))

        key = is_training, batch_size
        if key not in self._compiled:
            self._compiled[key] = jax.jit(epochs, donate_argnums=0)
        return self._compiled[key]


def rows_of(data: Any, rows: Any) -> Any:
    """Take rows of each array of the data."""
    return keras.tree.map_structure(lambda array: array[rows], data)


def on_host(variable: Any) -> np.ndarray:
    """Copy a variable to an array of NumPy."""
    return np.array(ops.convert_to_numpy(variable))
