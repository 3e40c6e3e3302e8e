"""One model for all targets of a table: from a frame to predictions and a file."""

import types

import keras
import numpy as np
import pandas as pd
import pytest
from checks import assert_close, assert_equal
from helpers import refusals

import dselectk_keras as dk
from dselectk_keras.tables import Target
from dselectk_keras.tables.model import (
    CHANGES,
    Networks,
    Settings,
    TableModel,
    folds_of,
)

pytestmark = pytest.mark.backend_independent

TARGETS = ["price", "sold", "kind"]
QUICK = {"epochs": 3, "units": [16], "learning_rate": 0.01}


def make_table(rows=240):
    rng = np.random.default_rng(0)
    size, city = rng.uniform(0, 1, rows), rng.choice(["a", "b", "c"], rows)
    kind = np.where(size > 0.6, "large", np.where(city == "a", "mid", "small"))
    frame = pd.DataFrame({"size": size, "city": city, "kind": kind})
    frame["price"] = 1000 + 100 * size
    frame["sold"] = np.where(size > 0.5, "yes", "no")
    return frame.mask(rng.random(frame.shape) < 0.1)


@pytest.fixture(scope="module")
def trained():
    settings = {**QUICK, "epochs": 20}
    model = TableModel(members=2, settings=settings, verbose=0)
    return model.fit(make_table(), TARGETS)


@pytest.mark.traced
@pytest.mark.every_backend
def test_it_predicts_labels_in_their_own_units(trained):
    frame = make_table()
    assert [each.kind for each in trained.targets_] == ["number", "binary", "classes"]
    columns = frame.drop(columns=TARGETS).set_index(np.arange(len(frame)) + 5)
    found = trained.predict(columns)
    assert list(found) == TARGETS
    assert_equal(found.index, columns.index)
    known = frame["price"].notna().to_numpy() & frame["size"].notna().to_numpy()
    error = (found["price"].to_numpy() - frame["price"].to_numpy())[known]
    assert np.sqrt(np.mean(error**2)) < 15
    assert set(found["sold"]) == {"no", "yes"}
    chances = trained.predict_proba(columns)
    assert list(chances) == ["sold", "kind"]
    assert list(chances["kind"].columns) == ["large", "mid", "small"]
    for name, each in chances.items():
        assert_close(each.sum(axis=1), np.ones(len(frame)), rtol=1e-5)
        assert_equal(each.idxmax(axis=1), found[name])
        assert_equal(trained.classes_[name], each.columns)


def test_scores_are_by_target(trained):
    frame = make_table()
    found = trained.evaluate(frame)
    assert list(found.index) == TARGETS
    assert_equal(found["labels"], frame[TARGETS].notna().sum())
    assert found.loc["sold", "auc"] > 0.9
    assert trained.score(frame) == pytest.approx(found["explained"].mean())
    again = trained.evaluate(frame.drop(columns=TARGETS), frame[TARGETS])
    pd.testing.assert_frame_equal(again, found)
    # Of some targets, and without labels.
    some = trained.evaluate(frame.drop(columns="kind"), ["sold", "price"])
    pd.testing.assert_frame_equal(some, found.loc[["price", "sold"], some.columns])
    assert np.isnan(trained.score(frame.assign(sold=None), "sold"))


@pytest.mark.every_backend
def test_a_file_has_all_that_it_needs(trained, tmp_path):
    trained.save(tmp_path / "shop.keras")
    loaded = TableModel.load(tmp_path / "shop.keras")
    frame = make_table()
    pd.testing.assert_frame_equal(loaded.predict(frame), trained.predict(frame))
    assert loaded.get_params() == trained.get_params()
    for each in ("targets_", "loss_"):
        assert getattr(loaded, each) == getattr(trained, each)
    assert loaded.settings_.epochs == 20
    # It is a model of Keras, too, in the units of the labels.
    model = keras.saving.load_model(tmp_path / "shop.keras")
    price = model.predict(frame, verbose=0)["price"][:, 0]
    assert_close(price, trained.predict(frame)["price"], rtol=1e-5)
    # One task has the towers of all members.
    small = dk.per_task(model, "price")
    assert_close(small.predict(frame, verbose=0)["price"][:, 0], price, rtol=1e-5)
    assert small.count_params() < model.count_params()


