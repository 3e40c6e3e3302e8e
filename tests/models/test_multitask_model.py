"""A multi-task model trains on its tasks' losses, and reports each by its name."""

import keras
import numpy as np
import pytest
from helpers import numbers, numpy, value_and_gradients
from keras import ops

from dselectk_keras import (
    DenseExperts,
    DSelectKGate,
    OnceDecided,
    ReinforceGate,
    SoftmaxGate,
    Task,
    build_multitask_model,
)
from dselectk_keras.models.task_group import group_tasks

BATCH = 6
X = numbers((BATCH, 3))
KINDS = (
    Task("amount", tower=(4,)),
    Task("click", "binary"),
    Task("like", "binary", weight=3.0),
    Task("color", "multiclass", num_classes=3),
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


def make(tasks=KINDS, gate=None, compiled=True, **settings):
    gate = SoftmaxGate() if gate is None else gate
    model = build_multitask_model(
        3,
        tasks,
        experts=DenseExperts(2, [4]),
        gate=gate,
        per_example=False,
        label_average="labels",
    )
    if compiled:
        model.compile("sgd", **settings)
    return model


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
    found = numpy(model.compute_loss(X, y, model(X)))
    np.testing.assert_allclose(found, total, rtol=1e-5)
    report = model.evaluate(X, y, verbose=0, return_dict=True)
    np.testing.assert_allclose(report["loss"], total, rtol=1e-5)
    np.testing.assert_allclose(report["task_loss"], total, rtol=1e-5)
    for task in model.tasks:
        if np.isnan(y[task.name]).all():
            assert np.isnan(report[f"{task.name}_loss"])
        else:
            loss = report[f"{task.name}_loss"]
            np.testing.assert_allclose(loss, expected[task.name], rtol=1e-5)


@pytest.mark.traced
def test_metrics_are_over_the_labels_that_are_there(model):
    outputs = {name: numpy(value) for name, value in model(X).items()}
    report = model.evaluate(X, MISSING, verbose=0, return_dict=True)
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
    for name, value in expected.items():
        np.testing.assert_allclose(report[name], value, rtol=1e-5)
    assert set(report) == {
        "loss",
        "task_loss",
        "click_binary_accuracy",
        *expected,
        *(f"{task.name}_loss" for task in KINDS),
    }


@pytest.mark.traced
def test_sample_weights_make_a_metric_a_weighted_mean(model):
    weights = {name: 3.0 * np.arange(1, BATCH + 1, dtype="float32") for name in Y}
    wanted = (numpy(model(X)["like"])[:, 0] > 0.5) == Y["like"]
    wanted = np.average(wanted, weights=weights["like"])
    report = model.evaluate(X, Y, sample_weight=weights, verbose=0, return_dict=True)
    np.testing.assert_allclose(report["like_binary_accuracy"], wanted, rtol=1e-5)
    # The loss of a label is multiplied by its weight.
    losses = loss_by_hand("binary", Y["like"], numpy(model(X)["like"]))
    wanted = (losses * weights["like"]).mean()
    np.testing.assert_allclose(report["like_loss"], wanted, rtol=1e-5)


def test_the_columns_of_a_table_are_found_by_the_names_of_the_tasks():
    pandas = pytest.importorskip("pandas")
    weights = {name: numbers(BATCH, seed=i) ** 2 for i, name in enumerate(Y)}

    def run(form):
        model = make()
        model.set_weights([np.full(w.shape, 0.1) for w in model.get_weights()])
        y, w = form(Y), form(weights)
        held_out = (X, y, w)
        log = model.fit(X, y, sample_weight=w, validation_data=held_out, verbose=0)
        report = model.evaluate(X, y, sample_weight=w, verbose=0, return_dict=True)
        tested = model.test_on_batch(X, y, w, return_dict=True)
        trained = model.train_on_batch(X, y, w, return_dict=True)
        logs = [value for (value,) in log.history.values()]
        return [*report.values(), *logs, *tested.values(), *trained.values()]

    keys = sorted(Y, reverse=True)
    tables = run(lambda values: pandas.DataFrame({key: values[key] for key in keys}))
    assert tables == pytest.approx(run(lambda values: values), rel=1e-5)


@pytest.mark.parametrize("name", ["binary_accuracy", "loss"])
def test_metrics_of_one_name_are_refused(name):
    metrics = ("binary_accuracy", keras.metrics.BinaryAccuracy(name, threshold=0.25))
    with pytest.raises(ValueError, match=f"'like' need different.*name '{name}'"):
        make([Task("like", "binary", metrics=metrics)])


def test_the_labels_of_a_task_may_be_a_list():
    model = make()
    lists = {name: values.tolist() for name, values in Y.items()}
    expected = model.evaluate(X, Y, verbose=0, return_dict=True)
    found = model.evaluate(X, lists, verbose=0, return_dict=True)
    assert found == pytest.approx(expected)
    assert model.fit(X, lists, verbose=0).history["loss"][0] > 0.0


def test_a_table_may_have_columns_of_several_dtypes_and_missing_values():
    pandas = pytest.importorskip("pandas")
    tasks = [Task("amount"), Task("click", "binary"), Task("like", "binary")]
    model = make(tasks)
    y = {
        "amount": MISSING["amount"],
        "click": np.array([0, 1, np.nan, 0, 1, np.nan], "float32"),
        "like": Y["like"],
    }
    clicks = [None if np.isnan(value) else bool(value) for value in y["click"]]
    table = pandas.DataFrame({"like": y["like"].astype(bool), "amount": y["amount"]})
    mixed = [
        table.assign(click=y["click"]),
        table.assign(click=clicks),
        table.assign(click=pandas.array(clicks, dtype="boolean")),
        table.assign(click=pandas.array(clicks, dtype="boolean").astype("Int64")),
    ]
    expected = model.evaluate(X, y, verbose=0, return_dict=True)
    for each in mixed:
        for form in (each, dict(each)):
            found = model.evaluate(X, form, verbose=0, return_dict=True)
            assert found == pytest.approx(expected, rel=1e-5)
            model.reset_metrics()
            found = model.test_on_batch(X, form, return_dict=True)
            assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    weights = pandas.DataFrame({task.name: [True, False] * 3 for task in tasks})
    halves = {name: np.where([1, 0] * 3, value, np.nan) for name, value in y.items()}
    found = model.evaluate(X, table.assign(click=clicks), sample_weight=weights)
    assert found == pytest.approx(model.evaluate(X, halves, verbose=0), rel=1e-5)


def test_one_array_of_labels_is_the_dict_of_its_columns(model):
    columns = np.stack([MISSING[task.name] for task in KINDS], axis=1)
    weights = {name: numbers((BATCH,), seed=5) ** 2 for name in Y}
    weight_columns = np.stack([weights[task.name] for task in KINDS], axis=1)
    outputs = model(X)
    found = [
        numpy(model.compute_loss(X, y, outputs, w))
        for y, w in (
            (MISSING, weights),
            (columns, weights),
            (columns, weight_columns),
            ({name: y[:, None] for name, y in MISSING.items()}, weights),
        )
    ]
    np.testing.assert_allclose(found, found[0], rtol=1e-6)


def test_labels_that_are_all_there_are_computed_without_masks(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "dselectk_keras.models.multitask_model.without_stray_nan",
        lambda x, read: seen.append([labels.present is None for labels in read]) or x,
    )
    ones = {name: np.ones(BATCH, "float32") for name in Y}
    missing = {**Y, "like": np.full(BATCH, np.nan, "float32")}
    reports = []
    for y, weights in ((Y, None), (Y, ones), (missing, None)):
        model = make(gate=SoftmaxGate(kernel_initializer="zeros"))
        model.set_weights([np.full(w.shape, 0.1) for w in model.get_weights()])
        report = model.fit(X, y, sample_weight=weights, verbose=0).history
        reports.append({**report, **model.evaluate(X, y, verbose=0, return_dict=True)})
    assert reports[1] == pytest.approx(reports[0], rel=1e-5)
    assert all(map(all, seen[:2]))
    assert not any(map(any, seen[2:3] + seen[4:]))


def test_a_weight_of_zero_is_a_missing_label(model):
    weights = {
        name: np.where(np.isnan(y) | (y < 0), 0.0, 1.0) for name, y in MISSING.items()
    }
    weights["amount"] = (~np.isnan(MISSING["amount"])).astype("float32")
    weights["like"] = np.ones(BATCH)
    outputs = model(X)
    weighted = numpy(model.compute_loss(X, Y, outputs, weights))
    missing = numpy(model.compute_loss(X, MISSING, outputs))
    np.testing.assert_allclose(weighted, missing, rtol=1e-6)


@pytest.mark.parametrize("how", ["missing", "zero weight"])
def test_a_task_without_labels_is_not_trained(model, how):
    y, weights = Y, None
    if how == "missing":
        y = {**Y, "amount": np.full(BATCH, np.nan, "float32")}
    else:
        weights = {name: np.ones(BATCH, "float32") for name in Y}
        weights["amount"] = np.zeros(BATCH, "float32")
    variables = model.trainable_variables
    _, gradients = value_and_gradients(
        lambda: [model.compute_loss(X, y, model(X), weights)],
        variables,
        state=[v for group in model.task_groups for v in group.variables],
    )
    gate = model.get_layer("mmoe").gate.trainable_variables[0]
    tower = {id(v) for v in model.get_layer("towers_amount").trainable_variables}
    others = {id(v) for v in model.get_layer("towers_click_like").trainable_variables}
    for variable, gradient in zip(variables, gradients, strict=True):
        assert np.isfinite(gradient).all()
        if id(variable) in tower:
            assert not gradient.any()
        elif id(variable) in others:
            assert gradient.any()
        elif variable is gate:
            assert gradient.any(axis=1).tolist() == [False, True, True, True]


def test_the_stacked_path_of_a_step_gives_what_the_outputs_by_name_give():
    penalized = make(
        gate=DSelectKGate(2, entropy_reg=0.5),
    )
    by_name = numpy(penalized.compute_loss(X, Y, penalized(X, training=True)))
    penalty = numpy(penalized.get_layer("mmoe").gate.report()["penalties"]["entropy"])
    log = penalized.fit(X, Y, batch_size=BATCH, verbose=0).history
    np.testing.assert_allclose(log["loss"][0], by_name, rtol=1e-5)
    np.testing.assert_allclose(log["loss"][0] - log["task_loss"][0], penalty, rtol=1e-4)


def test_outputs_are_by_name_and_probabilities_where_they_should_be(model):
    outputs = model.predict(X, verbose=0)
    assert {name: value.shape[1] for name, value in outputs.items()} == {
        "amount": 1,
        "click": 1,
        "like": 1,
        "color": 3,
    }
    np.testing.assert_allclose(outputs["color"].sum(axis=1), 1.0, rtol=1e-5)
    assert ((outputs["click"] > 0) & (outputs["click"] < 1)).all()


def test_predictions_of_all_batches_have_the_names_of_the_outputs(model):
    expected = {name: numpy(output) for name, output in model(X).items()}
    for found in (model.predict(X, batch_size=4, verbose=0), model.predict_on_batch(X)):
        assert list(found) == [task.name for task in KINDS]
        for name, output in found.items():
            np.testing.assert_allclose(output, expected[name], rtol=1e-5, atol=1e-6)


def test_outputs_beside_those_of_the_tasks_are_predicted_too():
    model = make()
    outputs = {**model.output, "click": 1.0 - model.output["click"]}
    changed = type(model)(model.input, outputs, tasks=KINDS)
    np.testing.assert_allclose(
        changed.predict(X, verbose=0)["click"], 1.0 - numpy(model(X)["click"]), 1e-5
    )


def test_losses_and_metrics_may_be_names_or_objects(tmp_path):
    tasks = [
        Task("a", loss=keras.losses.Huber(), metrics=("mse",)),
        Task(
            "b",
            "binary",
            loss=keras.losses.BinaryCrossentropy(label_smoothing=0.2),
            metrics=("AUC", keras.metrics.Precision(name="exact")),
        ),
        Task("c", loss="mean_absolute_error", metrics=()),
        Task("d", "multiclass", 2, loss="categorical_crossentropy", metrics="mse"),
    ]
    model = make(tasks)
    hot = np.eye(2, dtype="float32")[[0, 1, 0, 1, 0, 1]]
    y = {"a": Y["amount"], "b": Y["click"], "c": Y["amount"], "d": hot}
    report = model.evaluate(X, y, verbose=0, return_dict=True)
    outputs = {name: numpy(value) for name, value in model(X).items()}
    error = np.abs(Y["amount"] - outputs["a"][:, 0])
    area, precision = keras.metrics.AUC(), keras.metrics.Precision()
    area.update_state(Y["click"], outputs["b"][:, 0])
    precision.update_state(Y["click"], outputs["b"][:, 0])
    smooth, p = 0.8 * Y["click"] + 0.1, outputs["b"][:, 0]
    cross_entropy = -smooth * np.log(p) - (1 - smooth) * np.log(1 - p)
    expected = {
        "a_loss": np.where(error < 1, error**2 / 2, error - 0.5).mean(),
        "a_mse": (error**2).mean(),
        "b_loss": cross_entropy.mean(),
        "b_AUC": float(area.result()),
        "b_exact": float(precision.result()),
        "c_loss": np.abs(Y["amount"] - outputs["c"][:, 0]).mean(),
        "d_loss": -np.log(outputs["d"][hot == 1]).mean(),
        "d_mse": ((outputs["d"] - hot) ** 2).mean(),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(report[name], value, rtol=1e-4, err_msg=name)
    assert set(report) == {*expected, "loss", "task_loss"}
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    again = loaded.evaluate(X, y, verbose=0, return_dict=True)
    # On torch older Keras leaves them tensors.
    again, report = keras.tree.map_structure(float, (again, report))
    assert again == pytest.approx(report, rel=1e-5)


def test_training_reports_the_validation_as_well():
    model = make(gate=DSelectKGate(2, entropy_reg=0.1))
    log = model.fit(X, Y, epochs=2, verbose=0, validation_data=(X, Y), batch_size=3)
    names = {name for name in log.history if not name.startswith("val_")}
    assert {f"val_{name}" for name in names} == set(log.history) - names
    assert {"task_loss", "click_binary_accuracy", "color_loss"} <= names
    report = model.evaluate(X, Y, verbose=0, return_dict=True)
    last = {name: log.history[f"val_{name}"][-1] for name in names}
    last, report = keras.tree.map_structure(float, (last, report))
    assert last == pytest.approx(report, rel=1e-5)


@pytest.mark.traced
@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="Keras runs torch step by step."
)
@pytest.mark.parametrize(
    "settings", [{"jit_compile": True}, {"steps_per_execution": 4}]
)
def test_trains_alike_however_the_steps_are_compiled(settings):
    keras.utils.set_random_seed(1)
    tasks = [Task("a"), Task("b")]
    model = make(tasks, compiled=False)
    model.compile(keras.optimizers.SGD(0.1), **settings)
    x, y = numbers((24, 3), seed=2), numbers((24, 2), seed=3)
    log = model.fit(x, y, batch_size=6, epochs=2, shuffle=False, verbose=0)
    keras.utils.set_random_seed(1)
    reference = make(tasks, compiled=False)
    reference.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    expected = reference.fit(x, y, batch_size=6, epochs=2, shuffle=False, verbose=0)
    for name, values in expected.history.items():
        np.testing.assert_allclose(log.history[name], values, rtol=1e-4)


def test_sums_over_many_examples_are_float32_whatever_floatx_is():
    keras.config.set_floatx("bfloat16")
    try:
        (group,) = group_tasks([Task("a")])
    finally:
        keras.config.set_floatx("float32")
    assert {variable.dtype for variable in group.variables} == {"float32"}


@pytest.mark.parametrize("top", ["", "top_k_"])
def test_a_metric_of_one_hot_labels_refuses_class_indices(top):
    colors = make([Task("c", "multiclass", 9, metrics=f"{top}categorical_accuracy")])
    with pytest.raises(ValueError, match=f"Use 'sparse_{top}categorical_accuracy'"):
        colors.compute_loss(X, {"c": np.zeros(BATCH)}, colors(X))


@pytest.mark.traced
def test_half_precision_predicts_and_reports_in_full():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = make(gate=DSelectKGate(2, entropy_reg=0.1))
    finally:
        keras.config.set_dtype_policy("float32")
    log = model.fit(X, Y, epochs=2, verbose=0)
    assert all(np.isfinite(values).all() for values in log.history.values())
    outputs = model.predict(X, verbose=0)
    assert {value.dtype for value in outputs.values()} == {np.dtype("float32")}


def test_a_loss_given_to_compile_replaces_those_of_the_tasks():
    model = make([Task("a"), Task("b")], compiled=False)
    model.compile("sgd", {"a": "mae", "b": "mae"}, metrics={"a": ["mse"]})
    y = {"a": Y["amount"][:, None], "b": Y["click"][:, None]}
    outputs = model.predict(X, verbose=0)
    report = model.evaluate(X, y, verbose=0, return_dict=True)
    expected = sum(np.abs(outputs[name] - y[name]).mean() for name in y)
    np.testing.assert_allclose(report["loss"], expected, rtol=1e-5)
    assert "a_mse" in report
    assert "task_loss" not in report
    assert np.isfinite(model.fit(X, y, verbose=0).history["loss"]).all()


@pytest.mark.parametrize(
    ("y", "text"),
    [
        ({**Y, "clck": Y["click"]}, r"unknown \['clck'\], missing \[\]"),
        ({"amount": Y["amount"]}, r"missing \['click', 'color', 'like'\].*pass NaN"),
        (np.zeros((BATCH, 3)), rf"shape \(batch, 4\).*\({BATCH}, 3\)"),
        (np.zeros(BATCH), r"one array of shape \(batch, 4\)"),
        (None, "labels must be a dict by task name.*NoneType"),
        (
            {**Y, "click": np.zeros((BATCH, 2))},
            r"'click' must have the shape \(batch,\).*6, 2\)",
        ),
        ({**Y, "color": np.zeros((BATCH, 2))}, r"or \(batch, 3\)\. Received: \(6, 2\)"),
    ],
)
def test_labels_that_do_not_fit_are_refused(model, y, text):
    with pytest.raises(ValueError, match=text):
        model.compute_loss(X, y, model(X))


def test_sample_weights_that_do_not_fit_are_refused(model):
    with pytest.raises(ValueError, match=r"sample weights must have .* \['clck'\]"):
        model.compute_loss(X, Y, model(X), {**Y, "clck": Y["click"]})
    with pytest.raises(ValueError, match="sample weights must be a dict"):
        model.compute_loss(X, Y, model(X), np.ones((BATCH, 3)))
    with pytest.raises(ValueError, match=r"missing \['amount'.*pass arrays of ones"):
        model.compute_loss(X, Y, model(X), {"click": np.ones(BATCH)})


@pytest.mark.traced
@pytest.mark.parametrize("column", [False, True])
def test_one_weight_per_example_is_for_all_tasks(model, column):
    weights = np.array([0.5, 0.0, 2.0, 1.0, 3.0, 1.0], "float32")
    given = weights[:, None] if column else weights
    by_name = dict.fromkeys(Y, weights)
    reports = [
        model.evaluate(X, MISSING, sample_weight=each, verbose=0, return_dict=True)
        for each in (by_name, given)
    ]
    assert reports[1] == pytest.approx(reports[0], nan_ok=True)
    losses = [
        numpy(model.compute_loss(X, MISSING, model(X), each))
        for each in (by_name, given)
    ]
    np.testing.assert_array_equal(*losses)
    assert np.isfinite(model.test_on_batch(X, Y, given)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("run", ["fit", "evaluate"])
def test_sample_weights_that_are_not_finite_are_refused(model, run, value):
    weights = {name: np.ones(BATCH, "float32") for name in Y}
    weights["like"][4] = value
    text = rf"task 'like' must be finite\. Received: {value} in row 4.*pass 0"
    with pytest.raises(ValueError, match=text):
        getattr(model, run)(X, Y, sample_weight=weights, verbose=0)
    # The weight of a missing label does not count, and a weight may be negative.
    y = {**Y, "like": np.where(np.arange(BATCH) == 4, np.nan, Y["like"])}
    weights["click"][2] = -1.0
    report = model.evaluate(X, y, sample_weight=weights, verbose=0)
    assert np.isfinite(report).all()


def test_metrics_without_a_loss_in_compile_are_refused():
    model = make(metrics=["mse"])
    with pytest.raises(ValueError, match=r"give them to `Task\(metrics=...\)`"):
        model.compute_loss(X, Y, model(X))


def test_loss_weights_without_a_loss_in_compile_are_refused():
    model = make(loss_weights=[2.0])
    with pytest.raises(ValueError, match=r"loss_weights=\[2.0\].*`Task\(weight=...\)`"):
        model.compute_loss(X, Y, model(X))


def test_callbacks_know_which_way_a_number_gets_better(tmp_path):
    metrics = ("AUC", "binary_accuracy")
    model = make([KINDS[0], Task("click", "binary", metrics=metrics)])
    better = {
        "val_loss": ops.less,
        "task_loss": ops.less,
        "val_task_loss": ops.less,
        "val_amount_loss": ops.less,
        "amount_mean_absolute_error": ops.less,
        "click_binary_accuracy": ops.greater,
        "val_click_AUC": ops.greater,
    }
    callbacks = {
        monitor: [
            keras.callbacks.EarlyStopping(monitor),
            keras.callbacks.ReduceLROnPlateau(monitor),
            keras.callbacks.ModelCheckpoint(
                tmp_path / "best.weights.h5",
                monitor,
                save_best_only=True,
                save_weights_only=True,
            ),
        ]
        for monitor in better
    }
    own = keras.callbacks.EarlyStopping("val_click_AUC", mode="min")
    y = {name: Y[name] for name in ("amount", "click")}
    held = [OnceDecided(*some) for some in callbacks.values()]
    model.fit(X, y, validation_data=(X, y), verbose=0, callbacks=[*held, own])
    for monitor, some in callbacks.items():
        assert {each.monitor_op for each in some} == {better[monitor]}, monitor
    assert own.monitor_op is ops.less


def test_many_tasks_leave_the_progress_bar_short(capsys):
    tasks = [f"t{i}" for i in range(9)]
    model = make(tasks)
    model.evaluate(X, np.zeros((BATCH, 9)), verbose=2)
    shown = capsys.readouterr().out
    assert "task_loss" in shown
    assert "t8_loss" not in shown


def test_the_gradient_of_the_loss_is_that_of_the_mean_over_present_labels():
    model = make([Task("a", tower="sum", weight=2.0)])
    y = np.array([1.0, np.nan, 0.0, np.nan, 2.0, 1.0], "float32")
    _, gradients = value_and_gradients(
        lambda: [model.compute_loss(X, y, model(X))],
        model.trainable_variables,
        state=[v for group in model.task_groups for v in group.variables],
    )

    def by_hand():
        kept = ~np.isnan(y)
        errors = model(X[kept])["a"][:, 0] - ops.convert_to_tensor(y[kept])
        return [2.0 * ops.mean(errors**2)]

    _, expected = value_and_gradients(by_hand, model.trainable_variables)
    for found, gradient in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(found, gradient, rtol=1e-4, atol=1e-6)


# Numbers that are not finite, and labels that are impossible.


@pytest.fixture(scope="module")
def trained_weights():
    """A function: the weights after two steps of a per-example model with penalties.

    The steps are compiled once; each call begins with the same weights.
    """
    keras.utils.set_random_seed(0)
    gate = DSelectKGate(2, entropy_reg=0.1)
    bank = DenseExperts(4, [4])
    model = build_multitask_model(3, KINDS, experts=bank, gate=gate, per_example=True)
    model.compile(keras.optimizers.SGD(0.1))
    first = [weight.copy() for weight in model.get_weights()]

    def train(x, y, sample_weight=None):
        model.set_weights(first)
        arguments = {"batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0}
        model.fit(x, y, sample_weight=sample_weight, **arguments)
        return [weight.copy() for weight in model.get_weights()]

    return train


def without_rows(rows):
    """Labels that are missing in some rows; and sample weights of 0 there."""
    y = {name: values.copy() for name, values in Y.items()}
    weights = {name: np.ones(BATCH, "float32") for name in Y}
    for name in Y:
        y[name][rows] = np.nan
        weights[name][rows] = 0.0
    return y, weights


@pytest.mark.traced
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("how", ["missing", "zero weight"])
def test_features_that_are_not_finite_are_0_in_an_example_without_labels(
    trained_weights, how, value
):
    rows = [1, 4]
    missing, weights = without_rows(rows)
    given = (missing, None) if how == "missing" else (Y, weights)
    x, zeros = X.copy(), X.copy()
    x[rows, 1] = value
    zeros[rows, 1] = 0.0
    found, expected = trained_weights(x, *given), trained_weights(zeros, *given)
    for weight, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-5, atol=1e-7)
    # Finite features of such an example still count in what looks at the batch.
    pairs = zip(trained_weights(X, *given), expected, strict=True)
    assert max(np.abs(a - b).max() for a, b in pairs) > 1e-4


def test_features_that_are_not_finite_show_in_an_example_with_a_label():
    model = make()
    x, (y, _) = X.copy(), without_rows([1])
    x[1, 1] = np.nan
    y["amount"][1] = 1.0
    log = model.train_on_batch(x, y, return_dict=True)
    assert np.isnan(log["loss"])
    log = model.get_metrics_result()
    assert np.isnan(log["amount_loss"])
    assert np.isfinite([log["click_loss"], log["color_loss"]]).all()


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("run", ["fit", "evaluate", "validation"])
def test_features_that_are_not_finite_are_refused_with_a_label(run, value):
    model = make()
    x, (y, _) = X.copy(), without_rows([1, 4])
    x[[1, 4], 1] = value
    assert np.isfinite(model.evaluate(x, y, verbose=0)).sum() > 1
    y["amount"][4] = 1.0
    text = r"must be finite.*Received: NaN or infinity in 2 rows, .* in row 4\. Rep"
    given = {"x": x, "y": y}
    if run == "validation":
        run, given = "fit", {"x": X, "y": Y, "validation_data": (x, y)}
    with pytest.raises(ValueError, match=text):
        getattr(model, run)(**given, verbose=0)


def test_a_model_may_replace_features_that_are_not_finite():
    inputs = keras.Input((3,))
    encoder = keras.Model(inputs, ops.where(ops.isnan(inputs), 0.0, inputs))
    model = build_multitask_model(encoder, 2)
    model.compile("sgd")
    x = np.where(X > 0.5, np.nan, X)
    assert np.isnan(x).any()
    log = model.fit(x, numbers((BATCH, 2)), verbose=0).history
    assert np.isfinite(log["loss"]).all()


@pytest.mark.traced
def test_a_label_that_does_not_count_may_be_anything(trained_weights):
    anything = {"amount": np.inf, "click": 5.0, "like": -np.inf, "color": 7.0}
    _, weights = without_rows([2])
    y = {name: values.copy() for name, values in Y.items()}
    for name, value in anything.items():
        y[name][2] = value
    found, expected = trained_weights(X, y, weights), trained_weights(X, Y, weights)
    for weight, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-6)


IMPOSSIBLE = [
    ("color", 7.0, r"indices from 0 to 2\. Received: 7 in row 4\. .* pass NaN"),
    ("color", 1.5, r"'color' must be class indices from 0 to 2\. Received: 1\.5"),
    ("color", np.inf, "'color' must be .* Received: inf in row 4"),
    ("click", 5.0, r"'click' must be between 0 and 1\. Received: 5 in row 4"),
    ("click", -1.0, "'click' must be between 0 and 1"),
    ("amount", np.inf, r"'amount' must be finite\. Received: inf in row 4"),
]


@pytest.mark.parametrize(("name", "value", "text"), IMPOSSIBLE)
def test_impossible_labels_are_refused(model, monkeypatch, name, value, text):
    monkeypatch.setattr("dselectk_keras.models.task_group.CHUNK", 3)
    y = {**Y, name: Y[name].copy()}
    y[name][4] = value
    columns = np.stack([y[task.name] for task in KINDS], axis=1)
    for labels in (y, columns, {**y, "like": Y["like"].astype("int64")}):
        with pytest.raises(ValueError, match=text):
            model.fit(X, labels, verbose=0)
        with pytest.raises(ValueError, match=text):
            model.evaluate(X, labels, verbose=0)
    with pytest.raises(ValueError, match=text):
        model.fit(X, Y, validation_data=(X, columns), verbose=0)


@pytest.mark.traced
@pytest.mark.parametrize(("name", "value", "text"), IMPOSSIBLE)
def test_impossible_labels_in_a_step_make_the_loss_nan(model, name, value, text):
    del text
    model.reset_metrics()
    y = {**Y, name: Y[name].copy()}
    y[name][4] = value
    report = model.test_on_batch(X, y, return_dict=True)
    assert not np.isfinite(report["loss"])
    assert not np.isfinite(model.get_metrics_result()[f"{name}_loss"])
    assert np.isfinite(model.get_metrics_result()["like_loss"])


def test_labels_between_classes_are_possible_where_the_loss_takes_them():
    ignoring = keras.losses.SparseCategoricalCrossentropy(ignore_class=255)
    tasks = [
        Task("soft", "binary"),
        Task("signed", "binary", loss="hinge"),
        Task("class", "multiclass", 3, loss=ignoring),
        Task("shares", "multiclass", 3, loss="categorical_crossentropy", metrics="mse"),
    ]
    y = {
        "soft": np.array([0.0, 0.3, 1.0, 0.1, 0.5, 0.0], "float32"),
        "signed": np.array([-1, 1, -1, 1, 1, -1]),
        "class": np.array([0, 1, 2, 255, -1, 0]),
        "shares": np.full((BATCH, 3), 1 / 3, "float32"),
    }
    log = make(tasks).fit(X, y, verbose=0).history
    assert np.isfinite([values[0] for values in log.values()]).all()


def test_a_class_that_the_loss_ignores_is_a_missing_label():
    def report(ignored, labels):
        loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=ignored)
        model = make([Task("color", "multiclass", 3, loss=loss)])
        model.set_weights([numbers(w.shape, seed=1) for w in model.get_weights()])
        return model.evaluate(X, labels, verbose=0, return_dict=True)

    labels = np.array([0, 1, 2, 2, 1, 0])
    for ignored in (255, 1):
        without = np.where([0, 1, 0, 0, 1, 0], -1, labels)
        expected = report(None, without)
        found = report(ignored, np.where(without < 0, ignored, labels))
        assert found == pytest.approx(expected, rel=1e-5)


