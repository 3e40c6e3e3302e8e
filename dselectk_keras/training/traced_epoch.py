"""A traced epoch: all training steps and the validation in one JAX program."""

import functools
import itertools
from typing import Any

import keras
import numpy as np

from dselectk_keras.training.traced_step import TracedStep


class TracedEpoch:
    """An epoch of a model as a function of arrays, with replaceable constants.

    It scans over the steps, and each gathers its batch from data on the device. Two
    models whose epochs have the same `signature` differ only in their `constants` (see
    `TracedStep`).

    The program also computes the results of the metrics, so that their constants are
    replaceable too. To compute them outside, for each copy and epoch, takes longer than
    to train a small model. Results that only NumPy can compute are left out: the epoch
    then returns the metrics' variables, and its `reader`, otherwise `None`, reads them.
    """

    def __init__(self, model, data):
        import jax  # pyright: ignore[reportMissingImports]

        model.reset_metrics()
        trainable, others, optimizer, metrics = variable_values(model)
        self.batch_size = data.batch_size
        self._metrics = metrics
        self._train = self._trace_step(
            model.train_step, (trainable, others, optimizer, metrics), data.train
        )
        self._test = self._trace_step(
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
        self.constants = [c for step in self._steps for c in step.constants]
        self.signature = [line for step in self._steps for line in step.signature]

    def __call__(self, constants, state, order, train, validation):
        """Run the epoch.

        Args:
            constants: A list like `self.constants`.
            state: Three lists: trainable, non-trainable and optimizer variables.
            order: The indices of the examples, in the order of training.
            train: The training data.
            validation: The validation data, or `None`.

        Returns:
            The new state; and the metrics after training and after validation: dicts of
            results, or variables for the `reader`.
        """
        rest = iter(constants)
        constants = {
            step: list(itertools.islice(rest, len(step.constants)))
            for step in self._steps
        }
        trainable, others, optimizer, metrics = self._run_steps(
            self._train, constants, (*state, self._metrics), order, train
        )
        validated: Any = []
        if validation is not None:
            all_ = np.arange(num_samples(validation))
            state = trainable, others, self._metrics
            state = self._run_steps(self._test, constants, state, all_, validation)
            trainable, others, validated = state
        found = metrics, validated
        if self.reader is None:
            read = functools.partial(self._results, constants[self._results])
            found = tuple(read(values) if values else {} for values in found)
        return (trainable, others, optimizer), found

    def _trace_step(self, step, state, arrays):
        """The step traced for full batches and for a smaller last one, by size."""
        import jax  # pyright: ignore[reportMissingImports]

        if arrays is None:
            return {}
        samples = num_samples(arrays)
        sizes = {min(self.batch_size, samples), samples % self.batch_size} - {0}

        def trace(size):
            batch = jax.tree.map(lambda array: array_spec(array[0], size), arrays)
            return TracedStep(lambda *inputs: step(*inputs)[1], state, batch)

        return {size: trace(size) for size in sorted(sizes)}

    def _run_steps(self, steps, constants, state, order, arrays):
        """Run a step on all batches, and return the new state."""
        import jax  # pyright: ignore[reportMissingImports]

        def advance(state, chosen):
            step = steps[len(chosen)]
            batch = jax.tree.map(
                lambda array: jax.numpy.take(array, chosen, axis=0, mode="clip"), arrays
            )
            return step(constants[step], state, batch), None

        size = max(steps)
        full = len(order) // size * size
        state, _ = jax.lax.scan(advance, state, order[:full].reshape(-1, size))
        if full < len(order):
            state, _ = advance(state, order[full:])
        return state


def variable_values(model):
    """Copies of trainable, other, optimizer and metrics variables, in four lists."""
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
    """The results of a model's metrics by name; none without values."""
    if not values:
        return {}
    mapping = zip(model.metrics_variables, values, strict=True)
    with keras.StatelessScope(state_mapping=list(mapping)):
        return model.get_metrics_result()


def num_samples(arrays):
    """The number of examples in arrays."""
    import jax  # pyright: ignore[reportMissingImports]

    return len(jax.tree.leaves(arrays)[0])


def array_spec(array, *leading):
    """The shape and dtype of an array on the device, with further leading axes."""
    import jax  # pyright: ignore[reportMissingImports]

    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    return jax.ShapeDtypeStruct((*leading, *array.shape), dtype)
