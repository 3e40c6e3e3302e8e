"""Arrays that cannot be right for the tasks are refused, with the row."""

import re
import warnings
from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_equal
from helpers import model_of, numbers
from keras import ops

from dselectk_keras import DenseExperts, Task, build_multitask_model, check_labels

pytestmark = pytest.mark.backend_independent

BATCH = 6
X = numbers((BATCH, 3))
TASKS = (
    Task("amount"),
    Task("click", "binary"),
    Task("like", "binary"),
    Task("color", "multiclass", num_classes=3),
)
Y = {
    "amount": numbers((BATCH,), seed=1),
    "click": np.array([0, 1, np.nan, 0, 1, 0], "float32"),
    "like": np.array([1, 1, 1, 0, 0, 0], "float32"),
    "color": np.array([0, 1, 2, 2, -1, 0], "float32"),
}


@pytest.fixture(scope="module")
def model():
    """A model of which no test trains the weights."""
    model = build_multitask_model(3, TASKS)
    model.compile("sgd")
    return model


def columns(y):
    return np.stack([y[task.name] for task in TASKS], axis=1)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("color", 7.0, r"indices from 0 to 2\. Received: 7 in row 4\. .* pass NaN"),
        ("color", 1.5, r"'color' must be class indices from 0 to 2\. Received: 1\.5"),
        ("color", np.inf, "'color' must be .* Received: inf in row 4"),
        ("click", 5.0, r"'click' must be between 0 and 1\. Received: 5 in row 4"),
        ("click", -1.0, "'click' must be between 0 and 1"),
        ("amount", np.inf, r"'amount' must be finite\. Received: inf in row 4"),
    ],
)
def test_impossible_labels_are_refused(model, name, value, text):
    y = {**Y, name: Y[name].copy()}
    y[name][4] = value
    tensors = {name: ops.convert_to_tensor(labels) for name, labels in y.items()}
    integers = {**y, "like": Y["like"].astype("int64")}
    for check in (partial(check_labels, model), model.fit):
        for labels in (y, columns(y), integers, tensors):
            with pytest.raises(ValueError, match=text):
                check(X, labels)
    # A weight of 0 makes a label missing.
    weights = {name: np.arange(BATCH) != 4 for name in Y}
    check_labels(model, X, y, weights)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_sample_weights_that_are_not_finite_or_negative_are_refused(model, value):
    weights = {name: np.ones(BATCH, "float32") for name in Y}
    weights["like"][4] = value
    text = (
        rf"'like' must be finite, and 0 or more\. Received: {value:g} in row 4.*pass 0"
    )
    for check in (partial(check_labels, model), model.fit):
        with pytest.raises(ValueError, match=text):
            check(X, Y, sample_weight=weights)
    # The weight of a missing label does not count.
    y = {**Y, "like": np.where(np.arange(BATCH) == 4, np.nan, Y["like"])}
    check_labels(model, X, y, weights)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_features_that_are_not_finite_are_refused(model, value):
    x = X.copy()
    x[[1, 4], 1] = value
    text = r"must be finite.*Received: NaN or infinity in 2 rows, .* of row 1\. Rep"
    for check in (partial(check_labels, model), model.fit):
        with pytest.raises(ValueError, match=text):
            check(x, Y)
    # In a step they show in the loss.
    model = build_multitask_model(3, 1)
    model.compile("sgd")
    assert not np.isfinite(model.test_on_batch(x, Y["amount"]))[0]


def replacing(is_missing):
    """A model that replaces some features, with experts that end between -1 and 1."""
    encoder = model_of(lambda x: ops.where(is_missing(x), 0.0, x), 3)
    model = build_multitask_model(encoder, 2, experts=DenseExperts(2, [4], "tanh"))
    model.compile("sgd")
    return model


def test_a_model_may_replace_features_that_are_not_finite():
    model = replacing(lambda x: ops.logical_not(ops.isfinite(x)))
    x = np.where(X > 0.5, np.nan, X)
    assert np.isnan(x).any()
    x[0] = np.inf
    log = model.fit(x, numbers((BATCH, 2)), verbose=0).history
    assert np.isfinite(log["loss"]).all()


@pytest.mark.every_backend
@pytest.mark.parametrize("is_missing", [ops.isnan, lambda x: x < -1e9])
def test_infinity_is_refused_though_predictions_are_finite(is_missing):
    """One model replaces NaN alone, and the other neither."""
    model, x = replacing(is_missing), X.copy()
    x[2, 1] = np.inf
    assert np.isfinite(model.predict(x, verbose=0)["task_0"]).all()
    with pytest.raises(ValueError, match=r"infinity in 1 rows, .* of row 2\. Rep"):
        model.fit(x, numbers((BATCH, 2)), verbose=0)


