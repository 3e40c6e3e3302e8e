"""Helpers of many tests: refusals, gates and models in a state, and gradients."""

import contextlib
import itertools
from unittest import mock

import keras
import numpy as np
import pytest
from keras import ops

# The modules with public names: the package, its parts, the engine in scripts/research.
PUBLIC_MODULES = (
    "dselectk_keras",
    "dselectk_keras.baselines",
    "dselectk_keras.batches",
    "dselectk_keras.callbacks",
    "dselectk_keras.datasets",
    "dselectk_keras.experts",
    "dselectk_keras.gates",
    "dselectk_keras.layers",
    "dselectk_keras.metrics",
    "dselectk_keras.models",
    "dselectk_keras.ops",
    "dselectk_keras.plots",
    "dselectk_keras.regularizers",
    "dselectk_keras.replicate",
    "research.engine",
)
# Compiling takes the time in tests, not running.
QUICK_FOR_JAX = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


def on_host():
    """Check whether the backend computes on a processor, and not on a GPU."""
    return "cpu" in str(ops.zeros(1).device).lower()


def numpy(tensor):
    """A tensor as a NumPy array of its own, cut off from its gradients."""
    return np.array(ops.convert_to_numpy(tensor))


def dense_model(seed, momentum=0.0):
    """A compiled layer of two inputs after one step, so that all variables exist."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, momentum), "mse", metrics=["mae"])
    x = numbers((2, 2))
    model.train_on_batch(x, x[:, :1])
    return model


def overlapping(figure, around=-0.5):
    """The pairs of texts of a picture that overlap, with so many pixels around each."""
    from matplotlib.text import Text

    with mock.patch.object(Text, "draw", autospec=True) as draw:
        figure.draw_without_rendering()
    # Of the words alone: the extent of an annotation holds its line too.
    boxes = {
        call.args[0]: Text.get_window_extent(call.args[0]).padded(around)
        for call in draw.call_args_list
        if call.args[0].get_visible() and call.args[0].get_text().strip()
    }
    return [
        (one.get_text(), other.get_text())
        for one, other in itertools.combinations(boxes, 2)
        if boxes[one].overlaps(boxes[other])
    ]


def numbers(size, *, seed=0, scale=1.0):
    """Float32 numbers from a normal distribution, the same at every call."""
    draws = np.random.default_rng(seed).normal(size=size)
    return (scale * draws).astype("float32")


def softmax(logits, axis=-1):
    """The softmax in NumPy."""
    powers = np.exp(logits - np.max(logits, axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def sigmoid(logits):
    """The sigmoid in NumPy."""
    return 1 / (1 + np.exp(-np.asarray(logits, "float64")))


def shares(*shape, seed=7):
    """Points on the simplex of the last axis."""
    return softmax(numbers(shape, seed=seed))


def refusals(*rows):
    """A test that each call raises a `ValueError`, from rows `(call, text, *given)`.

    The call gets each of `given` in turn: a dict is keyword arguments, a tuple is
    arguments by place, and all else is the one argument. Without any, it gets none.
    What is refused before any computation does not depend on the backend.
    """
    calls = [
        (call, text, each) for call, text, *given in rows for each in given or [()]
    ]

    @pytest.mark.backend_independent
    @pytest.mark.parametrize(
        ("call", "text", "given"), calls, ids=[c[1] for c in calls]
    )
    def refused(call, text, given):
        by_place, named = given if isinstance(given, tuple) else (given,), {}
        if isinstance(given, dict):
            by_place, named = (), given
        with pytest.raises(ValueError, match=text):
            call(*by_place, **named)

    return refused


@contextlib.contextmanager
def dtype_policy(policy):
    """Layers that are made inside have the dtype policy."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


@contextlib.contextmanager
def floatx(dtype):
    """The default dtype of Keras is another one inside, and so is the dtype policy.

    Keras makes the policy of the default dtype when it is first asked for one.
    """
    with dtype_policy(keras.config.dtype_policy()):
        before = keras.config.floatx()
        keras.config.set_floatx(dtype)
        keras.config.set_dtype_policy(dtype)
        try:
            yield
        finally:
            keras.config.set_floatx(before)


