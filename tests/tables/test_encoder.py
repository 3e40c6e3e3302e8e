"""A table becomes features, with the state of the rows to train on."""

import keras
import numpy as np
import pandas as pd
import pytest
from checks import assert_close, assert_equal
from helpers import dtype_policy, refusals, reloaded

import dselectk_keras as dk
from dselectk_keras.models.columns import as_inputs
from dselectk_keras.tables import TableEncoder, table_encoder
from dselectk_keras.tables.encoder import hash_strings

pytestmark = pytest.mark.backend_independent

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"


def features(encoder, frame):
    return encoder.predict(as_inputs(encoder, frame), verbose=0)


def encode(frame, columns, kinds):
    layer = TableEncoder(columns, kinds)
    inputs = layer.make_inputs()
    return features(keras.Model(inputs, layer(inputs)), frame)


@pytest.mark.every_backend
def test_numbers_are_standardized_with_flags_only_for_gaps():
    frame = pd.DataFrame({"x": [1.0, 3.0, np.nan], "flag": [True, False, False]})
    encoder = table_encoder(frame, bins="none")
    assert list(encoder.input) == ["x", "flag"]
    new = pd.DataFrame(
        {"x": [2.0, 1e9, np.inf, None], "flag": [True, False, None, True]}
    )
    # Standard deviations of sqrt(2) and sqrt(1/3); at most 10 of them.
    root = 3**0.5
    high, low = root * 2 / 3, -root / 3
    wanted = [[0, high, 0], [10, low, 0], [0, 0, 1], [0, high, 1]]
    assert_close(features(encoder, new), wanted, atol=1e-6)


@pytest.mark.every_backend
def test_bins_by_hand():
    column = {"name": "x", "mean": 0, "deviation": 1, "offset": 0, "has_gaps": False}
    column |= {"edges": [0.0, 2.0, 3.0], "one_hot": True}
    frame = pd.DataFrame({"x": [-1.0, 0.0, 1.0, 2.0, 2.5, 9.0, np.nan]})
    wanted = [
        [-1, 0, 0, 1, 0],
        [0, 0, 0, 1, 0],
        [1, 0.5, 0, 1, 0],
        [2, 1, 0, 0, 1],
        [2.5, 1, 0.5, 0, 1],
        [9, 1, 1, 0, 1],
        [0, 0, 0, 0, 0],
    ]
    assert_close(encode(frame, [column], {"x": "number"}), wanted)
    column["one_hot"] = False
    found = encode(frame, [column], {"x": "number"})
    assert_close(found, np.array(wanted)[:, :3])


def test_labels_choose_the_bins_and_a_limit_keeps_the_best():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, 300), "z": rng.normal(size=300)})
    frame["c"] = rng.uniform(-1, 1, 300)
    labels = pd.DataFrame({"y": frame["x"] ** 2 * 9 + frame["c"] ** 2 * 3})
    columns = {
        each["name"]: each for each in table_encoder(frame, labels).layers[-1].columns
    }
    assert len(columns["x"]["edges"]) > 3
    assert columns["z"]["edges"] == []
    both = table_encoder(frame, labels, bins="both").output_shape[1]
    linear = table_encoder(frame, labels, bins="linear").output_shape[1]
    assert table_encoder(frame, labels, bins="none").output_shape[1] == 3
    assert both - linear == linear - 3
    # At most half as many edges as rows: 40 columns would have more.
    many = pd.concat([frame["x"]] * 40, axis=1).set_axis(map(str, range(40)), axis=1)
    found = table_encoder(many, labels).layers[-1].columns
    assert 0 < sum(len(each["edges"]) for each in found) <= 150


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint32"])
def test_large_integers_keep_their_differences(dtype):
    seconds = 1_700_000_000 + np.arange(0, 100, 10)
    frame = pd.DataFrame({"t": seconds.astype(dtype)})
    found = features(table_encoder(frame, bins="none"), frame)[:, 0]
    assert_close(found, (np.arange(10) - 4.5) / np.arange(10).std(ddof=1), rtol=1e-5)


def test_numbers_are_encoded_in_float32_under_half_precision():
    with dtype_policy("mixed_bfloat16"):
        frame = pd.DataFrame({"x": [20_000.0, 20_001.0, 20_002.0]})
        found = features(table_encoder(frame, bins="none"), frame)
    assert_close(found, [[-1], [0], [1]], atol=1e-3)