def test_a_table_has_its_columns_in_the_order_of_the_tasks(model):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(Y)
    check_labels(model, pandas.DataFrame(X), table, 2 * (table > 0))
    weights = (table[["amount"]] > 0).set_axis(["weight"], axis=1)
    check_labels(model, X, table.set_axis(range(4), axis=1), weights)
    text = r"in their order\. Received: \['(color|like|amount)',.*`table\[names\]`"
    for given in (
        (table[sorted(Y, reverse=True)],),
        (table.rename(columns={"like": "weekend"}),),
        (Y, table[["color", *list(Y)[:3]]]),
        (Y, table.rename(columns={"like": "weekend"})),
    ):
        with pytest.raises(ValueError, match=text):
            model.fit(X, given[0], sample_weight=given[-1], verbose=0)


def test_evaluate_and_fit_check_what_they_evaluate(model):
    table = pytest.importorskip("pandas").DataFrame(Y)
    before = model.get_weights()
    for wrong in (table[sorted(Y)], table.assign(color=7.0)):
        text = r"in their order|class indices"
        with pytest.raises(ValueError, match=text):
            model.evaluate(X, wrong, verbose=0)
        with pytest.raises(ValueError, match=text):
            model.fit(X, table, validation_data=(X, wrong), verbose=0)
    assert_equal(before, model.get_weights())


def test_strings_and_class_weights_of_several_tasks_are_refused(model):
    for y in (Y, columns(Y)):
        for method in (model.fit, model.train_on_batch):
            with pytest.raises(ValueError, match=r"one task\. .*: a model of 4 tasks"):
                method(X, y, class_weight={0: 1.0, 1: 2.0})
    y = {**Y, "click": np.array(["yes"] * BATCH)}
    with pytest.raises(ValueError, match=r"labels of the task 'click' must be numbers"):
        check_labels(model, X, y)


STRINGS = np.array(["ann", "bo", "a new one"])


@pytest.mark.parametrize("kind", [str, bytes, "column"])
def test_strings_that_keras_does_not_take_are_refused(kind):
    pandas = pytest.importorskip("pandas")
    user = pandas.Series(STRINGS) if kind == "column" else STRINGS.astype(kind)
    model = build_multitask_model(1, 1)
    model.compile("sgd")
    for x in (user, {"user": user}):
        with pytest.raises(ValueError, match=r"array of objects.*`column\.to_numpy"):
            model.fit(x, np.arange(3), verbose=0)


@pytest.mark.parametrize(
    ("x", "y", "weight", "text"),
    [
        (X[:4], Y, None, "inputs of 4, labels of 6 rows"),
        (X, columns(Y)[:4], None, "inputs of 6, labels of 4 rows"),
        (X, {**Y, "like": Y["like"][:4]}, None, "labels of (6 and 4|4 and 6) rows"),
        (X, Y, np.ones(4), "sample weights of 4 rows"),
        (X, Y, 2.0, "sample weights of no rows"),
        (X[:0], columns(Y)[:0], None, "inputs of 0, labels of 0 rows"),
    ],
)
def test_arrays_of_unequal_lengths_are_refused(model, x, y, weight, text):
    for method in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match=text):
            method(x, y, sample_weight=weight, verbose=0)