def built(layer, size=5, features=None, weights=None):
    """A layer that is built, with given weights.

    Args:
        layer: A gate, or a bank of experts.
        size: The number of experts of a gate, or of features of a bank.
        features: For a per-example gate, the number of features.
        weights: The weights, or the first of them.
    """
    layer.build((None, size), *[] if features is None else [(None, features)])
    if weights is not None:
        layer.set_weights(weights)
    return layer


def spread(layer, scale=1.0):
    """A layer or model whose trainable weights differ, as after some training."""
    for i, weight in enumerate(layer.trainable_weights):
        weight.assign(numbers(weight.shape, seed=i, scale=scale))
    return layer


def model_of(layer, *shape, dtype=None):
    """A model that calls the layer, or the function, on an input of the shape."""
    inputs = keras.Input(shape, dtype=dtype)
    return keras.Model(inputs, layer(inputs))


def cloned(model):
    """The clone that Keras makes, with the weights of the model."""
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    return clone


def reloaded(model, folder):
    """The model from its file."""
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def weight_gradients(layer, compute):
    """Gradients of the number `compute()` by the trainable variables of a layer."""
    state = [each for each in layer.variables if not each.trainable]
    variables = layer.trainable_variables
    return value_and_gradients(lambda: [compute()], variables, state)[1]


def gradient(function, *arrays):
    """Gradients of the sum of `function(*arrays)` with respect to each array.

    A single array gives its gradient alone, several give a list.
    """
    variables = [keras.Variable(np.asarray(array), dtype="float32") for array in arrays]
    _, gradients = value_and_gradients(
        lambda: [ops.sum(function(*map(ops.convert_to_tensor, variables)))], variables
    )
    return gradients[0] if len(gradients) == 1 else gradients


def value_and_gradients(compute, variables, state=()):
    """The values of `compute()`, and gradients of the first of them.

    Args:
        compute: A function of nothing that returns a list of tensors, a scalar
            first. It may call layers; the losses they add are in `layer.losses`.
        variables: The `keras.Variable`s to take gradients by.
        state: Further variables, that `compute` changes.

    Returns:
        A list of arrays, and a list of arrays: zeros where nothing depends on the
        variable.
    """
    return differentiated(compute, variables, state)()


def differentiated(compute, variables, state=()):
    """A function that does `value_and_gradients` at each call, compiled once by JAX.

    Variables whose values change between the calls must be in `variables` or
    `state`.
    """
    make = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
    run = make[keras.backend.backend()](compute, variables, state)

    def convert():
        values, gradients = run()
        return [numpy(value) for value in values], [
            np.zeros(variable.shape, "float32") if gradient is None else numpy(gradient)
            for variable, gradient in zip(variables, gradients, strict=True)
        ]

    return convert


def _tensorflow(compute, variables, state):
    import tensorflow as tf

    def run():
        with tf.GradientTape() as tape:
            values = compute()
        return values, tape.gradient(values[0], [v.value for v in variables])

    return run


def _torch(compute, variables, state):
    import torch

    def run():
        values = compute()
        if not values[0].requires_grad:
            return values, [None] * len(variables)
        return values, torch.autograd.grad(
            values[0], [v.value for v in variables], allow_unused=True
        )

    return run


def _jax(compute, variables, state):
    import jax

    def pure(inputs, state_inputs):
        mapping = [
            *zip(variables, inputs, strict=True),
            *zip(state, state_inputs, strict=True),
        ]
        with keras.StatelessScope(mapping, collect_losses=True) as scope:
            values = compute()
        return values[0], (values, [scope.get_current_value(v) for v in state])

    compiled = jax.jit(jax.grad(pure, has_aux=True), compiler_options=QUICK_FOR_JAX)

    def run():
        arrays = [[v.value for v in group] for group in (variables, state)]
        gradients, (values, new_state) = compiled(*arrays)
        for variable, value in zip(state, new_state, strict=True):
            variable.assign(value)
        return values, gradients

    return run
