"""A table becomes features, with the state of the rows to train on."""

import keras
import numpy as np
import pandas as pd
import pytest
from checks import assert_close, assert_equal
from helpers import refusals, reloaded

import dselectk_keras as dk
from dselectk_keras.models import table_encoder
from dselectk_keras.models.columns import as_inputs

BACKEND = keras.backend.backend()
needs_look_up = pytest.mark.skipif(
    BACKEND != "tensorflow", reason="TensorFlow looks up strings."
)


def features(encoder, frame):
    return encoder.predict(as_inputs(encoder, frame), verbose=0)


def test_numbers_are_standardized_with_gaps_and_bounds():
    frame = pd.DataFrame(
        {"x": [1.0, 3.0, np.nan], "n": [0, 0, 3], "flag": [True, False, False]}
    )
    encoder = table_encoder(frame)
    assert list(encoder.input) == ["x", "n", "flag"]
    new = pd.DataFrame({"x": [2.0, 1e9], "n": [1, -999], "flag": [True, False]})
    found = features(encoder, new)
    # Standard deviations of sqrt(2), sqrt(3) and sqrt(1/3); at most 10 of them.
    root = 3**0.5
    wanted = [
        [0, 0, 0, 0, 0, (1 - 1 / 3) * root],
        [0, 10, 0, -10, 0, -root / 3],
    ]
    assert_close(found, wanted, atol=1e-6)
    gap = features(encoder, pd.DataFrame({"x": [np.nan], "n": [1], "flag": [True]}))
    assert_close(gap[0, :2], [1, 0])


def test_infinity_is_a_gap_in_the_rows_to_train_on_and_in_others():
    frame = pd.DataFrame({"x": [1.0, 3.0, np.inf, -np.inf]})
    found = features(table_encoder(frame), frame)
    root = 2**-0.5
    assert_close(found, [[0, -root], [0, root], [1, 0], [1, 0]], atol=1e-6)


def test_what_does_not_differ_is_left_out(capsys):
    frame = pd.DataFrame(
        {"a": [1.0, 2.0], "b": [4, 4], "c": None, "d": [["x"], ["x"]], "e": ["y", "y"]}
    )
    assert list(table_encoder(frame).input) == ["a"]
    lines = capsys.readouterr().out.splitlines()
    assert [line[:12] for line in lines] == [f"Left out: {name}," for name in "bcde"]


def test_large_numbers_are_scaled_before_they_are_in_half_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        frame = pd.DataFrame({"x": [20_000.0, 20_001.0, 20_002.0]})
        found = features(table_encoder(frame), frame)
    finally:
        keras.config.set_dtype_policy("float32")
    assert_close(found.astype("float32")[:, 1], [-1, 0, 1], atol=0.01)


def test_a_constant_with_gaps_is_a_flag():
    frame = pd.DataFrame({"a": [5.0, np.nan, 5.0]})
    assert_equal(features(table_encoder(frame), frame), [[0], [1], [0]])


@needs_look_up
def test_strings_that_are_new_or_missing_share_an_embedding(tmp_path):
    frame = pd.DataFrame({"s": ["b", None, "a", "b"]})
    encoder = table_encoder(frame)
    new = pd.DataFrame({"s": ["a", "b", "new", None, ""]})
    found = features(encoder, new)
    assert found.shape == (5, 3)
    assert_equal(found[2], found[3])
    assert_equal(found[2], found[4])
    assert len(np.unique(found, axis=0)) == 3
    assert_equal(features(reloaded(encoder, tmp_path), new), found)


@needs_look_up
@pytest.mark.parametrize("hashed", [None, {"items": 50}])
def test_a_list_has_the_mean_of_the_embeddings_of_its_last_items(hashed):
    frame = pd.DataFrame({"items": [["a", "b"], ["c"], None, []]})
    encoder = table_encoder(frame, hashed, max_items=2)
    rows = [["a"], ["b"], ("c", "a", "b"), np.array(["b", "b"]), [], None, np.nan]
    a, b, last, twice, *none = features(encoder, pd.DataFrame({"items": rows}))
    assert (a != b).any()
    assert_close(last, (a + b) / 2, atol=1e-6)
    assert_close(twice, b, atol=1e-6)
    assert_equal(np.array(none), np.zeros((3, len(a))))


@needs_look_up
def test_ids_are_hashed_into_so_many_embeddings():
    frame = pd.DataFrame(
        {"user": np.arange(500), "name": [f"n{i}" for i in range(500)]}
    )
    encoder = table_encoder(frame, {"user": 7, "name": 5})
    sizes = [layer.input_dim for layer in encoder.layers if hasattr(layer, "input_dim")]
    assert sizes == [8, 6]
    found = features(encoder, frame)
    assert 5 <= len(np.unique(found[:, :4], axis=0)) <= 8
    assert_equal(found.shape, (500, 8))


@needs_look_up
@pytest.mark.traced
def test_a_model_of_a_table_is_trained_saved_and_served(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "price": rng.normal(size=60),
            "user": rng.choice(["ann", "bo", None], 60),
            "seen": [list(rng.choice(["x", "y"], i % 4)) for i in range(60)],
        }
    )
    encoder = table_encoder(frame, {"user": 10})
    model = dk.build_multitask_model(encoder, [dk.Task("buy", "binary")], experts=2)
    model.compile("adam")
    labels = pd.DataFrame({"buy": rng.integers(0, 2, 60)})
    model.fit(frame, labels, epochs=1, verbose=0)
    wanted = model.predict(frame, verbose=0)["buy"]
    found = reloaded(model, tmp_path).predict(frame, verbose=0)["buy"]
    assert_close(found, wanted, rtol=1e-5)


def encoded(columns, **options):
    return table_encoder(pd.DataFrame(columns), **options)


test_columns_that_cannot_be_encoded_are_refused = refusals(
    (table_encoder, "must be a table of pandas. Received: a dict", ({"a": [1]},)),
    (
        encoded,
        "must name columns of the table: a. Received: b",
        {"columns": {"a": [1, 2]}, "hashed": {"b": 3}},
    ),
    (encoded, "must have a column that differs", {"columns": {"a": [1, 1]}}),
    (encoded, "`max_items` must be", {"columns": {"a": [1, 2]}, "max_items": 1}),
)


@pytest.mark.skipif(BACKEND == "tensorflow", reason="It looks up strings.")
def test_strings_need_tensorflow():
    with pytest.raises(ValueError, match="'s' has strings or ids, which only Tensor"):
        encoded({"s": ["a", "b"]})


@needs_look_up
@pytest.mark.parametrize(
    ("column", "hashed", "text"),
    [
        (["a", 1], None, "'s' must have strings, lists of strings,.*Received: 1"),
        ([["a"], [2]], None, "Received: 2. Convert it"),
        ([1.0, None], {"s": 3}, "integers without gaps. Received: 1"),
        ([1, 2], {"s": 0}, r"`hashed\['s'\]` must be"),
    ],
)
def test_values_that_are_no_strings_are_refused(column, hashed, text):
    with pytest.raises(ValueError, match=text):
        encoded({"s": column}, hashed=hashed)


@needs_look_up
def test_lists_of_other_things_are_refused():
    encoder = encoded({"s": [["a"], ["b"]]})
    for value in ("a", [1]):
        with pytest.raises(ValueError, match="'s' must have lists of strings"):
            as_inputs(encoder, pd.DataFrame({"s": [value, ["a"]]}))