def test_a_network_of_ones_own(tmp_path):
    def build(encoder, tasks):
        experts = dk.DenseExperts(4, [8])
        gate = dk.DSelectKGate(2, gamma=0.5)
        return dk.build_multitask_model(encoder, tasks, experts=experts, gate=gate)

    frame = make_table()
    decide = dk.DecideGates(by=0.5)
    found = TableModel(settings={"epochs": 3}, build=build, verbose=0)
    found.fit(frame, TARGETS, validation=frame[:50], callbacks=[decide])
    small = dk.condense(found.model)
    price = small.predict(frame, verbose=0)["price"][:, 0]
    assert_close(price, found.predict(frame)["price"], rtol=1e-4)
    found.save(tmp_path / "own.keras")
    loaded = TableModel.load(tmp_path / "own.keras")
    with pytest.raises(ValueError, match=r"set_params\(build=\.\.\.\)"):
        loaded.fit(frame, TARGETS)
    with pytest.raises(ValueError, match="settings units, which would do nothing"):
        TableModel(build=build, settings={"units": [8]}).fit(frame, TARGETS)


def test_trees_are_mixed_into_the_networks(trained, capsys):
    """They are a part of the model, also of that of one task."""
    frame, settings = make_table(), {"epochs": 1}
    layers = [each.name for each in trained.model.layers if "trees" in each.name]
    assert layers
    small = dk.per_task(trained.model, "price")
    names = [each.name for each in small.layers if "trees" in each.name]
    assert names == layers[: len(names)]
    both = (each.predict(frame, verbose=0)["price"] for each in (small, trained.model))
    assert_close(*both)
    options = {"members": 1, "time_limit": 0}
    TableModel(settings=settings, **options).fit(frame, ["price"])
    assert "price: boosted trees have a share of" in capsys.readouterr().out
    build = dk.build_multitask_model
    for alone in (
        TableModel(settings={**settings, "trees": 0}, verbose=0, **options),
        TableModel(settings=settings, build=build, verbose=0, **options),
    ):
        found = alone.fit(frame, ["price"])
        assert not any("trees" in each.name for each in found.model.layers)


def test_a_search_keeps_the_best_settings(monkeypatch, capsys):
    losses = {0.1: 0.5, 0.0: 0.4, 0.3: 0.3}
    tried = []

    def train(self, settings, *data):
        tried.append((settings.dropout, settings.activation))
        loss = losses[settings.dropout] + (settings.bins == "both")
        found = types.SimpleNamespace(loss=loss, add_trees=lambda *_: None)
        found.in_units_of_labels = lambda: settings
        return found

    monkeypatch.setattr(TableModel, "_train", train)
    found = TableModel(time_limit=100).fit(make_table(60), TARGETS)
    assert (found.settings_.dropout, found.loss_) == (0.3, 0.3)
    assert found.settings_.bins == "auto"
    assert len(tried) == 1 + len(CHANGES)
    assert "0.4000 instead of 0.5000, kept." in capsys.readouterr().out
    # Without a limit, one smooth network; with 0, or a network of one's own, none.
    for options, count in (({}, 2), ({"time_limit": 0}, 1), ({"build": print}, 1)):
        tried.clear()
        found = TableModel(**options).fit(make_table(60), TARGETS)
        assert tried == [(0.1, "relu"), (0.0, "silu")][:count]
        assert found.settings_.activation == ("relu", "silu")[count - 1]


def test_a_training_is_as_long_as_rows_and_noise_ask_for():
    rough, smooth = Settings(), Settings(dropout=0.0)
    # 5,000 steps, or 15,000 of 16 rows; more rows have larger steps.
    assert (rough.lengths(2_000), smooth.lengths(2_000)) == ((16, 40), (16, 120))
    assert (rough.lengths(200), smooth.lengths(200)) == ((16, 200), (16, 400))
    assert rough.lengths(100_000) == (512, 25)
    assert rough.lengths(10**6) == (512, 20)
    assert Settings(epochs=3).lengths(2_000) == (16, 3)


def test_members_hold_out_other_rows_and_targets_count_alike():
    labels = pd.DataFrame({"rare": [1] * 14 + [0] * 686, "x": np.arange(700.0)})
    folds = folds_of(labels, 7, seed=0)
    assert_equal(np.bincount(folds), [100] * 7)
    assert_equal(np.bincount(folds[:14]), [2] * 7)
    assert (folds != folds_of(labels, 7, seed=1)).any()
    targets = [
        Target("rare", "binary", (0, 1)),
        Target("x", "number", mean=10.0, deviation=2.0),
    ]
    networks = Networks(targets, labels, Settings())
    p = 14 / 700
    entropy = -p * np.log(p) - (1 - p) * np.log(1 - p)
    assert_close(networks.weights, [0.5 / entropy, 0.5])
    assert_close(networks.encode(labels)[[0, 699]], [[1, -5], [0, 344.5]])
    tasks = networks.tasks(2)
    assert [task.name for task in tasks] == ["0_rare", "0_x", "1_rare", "1_x"]
    assert tasks[3].weight == 0.25


