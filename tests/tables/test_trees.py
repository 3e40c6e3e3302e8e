"""Tests of the boosted trees beside the networks of a table."""

import keras
import numpy as np
import pytest
from keras import ops

from dselectk_keras.tables import trees
from dselectk_keras.tables.scores import fit_share
from dselectk_keras.tables.targets import Target
from dselectk_keras.tables.trees import DECISION, LEAST, MISSING, Trees, fit_trees

ROWS = 300
TARGETS = {
    "number": Target("y", "number", deviation=1.0),
    "binary": Target("y", "binary", ("no", "yes")),
    "classes": Target("y", "classes", ("a", "b", "c")),
}


@pytest.fixture(scope="module")
def table():
    """Inputs with gaps and few values, and which rows two members hold out."""
    rng = np.random.default_rng(0)
    number = rng.normal(size=(ROWS, 1)).astype("float32")
    number[::9] = np.nan
    inputs = {"number": number, "id": rng.integers(0, 4, ROWS).astype("int32")}
    held_out = rng.integers(0, 5, ROWS)[:, None] == np.arange(2)
    return {**inputs, "items": np.zeros((ROWS, 3), "int32")}, held_out


def labels_of(kind, inputs):
    score = np.nan_to_num(inputs["number"][:, 0], nan=2.0) + inputs["id"]
    found = {
        "number": score,
        "binary": score > 2,
        "classes": np.digitize(score, [1, 2]),
    }
    labels = found[kind].astype("float32")
    labels[::7] = np.nan
    return labels


@pytest.mark.parametrize("kind", TARGETS)
def test_the_layer_predicts_what_scikit_learn_predicts(kind, table):
    inputs, held_out = table
    layer, found = fit_trees(
        TARGETS[kind], inputs, labels_of(kind, inputs), held_out, 20, 0
    )
    assert layer.names == ["number", "id"]  # A list has no number per row.
    # Each member again, alone: its mean is its own prediction.
    for member in range(2):
        alone = Trees(layer.names, (1, *layer.shape[1:]), kind)
        alone.build(None)
        for name, part in layer.parts.items():
            own = np.split(ops.convert_to_numpy(part), 2, axis=int(name in DECISION))
            alone.parts[name].assign(own[member])
        rows = held_out[:, member]
        predicted = ops.convert_to_numpy(alone(inputs))[rows]
        np.testing.assert_allclose(predicted, found[rows, member], atol=1e-5)
        assert np.isnan(found[~rows, member]).all()
    assert layer.count_params() == sum(
        np.prod(layer.parts[name].shape) for name in layer.parts
    )
    assert not layer.trainable_variables


def test_a_tree_by_hand():
    """A number that is equal to a threshold, or missing, goes left."""
    layer = Trees(["x"], (2, 1, 1), "number", leaves=2)
    layer.build(None)
    values = {
        "masks": [[0b10, 0b10]],
        "thresholds": [[1.0, 2.0]],
        "leaves": [[10.0, 20.0], [1.0, 3.0]],
        "constants": [[0.5], [0.25]],
    }
    for name, value in values.items():
        layer.parts[name].assign(value)
    x = np.array([[1.0], [1.5], [2.5], [np.nan], [np.inf]], "float32")
    found = ops.convert_to_numpy(layer({"x": x}))[:, 0]
    low, middle, high = (11.75 / 2, 21.75 / 2, 23.75 / 2)
    np.testing.assert_allclose(found, [low, middle, high, low, low])
    assert MISSING < -1e20


def test_a_class_that_a_member_does_not_see_is_unlikely(table):
    inputs, held_out = table
    labels = labels_of("classes", inputs)
    labels[(labels == 2) & ~held_out[:, 0]] = np.nan
    layer, found = fit_trees(TARGETS["classes"], inputs, labels, held_out, 5, 0)
    assert found[held_out[:, 0], 0, 2] == pytest.approx(LEAST, rel=0.1)
    predicted = ops.convert_to_numpy(layer(inputs))
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0, atol=1e-5)


def test_many_classes_have_fewer_rounds(table, monkeypatch):
    inputs, held_out = table
    monkeypatch.setattr(trees, "MOST_TREES", 7)
    for kind, rounds in (("number", 4), ("classes", 2)):
        labels = labels_of(kind, inputs)
        layer, _ = fit_trees(TARGETS[kind], inputs, labels, held_out, 4, 0)
        assert layer.shape[1] == rounds


def test_equal_labels_and_lists_alone_have_no_trees(table):
    inputs, held_out = table
    target, labels = TARGETS["binary"], np.ones(ROWS, "float32")
    assert fit_trees(target, inputs, labels, held_out, 5, 0) is None
    lists, labels = {"items": inputs["items"]}, labels_of("binary", inputs)
    assert fit_trees(target, lists, labels, held_out, 5, 0) is None


def test_an_input_without_information_has_trees_of_one_leaf(table):
    held_out = table[1]
    labels = np.arange(ROWS, dtype="float32")
    inputs = {"id": np.zeros(ROWS, "int32")}
    layer, found = fit_trees(TARGETS["number"], inputs, labels, held_out, 1, 0)
    means = [np.mean(labels[~each]) for each in held_out.T]
    np.testing.assert_allclose(found[held_out[:, 0], 0, 0], means[0], rtol=1e-5)
    predicted = ops.convert_to_numpy(layer(inputs))
    np.testing.assert_allclose(predicted, np.mean(means), rtol=1e-5)


def test_the_layer_is_saved(table, tmp_path):
    inputs, held_out = table
    target = TARGETS["classes"]
    layer, _ = fit_trees(target, inputs, labels_of("classes", inputs), held_out, 5, 0)
    x = {name: keras.Input(inputs[name].shape[1:], name=name) for name in layer.names}
    model = keras.Model(x, layer(x))
    model.save(tmp_path / "trees.keras")
    loaded = keras.saving.load_model(tmp_path / "trees.keras")
    data = {name: inputs[name] for name in layer.names}
    found = [each.predict(data, verbose=0) for each in (model, loaded)]
    np.testing.assert_array_equal(*found)


def test_the_share_has_the_lowest_loss():
    number, binary = TARGETS["number"], TARGETS["binary"]
    ours, theirs = np.array([[0.0], [0.0]]), np.array([[4.0], [-4.0]])
    share, loss = fit_share(number, ours, theirs, np.array([1.0, -1.0]))
    assert (share, loss) == (0.25, 0.0)
    # The logarithms of 0.4, and of 0.9 and 0.1: at 0, the mean loss is the lowest.
    ours, theirs = np.array([[0.4], [0.4]]), np.array([[0.9], [0.1]])
    share, loss = fit_share(binary, ours, theirs, np.array([0.0, 1.0]))
    assert share == 0.0
    assert loss == pytest.approx(-np.log(0.6 * 0.4) / 2)
