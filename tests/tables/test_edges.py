"""Edges come from the rows to train on, where they help to predict other rows."""

import numpy as np
import pytest
from checks import assert_close

from dselectk_keras.tables.edges import find_edges, standardized_labels
from dselectk_keras.tables.targets import Target

pytestmark = pytest.mark.backend_independent

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, 600)


def labels(*columns):
    return np.stack(columns, axis=1)


def test_without_labels_edges_are_quantiles_of_rows_and_of_values():
    # Nine in ten rows have the same number, so that quantiles of rows miss the others.
    column = np.r_[np.zeros(900), np.arange(100)]
    found = find_edges(column).edges
    assert found[0] == 0
    assert found[-1] == 99
    assert len(found) > 16
    assert np.isin(found, column).all()


def test_a_curve_has_edges_and_a_line_has_none():
    noise = 0.1 * rng.normal(size=len(X))
    assert find_edges(X, labels(X + noise)).edges == []
    found = find_edges(X, labels(X**2 * 4 + noise))
    assert found.edges[0] == np.float32(X.min())
    assert found.edges[-1] == np.float32(X.max())
    assert 3 < len(found.edges) <= 31
    assert found.gain > 0.5
    assert not found.one_hot


def test_a_number_that_says_nothing_has_no_edges():
    assert find_edges(X, labels(rng.normal(size=len(X)))).edges == []


def test_one_target_of_several_is_enough_and_missing_labels_are_left_out():
    curve = np.where(np.arange(len(X)) % 3 == 0, X**2 * 4, np.nan)
    others = rng.normal(size=(len(X), 4))
    assert find_edges(X, labels(curve, *others.T)).edges


def test_steps_at_single_numbers_are_one_hot():
    column = rng.integers(0, 12, 2000).astype(float)
    target = np.isin(column, [3, 7, 8]) + 0.1 * rng.normal(size=2000)
    assert find_edges(column, labels(target)).one_hot


@pytest.mark.parametrize("column", [np.full(20, np.nan), np.arange(20.0) % 2])
def test_columns_of_two_numbers_have_no_edges(column):
    assert find_edges(column) == ([], False, 0.0)
    assert find_edges(column, rng.normal(size=(20, 1))) == ([], False, 0.0)


def test_labels_are_standardized_and_classes_are_one_hot():
    import pandas as pd

    frame = pd.DataFrame({"n": [1.0, 3.0, None], "c": ["a", "b", None]})
    targets = [Target("n", "number"), Target("c", "classes", ("a", "b", "z"))]
    found = standardized_labels(targets, frame)
    # No row has the class "z".
    wanted = [[-1, 1, -1, 0], [1, -1, 1, 0], [np.nan] * 4]
    assert_close(found, wanted)
