"""A data frame is the inputs of a model that has them by name."""

import keras
import numpy as np
import pandas as pd
from checks import assert_close, assert_equal
from helpers import refusals
from keras import ops

from dselectk_keras import build_multitask_model
from dselectk_keras.models.columns import as_inputs

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
