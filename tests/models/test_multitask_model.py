"""A multi-task model trains on its tasks' losses, and reports each by its name."""

from functools import partial

import helpers
import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import floatx, numbers, numpy, refusals, reloaded, value_and_gradients
from keras import layers, ops

import dselectk_keras as dk
from dselectk_keras.batches import Batches
from dselectk_keras.models.label_reader import make_readers
from dselectk_keras.models.task_metrics import TaskMetrics

BATCH = 6
X = numbers((BATCH, 3))
KINDS = (
    dk.Task("amount", tower=(4,)),
    dk.Task("click", "binary"),
    dk.Task("like", "binary", weight=3.0),
    dk.Task("color", "multiclass", num_classes=3),
)
Y = {
    "amount": numbers((BATCH,), seed=1),
    "click": np.array([0, 1, 1, 0, 1, 0], "float32"),
    "like": np.array([1, 1, 1, 0, 0, 0], "float32"),
    "color": np.array([0, 1, 2, 2, 1, 0], "float32"),
}
MISSING = {
    **Y,
    "amount": np.where([1, 0, 1, 1, 0, 1], Y["amount"], np.nan),
    "click": np.full(BATCH, np.nan, "float32"),
    "color": np.array([0, -1, 2, -1, 1, 0], "float32"),
}


def make(tasks=KINDS, gate=None, compiled=True, average="labels", **settings):
    parts = {"experts": dk.DenseExperts(2, [4]), "gate": gate or dk.SoftmaxGate()}
    model = dk.build_multitask_model(3, tasks, label_average=average, **parts)
    if compiled:
        model.compile("sgd", **settings)
    return model


def report(model, x, y, **settings):
    return model.evaluate(x, y, verbose=0, return_dict=True, **settings)


@pytest.fixture(scope="module")
def model():
    """A compiled model that tests do not train."""
    return make()


def loss_by_hand(kind, y, p):
    if kind == "regression":
        return (y - p[:, 0]) ** 2
    if kind == "binary":
        return -np.log(np.where(y == 1, p[:, 0], 1 - p[:, 0]))
    return -np.log(p[np.arange(len(y)), y.astype(int)])


def losses_by_hand(model, x, y):
    """The mean loss of each task over the labels that are there."""
    outputs = {name: numpy(value) for name, value in model(x).items()}
    losses = {}
    for task in model.tasks:
        labels = y[task.name]
        present = ~np.isnan(labels)
        if task.kind == "multiclass":
            present &= labels >= 0
        loss = loss_by_hand(task.kind, labels[present], outputs[task.name][present])
        losses[task.name] = loss.mean() if present.any() else 0.0
    return losses


@pytest.mark.traced
@pytest.mark.parametrize("y", [Y, MISSING], ids=["complete", "missing"])
def test_the_loss_is_the_weighted_sum_over_the_labels_that_are_there(model, y):
    expected = losses_by_hand(model, X, y)
    total = sum(task.weight * expected[task.name] for task in model.tasks)
    direct = numpy(model.compute_loss(X, y, model(X)))
    found = report(model, X, y)
    for loss in (direct, found["loss"], found["task_loss"]):
        assert_close(loss, total, rtol=1e-5)
    for name, loss in expected.items():
        wanted = np.nan if np.isnan(y[name]).all() else loss
        assert_close(found[f"{name}_loss"], wanted, rtol=1e-5)


@pytest.mark.traced
def test_metrics_are_over_the_labels_that_are_there(model):
    outputs = {name: numpy(value) for name, value in model(X).items()}
    found = report(model, X, MISSING)
    present = ~np.isnan(MISSING["amount"])
    error = np.abs(outputs["amount"][:, 0] - MISSING["amount"])[present].mean()
    right = (outputs["like"][:, 0] > 0.5) == Y["like"]
    present = MISSING["color"] >= 0
    colors = outputs["color"].argmax(axis=1) == MISSING["color"]
    expected = {
        "amount_mean_absolute_error": error,
        "like_binary_accuracy": right.mean(),
        "color_sparse_categorical_accuracy": colors[present].mean(),
    }
    assert_close({name: found.pop(name) for name in expected}, expected, rtol=1e-5)
    losses = {f"{task.name}_loss" for task in KINDS}
    assert set(found) == {"loss", "task_loss", "click_binary_accuracy", *losses}


