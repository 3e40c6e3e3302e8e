"""A data frame is the inputs of a model that has them by name."""

import types

import keras
import numpy as np
import pandas as pd
import pytest
from checks import assert_close, assert_equal
from helpers import refusals
from keras import ops

from dselectk_keras import MultitaskModel, build_multitask_model
from dselectk_keras.batches import Batches
from dselectk_keras.models.columns import _is_exact, as_inputs, as_labels
from dselectk_keras.models.task import as_tasks

pytestmark = pytest.mark.backend_independent

FRAME = pd.DataFrame(
    {
        "age": pd.array([3, None, 5, 4], dtype="Int64"),
        "price": [0.5, 1.0, np.nan, 2.0],
        "count": pd.array([1, 2, 3, 4], dtype="int32"),
        "new": [True, False, True, True],
        "city": ["Rome", None, "Bonn", "Rome"],
        "kind": pd.Categorical(["a", "b", None, "a"]),
        "click": [1.0, 0.0, 1.0, 0.0],
        "like": [0.0, np.nan, 1.0, 1.0],
    }
)
LABELS = ["click", "like"]


def model_of(*names):
    inputs = {name: keras.Input((1,), name=name) for name in names}
    columns = [ops.where(ops.isnan(each), 0.0, each) for each in inputs.values()]
    encoder = keras.Model(inputs, keras.layers.Concatenate()(columns))
    model = build_multitask_model(encoder, LABELS)
    model.compile("sgd")
    return model


def test_columns_are_arrays_by_name():
    class Reads:
        input = dict.fromkeys(["age", "price", "count", "new", "city", "kind"])

    found = as_inputs(Reads, FRAME)
    assert list(found) == list(Reads.input)
    kinds = [array.dtype for array in found.values()]
    assert kinds == ["float32", "float32", "int32", "bool", "object", "object"]
    assert_equal(found["age"], [3, np.nan, 5, 4])
    assert found["city"].tolist() == ["Rome", "", "Bonn", "Rome"]
    assert found["kind"].tolist() == ["a", "b", "", "a"]


def inputs_of(dtype, column):
    """The array of a column for an input of a dtype; `None` is not known."""

    user = dtype and keras.Input((1,), dtype=dtype, name="user")
    model = types.SimpleNamespace(input={"user": user})
    return as_inputs(model, pd.DataFrame({"user": column}))["user"]


GAPS = {
    "nullable": pd.array([1, None, 3], dtype="Int64"),
    "objects": [1, None, 3],
    "categories": pd.Categorical([1, None, 3]),
    "floating-point": [1.0, np.nan, 3.0],
}
LARGE = 2**24 + 1  # Not a number of float32.


@pytest.mark.parametrize("form", GAPS)
@pytest.mark.parametrize("dtype", [None, "float32", "float64"])
def test_small_integers_with_a_gap_are_floating_point_numbers(form, dtype):
    column = pd.Series(GAPS[form], dtype=object if form == "objects" else None)
    found = inputs_of(dtype, column)
    assert found.dtype == (dtype or "float32")
    assert_equal(found, [1, np.nan, 3])


def test_float32_has_all_integers_up_to_a_limit():
    for sign in (1, -1):
        assert _is_exact(np.array([0, sign * (LARGE - 1)]))
        assert not _is_exact(np.array([0, sign * LARGE]))


def test_booleans_with_a_gap_are_numbers_and_a_column_of_gaps_alone_too():
    for column in (
        pd.Series([True, None, False], dtype=object),
        pd.array([True, None, False], dtype="boolean"),
        pd.Categorical([True, None, False]),
    ):
        assert_equal(inputs_of("float32", column), [1, np.nan, 0])
    assert_equal(inputs_of("float32", [None, None]), [np.nan] * 2)
    assert inputs_of("string", [None, None]).tolist() == ["", ""]
    assert inputs_of("bool", [True, False]).dtype == bool