# Gates that learn from the tasks' losses.


def reinforced(architecture="mmoe", tasks=KINDS, per_example=False, **settings):
    model = build_multitask_model(
        3,
        tasks,
        architecture,
        experts=DenseExperts(3, [4]),
        gate=ReinforceGate(policy_weight=1.0, seed=0, **settings),
        per_example=per_example,
        label_average="labels",
    )
    model.compile("sgd")
    return model, model.get_layer("mmoe").gate


def policy_of_a_step(model, gate, y, sample_weight=None):
    """What a step adds to the tasks' losses, and each example's losses and weights."""
    gate.generator.state.assign([0, 0])
    outputs = model(X, training=True)
    total = numpy(model.compute_loss(X, y, outputs, sample_weight))
    found = [
        group(group.read(y, sample_weight), group.predictions(outputs))
        for group in model.task_groups
    ]
    losses, weights = (
        np.concatenate([numpy(each[i]) for each in found], axis=1) for i in range(2)
    )
    means = (losses * weights).sum(axis=0) / np.maximum((weights != 0).sum(axis=0), 1)
    return total - means @ [task.weight for task in KINDS], losses, weights


def policy_by_hand(gate, losses, weights, per_example):
    gate.generator.state.assign([0, 0])
    gate.route(X if per_example else None, training=True)
    return numpy(gate.policy_loss(losses, weights))