@pytest.mark.traced
def test_sample_weights_make_a_metric_a_weighted_mean(model):
    weights = {name: 3.0 * np.arange(1, BATCH + 1, dtype="float32") for name in Y}
    wanted = (numpy(model(X)["like"])[:, 0] > 0.5) == Y["like"]
    wanted = np.average(wanted, weights=weights["like"])
    found = report(model, X, Y, sample_weight=weights)
    assert_close(found["like_binary_accuracy"], wanted, rtol=1e-5)
    # The loss of a label is multiplied by its weight.
    losses = loss_by_hand("binary", Y["like"], numpy(model(X)["like"]))
    assert_close(found["like_loss"], (losses * weights["like"]).mean(), rtol=1e-5)


def gradients_of_loss(model, y, weights=None):
    state, variables = model.task_metrics.variables, model.trainable_variables
    return value_and_gradients(
        lambda: [model.compute_loss(X, y, model(X), weights)], variables, state
    )[1]


def test_a_task_without_labels_is_not_trained(model):
    y = {**Y, "amount": np.full(BATCH, np.nan, "float32")}
    gradients = gradients_of_loss(model, y)
    found = dict(zip(map(id, model.trainable_variables), gradients, strict=True))

    def moves(layer):
        return {found[id(each)].any() for each in layer.trainable_variables}

    assert moves(model.get_layer("towers_amount")) == {False}
    assert moves(model.get_layer("towers_click_like")) == {True}
    logits = found[id(model.get_layer("mmoe").gate.trainable_variables[0])]
    assert logits.any(axis=1).tolist() == [False, True, True, True]
    assert all(np.isfinite(each).all() for each in gradients)


def test_outputs_are_by_name_and_those_beside_them_are_predicted_too(model):
    expected = {name: numpy(output) for name, output in model(X).items()}
    shapes = {name: output.shape[1] for name, output in expected.items()}
    assert shapes == {"amount": 1, "click": 1, "like": 1, "color": 3}
    assert_close(expected["color"].sum(axis=1), 1.0, rtol=1e-5)
    assert ((expected["click"] > 0) & (expected["click"] < 1)).all()
    outputs = {**model.output, "click": 1.0 - model.output["click"]}
    found = type(model)(model.input, outputs, tasks=KINDS).predict(X, verbose=0)
    assert_close(found["click"], 1.0 - numpy(model(X)["click"]), rtol=1e-5)


@pytest.mark.backend_independent
def test_losses_and_metrics_may_be_names_or_objects(tmp_path):
    smoothed = keras.losses.BinaryCrossentropy(label_smoothing=0.2)
    metrics = ("AUC", keras.metrics.Precision(name="exact"))
    tasks = [
        dk.Task("a", loss=keras.losses.Huber(), metrics=("mse",)),
        dk.Task("b", "binary", loss=smoothed, metrics=metrics),
        dk.Task("c", loss="mean_absolute_error", metrics=()),
        dk.Task("d", "multiclass", 2, loss="categorical_crossentropy", metrics="mse"),
    ]
    model = make(tasks)
    hot = np.eye(2, dtype="float32")[[0, 1, 0, 1, 0, 1]]
    y = {"a": Y["amount"], "b": Y["click"], "c": Y["amount"], "d": hot}
    found = report(model, X, y)
    outputs = {name: numpy(value) for name, value in model(X).items()}
    error = np.abs(Y["amount"] - outputs["a"][:, 0])
    area, precision = (
        float(metric(Y["click"], outputs["b"][:, 0]))
        for metric in (keras.metrics.AUC(), keras.metrics.Precision())
    )
    smooth, p = 0.8 * Y["click"] + 0.1, outputs["b"][:, 0]
    cross_entropy = -smooth * np.log(p) - (1 - smooth) * np.log(1 - p)
    expected = {
        "a_loss": np.where(error < 1, error**2 / 2, error - 0.5).mean(),
        "a_mse": (error**2).mean(),
        "b_loss": cross_entropy.mean(),
        "b_AUC": area,
        "b_exact": precision,
        "c_loss": np.abs(Y["amount"] - outputs["c"][:, 0]).mean(),
        "d_loss": -np.log(outputs["d"][hot == 1]).mean(),
        "d_mse": ((outputs["d"] - hot) ** 2).mean(),
    }
    assert_close(report(reloaded(model, tmp_path), X, y), found, rtol=1e-5)
    assert set(found) == {*expected, "loss", "task_loss"}
    assert_close({name: found[name] for name in expected}, expected, rtol=1e-4)