@pytest.mark.every_backend
def test_a_task_without_any_label_is_not_trained_but_evaluated(model):
    y = {**Y, "like": np.full(BATCH, np.nan, "float32")}
    with pytest.raises(ValueError, match=r"'like' has no label to train.*6 missing"):
        model.fit(X, y, verbose=0)
    report = model.evaluate(X, y, verbose=0, return_dict=True)
    assert np.isnan(report["like_loss"])
    assert np.isfinite(report["task_loss"])


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of one row of four labels, so that a few rows are several blocks."""
    monkeypatch.setitem(check_labels.__globals__, "BLOCK", len(TASKS))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("y", r"'like' must be between 0 and 1\. Received: 7 in row 5"),
        ("x", r"infinity in 1 rows, .* of row 5"),
        ("weight", r"'like' must be finite, .* Received: inf in row 5"),
    ],
)
def test_faults_are_found_in_the_last_block(model, small_blocks, place, text):
    given = {"x": X.copy(), "y": columns(Y), "weight": np.ones((BATCH, 4))}
    check_labels(model, *given.values())
    given[place][5, 2] = 7.0 if place == "y" else np.inf
    with pytest.raises(ValueError, match=text):
        check_labels(model, *given.values())


def test_labels_in_the_last_block_are_labels_and_other_ones_vary(model, small_blocks):
    y = columns(Y)
    y[:4, 1] = np.nan
    y[:, 2] = np.arange(BATCH) == 5
    check_labels(model, X, y, training=True)
    y[4:, 1] = np.nan
    with pytest.raises(ValueError, match=r"'click' has no label .*: 6 miss"):
        check_labels(model, X, y, training=True)


def test_fit_warns_once_of_tasks_whose_labels_are_all_equal():
    y = {**Y, "like": np.zeros(BATCH), "amount": [0.5, np.nan] * 3}
    model = build_multitask_model(3, TASKS)
    model.compile("sgd")
    text = r"equal in the tasks 'amount' \(0\.5\), 'like' \(0\)\. They only learn"
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", category=UserWarning)
        model.fit(X, y, validation_data=(X, y), epochs=2, verbose=0)
        # It would be no news at the end.
        model.evaluate(X, y, verbose=0)
    (found,) = [str(each.message) for each in caught]
    assert re.search(text, found)


def test_labels_are_equal_if_those_that_count_are(model):
    weights = {name: np.ones(BATCH) for name in Y}
    weights["color"] = np.array([0, 0, 1, 1, 1, 0])  # The fifth label is missing.
    check = partial(check_labels, model, X, training=True)
    with pytest.warns(UserWarning, match=r"tasks 'color' \(2\)\. They"):
        check(Y, weights)
    # Whose labels do not count at all is left out on purpose.
    check(Y, {**weights, "color": np.zeros(BATCH)})


def test_classes_one_hot_are_equal_if_all_their_columns_are_and_many_are_counted():
    task = Task("shape", "multiclass", 3, loss="categorical_crossentropy", metrics=())
    model = build_multitask_model(3, [task])
    check_labels(model, X, {"shape": np.eye(3)[[0, 1] * 3]}, training=True)
    with pytest.warns(UserWarning, match=r"'shape' \(0, 1, 0\)"):
        check_labels(model, X, {"shape": np.eye(3)[[1] * 6]}, training=True)
    model = build_multitask_model(3, 10)
    with pytest.warns(UserWarning, match=r"'task_7' \(1\) and 2 more\. They"):
        check_labels(model, X, np.ones((BATCH, 10)), training=True)


@pytest.mark.parametrize("form", ["dict", "array", "frame", "list"])
def test_missing_labels_may_be_none(form):
    """Objects, which Keras takes for no numbers."""
    y = np.array([[1.0, 2.0], [None, 1.0], [0.0, 3.0], [1.0, None]], dtype=object)
    pandas = pytest.importorskip("pandas")
    given = {
        "dict": {"a": y[:, 0], "b": y[:, 1].tolist()},
        "array": y,
        "frame": pandas.DataFrame(y, columns=["a", "b"]).astype({"b": "Float64"}),
        "list": y.tolist(),
    }[form]
    model, x = build_multitask_model(3, ["a", "b"]), X[:4]
    model.compile(keras.optimizers.SGD(0.0))
    logs = [
        model.fit(x, labels, validation_data=(x, labels), verbose=0).history
        | model.evaluate(x, labels, verbose=0, return_dict=True)
        for labels in (given, y.astype("float32"))
    ]
    assert_equal(*logs)


@pytest.mark.parametrize("value", ["1", b"1", np.datetime64("2020-01-01"), 1j])
def test_labels_that_are_no_numbers_are_refused(model, value):
    for labels in (np.array([value] * BATCH), np.array([value] * BATCH, dtype=object)):
        y = {**Y, "click": labels}
        for method in (model.fit, model.evaluate):
            with pytest.raises(ValueError, match=r"'click' must be numbers.*factorize"):
                method(X, y, verbose=0)


def test_sparse_matrices_are_checked_as_arrays_are():
    sparse = pytest.importorskip("scipy.sparse")
    model = build_multitask_model(3, 1)
    model.compile("sgd")
    x = np.where(X > 0, X, 0.0)
    y = numbers((BATCH, 1))
    reports = [model.evaluate(each, y) for each in (x, sparse.csr_matrix(x))]
    assert reports[1] == pytest.approx(reports[0], rel=1e-5)
    x[[1, 4], 1] = np.nan
    with pytest.raises(ValueError, match=r"infinity in 2 rows, .* of row 1\. Rep"):
        model.fit(sparse.csr_matrix(x), y, verbose=0)