@pytest.mark.parametrize("per_example", [False, True])
def test_each_task_s_gate_is_rewarded_by_its_own_losses(per_example):
    # "click" and "like" are computed together, and have "amount" between them.
    tasks = [KINDS[place] for place in (1, 0, 2, 3)]
    model, gate = reinforced(tasks=tasks, per_example=per_example)
    assert gate.num_gates == len(tasks)
    gate.generator.state.assign([0, 0])
    outputs = model(X, training=True)
    total = numpy(model.compute_loss(X, MISSING, outputs))
    losses, weights, means = [], [], []
    for task in tasks:
        y = MISSING[task.name]
        present = np.isfinite(y) & ((y >= 0) | (task.kind != "multiclass"))
        p = numpy(outputs[task.name])
        loss = loss_by_hand(task.kind, np.where(present, y, 0.0), p)
        losses.append(task.weight * loss)
        weights.append(present)
        means.append(losses[-1][present].sum() / max(present.sum(), 1))
    losses, weights = np.stack(losses, axis=1), np.stack(weights, axis=1)
    expected = policy_by_hand(gate, losses, weights, per_example)
    np.testing.assert_allclose(total - sum(means), expected, rtol=1e-4, atol=1e-5)


def test_a_task_without_labels_does_not_teach_its_gate():
    for per_example in (False, True):
        model, gate = reinforced(per_example=per_example, use_bias=per_example)
        _, gradients = value_and_gradients(
            lambda model=model: [
                model.compute_loss(X, MISSING, model(X, training=True))
            ],
            gate.trainable_variables,
            state=model.non_trainable_variables
            + [v for group in model.task_groups for v in group.variables],
        )
        by_name = dict(
            zip([v.name for v in gate.trainable_variables], gradients, strict=True)
        )
        # Nobody has a label for the second task.
        logits = by_name["gate_bias" if per_example else "gate_logits"].reshape(4, 3)
        for found in (logits.any(axis=1), by_name["baseline_bias"] != 0):
            assert found.tolist() == [True, False, True, True]