def test_what_does_not_differ_is_left_out(capsys):
    frame = pd.DataFrame(
        {"a": [1.0, 2.0], "b": [4, 4], "c": None, "d": [["x"], ["x"]], "e": ["y", "y"]}
    )
    assert list(table_encoder(frame).input) == ["a"]
    lines = capsys.readouterr().out.splitlines()
    assert [line[:12] for line in lines] == [f"Left out: {name}," for name in "bcde"]
    # Infinity is missing, and so this has no number.
    endless = pd.DataFrame({"a": [1.0, 2.0], "b": [np.inf, -np.inf]})
    assert list(table_encoder(endless).input) == ["a"]


@pytest.mark.every_backend
def test_strings_are_one_hot_with_slots_for_gaps_and_for_rare_ones():
    values = ["b", None, "a", "b", "rare"] * 1 + ["a", "b"] * 10
    encoder = table_encoder(pd.DataFrame({"s": values}))
    new = pd.DataFrame({"s": ["a", "b", "new", None, "", "rare"]})
    gap, other = [1, 0, 0, 0], [0, 1, 0, 0]
    wanted = [[0, 0, 1, 0], [0, 0, 0, 1], other, gap, gap, other]
    assert_equal(features(encoder, new), wanted)
    # What the rows to train on do not have is nothing, not a weight at random.
    encoder = table_encoder(pd.DataFrame({"s": ["a", "b"] * 10}))
    assert_equal(features(encoder, new[:4]), [[1, 0], [0, 1], [0, 0], [0, 0]])


def test_many_strings_have_an_embedding(tmp_path):
    frame = pd.DataFrame({"s": [f"v{i % 70:02}" for i in range(700)]})
    encoder = table_encoder(frame)
    found = features(encoder, frame[:70])
    assert found.shape == (70, 16)
    assert len(np.unique(found, axis=0)) == 70
    assert_equal(features(reloaded(encoder, tmp_path), frame[:70]), found)


@pytest.mark.every_backend
@pytest.mark.parametrize("hashed", [None, {"items": 50}])
def test_a_list_has_the_mean_of_the_embeddings_of_its_last_items(hashed):
    frame = pd.DataFrame({"items": [["a", "b"], ["c"], None, []]})
    encoder = table_encoder(frame, hashed=hashed, max_items=2)
    rows = [["a"], ["b"], ("c", "a", "b"), np.array(["b", "b"]), [], None, np.nan]
    a, b, last, twice, *none = features(encoder, pd.DataFrame({"items": rows}))
    assert (a != b).any()
    assert_close(last, (a + b) / 2, atol=1e-6)
    assert_close(twice, b, atol=1e-6)
    assert_equal(np.array(none), np.zeros((3, len(a))))


def test_ids_are_hashed_into_so_many_embeddings():
    frame = pd.DataFrame({"user": np.arange(500)})
    encoder = table_encoder(frame, hashed={"user": 7})
    assert encoder.layers[-1].embeddings.shape == (9, 16)
    found = features(encoder, frame)
    assert len(np.unique(found, axis=0)) == 7


@pytest.mark.every_backend
def test_raw_columns_may_have_the_dtypes_of_the_inputs():
    time = 2000 + np.arange(40, dtype="float32") % 7 / 1000
    frame = pd.DataFrame({"user": np.arange(40, dtype="int32"), "time": time})
    encoder = table_encoder(frame, hashed={"user": 7})
    wanted = features(encoder, frame)
    columns = {name: frame[name].to_numpy() for name in frame}
    assert_equal(features(encoder, columns), wanted)
    # Tensors are raw, too.
    tensors = keras.tree.map_structure(keras.ops.convert_to_tensor, columns)
    assert_equal(features(encoder, tensors), wanted)
    read = as_inputs(encoder, columns)
    assert_equal(features(encoder, read), wanted)
    twice = {name: np.concatenate([each, each]) for name, each in read.items()}
    assert_equal(features(encoder, twice)[40:], wanted)
    # Of columns, the place is the row, and not the index.
    columns["user"] = frame["user"].set_axis(frame.index[::-1])
    assert_equal(features(encoder, columns), wanted)


