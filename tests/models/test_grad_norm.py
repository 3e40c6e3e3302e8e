"""GradNorm measures the gradient of each task where the tasks part."""

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import numbers, refusals, reloaded, value_and_gradients
from keras import ops

import dselectk_keras as dk

# The gradients of two examples and three tasks with two features.
SLOPES = np.array([[[3, 0], [0, 1], [0, 0]], [[0, 4], [0, 0], [0, 0]]], "float32")


def gradients(layer, slopes, part=1.0):
    """The gradients of the logits and of the mixtures of a part of the loss."""
    # Not constants, with which XLA computes other numbers before the program runs.
    x, factors = keras.Variable(np.ones_like(slopes)), keras.Variable(slopes)
    if not layer.built:
        layer.build(x.shape)

    def loss():
        total = ops.sum(layer(x + 0.0, training=True) * factors)
        return [part * (total + sum(layer.losses))]

    _, (of_logits, of_mixtures, _) = value_and_gradients(
        loss,
        [layer.logits, x, factors],
        [layer.first, layer.last],
    )
    return of_logits, of_mixtures


# Squares of small numbers would be 0. A replica has a part of the loss.
@pytest.mark.parametrize(("scale", "part"), [(1.0, 1.0), (1e-25, 1.0), (1.0, 0.5)])
def test_the_gradient_of_the_logits_is_that_of_the_paper_by_hand(scale, part):
    layer, given = dk.GradNorm(0.0), SLOPES * np.float32(scale)
    slopes, own = gradients(layer, given, part)
    # Norms of 5, 1 and 0, with a mean of 2.
    assert_close(slopes, part * np.array([2.5, -0.5, 0.0]), rtol=1e-6)
    assert_equal(own, given * np.float32(part))
    layer(given, training=False)
    assert layer.losses == []


@pytest.mark.parametrize(("alpha", "sign"), [(1.0, -1.0), (0.3, 1.0)])
def test_a_task_that_learns_slowly_may_have_a_larger_gradient(alpha, sign):
    layer = dk.GradNorm(alpha)
    layer.build((None, 3, 2))
    for losses, shares in (
        ([0.5, 8.0, 9.0], [1, 1, 0]),
        ([4.0, 1.0, 2.0], [1, 1, 1]),
        ([9.0, 4.0, 9.0], [0, 1, 0]),
    ):
        layer.penalty(np.array(losses, "float32"), np.array(shares, "float32"))
    assert_equal(layer.first, [0.5, 8.0, 2.0])
    assert_equal(layer.last, [4.0, 4.0, 2.0])
    # Rates of 48/19, 3/19 and 6/19. The norms over their mean are 2.5, 0.5 and 0.
    slopes, _ = gradients(layer, SLOPES)
    assert_close(slopes, sign * np.array([2.5, -0.5, 0.0]), rtol=1e-6)


@pytest.mark.traced
def test_gradients_of_tasks_with_other_scales_become_similar():
    x = numbers((64, 3))
    y = numbers((64, 2), seed=1) * np.array([1.0, 20.0], "float32")
    keras.utils.set_random_seed(0)
    tasks = [dk.Task(name, tower=(2,)) for name in "ab"]
    parts = 3, tasks, "l2_constrained", 3, "softmax", False, True
    model = dk.build_multitask_model(*parts, task_weighting=dk.GradNorm(0.0))
    model.compile(keras.optimizers.Adam(0.05))
    model.fit(x, y, batch_size=64, epochs=80, verbose=0)
    weights = model.task_weights
    assert sum(weights.values()) == pytest.approx(2.0)
    assert weights["a"] > 10 * weights["b"]


@pytest.mark.traced
@pytest.mark.parametrize("scaled", [False, True])
def test_a_step_moves_the_logits_by_the_slopes_alone(scaled):
    # At outputs of 0, the norms are the sizes of the labels: 1 and 3, with a mean of 2.
    inputs = keras.Input((2, 1))
    mixtures = dk.GradNorm(0.0, name="balance")(inputs)
    tower = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
    outputs = tower(mixtures)[..., 0]
    model = dk.MultitaskModel(inputs, outputs, tasks=2, task_weighting="balance")
    optimizer = keras.optimizers.SGD(1.0)
    # As in half precision: of the loss times 2 to the power of 15.
    scale = keras.optimizers.LossScaleOptimizer
    model.compile(scale(optimizer) if scaled else optimizer)
    y = np.array([[1.0, 3.0], [-1.0, -3.0]])
    model.fit(np.zeros((2, 2, 1)), y, verbose=0)
    # The losses of 1 and 9 have no part in it.
    assert_close(model.get_layer("balance").logits, [0.5, -1.5], rtol=1e-5)


def test_reports_do_not_depend_on_the_weights():
    x, y = numbers((8, 3)), numbers((8, 2), seed=1)
    model = dk.build_multitask_model(3, ["a", "b"], task_weighting="gradnorm")
    model.compile("sgd")
    before = model.evaluate(x, y, verbose=0, return_dict=True)
    model.task_losses.weighting.logits.assign([1.0, -1.0])
    assert model.evaluate(x, y, verbose=0, return_dict=True) == before
    assert model.task_weights != {"a": 1.0, "b": 1.0}


def test_a_layer_in_a_model_of_ones_own_is_named(tmp_path):
    inputs = keras.Input((3,))
    mmoe = dk.MMoE(dk.DenseExperts(3, [4]), dk.SoftmaxGate(), 2, stacked=True)
    mixtures = dk.GradNorm(0.5, name="balance")(mmoe(inputs))
    outputs = {"a": mixtures[:, 0, :1], "b": mixtures[:, 1, :1]}
    tasks = [dk.Task("a"), dk.Task("b", "binary")]
    model = dk.MultitaskModel(inputs, outputs, tasks=tasks, task_weighting="balance")
    model.get_layer("balance").logits.assign([1.0, 0.0])
    assert model.get_config()["task_weighting"] == "balance"
    loaded = reloaded(model, tmp_path)
    assert loaded.task_losses.weighting is loaded.get_layer("balance")
    assert loaded.task_losses.weighting.alpha == 0.5
    assert loaded.task_weights == model.task_weights
    assert len(loaded.variables) == len(model.variables)


def without_the_layer():
    inputs = keras.Input((3,))
    outputs = {"a": keras.layers.Dense(1)(inputs)}
    tasks = [dk.Task("a")]
    dk.MultitaskModel(inputs, outputs, tasks=tasks, task_weighting=dk.GradNorm())


test_errors = refusals(
    (without_the_layer, "must be called on the mixtures.*was not called"),
    (dk.GradNorm, "`alpha` must be .*at least 0", {"alpha": -1}),
)