@pytest.mark.parametrize("per_example", [False, True])
def test_one_gate_for_all_tasks_is_rewarded_by_their_weighted_sum(per_example):
    model, gate = reinforced("omoe", per_example=per_example)
    assert gate.num_gates == 1
    y = {name: values.copy() for name, values in MISSING.items()}
    for values in y.values():
        values[2] = np.nan
    policy, losses, weights = policy_of_a_step(model, gate, y)
    task_weights = [task.weight for task in KINDS]
    total = (losses * weights * task_weights).sum(axis=1, keepdims=True)
    # The third example has no label at all.
    labeled = np.array([1, 1, 0, 1, 1, 1], "float32")[:, None]
    expected = policy_by_hand(gate, total, labeled, per_example)
    np.testing.assert_allclose(policy, expected, rtol=1e-4, atol=1e-5)


def test_sample_weights_weigh_the_rewards_of_their_task():
    model, gate = reinforced(per_example=True)
    given = {name: np.abs(numbers((BATCH,), seed=i)) for i, name in enumerate(Y)}
    policy, losses, weights = policy_of_a_step(model, gate, Y, given)
    columns = np.stack([given[task.name] for task in KINDS], axis=1)
    np.testing.assert_allclose(weights, columns, rtol=1e-6)
    task_weights = np.array([task.weight for task in KINDS], "float32")
    expected = policy_by_hand(gate, losses * task_weights, columns, True)
    np.testing.assert_allclose(policy, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", ["mmoe", "omoe"])
def test_a_task_of_weight_0_changes_no_gradient_where_rewards_teach(architecture):
    inputs = keras.Input((3,))
    encoder = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    model = build_multitask_model(
        encoder,
        [Task("a"), Task("b", weight=0.0)],
        architecture,
        experts=DenseExperts(3, [4]),
        gate=ReinforceGate(policy_weight=1.0, entropy_weight=1.0, seed=0),
        per_example=True,
    )
    model.compile("sgd")
    gate, y = model.get_layer("mmoe").gate, numbers((BATCH, 2), seed=3)

    def gradient(labels):
        gate.generator.state.assign([0, 0])
        _, (kernel, _) = value_and_gradients(
            lambda: [model.compute_loss(X, labels, model(X, training=True))],
            encoder.trainable_variables,
            state=model.non_trainable_variables
            + [v for group in model.task_groups for v in group.variables],
        )
        return kernel

    expected = gradient(np.where([True, False], y, np.nan))
    assert abs(expected).max() > 0.01
    for labels in (y, [1.0, 5.0] * y):
        np.testing.assert_allclose(gradient(labels), expected, rtol=1e-5, atol=1e-6)


class Taught(keras.layers.Layer):
    """A layer whose policy loss is twice the loss."""

    num_gates = None

    def call(self, inputs):
        return inputs

    def policy_loss(self, losses, sample_weight=None):
        return 2.0 * ops.sum(losses * sample_weight) / ops.sum(sample_weight)


def test_policy_losses_of_several_layers_are_averaged():
    inputs = keras.Input((3,))
    encoder = keras.Model(inputs, Taught()(Taught()(inputs)))
    model = build_multitask_model(encoder, [Task("a", weight=0.5)], "shared_bottom")
    model.compile("sgd")
    y = Y["amount"][:, None]
    error = (numpy(model(X)["a"]) - y) ** 2
    found = numpy(model.compute_loss(X, y, model(X)))
    assert found == pytest.approx(0.5 * 3.0 * error.mean(), rel=1e-5)
    # As in `RoutedModel`, sample weights weigh the terms of one task, not its rewards.
    weights = np.array([0, 1, 2, 0, 1, 4], "float32")[:, None]
    found = numpy(model.compute_loss(X, y, model(X), weights))
    mean = (weights * error).sum()
    expected = 0.5 * (mean / BATCH + 2.0 * mean / weights.sum())
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.traced
def test_gates_taught_by_reward_learn_the_right_expert_of_each_task(tmp_path):
    tasks = [Task("a", tower="sum"), Task("b", tower="sum")]
    bank = DenseExperts(3, [1], None, use_bias=False)
    model = build_multitask_model(
        2,
        tasks,
        experts=bank,
        gate=ReinforceGate(1.0, 0.01, 1.0, seed=0),
    )
    kernels = np.array([[[-1.0], [1.0]], [[1.0], [2.0]], [[1.0], [0.0]]], "float32")
    bank.set_weights([kernels])
    bank.trainable = False
    x = numbers((64, 2))
    y = np.stack([x @ kernels[1, :, 0], x @ kernels[2, :, 0]], axis=1)
    y[::2, 0] = np.nan
    model.compile(keras.optimizers.Adam(0.1))
    log = model.fit(x, y, batch_size=8, epochs=15, verbose=0).history
    assert all(np.isfinite(values).all() for values in log.values())
    mmoe = model.get_layer("mmoe")
    np.testing.assert_array_equal(numpy(mmoe.expert_weights()), [[0, 1, 0], [0, 0, 1]])
    # Nothing is left of the last step, and inference has no draw.
    assert mmoe.gate.policy_loss(np.zeros((8, 2))) == 0.0
    report = model.evaluate(x, y, verbose=0, return_dict=True)
    assert report["loss"] == report["task_loss"] == pytest.approx(0, abs=1e-6)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(x, y, verbose=0, return_dict=True) == report
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0)["b"], model.predict(x, verbose=0)["b"]
    )


