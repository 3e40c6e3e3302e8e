"""Strings are inputs on TensorFlow, and elsewhere, or as labels, an error says so."""

import keras
import numpy as np
import pandas as pd
import pytest

from dselectk_keras import Task, build_multitask_model, check_labels
from dselectk_keras.models.strings import is_strings, with_string_objects

USERS = np.array(["ann", "bo", "a new one"])
KINDS = {
    "str": USERS,
    "bytes": USERS.astype(bytes),
    "objects": USERS.astype(object),
    "a column": pd.Series(USERS),
}
if hasattr(np.dtypes, "StringDType"):  # NumPy 2.
    KINDS["StringDType"] = USERS.astype(np.dtypes.StringDType())
TENSORFLOW = keras.backend.backend() == "tensorflow"


@pytest.fixture(scope="module")
def model():
    user = keras.Input((), dtype="string", name="user")
    ids = keras.layers.StringLookup(vocabulary=["ann", "bo"])(user)
    encoder = keras.Model({"user": user}, keras.layers.Embedding(3, 2)(ids))
    model = build_multitask_model(encoder, [Task("click", "binary")], experts=2)
    model.compile("sgd")
    return model


@pytest.mark.skipif(not TENSORFLOW, reason="Other backends have no strings.")
@pytest.mark.parametrize("kind", KINDS)
def test_strings_of_any_kind_are_trained_on_and_predicted(model, kind):
    x, y = {"user": KINDS[kind]}, np.ones((3, 1))
    model.fit(x, y, validation_data=(x, y), verbose=0)
    loss = model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
    predicted = model.predict(x, verbose=0)["click"]
    assert loss == pytest.approx(-np.log(predicted).mean(), rel=1e-5)
    as_objects = model.predict({"user": USERS.astype(object)}, verbose=0)["click"]
    np.testing.assert_array_equal(predicted, as_objects)


@pytest.mark.skipif(not TENSORFLOW, reason="Other backends have no strings.")
def test_columns_of_strings_are_trained_on_and_predicted():
    inputs = keras.Input((2,), dtype="string")
    ids = keras.layers.StringLookup(vocabulary=["ann", "bo"], output_mode="multi_hot")
    encoder = keras.Model(inputs, ids(inputs))
    model = build_multitask_model(encoder, [Task("click", "binary")], experts=2)
    model.compile("sgd")
    x, y = np.array([["ann", "bo"], ["bo", "x"], ["x", "x"]]), np.ones((3, 1))
    model.fit(x, y, validation_data=(x, y), verbose=0)
    whole = model.predict(x, verbose=0)["click"]
    row = model.predict(x[1:2], verbose=0)["click"]
    np.testing.assert_allclose(row, whole[1:2], rtol=1e-6)


@pytest.mark.skipif(TENSORFLOW, reason="TensorFlow has strings.")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_other_backends_say_what_to_do_with_strings(kind, method):
    model = build_multitask_model(1, [Task("click", "binary")], experts=2)
    model.compile("sgd")
    labels = [] if method == "predict" else [np.ones((3, 1))]
    with pytest.raises(ValueError, match=r"strings in 'user', .*Look them up before"):
        getattr(model, method)({"user": KINDS[kind]}, *labels)
    with pytest.raises(ValueError, match=r"strings, such as .*Look them up before"):
        getattr(model, method)(KINDS[kind], *labels)


def test_what_has_no_strings_stays_as_it_is():
    numbers = {
        "a": np.ones(2),
        "b": pd.Series([1, 2]),
        "c": None,
        "d": keras.ops.ones(2),
    }
    found = with_string_objects(numbers)
    assert all(found[name] is numbers[name] for name in numbers)
    assert not is_strings(np.array([1, "later"], dtype=object))


@pytest.mark.parametrize("kind", [str, object, bytes])
@pytest.mark.parametrize("how", ["dict", "table", "array"])
def test_labels_that_are_strings_name_the_task(kind, how):
    model = build_multitask_model(
        1, [Task(name, "binary") for name in ("click", "buy")]
    )
    words = np.array(["yes", "no"]).astype(kind)
    columns = {"click": np.ones(2), "buy": words}
    y = {
        "dict": columns,
        "table": pd.DataFrame(columns),
        "array": np.stack([words, words], axis=1),
    }[how]
    task = "click" if how == "array" else "buy"
    with pytest.raises(ValueError, match=f"'{task}' must be numbers. .*yes"):
        check_labels(model, np.ones((2, 1)), y)
