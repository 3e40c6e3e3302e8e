"""The rivals of a network choose settings by validation rows, for each target."""

import importlib.util
import math

import numpy as np
import pandas as pd
import pytest

from common import rivals as module
from common.rivals import (
    EXTRA,
    LINEAR,
    SPACES,
    TREES,
    drawn,
    error,
    rivals,
)


def test_errors_are_a_root_of_squares_and_a_log_loss():
    """By hand; a class without a probability is left out."""
    assert error([1.0, 3.0], [2.0, 5.0]) == pytest.approx(math.sqrt(2.5))
    probabilities = [[0.25, 0.75], [0.5, 0.5], [0.9, 0.1]]
    found = error(["a", "b", "new"], probabilities, np.array(["a", "b"]))
    assert found == pytest.approx(-(math.log(0.25) + math.log(0.5)) / 2)
    assert error([1], [[1.0, 0.0]], [0, 1]) == pytest.approx(6 * math.log(10))


def test_settings_begin_with_the_defaults_and_are_not_repeated():
    """Of a small space, no more are drawn than it has."""
    found = drawn(TREES, 5, np.random.default_rng(0))
    assert found[0] == {
        "leaves": 31,
        "rate": 0.1,
        "rows": 20,
        "columns": 1.0,
        "ridge": 0.0,
    }
    assert len({tuple(each.values()) for each in found}) == 5
    assert len(drawn(LINEAR, 50, np.random.default_rng(0))) == 6
    assert drawn(EXTRA, 1, np.random.default_rng(0)) == [{"rows": 1, "columns": 0.5}]


def test_validation_rows_choose_and_all_rows_with_labels_train_again(monkeypatch):
    """A model that predicts its setting; its rows and rounds are seen."""
    fits = []

    def fit(x, y, classes, own, seed, against=None):
        fits.append((len(x), list(y), own, None if against is None else against[1]))
        return lambda x: np.full(len(x), own["ridge"]), {} if against is None else {
            "rounds": 7
        }

    monkeypatch.setattr(module, "FITS", {LINEAR: fit})
    monkeypatch.setattr(module, "SPACES", {LINEAR: SPACES[LINEAR]})
    train = pd.DataFrame({"x": [1.0, 2, 3, 4], "y": [5.0, None, 6, 8]})
    validation = pd.DataFrame({"x": [1.0, 2, 3], "y": [9.0, 12, None]})
    found = rivals(train, validation, ["y"], settings=6, kinds=[LINEAR])["y"][LINEAR]
    assert found.settings == {"ridge": 10.0, "rounds": 7}
    assert found.loss == pytest.approx(math.sqrt((1 + 4) / 2))
    size, labels, own, against = fits[-1]
    assert (size, labels, own, against) == (5, [5, 6, 8, 9, 12], found.settings, None)
    assert [each[:2] for each in fits[:-1]] == [(3, [5, 6, 8])] * 6
    assert list(found.predict(train)) == [10.0] * 4


def test_models_may_stay_those_of_the_rows_to_train_on(monkeypatch):
    fits = []

    def fit(x, y, classes, own, seed, against=None):
        fits.append((len(x), against is None))
        return lambda x: np.zeros(len(x)), {}

    monkeypatch.setattr(module, "FITS", {LINEAR: fit})
    parts = [pd.DataFrame({"x": [1.0, 2, 3], "y": [5.0, 6, 8]}) for _ in range(2)]
    rivals(*parts, ["y"], settings=2, kinds=[LINEAR], again=False)
    assert fits == [(3, False)] * 2


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("has_lightgbm", [False, True])
def test_a_class_of_the_validation_rows_is_one(kind, has_lightgbm, monkeypatch):
    if has_lightgbm:
        pytest.importorskip("lightgbm")
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: found(name) if has_lightgbm or name != "lightgbm" else None,
    )
    draw = np.random.default_rng(0)
    train, validation = (
        pd.DataFrame({"x": draw.random(200), "y": draw.choice(list(texts), 200)})
        for texts in ("ab", "abc")
    )
    for again in (False, True):
        model = rivals(train, validation, ["y"], 1, kinds=[kind], again=again)["y"][
            kind
        ]
        assert model.classes.tolist() == ["a", "b", "c"]
        chances = model.predict(validation[["x"]])
        assert chances.shape == (200, 3)
        np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-6)
        assert (chances[:, 2].max() > 0.05) == again


def table(seed, rows=240):
    """Two targets: classes by a text, and numbers by a text and a number with gaps."""
    draw = np.random.default_rng(seed)
    x, kind = draw.random(rows), draw.choice(list("abcd"), rows)
    frame = pd.DataFrame({"kind": kind, "same": 1.0})
    x[::9] = np.nan
    y = np.where(np.isnan(x), 20, 10 * (x > 0.5)) + 5 * (kind == "c")
    frame["x"] = x
    frame["level"] = np.where(draw.random(rows) < 0.2, np.nan, y)
    names = {"a": "low", "b": "high", "c": "low", "d": "middle"}
    frame["name"] = frame["kind"].map(names)
    return frame


@pytest.mark.parametrize("has_lightgbm", [True, False])
def test_trees_learn_categories_gaps_and_classes(has_lightgbm, monkeypatch):
    """With LightGBM and without it: errors far below those of the mean."""
    pytest.importorskip("sklearn")
    if has_lightgbm:
        pytest.importorskip("lightgbm")
    else:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = rivals(table(0), table(1), ["level", "name"], settings=2)
    test = table(2)
    known = test["level"].notna()
    for kind, most in ((TREES, 1.5), (EXTRA, 2.0), (LINEAR, 3.0)):
        model = found["level"][kind]
        assert model.classes is None
        assert error(test["level"][known], model.predict(test[known])) < most
    for kind, most in ((TREES, 0.05), (EXTRA, 0.05), (LINEAR, 0.1)):
        model = found["name"][kind]
        assert list(model.classes) == ["high", "low", "middle"]
        assert error(test["name"], model.predict(test), model.classes) < most
    # A text that the rows to train on do not have, and a missing one.
    test.loc[0, "kind"], test.loc[1, "kind"] = "new", None
    for kind in SPACES:
        assert np.isfinite(found["level"][kind].predict(test)).all()


def test_labels_of_other_targets_are_no_inputs():
    """A target that equals another one is not predicted by it."""
    pytest.importorskip("sklearn")
    draw = np.random.default_rng(0)
    parts = []
    for _ in range(2):
        y = draw.normal(size=80)
        parts.append(pd.DataFrame({"x": draw.normal(size=80), "y": y, "same": y}))
    found = rivals(*parts, ["y", "same"], settings=1)
    for kind in SPACES:
        assert found["y"][kind].loss > 0.8