class TwoNumbers(keras.metrics.MeanSquaredError):
    def result(self):
        return {"a": super().result(), "b": super().result()}


@pytest.mark.traced
@pytest.mark.parametrize("metric", [keras.metrics.F1Score(), TwoNumbers("f1_score")])
def test_a_metric_of_several_numbers_is_refused_in_the_first_step(metric):
    task = dk.Task("c", "multiclass", 3, (), "categorical_crossentropy", metric)
    y = {"c": np.eye(3, dtype="float32")[[0, 1, 2] * 2]}
    with pytest.raises(
        ValueError, match=r"one number.*'f1_score' of the task 'c'.*ave"
    ):
        make([task]).train_on_batch(X, y)


@pytest.mark.backend_independent
def test_a_metric_may_have_one_number_in_a_list():
    metrics = keras.metrics.F1Score(threshold=0.5), "R2Score"
    task = dk.Task("click", "binary", metrics=metrics)
    model, y = make([task]), Y["click"]
    found = report(model, X, {"click": y})
    wanted = keras.metrics.F1Score(threshold=0.5)
    wanted.update_state(y[:, None], model(X)["click"])
    assert_close(found["click_f1_score"], numpy(wanted.result())[0], rtol=1e-5)


@pytest.mark.traced
def test_half_precision_predicts_reports_and_sums_in_full():
    with helpers.dtype_policy("mixed_float16"):
        model = make(gate=dk.DSelectKGate(2, entropy_reg=0.1))
    log = model.fit(X, Y, epochs=2, verbose=0)
    assert all(np.isfinite(values).all() for values in log.history.values())
    outputs = model.predict(X, verbose=0)
    assert {value.dtype for value in outputs.values()} == {np.dtype("float32")}
    with floatx("bfloat16"):
        metrics = TaskMetrics(make_readers([dk.Task("a")]))
    assert {variable.dtype for variable in metrics.variables} == {"float32"}


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_labels_are_not_rounded_to_outputs_in_half_precision(dtype):
    inputs = keras.Input((1,))
    outputs = layers.Dense(1, bias_initializer="ones", dtype=dtype)(inputs)
    model = dk.MultitaskModel(inputs, {"a": outputs}, tasks=["a"])
    model.compile("sgd")
    y = np.full((4, 1), 1 + 2.0**-12)
    found = model.evaluate(np.zeros((4, 1)), {"a": y}, verbose=0, return_dict=True)
    assert found["task_loss"] == pytest.approx(2.0**-24, rel=1e-3)


def test_penalties_of_a_layer_in_half_precision_are_added_to_the_loss():
    inputs = keras.Input((3,))
    penalty = keras.regularizers.L2(0.5)
    dense = keras.layers.Dense(4, activity_regularizer=penalty, dtype="mixed_float16")
    model = dk.build_multitask_model(keras.Model(inputs, dense(inputs)), 2)
    model.compile("sgd")
    x = helpers.numbers((8, 3))
    found = model.test_on_batch(x, x[:, :2], return_dict=True)
    expected = 0.5 * np.mean(np.sum(helpers.numpy(dense(x)).astype("float32") ** 2, 1))
    assert_close(found["loss"] - found["task_loss"], expected, rtol=5e-3)


