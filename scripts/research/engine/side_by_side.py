"""Train copies of a model side by side; on JAX, an epoch is one program."""

import keras
import numpy as np

from dselectk_keras.program import Program, Results, on_host, rows_of

LANES = 4  # Jobs of a bench that are trained side by side.
ON_JAX = keras.backend.backend() == "jax"


class SideBySide(Program):
    """A `Program` whose state can be changed; without JAX, copies take turns."""

    def epoch(self, is_training, batch_size):
        """A function that trains or evaluates all copies."""
        if ON_JAX:
            return super().epoch(is_training, batch_size)
        model = self.model
        step = model.train_on_batch if is_training else model.test_on_batch

        def run(state, order, data):
            logs, metrics, last = [], [], {}
            for copy, rows in enumerate(order):
                self.write(model, state, copy)
                model.reset_metrics()
                # Keras resets the metrics before each of these steps; `fit` does not.
                model.reset_metrics = lambda: None
                ends = range(batch_size, len(rows), batch_size)
                try:
                    for part in np.split(rows, ends):
                        last = step(*rows_of(data, part), return_dict=True)
                finally:
                    del model.reset_metrics
                logs.append(last)
                metrics.append(list(map(on_host, model.metrics_variables)))
                state = self.replace(state, copy)
            logs = keras.tree.map_structure(lambda *own: np.array(own), *logs)
            metrics = [np.stack(same) for same in zip(*metrics, strict=True)]
            return state, Results(logs, metrics)

        return run

    def compute(self, function, state):
        """Call a function that reads variables of the model, for each copy."""
        if not ON_JAX:
            found = []
            for copy in range(len(state[2][0])):
                self.write(self.model, state, copy)
                found.append(on_host(function()))
            return np.stack(found)
        import jax

        def call(*state):
            parts = zip(self.variables(self.model), state, strict=False)
            values = [pair for each in parts for pair in zip(*each, strict=True)]
            with keras.StatelessScope(state_mapping=values):
                return function()

        if function not in self._compiled:
            self._compiled[function] = jax.jit(jax.vmap(call))
        return self._compiled[function](*state[:2])

    def replace(self, state, copy):
        """Replace the variables of one copy by those of the model."""
        state = tuple(list(map(np.array, part)) for part in state)
        for variables, values in zip(self.variables(self.model), state, strict=True):
            for variable, value in zip(variables, values, strict=True):
                value[copy] = on_host(variable)
        return state

    def assign(self, state, values):
        """Replace variables of the model, by their `id`, in all copies."""
        pairs = zip(self.variables(self.model), state, strict=True)
        return tuple(
            [values.get(id(v), old) for v, old in zip(*pair, strict=True)]
            for pair in pairs
        )


def make_program(model, batch_size):
    """The program of a compiled model whose variables exist."""
    return SideBySide(model, batch_size)


def train_side_by_side(
    program, state, data, orders, held_out=(), prepare=None, measure=None
):
    """Train copies of a model, and evaluate them after each epoch.

    Args:
        program: The program of the model.
        state: The state of the copies; see `Program`.
        data: Inputs and labels.
        orders: For each epoch, the rows of each copy, `(copies, rows)`.
        held_out: What is evaluated: pairs of data and the rows of each copy.
        prepare: A function of the state and the number of the epoch that returns the
            state with which the epoch begins.
        measure: A function of the state after an epoch.

    Returns:
        The state, and for each epoch a list: the logs of the training and of what is
        evaluated, dicts of arrays, and what `measure` returns.
    """
    found = []
    for epoch, order in enumerate(orders):
        state = prepare(state, epoch) if prepare else state
        state, results = program.train(state, order, data)
        found.append([results.logs])
        for arrays, rows in held_out:
            state, results = program.test(state, rows, arrays, rows.shape[1])
            found[-1].append(results.logs)
        if measure:
            found[-1].append(measure(state))
    return state, found


def concatenated(parts):
    """Arrays of the same structure one below the other."""
    return keras.tree.map_structure(lambda *each: np.concatenate(each), *parts)


def set_numbers(program, state, numbers, settings):
    """Set numbers of all copies: those of a model, and its rate and weight decay.

    Args:
        program: The program of the model.
        state: The state of the copies.
        numbers: A dict of variables by name; see `Settings`.
        settings: For each copy a dict of values by name.
    """
    optimizer = program.model.optimizer
    variables = {"rate": optimizer.learning_rate, "decay": optimizer.weight_decay}
    values = {
        id(variable): np.array([own[name] for own in settings], "float32")
        for name, variable in (variables | numbers).items()
    }
    return program.assign(state, values)


def in_lanes(train, jobs):
    """Call a function with some jobs at a time, for a program of one number of them."""
    found = []
    for first in range(0, len(jobs), LANES):
        lanes = jobs[first : first + LANES]
        padded = [*lanes, *lanes[:1] * (LANES - len(lanes))]
        found.extend(train(padded)[: len(lanes)])
    return found