@pytest.mark.parametrize("dtype", ["str", "object", "float64", "category"])
def test_strings_that_are_missing_in_all_rows_are_empty(dtype):
    column = pd.Series([np.nan, np.nan], dtype=dtype)
    user = types.SimpleNamespace(dtype="string", shape=(None,))
    model = types.SimpleNamespace(input={"user": user})
    found = as_inputs(model, pd.DataFrame({"user": column}))["user"]
    assert found.tolist() == ["", ""]
    text = r"'user' must have numbers, or strings alone\. Received: 1\.0 of"
    with pytest.raises(ValueError, match=text):
        as_inputs(model, pd.DataFrame({"user": [1.0, np.nan]}))


def test_integers_are_exact_for_an_input_of_integers():
    for column in (
        [LARGE, 5],
        pd.array([LARGE, 5], "UInt32"),
        pd.Categorical([LARGE, 5]),
        [float(LARGE), 5.0],
    ):
        found = inputs_of("int32", column)
        assert found.dtype == "int32"
        assert found.tolist() == [LARGE, 5]
    # A column without gaps is left to Keras to convert.
    assert inputs_of("float32", [LARGE, 5]).tolist() == [LARGE, 5]
    gap = pd.array([LARGE, None], "Int64")
    assert inputs_of("float64", gap)[0] == LARGE
    # A column that the caller has rounded.
    assert inputs_of("float32", [LARGE + 0.0, np.nan])[0] == LARGE - 1


test_integers_that_would_become_others_are_refused = refusals(
    *(
        (inputs_of, rf"'user' must have a value .* int32, holds\. Rec.*: {text}", given)
        for given, text in [
            (("int32", pd.array([LARGE, None], "Int64")), "missing values.*fillna"),
            (("int32", [1.0, np.nan]), "missing values"),
            (("int32", [True, None]), "missing values"),
            (("int32", [None, None]), "missing values"),
            (("int32", [1.5, 2.0]), r"1\.5"),
            (("int32", [2**40, 1]), "1099511627776"),
            (("int32", [np.inf, 1.0]), "inf"),
            (("int32", np.array([1, 3_000_000_000], "uint32")), "3000000000"),
        ]
    ),
    (
        inputs_of,
        r"must have a value .* uint8, holds\. Received: -1",
        ("uint8", np.array([0, -1], "int8")),
    ),
    (
        inputs_of,
        rf"'user' has missing .* float32, .* integers\. Rec.*: {LARGE}\. .*astype",
        *((dtype, pd.array([3, LARGE, None], "Int64")) for dtype in (None, "float32")),
        ("float32", pd.Categorical([LARGE, None])),
        ("float32", pd.Series([LARGE, None], dtype=object)),
    ),
    (inputs_of, "float64, .* hold", ("float64", pd.array([2**53 + 1, None], "Int64"))),
)


@pytest.mark.every_backend
def test_a_model_of_ids_gets_each_id_or_an_error():
    user = keras.Input((1,), dtype="int32", name="user")
    shown = ops.cast(user % 1000, "float32")
    model = build_multitask_model(keras.Model({"user": user}, shown), LABELS)
    model.compile("sgd")
    frame = pd.DataFrame({"user": pd.array([LARGE, LARGE + 2], "Int64")})
    labels = pd.DataFrame({"click": [0, 1], "like": [1, 0]})
    wanted = model({"user": np.array([[LARGE], [LARGE + 2]])})["click"]
    assert_close(model.predict(frame, verbose=0)["click"], wanted, rtol=1e-6)
    frame.loc[1, "user"] = None
    for call in (model.predict, model.evaluate, model.fit):
        given = (frame,) if call == model.predict else (frame, labels)
        with pytest.raises(ValueError, match=r"'user' must .* missing values"):
            call(*given, verbose=0)


@pytest.mark.every_backend
def test_a_table_trains_as_its_columns_do():
    y, results = FRAME[LABELS], []
    arrays = {name: FRAME[name].to_numpy("float32") for name in ("price", "count")}
    for x in (FRAME, arrays):
        keras.utils.set_random_seed(0)
        model = model_of("price", "count")
        model.fit(x, y, validation_data=(x, y), epochs=2, verbose=0)
        loss, *_ = model.evaluate(x, y, verbose=0)
        predicted = model.predict(x, verbose=0)["like"]
        results.append([*model.get_weights(), loss, predicted])
    assert_close(*results, rtol=1e-5)


