"""An epoch that JAX has traced: many steps, and the validation, in one program."""

import functools
import itertools
from typing import Any

import keras
import numpy as np

from dselectk_keras.training.traced_step import TracedStep


class TracedEpoch:
    """An epoch of a model as a function of arrays, whose numbers may be exchanged.

    It scans over the steps; each gathers its batch from data that lie on the device.
    Two models whose epochs have the same `form` differ in their `numbers` only (see
    `TracedStep`).

    Its metrics are read in the program, too, so that what a model weighs them with is
    among the numbers. Some can be read by NumPy only: the epoch then gives variables,
    and has a `reader` of them. It is `None` otherwise.

    Args:
        model: A compiled Keras model that is built.
        data: A `Data`.
    """

    def __init__(self, model, data):
        import jax  # pyright: ignore[reportMissingImports]

        model.reset_metrics()
        trainable, others, optimizer, metrics = state_of(model)
        self.batch_size = data.batch_size
        self._metrics = metrics
        self._train = self._trace(
            model.train_step, (trainable, others, optimizer, metrics), data.train
        )
        self._test = self._trace(
            model.test_step, (trainable, others, metrics), data.validation
        )
        self._steps = [*self._train.values(), *self._test.values()]
        read = functools.partial(read_metrics, model)
        self.reader: Any = None
        try:
            self._results = TracedStep(read, metrics)
        except jax.errors.JAXTypeError:
            self.reader = read
        else:
            self._steps.append(self._results)
        self.numbers = [number for step in self._steps for number in step.numbers]

    @property
    def form(self):
        """The epoch without its numbers: a list of texts."""
        return [line for step in self._steps for line in step.form]

    def __call__(self, numbers, state, order, train, validation):
        """Run the epoch.

        Args:
            numbers: A list in the form of `numbers`.
            state: Lists of trainable variables, others, and the optimizer's.
            order: The numbers of the examples, in the order of training.
            train: The training data.
            validation: The validation data, or `None`.

        Returns:
            The new state; and what the metrics say after training, and after the
            validation: dicts, or what the `reader` makes them of.
        """
        rest = iter(numbers)
        numbers = {
            step: list(itertools.islice(rest, len(step.numbers)))
            for step in self._steps
        }
        trainable, others, optimizer, metrics = self._pass(
            self._train, numbers, (*state, self._metrics), order, train
        )
        validated: Any = []
        if validation is not None:
            every = np.arange(num_samples(validation))
            trainable, others, validated = self._pass(
                self._test,
                numbers,
                (trainable, others, self._metrics),
                every,
                validation,
            )
        found = metrics, validated
        if self.reader is None:
            read = functools.partial(self._results, numbers[self._results])
            found = tuple(read(values) if values else {} for values in found)
        return (trainable, others, optimizer), found

    def _trace(self, step, state, arrays):
        """The step, traced for whole batches and for a smaller last one, by size."""
        import jax  # pyright: ignore[reportMissingImports]

        if arrays is None:
            return {}
        samples = num_samples(arrays)
        sizes = {min(self.batch_size, samples), samples % self.batch_size} - {0}

        def trace(size):
            batch = jax.tree.map(lambda array: spec(array[0], size), arrays)
            return TracedStep(lambda *inputs: step(*inputs)[1], state, batch)

        return {size: trace(size) for size in sorted(sizes)}

    def _pass(self, steps, numbers, state, order, arrays):
        """The state after all batches."""
        import jax  # pyright: ignore[reportMissingImports]

        def advance(state, chosen):
            step = steps[len(chosen)]
            batch = jax.tree.map(
                lambda array: jax.numpy.take(array, chosen, axis=0, mode="clip"), arrays
            )
            return step(numbers[step], state, batch), None

        size = max(steps)
        whole = len(order) // size * size
        state, _ = jax.lax.scan(advance, state, order[:whole].reshape(-1, size))
        if whole < len(order):
            state, _ = advance(state, order[whole:])
        return state


def state_of(model):
    """The variables of a model, as arrays of their own.

    Args:
        model: A Keras model that is built.

    Returns:
        Lists: trainable ones, others, the optimizer's and those of the metrics.
    """
    return tuple(
        [np.array(variable.value) for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
    )


def read_metrics(model, values):
    """What a model's metrics say, by name.

    Args:
        model: A Keras model.
        values: The values of their variables; none, if there is nothing to say.

    Returns:
        A dict.
    """
    if not values:
        return {}
    mapping = zip(model.metrics_variables, values, strict=True)
    with keras.StatelessScope(state_mapping=list(mapping)):
        return model.get_metrics_result()


def num_samples(arrays):
    """The number of examples in arrays.

    Args:
        arrays: Arrays in a nested structure.
    """
    import jax  # pyright: ignore[reportMissingImports]

    return len(jax.tree.leaves(arrays)[0])


def spec(array, *leading):
    """The shape and dtype that an array has on the device.

    Args:
        array: A NumPy array.
        *leading: Axes before its own.
    """
    import jax  # pyright: ignore[reportMissingImports]

    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    return jax.ShapeDtypeStruct((*leading, *array.shape), dtype)
