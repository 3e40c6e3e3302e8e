"""The losses of the tasks are averaged and weighted."""

import helpers
import keras
import numpy as np
import pytest
from checks import assert_close
from helpers import dtype_policy, numbers, numpy, reloaded, value_and_gradients
from keras import ops

import dselectk_keras as dk
from dselectk_keras.batches import Batches
from dselectk_keras.models.task_losses import TaskLosses

AVERAGES = ("batch", "labels")
TASKS = (
    dk.Task("a", weight=2.0),
    dk.Task("b", "binary", weight=3.0),
    dk.Task("c", tower=(2,)),
)
# Two batches of 4 examples: the sums of the losses, and the numbers of labels.
TOTALS = np.array([[6.0, 2.0, 0.0], [1.0, 0.0, 5.0]], "float32")
COUNTS = np.array([[4.0, 1.0, 0.0], [2.0, 0.0, 1.0]], "float32")
# Of the second batch.
DIVISORS = {"labels": [2.0, 1.0, 1.0], "batch": [4.0, 4.0, 4.0]}


@keras.saving.register_keras_serializable(package="tests")
class Behind(keras.Layer):
    """Weights a task by its share of all losses, averaged over the batches.

    The penalty leads a trained number per task to 1.
    """

    def __init__(self, rate=0.5):
        super().__init__(dtype="float32")
        self.rate = rate

    def build(self, shape):
        self.seen = self.add_weight(shape, "ones", trainable=False, name="seen")
        self.target = self.add_weight(shape, "zeros", name="target")

    def penalty(self, losses, shares):
        before = ops.convert_to_tensor(self.seen)
        kept = (1 - self.rate) * before + self.rate * losses
        self.seen.assign(ops.where(shares > 0, kept, before))
        return ops.square(self.target - 1)

    def weights_of_losses(self):
        return self.seen / ops.sum(self.seen)

    def get_config(self):
        return {"rate": self.rate}


WEIGHTINGS = ("uncertainty", "gradnorm", Behind)
X = numbers((12, 3))
Y = numbers((12, 3), seed=1)
Y[:, 1] = Y[:, 1] > 0
Y[numbers((12, 3), seed=2) > 0.3] = np.nan


def make(tasks=TASKS, gate=None, optimizer=None, task_weighting=None, **settings):
    keras.utils.set_random_seed(0)
    parts = dk.DenseExperts(4, [4]), gate or dk.SoftmaxGate()
    if task_weighting is Behind:
        task_weighting = Behind()
    settings["task_weighting"] = task_weighting
    model = dk.build_multitask_model(3, tasks, "mmoe", *parts, **settings)
    model.compile(keras.optimizers.Adam(0.05) if optimizer is None else optimizer)
    return model


def after_first_batch(*arguments):
    losses = TaskLosses(TASKS, *arguments)
    losses.training_loss(*map(ops.convert_to_tensor, (TOTALS[0], COUNTS[0])), 4)
    return losses


@pytest.mark.parametrize("average", AVERAGES)
def test_each_average_has_the_value_and_the_gradient_by_hand(average):
    losses = after_first_batch(average)
    shares = np.array([2.0, 3.0, 1.0]) / DIVISORS[average]
    count = ops.convert_to_tensor(COUNTS[1])
    found = losses.training_loss(ops.convert_to_tensor(TOTALS[1]), count, 4)
    assert_close(found, shares @ TOTALS[1], rtol=1e-6)

    losses, totals = after_first_batch(average), keras.Variable(TOTALS[1])
    _, (slopes,) = value_and_gradients(
        lambda: [losses.training_loss(ops.convert_to_tensor(totals), count, 4)],
        [totals],
        losses.variables,
    )
    assert_close(slopes, shares, rtol=1e-6)


@pytest.mark.parametrize("average", AVERAGES)
def test_uncertainty_has_the_value_and_the_gradient_by_hand(average):
    losses = after_first_batch(average, "uncertainty")
    s = np.array([0.5, -1.0, 2.0], "float32")
    losses.weighting.log_variances.assign(s)
    totals, counts = map(ops.convert_to_tensor, (TOTALS[1], COUNTS[1]))
    variables = [losses.weighting.log_variances]
    state = [v for v in losses.variables if v is not variables[0]]
    (value,), (slopes,) = value_and_gradients(
        lambda: [losses.training_loss(totals, counts, 4)], variables, state
    )
    weights, factors = np.array([2.0, 3.0, 1.0]), np.array([0.5, 1.0, 0.5])
    divisors = np.array(DIVISORS[average])
    fit = factors * np.exp(-s) * TOTALS[1]
    expected = weights / divisors * (fit + COUNTS[1] * s / 2)
    assert_close(value, expected.sum(), rtol=1e-5)
    assert_close(slopes, weights / divisors * (COUNTS[1] / 2 - fit), rtol=1e-5)
    # A task without labels keeps its log-variance.
    assert slopes[1] == 0.0
    assert_close(losses.task_weights(), weights * factors * np.exp(-s), rtol=1e-5)


def test_log_variances_are_float32_and_fixed_weights_are_the_tasks_own():
    with dtype_policy("float16"):
        losses = TaskLosses([dk.Task("a")], task_weighting="uncertainty")
        assert losses.weighting.log_variances.dtype == "float32"
        assert losses.task_weights().dtype == ops.ones(1, "float32").dtype
    assert make().task_weights == {"a": 2.0, "b": 3.0, "c": 1.0}