@pytest.mark.every_backend
def test_a_hash_is_the_same_everywhere():
    # Of a sum of products of bytes and factors, computed with Python's integers.
    from dselectk_keras.tables.encoder import hash_factors

    factors = [int(each) for each in hash_factors()]
    texts = ["ann", "é", "x" * 200, "x" * 4096]
    wanted = [
        (sum(map(int.__mul__, text.encode(), factors)) % 2**64 >> 33) % 1000
        for text in texts
    ]
    assert_equal(hash_strings(texts, [False] * 4, 1000), wanted)
    assert_equal(hash_strings(["", "ann"], [True, False], 1000)[1:], wanted[:1])
    with pytest.raises(ValueError, match=r"at most 4,096 bytes\. .* one of 4,098"):
        hash_strings(["é" * 2049], [False], 1000)


def test_values_of_which_none_is_known_are_told():
    frame = pd.DataFrame({"old": ["TRUE", "FALSE", "?"] * 10})
    encoder = table_encoder(frame).layers[-1]
    with pytest.warns(UserWarning, match=r"'old' is .*'True' among 10 .* as '\?'\."):
        encoder.read_table(pd.DataFrame({"old": [True, False] * 5 + [None]}))
    # Few may be new, and so may be some.
    encoder.read_table(pd.DataFrame({"old": [True] * 9}))
    encoder.read_table(pd.DataFrame({"old": ["True"] * 10 + ["TRUE"]}))
    encoder.read_table(pd.DataFrame({"old": [None] * 10}))


def test_other_rows_change_nothing():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=100), "s": rng.choice(["a", "b"], 100)})
    labels = pd.DataFrame({"y": frame["x"] ** 2})
    encoder = table_encoder(frame[:60], labels[:60])
    changed, other = frame.copy(), labels.copy()
    changed.loc[60:, "x"], other.loc[60:, "y"] = 1e6, -5.0
    again = table_encoder(changed[:60], other[:60])
    assert encoder.layers[-1].get_config() == again.layers[-1].get_config()


@pytest.mark.every_backend
@pytest.mark.traced
def test_a_model_of_a_table_is_trained_saved_and_served(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "the price": rng.normal(size=60),
            "time": 1_700_000_000 + rng.integers(0, 99, 60),
            "user": rng.choice(["ann", "bé" + "x" * 150, None], 60),
            "kind": rng.choice(["new", "old", None], 60),
            "seen": [list(rng.choice(["x", "y"], i % 4)) for i in range(60)],
        }
    )
    encoder = table_encoder(frame, hashed={"user": 10}, max_items=3)
    model = dk.build_multitask_model(encoder, [dk.Task("buy", "binary")], experts=2)
    model.compile("adam")
    labels = pd.DataFrame({"buy": rng.integers(0, 2, 60)})
    model.fit(frame, labels, epochs=1, verbose=0)
    wanted = model.predict(frame, verbose=0)["buy"]
    found = reloaded(model, tmp_path).predict(frame, verbose=0)["buy"]
    assert_close(found, wanted, rtol=1e-5)
    if not ON_TENSORFLOW:
        return
    import tensorflow as tf

    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    seen = [[*each, "", "", ""][:3] for each in frame["seen"]]
    raw = {
        "the price": tf.constant(frame[["the price"]].to_numpy("float32")),
        "time": tf.constant(frame[["time"]].to_numpy("float64")),
        "user": tf.constant(frame["user"].fillna("").tolist()),
        "kind": tf.constant(frame["kind"].fillna("").tolist()),
        "seen": tf.constant(seen),
    }
    assert_close(served.serve(raw)["buy"], wanted, rtol=1e-5)


def encoded(columns, **options):
    return table_encoder(pd.DataFrame(columns), **options)


test_columns_that_cannot_be_encoded_are_refused = refusals(
    (table_encoder, "must be a data frame of pandas. Received: a dict", ({"a": [1]},)),
    (
        encoded,
        "must name columns of the table: a. Received: b",
        {"columns": {"a": [1, 2]}, "hashed": {"b": 3}},
    ),
    (encoded, "must have a column that differs", {"columns": {"a": [1, 1]}}),
    (encoded, "`max_items` must be", {"columns": {"a": [1, 2]}, "max_items": 1}),
    (encoded, "'a' must have .*Multiply", {"columns": {"a": [1e-45, 2e-45]}}),
    (encoded, "`bins` must be", {"columns": {"a": [1, 2]}, "bins": "many"}),
    (
        encoded,
        r"`hashed\['s'\]` must be",
        {"columns": {"s": ["a", "b"]}, "hashed": {"s": 0}},
    ),
)
