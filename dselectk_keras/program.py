"""Train copies of a model side by side; on JAX, an epoch is one compiled program."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from dselectk_keras.utils import Tensor


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

    On JAX, an epoch is one program. Elsewhere, the copies take turns at the model.

    Args:
        model: A compiled Keras model whose variables exist.
        batch_size: Examples per training step.
    """

    def __init__(self, model: Any, batch_size: int) -> None:
        self.model, self.batch_size = model, batch_size
        model.reset_metrics()
        self._metrics = list(map(_on_host, model.metrics_variables))
        self._compiled: dict[Any, Any] = {}
        self._on_jax = keras.backend.backend() == "jax"

    def train(self, state: tuple, order: np.ndarray, data: Any) -> tuple:
        """Train for an epoch.

        Args:
            state: The state of the copies.
            order: The rows of each copy, `(copies, rows)`.
            data: Inputs, labels and perhaps sample weights.

        Returns:
            The new state, and the `Results`.
        """
        return self._run(True, self.batch_size, state, order, data)

    def test(
        self, state: tuple, order: np.ndarray, data: Any, batch_size: int | None = None
    ) -> tuple:
        """Evaluate; the arguments and results are those of `train`."""
        return self._run(False, batch_size or self.batch_size, state, order, data)

    def text(self, state: tuple, order: np.ndarray, *data: Any) -> str:
        """The program of JAX that trains on data, and that of tests on others.

        It has all constants, but not the values of variables.
        """
        programs = self._epoch(True, self.batch_size), self._epoch(False, 1)
        lowered = zip(programs, data, strict=False)
        return "\n".join(
            each.lower(state, order, own).as_text() for each, own in lowered
        )

    def compute(self, function: Callable[[], Tensor], state: tuple) -> Any:
        """Call a function that reads variables of the model, for each copy."""
        if not self._on_jax:
            found = []
            for copy in range(len(state[2][0])):
                self.write(self.model, state, copy)
                found.append(_on_host(function()))
            return np.stack(found)
        import jax  # pyright: ignore[reportMissingImports]

        def call(*state):
            parts = zip(self._variables(self.model), state, strict=False)
            values = [pair for each in parts for pair in zip(*each, strict=True)]
            with keras.StatelessScope(state_mapping=values):
                return function()

        if function not in self._compiled:
            self._compiled[function] = jax.jit(jax.vmap(call))
        return self._compiled[function](*state[:2])

    def read(self, models: Sequence[Any]) -> tuple:
        """The state of some models."""
        return tuple(
            [np.stack(list(map(_on_host, same))) for same in zip(*parts, strict=True)]
            for parts in zip(*map(self._variables, models), strict=True)
        )

    def write(self, model: Any, state: tuple, copy: int) -> None:
        """Set the variables of a model to those of one copy."""
        for variables, values in zip(self._variables(model), state, strict=True):
            for variable, value in zip(variables, values, strict=True):
                # A copy: the next call of the program reuses the memory of the state.
                variable.assign(np.array(value[copy]))

    def replace(self, state: tuple, copy: int) -> tuple:
        """Replace the variables of one copy by those of the model."""
        state = tuple(list(map(np.array, part)) for part in state)
        for variables, values in zip(self._variables(self.model), state, strict=True):
            for variable, value in zip(variables, values, strict=True):
                value[copy] = _on_host(variable)
        return state

    def assign(self, state: tuple, values: Mapping[int, Any]) -> tuple:
        """Replace variables of the model, by their `id`, in all copies."""
        pairs = zip(self._variables(self.model), state, strict=True)
        return tuple(
            [values.get(id(v), old) for v, old in zip(*pair, strict=True)]
            for pair in pairs
        )

    @staticmethod
    def _variables(model):
        return (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
        )

    def _run(self, is_training, batch_size, state, order, data):
        if self._on_jax:
            return self._epoch(is_training, batch_size)(state, order, data)
        model, logs, metrics, last = self.model, [], [], {}
        step = model.train_on_batch if is_training else model.test_on_batch
        for copy, rows in enumerate(order):
            self.write(model, state, copy)
            model.reset_metrics()
            # Keras resets the metrics before each of these steps, and `fit` does not.
            model.reset_metrics = lambda: None
            try:
                for part in np.split(rows, range(batch_size, len(rows), batch_size)):
                    last = step(*_rows(data, part), return_dict=True)
            finally:
                del model.reset_metrics
            logs.append(last)
            metrics.append(list(map(_on_host, model.metrics_variables)))
            state = self.replace(state, copy)
        logs = keras.tree.map_structure(lambda *own: np.array(own), *logs)
        metrics = [np.stack(same) for same in zip(*metrics, strict=True)]
        return state, Results(logs, metrics)

    def _epoch(self, is_training, batch_size) -> Any:
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
                return step(state, _rows(data, rows))

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


def _rows(data, rows):
    return keras.tree.map_structure(lambda array: array[rows], data)


def _on_host(variable):
    return np.array(ops.convert_to_numpy(variable))