def test_a_loss_given_to_compile_replaces_those_of_the_tasks():
    model = make([dk.Task("a"), dk.Task("b")], compiled=False, average="batch")
    model.compile("sgd", {"a": "mae", "b": "mae"}, metrics={"a": ["mse"]})
    y = {"a": Y["amount"][:, None], "b": Y["click"][:, None]}
    outputs = model.predict(X, verbose=0)
    found = report(model, X, y)
    expected = sum(np.abs(outputs[name] - y[name]).mean() for name in y)
    assert_close(found["loss"], expected, rtol=1e-5)
    assert "a_mse" in found
    assert "task_loss" not in found
    assert np.isfinite(model.fit(X, y, verbose=0).history["loss"]).all()
    # Weights that such a loss replaces are refused in training alone.
    model = make([dk.Task("a", weight=2.0)], loss="mse")
    assert np.isfinite(report(model, X, {"a": Y["amount"]})["loss"])


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("y", "weights", "text"),
    [
        ({"amount": Y["amount"]}, None, r"missing \['click', 'color', 'l.*pass NaN"),
        (np.zeros((BATCH, 3)), None, rf"shape \(batch, 4\).*\({BATCH}, 3\)"),
        (np.zeros(BATCH), None, r"one array of shape \(batch, 4\)"),
        (None, None, "labels must be a dict by task name.*Received: \\(\\)"),
        ({**Y, "click": np.zeros((BATCH, 2))}, None, r"'click' .*\(batch,\).*6, 2\)"),
        (
            {**Y, "color": np.zeros((BATCH, 2))},
            None,
            r"'color' .*\(batch, 1\)\. .*6, 2\)\. Class",
        ),
        (Y, {**Y, "clck": Y["click"]}, r"sample weights must be .* \['clck'\]"),
        (Y, np.ones((BATCH, 3)), "sample weights must be a dict"),
        (Y, {"click": np.ones(BATCH)}, r"missing \['amount'.*pass arrays of ones"),
    ],
)
def test_labels_and_weights_that_do_not_fit_are_refused(model, y, weights, text):
    with pytest.raises(ValueError, match=text):
        model.compute_loss(X, y, model(X), weights)


@pytest.mark.traced
def test_one_weight_per_example_is_for_all_tasks(model):
    weights = np.array([0.5, 0.0, 2.0, 1.0, 3.0, 1.0], "float32")
    forms = dict.fromkeys(Y, weights), weights, weights[:, None]
    first, *others = [report(model, X, MISSING, sample_weight=w) for w in forms]
    for other, given in zip(others, forms[1:], strict=True):
        assert other == pytest.approx(first, nan_ok=True)
        losses = (
            model.compute_loss(X, MISSING, model(X), w) for w in (forms[0], given)
        )
        assert_equal(*losses)
        assert np.isfinite(model.test_on_batch(X, Y, given)).all()


def test_the_gradient_of_the_loss_is_that_of_the_mean_over_present_labels():
    model = make([dk.Task("a", tower="sum", weight=2.0)])
    y = np.array([1.0, np.nan, 0.0, np.nan, 2.0, 1.0], "float32")

    def by_hand():
        kept = ~np.isnan(y)
        errors = model(X[kept])["a"][:, 0] - ops.convert_to_tensor(y[kept])
        return [2.0 * ops.mean(errors**2)]

    _, expected = value_and_gradients(by_hand, model.trainable_variables)
    assert_close(gradients_of_loss(model, y), expected, rtol=1e-4, atol=1e-6)