@pytest.mark.traced
def test_the_learned_variance_of_a_regression_is_its_mean_squared_error():
    tasks = [dk.Task("quiet"), dk.Task("loud")]
    x = numbers((256, 3))
    y = numbers((256, 2), seed=3) * np.array([0.3, 2.0], "float32")
    y[::3, 0] = np.nan
    model = make(tasks, task_weighting="uncertainty")
    log = model.fit(x, y, batch_size=64, epochs=60, verbose=0).history
    found = np.exp(numpy(model.task_losses.weighting.log_variances))
    assert_close(found, [log["quiet_loss"][-1], log["loud_loss"][-1]], rtol=0.2)
    assert_close([*model.task_weights.values()], 0.5 / found, rtol=1e-5)


@pytest.mark.parametrize(
    ("average", "weighting"),
    [("batch", "uncertainty"), ("labels", "uncertainty"), ("labels", None)],
)
def test_reports_have_the_fixed_weights(average, weighting):
    model = make(label_average=average, task_weighting=weighting)
    log = model.fit(X, Y, batch_size=4, verbose=0, validation_data=(X, Y)).history
    assert all(np.isfinite(values).all() for values in log.values())
    report = model.evaluate(X, Y, batch_size=12, verbose=0, return_dict=True)
    total = sum(task.weight * report[f"{task.name}_loss"] for task in TASKS)
    for loss in (report["loss"], report["task_loss"], log["val_task_loss"][-1]):
        assert loss == pytest.approx(total, rel=1e-5)
    for prefix in ("", "val_"):
        parts = [t.weight * log[f"{prefix}{t.name}_loss"][0] for t in TASKS]
        assert log[f"{prefix}task_loss"][0] == pytest.approx(sum(parts), rel=1e-5)


def test_an_object_of_two_methods_has_the_value_and_the_gradients_by_hand():
    losses = after_first_batch("labels", Behind())
    weighting = losses.weighting
    # Task "c" has no labels in the first batch, and task "b" none in the second.
    assert_close(weighting.seen, [1.25, 1.5, 1.0], rtol=1e-6)
    totals, counts = keras.Variable(TOTALS[1]), ops.convert_to_tensor(COUNTS[1])
    weighting.target.assign([0.0, 3.0, 1.0])
    (value,), (slopes, by_target) = value_and_gradients(
        lambda: [losses.training_loss(ops.convert_to_tensor(totals), counts, 4)],
        [totals, weighting.target],
        state=[weighting.seen],
    )
    fixed = np.array([2.0, 3.0, 1.0])
    weights = fixed * [0.875, 1.5, 3.0] / 5.375
    means = TOTALS[1] / [2.0, 1.0, 1.0]
    assert_close(value, weights @ means + fixed @ [1, 4, 0], rtol=1e-5)
    assert_close(slopes, weights / [2.0, 1.0, 1.0], rtol=1e-5)
    assert_close(by_target, 2 * fixed * [-1, 2, 0], rtol=1e-5)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_training_resumes_from_a_file(tmp_path, weighting):
    def more(model):
        model.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
        return model

    model = more(make(label_average="labels", task_weighting=weighting))
    loaded = reloaded(model, tmp_path)
    assert loaded.task_weights == model.task_weights
    weights = (more(each).get_weights() for each in (loaded, model))
    assert_close(*weights, rtol=1e-5, atol=1e-6)
    own = {id(variable) for variable in loaded.task_losses.variables}
    assert own <= {id(variable) for variable in loaded.variables}


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_copies_keep_the_learned_weights(weighting):
    model = make(gate=dk.TopKGate(2), label_average="labels", task_weighting=weighting)
    model.fit(X, Y, batch_size=4, verbose=0)
    for copy in (dk.condense(model), dk.distill(model, dk.SoftmaxGate())):
        assert copy.task_weights == model.task_weights
        copy.compile("sgd")
        copy.fit(X, Y, batch_size=4, verbose=0)
        assert copy.task_weights != model.task_weights


@pytest.mark.parametrize("weighting", ["gradnorm", Behind])
def test_copies_of_replicate_train_as_alone(weighting):
    def build(seed):
        return make(task_weighting=weighting)

    runs = dk.replicate(build, (X, Y), seeds=[1, 2], batch_size=4, verbose=0)
    weights = [runs.copies[i].model.task_weights for i in range(2)]
    assert weights[0] != weights[1]
    keras.utils.set_random_seed(2)
    alone = make(task_weighting=weighting)
    alone.fit(Batches((X, Y), 4, 2), shuffle=False, verbose=0)
    assert weights[1] == pytest.approx(alone.task_weights, rel=1e-4)


@pytest.mark.backend_independent
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_a_copy_has_the_weight_of_each_task(weighting):
    # Tasks that share a loss are a group. In a copy each has a loss of its own.
    loss = keras.losses.Huber(2.0)
    tasks = [dk.Task("a", loss=loss), dk.Task("b"), dk.Task("c", loss=loss)]
    model = make(tasks, task_weighting=weighting)
    for variable in model.task_losses.variables:
        variable.assign([0.0, 1.0, 2.0])
    copy = type(model).from_config(model.get_config())
    copy.set_weights(model.get_weights())
    assert len(copy.task_metrics.groups) > len(model.task_metrics.groups)
    assert copy.task_weights == pytest.approx(model.task_weights)


@pytest.mark.traced
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_half_precision_learns_the_weights_in_full(weighting):
    with dtype_policy("mixed_float16"):
        model = make(label_average="labels", task_weighting=weighting)
    assert np.isfinite(model.fit(X, Y, batch_size=4, verbose=0).history["loss"]).all()
    assert {v.dtype for v in model.task_losses.variables} == {"float32"}


test_unknown_names_are_refused = helpers.refusals(
    (make, "`label_average` must be one of 'batch', 'l", {"label_average": "mean"}),
    (make, "an object with the methods `pena.*'dwa'", {"task_weighting": "dwa"}),
)
