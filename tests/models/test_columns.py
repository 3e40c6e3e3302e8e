"""A data frame is the inputs of a model that has them by name."""

import keras
import numpy as np
import pandas as pd
import pytest
from checks import assert_close, assert_equal

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
    columns = [
        keras.ops.where(keras.ops.isnan(each), 0.0, each) for each in inputs.values()
    ]
    encoder = keras.Model(inputs, keras.layers.Concatenate()(columns))
    model = build_multitask_model(encoder, LABELS)
    model.compile("sgd")
    return model


def test_columns_are_arrays_by_name():
    class Reads:
        input = dict.fromkeys(["age", "price", "count", "new", "city", "kind"])

    found = as_inputs(Reads, FRAME)
    kinds = {name: array.dtype for name, array in found.items()}
    assert kinds == {
        "age": "float32",
        "price": "float32",
        "count": "int32",
        "new": "bool",
        "city": "object",
        "kind": "object",
    }
    assert_equal(found["age"], [3, np.nan, 5, 4])
    assert found["city"].tolist() == ["Rome", "", "Bonn", "Rome"]
    assert found["kind"].tolist() == ["a", "b", "", "a"]


def test_a_table_trains_as_its_columns_do():
    weights = []
    for x in (
        FRAME,
        {name: FRAME[name].to_numpy("float32") for name in ("price", "count")},
    ):
        keras.utils.set_random_seed(0)
        model = model_of("price", "count")
        model.fit(
            x, FRAME[LABELS], validation_data=(x, FRAME[LABELS]), epochs=2, verbose=0
        )
        report = model.evaluate(x, FRAME[LABELS], verbose=0, return_dict=True)
        weights.append(
            [*model.get_weights(), report["loss"], model.predict(x, verbose=0)["like"]]
        )
    assert_close(*weights, rtol=1e-5)


def test_a_table_may_be_the_features_themselves():
    model = build_multitask_model(2, LABELS)
    model.compile("sgd")
    x = FRAME[["price", "count"]].fillna(0.0)
    found = model.predict(x, verbose=0)["click"]
    assert_close(found, model(x.to_numpy("float32"))["click"], rtol=1e-5)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (FRAME.drop(columns="price"), r"a column for each input.*Received: no price"),
        (
            FRAME.assign(price=["a", 1.0, "b", "c"]),
            r"'price' must have.*Received: 1\.0",
        ),
        (FRAME.assign(price=pd.Timestamp(0)), r"'price' must have .* Timestamp"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(frame, text):
    with pytest.raises(ValueError, match=text):
        model_of("price", "count").predict(frame, verbose=0)