@pytest.fixture
def shapes_seen(monkeypatch):
    """The shapes of the labels and of the sample weights that steps get."""
    seen, own = [], dk.MultitaskModel.compute_loss

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        given = y, sample_weight
        seen.append(keras.tree.map_structure(lambda each: tuple(np.shape(each)), given))
        return own(self, x, y, y_pred, sample_weight, training)

    monkeypatch.setattr(dk.MultitaskModel, "compute_loss", compute_loss)
    return seen


def table(columns):
    return pytest.importorskip("pandas").DataFrame(columns)


BY_NAME = {
    "columns": lambda: {name: y[:, None] for name, y in Y.items()},
    "integers": lambda: {**Y, "color": Y["color"].astype(int), "like": Y["like"] > 0},
    "lists in any order": lambda: {name: Y[name].tolist() for name in sorted(Y)},
    "tensors": lambda: {name: ops.convert_to_tensor(y) for name, y in Y.items()},
    "table of integers": lambda: table({**Y, "color": Y["color"].astype("uint8")}),
}


@pytest.mark.backend_independent
@pytest.mark.parametrize("form", BY_NAME)
def test_labels_by_name_are_one_array_before_the_first_step(form, shapes_seen):
    array, logs = np.stack([*Y.values()], axis=1), []
    settings = {"epochs": 2, "batch_size": 4, "shuffle": False, "verbose": 0}
    for y in (BY_NAME[form](), array):
        keras.utils.set_random_seed(0)
        model = make()
        log = model.fit(X, y, validation_data=(X, y), **settings).history
        logs.append(log | {"evaluated": model.evaluate(X, y, 2, 0)})
    assert {shape[1:] for shape, _ in shapes_seen} == {(4,)}
    assert_equal(*logs)


@pytest.mark.backend_independent
@pytest.mark.parametrize("split", [0.0, 0.5])
def test_weights_by_name_are_one_array_before_the_first_step(split, shapes_seen):
    weights, logs = {name: numbers(BATCH, seed=i) ** 2 for i, name in enumerate(Y)}, []
    for w in (weights, table(weights), np.stack([*weights.values()], axis=1)):
        keras.utils.set_random_seed(0)
        model = make()
        held_out = {} if split else {"validation_data": (X, Y, w)}
        settings = {"validation_split": split, "shuffle": False, "verbose": 0}
        log = model.fit(X, Y, sample_weight=w, **held_out, **settings).history
        logs.append(log | report(model, X, Y, sample_weight=w))
    assert {shape[1:] for shapes in shapes_seen for shape in shapes} == {(4,)}
    assert_equal(logs[:2], logs[2:] * 2)


@pytest.mark.backend_independent
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_labels_stay_by_name_where_one_array_would_not_hold_them(dtype, shapes_seen):
    loss = "categorical_crossentropy"
    hot = dk.Task("color", "multiclass", 3, loss=loss, metrics=())
    cases = [(KINDS[:1], {"amount": 2**8 + np.arange(BATCH)})]
    if dtype == "float32":
        cases = [(KINDS, {**Y, "amount": 2**24 + np.arange(BATCH)})]
        shares = np.eye(3)[Y["color"].astype(int)]
        cases.append(((*KINDS[:3], hot), {**Y, "color": shares}))
    for tasks, y in cases:
        with floatx(dtype):
            model = make(tasks)
            weights = np.stack([np.arange(1.0, 1 + BATCH)] * len(y), axis=1)
            by_name = dict(zip(y, weights.T, strict=True))
            for w in (None, weights[:, 0], weights, by_name):
                model.fit(X, y, sample_weight=w, validation_data=(X, y), verbose=0)
                model.evaluate(X, y, sample_weight=w, verbose=0)
        assert all({*labels} == {*y} for labels, _ in shapes_seen)
        shapes_seen.clear()