def test_a_table_may_be_the_features_themselves():
    model = build_multitask_model(2, LABELS)
    model.compile("sgd")
    x = FRAME[["price", "count"]].fillna(0.0)
    found = model.predict(x, verbose=0)["click"]
    assert_close(found, model(x.to_numpy("float32"))["click"], rtol=1e-5)


test_a_table_that_does_not_fit_is_refused = refusals(
    *(
        (lambda frame: model_of("price", "count").predict(frame), text, frame)
        for frame, text in [
            (FRAME.drop(columns="price"), r"a column for each input.*Rec.*: no price"),
            (FRAME.assign(price=["a", 1.0, "b", "c"]), r"'price' must .*Rec.*: 1\.0"),
            (FRAME.assign(price=pd.Timestamp(0)), r"'price' must have .* Timestamp"),
        ]
    )
)


def test_labels_by_name_may_be_tables_of_one_column():
    labels = {name: FRAME[[name]] for name in LABELS}
    y, weights = as_labels(as_tasks(LABELS), labels, labels)
    assert_equal([y, weights], [FRAME[LABELS].to_numpy("float32")] * 2)


def test_weights_of_one_column_are_for_all_tasks_unless_it_has_the_name_of_one():
    tasks, frame = as_tasks(LABELS), FRAME[LABELS[:1]].abs()
    weights = as_labels(tasks, FRAME[LABELS], frame.rename(columns=lambda _: "w"))[1]
    assert_equal(weights, frame.to_numpy("float32"))
    with pytest.raises(ValueError, match="must be the tasks, in their order"):
        as_labels(tasks, FRAME[LABELS], frame)


def test_masked_numbers_are_missing():
    y = np.ma.masked_equal(np.array([[1, 2], [0, 1]]), 1)
    wanted = np.array([[np.nan, 2], [0, np.nan]])
    tasks = as_tasks(LABELS)
    assert_equal(as_labels(tasks, y)[0], wanted)
    assert_equal(as_labels(tasks, dict(zip(LABELS, y.T, strict=True)))[0], wanted)
    x = as_inputs(None, {"a": y, "b": np.ones(2)})
    assert_equal([x["a"], x["b"]], [wanted, np.ones(2)])
    assert type(x["a"]) is np.ndarray
    assert_equal(as_inputs(None, np.ma.masked_equal(y.filled(1.0), 1)), wanted)


def test_masked_labels_of_batches_are_missing():
    x, hidden = np.ones((4, 2), "float32"), np.array([[1], [0], [0], [1]], bool)
    y = np.ma.masked_array(np.where(hidden, 1e6, 1.0), hidden)
    inputs = keras.Input((2,))
    outputs = keras.layers.Dense(1, kernel_initializer="zeros")(inputs)
    model = MultitaskModel(inputs, {"a": outputs}, tasks=["a"])
    model.compile(keras.optimizers.SGD(0.0))
    for y_form in (y, {"a": y}):
        for data in (Batches((x, y_form), 4), ((x, y_form) for _ in range(2))):
            history = model.fit(data, steps_per_epoch=1, verbose=0).history
            assert history["task_loss"] == [1.0]


@pytest.mark.parametrize("what", ["labels", "sample weights"])
def test_none_for_a_task_is_refused(what):
    model = build_multitask_model(2, LABELS)
    model.compile("sgd")
    y, x = dict.fromkeys(LABELS, np.arange(4.0)), np.ones((4, 2))
    given = {"sample_weight" if what == "sample weights" else "y": {**y, "like": None}}
    for method in (model.fit, model.evaluate):
        with pytest.raises(
            ValueError, match=rf"The {what} must .*missing \['like'\].*pass"
        ):
            method(x, **{"y": y, **given})