def fed(y, **settings):
    """The kinds of labels that reach a step, and the weights after an epoch."""
    keras.utils.set_random_seed(0)
    model, kinds = make(), []
    given = model._read

    def spy(y, sample_weight):
        kinds.append(type(y))
        return given(y, sample_weight)

    model._read = spy
    model.fit(X, y, batch_size=3, shuffle=False, verbose=0, **settings)
    return kinds, model.get_weights()


@pytest.mark.parametrize("column", ["flat", "upright", "pandas"])
def test_labels_by_name_are_fed_as_one_array(column):
    shaped = {
        "flat": lambda y: y,
        "upright": lambda y: y[:, None],
        "pandas": lambda y: pytest.importorskip("pandas").Series(y),
    }[column]
    y = {name: shaped(MISSING[name].astype("float32")) for name in reversed(MISSING)}
    kinds, weights = fed(y, validation_data=(X, y))
    assert dict not in kinds
    mixed = {**y, "color": MISSING["color"].astype("int32")}
    kinds, wanted = fed(mixed)
    assert set(kinds) == {dict}
    for found, want in zip(weights, wanted, strict=True):
        np.testing.assert_allclose(found, want, atol=1e-6)


def test_class_weights_are_refused_if_there_are_several_tasks():
    array = np.stack([Y["click"], Y["like"]], axis=1)
    for model, y in ((make(), Y), (make(KINDS[1:3]), array)):
        with pytest.raises(
            ValueError, match=r"one task\. .*: a model of . tasks\. Pass"
        ):
            model.fit(X, y, class_weight={0: 1.0, 1: 2.0}, verbose=0)