def test_labels_have_any_form(model):
    columns = np.stack([MISSING[task.name] for task in KINDS], axis=1)
    expected = report(model, X, MISSING)
    batches = [Batches((X, y), 2, 0) for y in (columns, MISSING)]
    for data in ((X, columns), *zip(batches)):
        found = model.evaluate(*data, batch_size=2, verbose=0, return_dict=True)
        del found["loss"]  # Of the batches.
        assert found == pytest.approx({k: expected[k] for k in found}, nan_ok=True)


class ByName(keras.utils.PyDataset):
    """Two batches with labels, and sample weights, by name."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        y = {"a": np.full(4, index, "int32"), "b": np.full((4, 1), 2.0 + index)}
        return numbers((4, 3)), y, {"b": np.ones(4), "a": np.zeros(4)}


def by_dataset():
    import tensorflow as tf

    x, y, weights = (
        keras.tree.map_structure(lambda *each: np.stack(each), *pair)
        for pair in zip(*[ByName()[i] for i in range(2)], strict=True)
    )
    return tf.data.Dataset.from_tensor_slices((x, y, weights))


@pytest.mark.traced
@pytest.mark.parametrize(
    ("stream", "method"),
    [
        (ByName, "fit"),
        (lambda: (ByName()[i] for i in range(2)), "evaluate"),
        (by_dataset, "fit"),
    ],
    ids=["PyDataset", "generator", "tf.data"],
)
def test_labels_by_name_are_joined_before_a_step(stream, method, monkeypatch):
    model = dk.build_multitask_model(3, ["a", "b"], experts=dk.DenseExperts(2, [2]))
    model.compile("sgd")
    seen, compute = [], model.compute_loss

    def see(x=None, y=None, y_pred=None, sample_weight=None, **kwargs):
        seen.append((tuple(y.shape[1:]), tuple(sample_weight.shape[1:])))
        return compute(x, y, y_pred, sample_weight, **kwargs)

    monkeypatch.setattr(model, "compute_loss", see)
    for batch in (ByName()[i] for i in range(2)):
        model.train_on_batch(*batch)
        model.test_on_batch(*batch)
    if method == "fit":
        settings = {"steps_per_epoch": 2, "validation_steps": 2}
        model.fit(stream(), validation_data=stream(), verbose=0, **settings)
    else:
        # The labels of `b` are 2 and 3, and those of `a` have no weight.
        model.set_weights([0 * each for each in model.get_weights()])
        found = model.evaluate(stream(), steps=2, return_dict=True, verbose=0)
        assert_close(found["b_loss"], 6.5)
        assert_close(found["loss"], 6.5)
    assert {*seen} == {((2,), (2,))}


def test_a_step_reports_the_sums_alone_and_penalties_are_in_the_loss():
    model = make(gate=dk.DSelectKGate(2, entropy_reg=0.5))
    loss = numpy(model.compute_loss(X, Y, model(X, training=True)))
    penalty = numpy(model.get_layer("mmoe").gate.report()["penalties"]["entropy"])
    model.reset_metrics()
    log = model.train_on_batch(X, Y, return_dict=True)
    assert set(log) == {"loss", "task_loss"}
    assert_close(log["loss"], loss, rtol=1e-5)
    assert_close(log["loss"] - log["task_loss"], penalty, rtol=1e-4)
    assert "color_loss" in model.get_metrics_result()


@pytest.mark.traced
def test_a_label_that_does_not_count_may_be_anything():
    anything = {"amount": np.inf, "click": 5.0, "like": -np.inf, "color": 7.0}
    counts = np.arange(BATCH) != 2
    y = {name: np.where(counts, Y[name], anything[name]) for name in Y}
    model = make(gate=dk.DSelectKGate(2, entropy_reg=0.1))
    first, found = model.get_weights(), []
    for labels in (y, Y):
        model.set_weights(first)
        weights = dict.fromkeys(Y, counts.astype("float32"))
        model.fit(X, labels, sample_weight=weights, epochs=2, shuffle=False, verbose=0)
        found.append(model.get_weights())
    assert_close(*found, rtol=1e-6)


@pytest.mark.traced
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("color", value) for value in (7.0, 1.5, np.inf)),
        *[("click", 5.0), ("click", -1.0), ("amount", np.inf)],
    ],
)
def test_impossible_labels_in_a_step_make_the_loss_nan(model, name, value):
    model.reset_metrics()
    y = {**Y, name: Y[name].copy()}
    y[name][4] = value
    assert not np.isfinite(model.test_on_batch(X, y, return_dict=True)["loss"])
    assert not np.isfinite(model.get_metrics_result()[f"{name}_loss"])
    assert np.isfinite(model.get_metrics_result()["like_loss"])


def test_a_class_that_the_loss_ignores_is_a_missing_label():
    def report_of(ignored, labels):
        loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=ignored)
        model = make([dk.Task("color", "multiclass", 3, loss=loss)])
        model.set_weights([numbers(w.shape, seed=1) for w in model.get_weights()])
        return report(model, X, labels)

    labels = np.array([0, 1, 2, 2, 1, 0])
    for ignored in (255, 1):
        without = np.where([0, 1, 0, 0, 1, 0], -1, labels)
        expected = report_of(None, without)
        found = report_of(ignored, np.where(without < 0, ignored, labels))
        assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.backend_independent
@pytest.mark.traced
def test_class_weights_of_one_task_are_sample_weights():
    model, y = make(KINDS[1:2]), Y["click"]
    model.compile(keras.optimizers.SGD(0.0))
    weighted = model.fit(X, y, sample_weight=1 + 2 * y, verbose=0).history["loss"]
    assert weighted != model.fit(X, y, verbose=0).history["loss"]
    for labels in (y, y[:, None], {"click": y}):
        found = model.fit(X, labels, class_weight={1: 3.0}, verbose=0).history["loss"]
        assert_close(found, weighted, rtol=1e-6)


@pytest.mark.traced
def test_labels_may_change_their_rank_between_calls():
    model, y = make(KINDS[1:2]), np.where(np.arange(BATCH) < 4, np.nan, Y["click"])
    model.compile(keras.optimizers.SGD(0.0))
    labels = (y, y[:, None], y, {"click": y})
    first, *others = [model.fit(X, y, verbose=0).history["loss"] for y in labels]
    assert_close(others, [first] * 3, rtol=1e-6)


@pytest.mark.backend_independent
def test_a_model_without_tasks_says_how_to_copy_one_with_tasks(tmp_path):
    model = dk.build_multitask_model(3, 2, gate=dk.SoftmaxGate())
    model.compile("sgd")
    clone = keras.models.clone_model(model)
    # A file keeps it a model that only predicts.
    for each in (clone, reloaded(clone, tmp_path)):
        x, y = np.ones((2, 3)), np.ones((2, 2))
        assert each.predict(x, verbose=0)["task_0"].shape == (2, 1)
        for method in (each.fit, each.evaluate, each.train_on_batch):
            with pytest.raises(ValueError, match=r"has no tasks.*from_config"):
                method(x, y)
    assert type(model).from_config(model.get_config()).tasks == model.tasks


@pytest.mark.backend_independent
def test_layers_may_have_metrics_of_their_own():
    measured = layers.Dense(3)
    measured.size = keras.metrics.Mean("size")
    encoder = keras.Sequential([keras.Input((3,)), measured])
    model = dk.build_multitask_model(encoder, ["a"])
    model.compile("sgd")
    assert len(model.metrics) == 3
    assert report(model, X, Y["amount"])["size"] == 0
    assert "a_loss" in model.fit(X, Y["amount"], verbose=0).history


def of_outputs(sizes, tasks):
    inputs = keras.Input((3,))
    outputs = keras.tree.map_structure(lambda n: layers.Dense(n)(inputs), sizes)
    return lambda: dk.MultitaskModel(inputs, outputs, tasks=tasks)


def with_loss():
    tasks = [dk.Task("a"), dk.Task("b")]
    model = make(tasks, average="batch", loss="binary_crossentropy")
    model.fit(X, np.ones((BATCH, 2)), verbose=0)


def idle(weight=1.0, **settings):
    inputs = keras.Input((3,))
    tasks = [dk.Task("a", weight=weight), dk.Task("b")]
    model = dk.MultitaskModel(inputs, layers.Dense(2)(inputs), tasks=tasks, **settings)
    model.compile("sgd", "mse")
    model.train_on_batch(X, np.ones((BATCH, 2)))


def renamed(name):
    return keras.metrics.MeanSquaredError(name)


def metric_named(name):
    return "binary_accuracy", keras.metrics.BinaryAccuracy(name, threshold=0.25)


test_what_cannot_be_is_refused = refusals(
    (of_outputs({"a": 1}, ()), "one or more `Task` or.*tasks="),
    (of_outputs({"a": 1}, ["b"]), r"the tasks \['b'\]"),
    (of_outputs({"a": 1}, [3]), r"`Task` objects.*Received: \[3\]"),
    (of_outputs({"b": 1}, [dk.Task("a")]), "the names of all tasks, or"),
    (of_outputs(2, [dk.Task("a")]), r"one tensor \(batch, tasks\)"),
    *(
        (
            lambda name: make([dk.Task("a", "binary", metrics=metric_named(name))]),
            f"'a' need different.*name '{name}'",
            name,
        )
        for name in ["binary_accuracy", "loss"]
    ),
    *(
        (make, f"two numbers of the name '{name}'", (tasks,))
        for tasks, name in [
            ([dk.Task("x"), dk.Task("val_x")], "val_x_loss"),
            ([dk.Task("val")], "val_loss"),
            ([dk.Task("a", metrics=renamed("b_loss")), dk.Task("a_b")], "a_b_loss"),
        ]
    ),
    *(
        (
            lambda given, name=name: getattr(make(**given), name)(X, Y),
            r"together with a loss.*`Task\(metrics=...,",
            *({"given": {"metrics": ["mse"]}}, {"given": {"loss_weights": [2.0]}}),
        )
        for name in ["fit", "evaluate"]
    ),
    (with_loss, "since each task has its own"),
    *(
        (partial(idle, **{name: value}), f"Received: loss='mse' and {text}, which")
        for name, value, text in [
            ("task_weighting", "uncertainty", "task_weighting"),
            ("label_average", "labels", "label_average"),
            ("weight", 2.0, r"Task\(weight=...\)"),
        ]
    ),
    (
        lambda: make().fit(X, Y, 4, 1, 0, None, 0.0, [X[:4], Y]),
        "inputs of 4, labels of 6",
    ),
)


@pytest.mark.backend_independent
def test_an_unknown_argument_is_refused():
    inputs = keras.Input((3,))
    with pytest.raises(TypeError, match="argument 'label_averge'"):
        dk.MultitaskModel(inputs, {"a": layers.Dense(1)(inputs)}, label_averge="labels")


@pytest.mark.backend_independent
def test_of_many_tasks_fit_prints_the_sums_alone(capsys):
    x = np.ones((4, 2), "float32")
    for number, logger, shown in (
        (3, [], "a2_loss"),
        (4, [], ""),
        (4, [keras.callbacks.ProgbarLogger()], "a2_loss"),
    ):
        inputs = keras.Input((2,))
        names = [f"a{i}" for i in range(number)]
        outputs = keras.layers.Dense(number)(inputs)
        model = dk.MultitaskModel(inputs, outputs, tasks=names)
        model.compile("sgd")
        labels = np.arange(4.0 * number).reshape(4, number)
        history = model.fit(
            x, labels, verbose=2, validation_data=(x, labels), callbacks=logger
        )
        printed = capsys.readouterr().out
        assert {"val_task_loss", "a0_mean_absolute_error"} <= {*history.history}
        assert "val_task_loss" in printed
        assert shown in printed
        assert shown or "a2_" not in printed