def test_epochs_are_judged_by_the_geometric_mean_of_scaled_losses():
    targets = [
        Target("x", "number"),
        Target("y", "binary", (0, 1)),
        Target("z", "number"),
    ]
    frame = pd.DataFrame({"x": [1.0, 3, 0, 0], "y": [0, 1, 1, 1], "z": [1.0, 2, 3, 4]})
    networks = Networks(targets, frame, Settings())
    networks.members = 2
    nothing = np.full((4, 2), np.nan)
    # Each row is held out by one member, or none. The target z has no labels.
    x = [[1, np.nan], [np.nan, 3], [np.nan, np.nan], [np.nan, np.nan]]
    y = [[0, np.nan], [np.nan, 1], [np.nan, 1], [1, np.nan]]
    labels = np.stack([x, y, nothing], axis=2).reshape(4, 6)
    found = {"0_x": [2.0, 9, 9, 9], "1_x": [9, 4.0, 9, 9], "0_y": [0.9] * 4}
    found |= {"1_y": [0.9] * 4, "0_z": [0] * 4, "1_z": [0] * 4}
    found = {name: np.array(each)[:, None] for name, each in found.items()}
    networks.trained = types.SimpleNamespace(predict=lambda *_, **__: found)
    scales, losses = networks.judge(None, labels)
    # 2 s and 4 s for 1 and 3; of probabilities of 0.9, three of four are right.
    assert scales == pytest.approx([14 / 20, 0.5, 1.0])
    square = ((1.4 - 1) ** 2 + (2.8 - 3) ** 2) / 2
    # The log loss is the entropy, and so 1 of that of a constant.
    assert losses == pytest.approx({0: square, 1: losses[1]})
    assert networks.mean_of(losses) == pytest.approx(square**0.5)


def test_it_takes_tables_that_become_one_of_pandas(trained):
    frame = make_table(20).drop(columns=TARGETS)
    other = types.SimpleNamespace(to_pandas=lambda: frame)  # As those of polars.
    assert_equal(trained.predict(other)["price"], trained.predict(frame)["price"])


def test_a_class_that_a_member_holds_out_is_no_warning(capsys):
    frame = make_table(60).assign(one=1)
    frame["sold"] = np.where(np.arange(60) == 5, "yes", "no")
    model = TableModel(members=2, settings=QUICK, verbose=0).fit(frame, ["sold"])
    assert [*model.classes_["sold"]] == ["no", "yes"]
    # Neither the column of one value nor the class that is new is named.
    model.evaluate(frame.assign(sold="maybe"))
    assert capsys.readouterr().out == ""


def test_it_has_the_manners_of_scikit_learn():
    base = pytest.importorskip("sklearn.base")
    selection = pytest.importorskip("sklearn.model_selection")
    model = TableModel(members=1, settings=QUICK, verbose=0)
    copy = base.clone(model).set_params(seed=3)
    assert copy.get_params() == {**model.get_params(), "seed": 3}
    frame = make_table(120)
    found = selection.cross_validate(
        model, frame.drop(columns=TARGETS), frame[TARGETS], cv=2, error_score="raise"
    )
    assert np.isfinite(found["test_score"]).all()
    assert [each.name for each in model.fit(frame, frame.columns[2:4]).targets_] == [
        *frame.columns[2:4]
    ]


def fit(*data, **settings):
    TableModel(1, QUICK | settings, verbose=0).fit(*data)


FRAME = make_table(40)
PAIR = FRAME[["city"]], FRAME["price"]
NO_LABELS = FRAME.assign(price=np.nan)
test_what_it_cannot_do_is_refused = refusals(
    (lambda: fit(FRAME, "price", epochs=0), "`epochs` must be a positive integer"),
    (
        fit,
        r"in their order\. Received: 40 rows, and (39|40) labels",
        (FRAME[["size"]], FRAME["price"][1:]),
        (FRAME[["size"]], FRAME["price"][::-1]),
    ),
    (fit, r"of pandas\. Received: a ndarray", (FRAME, np.zeros((40, 2)))),
    (fit, r"different names.* Received: 'size'", (FRAME.iloc[:, [0, 0]], ["size"])),
    (fit, "have labels of size, price.*none of size", (FRAME, ["size", "price"], PAIR)),
    (lambda: TableModel(members=1.0).fit(FRAME, ["kind"]), "`members` must be"),
    (fit, "missing labels in all 40 rows", (FRAME, "price", NO_LABELS)),
    (lambda: TableModel().set_params(depth=3), "Received: depth"),
    (lambda: TableModel().predict(make_table()), "must be trained before"),
    (lambda: TableModel().fit(make_table(), ["rent"]), "Received: rent"),
    (lambda: TableModel().fit(np.ones((9, 2)), [0]), "of pandas. Received: a ndarray"),
)


def test_other_files_are_refused(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.save(tmp_path / "other.keras")
    with pytest.raises(ValueError, match=r"must be one of `TableModel\.save`"):
        TableModel.load(tmp_path / "other.keras")