@pytest.mark.traced
def test_class_weights_of_one_task_are_sample_weights():
    model, y = make(KINDS[1:2]), Y["click"]
    model.compile(keras.optimizers.SGD(0.0))
    weighted = model.fit(X, y, sample_weight=1 + 2 * y, verbose=0).history["loss"]
    assert weighted != model.fit(X, y, verbose=0).history["loss"]
    # On TensorFlow, labels of another rank make the steps forget the rank.
    for labels in (y, y[:, None], {"click": y}):
        found = model.fit(X, labels, class_weight={1: 3.0}, verbose=0).history["loss"]
        np.testing.assert_allclose(found, weighted, rtol=1e-6)


@pytest.mark.traced
@pytest.mark.parametrize("missing", [False, True])
def test_labels_may_change_their_rank_between_calls(missing):
    model, y = make(KINDS[1:2]), np.where([missing] * 5 + [False], np.nan, Y["click"])
    model.compile(keras.optimizers.SGD(0.0))
    labels = (y, y[:, None], y, {"click": y})
    first, *others = [model.fit(X, y, verbose=0).history["loss"] for y in labels]
    assert np.isfinite(first).all()
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-6)


@pytest.mark.backend_independent
def test_arguments_may_be_given_by_place_as_in_keras():
    model = make()
    by_place = model.fit(X, Y, 4, 2, 0).history["loss"]
    assert len(by_place) == 2
    loss, *_ = model.evaluate(X, Y, 4, 0)
    assert (
        loss == model.evaluate(X, Y, batch_size=4, verbose=0, return_dict=True)["loss"]
    )


@pytest.mark.backend_independent
def test_a_model_without_tasks_says_how_to_copy_one_with_tasks():
    model = build_multitask_model(3, 2, gate=SoftmaxGate())
    model.compile("sgd")
    clone = keras.models.clone_model(model)
    with pytest.raises(ValueError, match=r"has no tasks.*from_config"):
        clone.fit(np.ones((2, 3)), np.ones((2, 2)), verbose=0)
    copied = type(model).from_config(model.get_config())
    assert copied.tasks == model.tasks
