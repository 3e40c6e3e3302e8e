"""`train.py --table` goes from a file of one's own to a model of its raw columns."""

import itertools
import json

import keras
import numpy as np
import pandas as pd
import pytest
import table_training
import train
from helpers import numpy
from table_training import Table, read_table, split_rows, train_table

from common.training_run import TrainingRun

BACKEND = keras.backend.backend()
QUIET = ["--epochs", "2", "--units", "4", "--quiet", "--num-nonzeros", "2"]


def adult(size=200):
    """A table as people have it: strings, gaps, an empty column, odd names."""
    rng = np.random.default_rng(0)
    age = rng.integers(17, 90, size).astype(float)
    frame = pd.DataFrame(
        {
            "age": np.where(rng.random(size) < 0.1, np.nan, age),
            "education-num": rng.integers(1, 16, size),
            "work class": rng.choice(["Private", "State gov", None], size=size),
            "nothing": np.nan,
            "income": np.where(age > 50, ">50K", "<=50K"),
        }
    )
    married = rng.random(size) < age / 90
    frame["married"] = np.where(rng.random(size) < 0.2, np.nan, married)
    return frame


@pytest.mark.traced
@pytest.mark.backends("tensorflow", reason="TensorFlow looks up strings.")
def test_a_csv_file_becomes_a_served_model(tmp_path, capsys):
    import tensorflow as tf

    path, out = tmp_path / "adult.csv", tmp_path / "run"
    adult().to_csv(path, index=False)
    options = ["--table", str(path), "--targets", "income", "married"]
    train.main([*options, *QUIET, "--out", str(out)])
    shown = capsys.readouterr().out
    assert "income: 1 is '>50K', and 0 is '<=50K'." in shown
    assert "Left out: nothing, which has no value." in shown
    assert "mmoe dselect_k, 140 rows to train on" in shown
    assert "AUC " in shown
    assert f"Written to {out}." in shown
    report = json.loads((out / "report.json").read_text())
    assert report["rows"] == [140, 30, 30]
    gates = np.array([report["gates"][name] for name in ("income", "married")])
    np.testing.assert_allclose(gates.sum(axis=1), 1.0, rtol=1e-5)
    assert 1 <= report["served"]["experts"] <= 4  # Two for each task, at most.
    assert report["served"]["experts"] == (gates.max(axis=0) > 0).sum()

    served = tf.saved_model.load(str(out / "served"))
    row = {
        "age": tf.constant([[30.0], [np.nan]]),
        "education-num": tf.constant([[9.0], [13.0]]),
        "work class": tf.constant(["Private", "never seen"]),
    }
    saved = keras.saving.load_model(out / "model.keras")
    frame = pd.DataFrame(
        {
            "age": [30.0, np.nan],
            "education-num": [9.0, 13.0],
            "work class": ["Private", "never seen"],
        }
    )
    wanted = saved.predict(frame, verbose=0)
    for name, values in served.serve(row).items():
        np.testing.assert_allclose(values, wanted[name], rtol=1e-4, atol=1e-6)
    with pytest.raises(SystemExit):
        train.main([*options, *QUIET, "--out", str(out)])
    assert "overwrite it (--overwrite)" in capsys.readouterr().err


@pytest.mark.parametrize("gate", ["dselect_k", "softmax"])
def test_a_parquet_file_of_numbers_trains_on_every_backend(tmp_path, capsys, gate):
    pytest.importorskip("pyarrow")
    path, out = tmp_path / "numbers.parquet", tmp_path / "run"
    adult()[["age", "education-num", "married"]].to_parquet(path)
    options = ["--table", str(path), "--targets", "married", "--gate", gate]
    quiet = QUIET if gate == "dselect_k" else [*QUIET[:-2], "--per-example"]
    train.main([*options, *quiet, "--out", str(out)])
    assert "  married " in capsys.readouterr().out
    report = json.loads((out / "report.json").read_text())
    assert report["served"]["experts"] == (
        8 if gate == "softmax" else pytest.approx(2, abs=1)
    )
    tasks = report["tasks"]["married"]
    assert 0 <= tasks["auc"] <= 1
    assert tasks["calibration"] > 0


def test_targets_of_numbers_are_predicted_in_their_units(tmp_path, capsys):
    path, out = tmp_path / "homes.csv", tmp_path / "run"
    rng = np.random.default_rng(0)
    size = rng.uniform(20, 200, 600)
    frame = pd.DataFrame({"size": size, "sold": (size > 100).astype(int)})
    frame["price"] = 1e5 + 3e3 * size + 1e4 * rng.normal(size=600)
    frame.loc[:40, "price"] = np.nan
    frame.to_csv(path, index=False)
    options = ["--table", str(path), "--targets", "price", "sold", "--quiet"]
    options += ["--epochs", "8", "--units", "8", "--batch-size", "64"]
    options += ["--learning-rate", "0.05"]
    train.main([*options, "--num-nonzeros", "2", "--out", str(out)])
    shown = capsys.readouterr().out
    assert "price: numbers from 1" in shown
    assert "  price                error " in shown
    found = json.loads((out / "report.json").read_text())["tasks"]
    assert 5e3 < found["price"]["error"] < 4e4  # The noise has 1e4.
    assert 0.9 < found["price"]["explained"] < 1
    assert found["sold"]["auc"] > 0.9
    saved = keras.saving.load_model(out / "model.keras")
    guesses = saved.predict(pd.DataFrame({"size": [50.0, 150.0]}), verbose=0)["price"]
    np.testing.assert_allclose(guesses, [[2.5e5], [5.5e5]], rtol=0.15)


@pytest.mark.backends("jax", "torch", reason="TensorFlow looks up strings.")
def test_others_refuse_strings_on_every_backend(tmp_path, capsys):
    path = tmp_path / "adult.csv"
    adult().to_csv(path, index=False)
    options = ["--table", str(path), "--targets", "income", *QUIET]
    with pytest.raises(SystemExit):
        train.main([*options, "--out", str(tmp_path / "run")])
    assert "'work class' has strings or ids, which only" in capsys.readouterr().err


def test_labels_and_numbers_are_read(tmp_path):
    path = tmp_path / "adult.csv"
    frame = adult()
    frame.to_csv(path, index=False)
    found, tasks = read_table(Table(path, ["income", "married", "income"]))
    assert [task.name for task in tasks] == ["income", "married"]
    assert list(found) == ["age", "education-num", "work class", "income", "married"]
    wanted = (frame["income"] == ">50K").to_numpy("float32")
    np.testing.assert_array_equal(found["income"], wanted)
    np.testing.assert_array_equal(found["married"], frame["married"].astype("float32"))
    assert found["age"].dtype == found["education-num"].dtype == "float32"
    assert found["work class"].isna().sum() == frame["work class"].isna().sum()
    parts = split_rows(found, seed=1)
    assert [len(part) for part in parts] == [140, 30, 30]
    rows = np.concatenate([part.to_numpy(object) for part in parts]).astype(str)
    assert sorted(map(tuple, rows)) == sorted(
        map(tuple, found.to_numpy(object).astype(str))
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--targets", "marrid"], "must name columns of "),
        ([], "Received: none."),
        (["--targets", "work"], "The target 'work' must have two values, such as"),
        (["--targets", "same"], "Received 1: ['7']."),
        (["--targets", "married", "--data", "mnist"], "--data is not for tables"),
        (["--targets", "married", "--drop", "agee"], "--drop and --split-by must name"),
        (
            ["--targets", "married", "--split-by", "work"],
            "numbers or dates without gap",
        ),
        (["--targets", "married", "--gate", "softmax", "--gamma", "2"], "other gates"),
        (
            ["--architecture", "shared_bottom", "--num-experts", "4"],
            "--num-experts is for gates",
        ),
    ],
)
def test_what_cannot_be_trained_ends_with_a_message(tmp_path, capsys, arguments, text):
    path = tmp_path / "adult.csv"
    adult().assign(same=7, work=["a", "b", "c", None] * 50).to_csv(path, index=False)
    with pytest.raises(SystemExit) as ended:
        train.main(["--table", str(path), *arguments, "--out", str(tmp_path / "run")])
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


def test_a_gate_that_may_use_all_experts_is_noted(capsys, monkeypatch):
    monkeypatch.setattr(table_training, "train_table", lambda *_, **__: {})
    monkeypatch.setattr(table_training, "describe", str)
    train.main(["--table", "t.csv", "--targets", "y", "--num-experts", "4"])
    assert "Note: with num_nonzeros=4 of 4 experts" in capsys.readouterr().err


def noise(size=150):
    """Two targets that are noise: a model gets worse with each epoch."""
    draws = np.random.default_rng(0).normal(size=(size, 12))
    return pd.DataFrame(draws.round(4), columns=list("pqrsabcdefuv"))


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A function that trains on a table, and returns report, model and folder."""
    monkeypatch.setattr(table_training, "serve", lambda *_: {})

    def start(frame, out="run", table=None, **settings):
        path = tmp_path / "table.csv"
        frame.to_csv(path, index=False)
        defaults = {"units": (8,), "num_experts": 4, "epochs": 3, "batch_size": 64}
        run = TrainingRun(**defaults | settings)
        train_table(run, path, ["u", "v"], tmp_path / out, True, False, **(table or {}))
        text = (tmp_path / out / "report.json").read_text()
        report = json.loads(text, parse_constant=pytest.fail)
        model = keras.saving.load_model(tmp_path / out / "model.keras")
        return report, model, tmp_path / out

    return start


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"architecture": "shared_bottom"}, 0),
        ({"gate": "softmax"}, 0),
        ({"gate": "dselect_k", "num_nonzeros": 2}, 1),
        # The decision is within the first epoch.
        ({"gate": "dselect_k", "num_nonzeros": 2, "decide_by": 0.3}, 1),
        ({"gate": "dselect_k", "num_nonzeros": 2, "decide_by": 0.0}, 0),
    ],
)
def test_epochs_before_a_decision_are_left_out_only_if_there_is_one(
    trained, monkeypatch, settings, first
):
    stops, kind = [], keras.callbacks.EarlyStopping

    def stop(*arguments, **options):
        stops.append(kind(*arguments, **options))
        return stops[-1]

    monkeypatch.setattr(keras.callbacks, "EarlyStopping", stop)
    trained(noise(40), epochs=2, **settings)
    assert stops[0].start_from_epoch == first


@pytest.mark.parametrize("architecture", ["mmoe", "omoe", "ple"])
def test_the_report_shows_the_gates_of_the_model_that_is_kept(
    trained, monkeypatch, architecture
):
    settings = {"gate": "softmax", "epochs": 3, "learning_rate": 0.3}
    # The validation loss rises: the first epoch is the best one.
    losses, stop = itertools.count(), keras.callbacks.EarlyStopping
    monkeypatch.setattr(stop, "get_monitor_value", lambda *_: next(losses))
    report, model, folder = trained(noise(40), architecture=architecture, **settings)
    name = {"ple": "cgc_1"}.get(architecture, "mmoe")
    kept = numpy(model.get_layer(name).expert_weights())
    assert list(report["gates"]) == ["u", "v"]
    for task, found in enumerate(report["gates"].values()):
        # All tasks of omoe share a gate.
        np.testing.assert_allclose(found, kept[min(task, len(kept) - 1)], rtol=1e-5)
    assert (folder / "gates.png").exists()


@pytest.mark.parametrize("decide_by", [0.5, 1.0])
def test_the_validation_loss_of_the_report_is_that_of_the_model_that_is_kept(
    trained, decide_by
):
    # Of noise, the loss is lowest before the gates decide, in another model.
    settings = {"num_nonzeros": 1, "epochs": 6, "learning_rate": 0.1}
    report, model, folder = trained(noise(), decide_by=decide_by, **settings)
    frame, _ = read_table(Table(folder.parent / "table.csv", ["u", "v"]))
    _, validation, _ = split_rows(frame, 0)
    found = model.evaluate(
        validation, validation[["u", "v"]], verbose=0, return_dict=True
    )
    assert report["val_task_loss"] == pytest.approx(found["task_loss"], rel=1e-4)


@pytest.mark.parametrize("gate", ["chosen", "dselect_k"])
def test_a_run_that_is_stopped_ends_as_an_unbroken_one(tmp_path, monkeypatch, gate):
    monkeypatch.setattr(table_training, "serve", lambda *_: {})
    noise(90).to_csv(tmp_path / "table.csv", index=False)
    table = tmp_path / "table.csv", ["u", "v"]
    settings = {"num_experts": 4, "num_nonzeros": 2, "epochs": 5, "batch_size": 64}
    # One batch per epoch, since the order of the rows is another one afterwards.
    run = TrainingRun(gate=gate, units=(8,), learning_rate=0.1, **settings)

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 4:
                raise KeyboardInterrupt

    whole = train_table(run, *table, tmp_path / "whole", progress=False)
    broken = {"out": tmp_path / "broken", "progress": False}
    with pytest.raises(KeyboardInterrupt):
        train_table(run, *table, callbacks=[Stop()], **broken)
    with pytest.raises(FileExistsError, match=r"unfinished\. .* resume it"):
        train_table(run, *table, **broken)
    found = train_table(run, *table, resume=True, **broken)
    weights = [
        keras.saving.load_model(tmp_path / name / "model.keras").get_weights()
        for name in ("whole", "broken")
    ]
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert found["val_task_loss"] == pytest.approx(whole["val_task_loss"])
    assert found["gates"]["u"] == pytest.approx(whole["gates"]["u"])
    assert train_table(run, *table, resume=True, **broken)["tasks"] == found["tasks"]
    assert not (tmp_path / "broken" / "checkpoints").exists()


@pytest.mark.parametrize("progress", [True, False])
def test_a_bar_grows_within_the_first_epoch(tmp_path, monkeypatch, capsys, progress):
    monkeypatch.setattr(table_training, "serve", lambda *_: {})
    noise(40).to_csv(tmp_path / "table.csv", index=False)
    settings = {"num_experts": 2, "num_nonzeros": 2, "epochs": 1, "batch_size": 2}
    run, shown = TrainingRun(units=(2,), **settings), []

    class Look(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            shown.append(capsys.readouterr().out)

    asked = run, tmp_path / "table.csv", ["u", "v"], tmp_path / "out"
    train_table(*asked, progress=progress, callbacks=[Look()])
    assert len(shown) == 14
    assert ("1/14" in "".join(shown)) == progress


def test_early_stopping_goes_on_where_it_was(tmp_path):
    def stopping(done):
        stop = keras.callbacks.EarlyStopping(mode="min", restore_best_weights=True)
        keep = table_training.KeepStopping(stop, tmp_path, done)
        stop.on_train_begin()
        keep.on_train_begin()
        return stop, keep

    stop, keep = stopping(0)
    assert not keep.is_past
    stop.best, stop.wait, stop.best_epoch = 2.0, 4, 1
    stop.best_weights = [np.ones(2), *map(np.array, range(11))]
    for epoch in (5, 6, 7):
        keep.on_epoch_end(epoch)
    assert len([*tmp_path.iterdir()]) == 2
    stop, keep = stopping(8)
    assert not keep.is_past
    assert (stop.best, stop.wait, stop.best_epoch) == (2.0, 4, 1)
    assert [float(each.sum()) for each in stop.best_weights] == [2.0, *range(11)]
    stop.wait = 5
    keep.on_epoch_end(8)
    assert stopping(9)[1].is_past


def test_another_run_keeps_no_picture_of_the_one_before(trained):
    *_, folder = trained(noise(), gate="softmax", epochs=1)
    (folder / "served").mkdir()
    trained(noise(), architecture="shared_bottom", epochs=1)
    assert {path.name for path in folder.iterdir()} == {"report.json", "model.keras"}


def test_the_options_of_a_model_survive_the_units_of_its_labels(trained):
    options = {"label_average": "labels", "task_weighting": "uncertainty"}
    _, model, _ = trained(noise(), architecture_options=options, epochs=1)
    assert model.task_losses.label_average == "labels"
    assert model.get_config()["task_weighting"] == "uncertainty"
    weights = [*model.task_weights.values()]
    assert weights != [model.tasks[0].weight, model.tasks[1].weight]  # Trained.


@pytest.mark.parametrize(
    "column",
    [
        # In the rows to train on: nothing, a constant, almost a constant, and gaps
        # between constants.
        lambda train: np.where(train, np.nan, 1e6),
        lambda train: np.where(train, 1.0, 1e6),
        lambda train: np.where(train, 1 + 0.1 * (np.cumsum(train) == 1), 1e6),
        lambda train: np.where(train & (np.arange(150) % 2 > 0), np.nan, 1.0 + ~train),
    ],
    ids=["empty", "constant", "almost constant", "constant with gaps"],
)
def test_a_column_that_says_nothing_does_not_spoil_the_predictions(trained, column):
    frame = noise()
    rows = np.isin(np.arange(len(frame)), split_rows(frame, 0)[0].index)
    report, *_ = trained(frame.assign(w=column(rows)), epochs=1)
    for task in report["tasks"].values():
        assert 0.5 < task["error"] < 10  # The labels have a deviation of 1.


@pytest.mark.backends("tensorflow", reason="TensorFlow looks up strings.")
def test_a_string_that_is_the_same_in_all_rows_is_left_out(trained, capsys):
    frame = noise().assign(w="a")
    frame.loc[split_rows(frame, 0)[2].index, "w"] = "b"
    _, model, _ = trained(frame, epochs=1)
    assert "w" not in model.input
    assert "Left out: w, which has one value in the rows to" in capsys.readouterr().out


def test_a_report_counts_labels_and_positives_and_has_no_number_where_none_is(trained):
    frame = noise().assign(u=1.0, v=np.nan)
    train, validation, test = split_rows(frame, 0)
    frame.loc[[*train.index[:9], *validation.index[:3], *test.index[:5]], "u"] = 0.0
    frame.loc[[*train.index, *validation.index], "v"] = noise()["v"]
    report, *_ = trained(frame, epochs=1)
    first, second = report["tasks"].values()
    assert (first["labels"], first["positives"]) == (len(test), len(test) - 5)
    assert 0 <= first["auc"] <= 1
    assert second == {"labels": 0, "error": None, "explained": None}
    frame.loc[test.index, "u"] = 0.0
    report, *_ = trained(frame, epochs=1)
    found = report["tasks"]["u"]
    assert (found["positives"], found["auc"], found["calibration"]) == (0, None, None)


def test_a_target_of_one_value_in_the_rows_to_train_on_is_refused(trained):
    frame = noise()
    frame.loc[split_rows(frame, 0)[0].index, "v"] = 2.0
    with pytest.raises(ValueError, match=r"'v' must have two values .*Received: 1 in"):
        trained(frame)


def test_a_target_without_labels_in_the_rows_to_validate_on_is_refused(trained):
    frame = noise()
    frame.loc[split_rows(frame, 0)[1].index, "v"] = np.nan
    with pytest.raises(ValueError, match=r"'v' must have labels .* none in 22"):
        trained(frame)


def test_the_kind_of_a_target_is_that_of_all_its_values(trained):
    frame = noise().assign(u=np.arange(150) % 2)
    frame.loc[split_rows(frame, 0)[2].index, "u"] = 7.0
    report, model, _ = trained(frame, epochs=1)
    assert model.tasks[0].kind == "regression"
    assert report["tasks"]["u"]["error"] > 5


@pytest.mark.parametrize(
    ("scale", "shift", "text"),
    [
        (1e30, 0, r"target 'v' must have finite numbers up to 1e\+18.*Divide them"),
        (1.0, 1e9, r"target 'v' has numbers that float32 does not .*Subtract the mean"),
        (np.where(np.arange(150), 1, np.inf), 0, r"'v' must have finite numbers"),
    ],
)
def test_targets_that_float32_does_not_hold_are_named(trained, scale, shift, text):
    frame = noise()
    with pytest.raises(ValueError, match=text):
        trained(frame.assign(v=np.abs(frame["v"]) * scale + shift))


def test_rows_are_taken_in_time_and_the_column_is_left_out(tmp_path):
    frame = noise(100).assign(time=np.arange(100)[::-1])
    frame.to_csv(tmp_path / "t.csv", index=False)
    found, _ = read_table(Table(tmp_path / "t.csv", ["u"], ["a"], "time"))
    assert "time" not in found
    assert "a" not in found
    parts = split_rows(found, 0, in_order=True)
    # The first rows of the file are the last ones in time.
    wanted = frame[::-1]["b"].astype("float32").to_numpy()
    for part, rows in zip(parts, np.split(wanted, [70, 85]), strict=True):
        np.testing.assert_array_equal(part["b"], rows)


def test_the_rows_of_a_test_file_are_the_test(trained, tmp_path):
    frame = noise(100)
    frame[:20].to_csv(tmp_path / "test.csv", index=False)
    report, model, _ = trained(frame, table={"test": tmp_path / "test.csv"}, epochs=1)
    assert report["rows"] == [82, 18, 20]
    assert report["config"]["test"] == str(tmp_path / "test.csv")
    assert report["config"]["data"] == str(tmp_path / "table.csv")
    error = model.predict(frame[:20], verbose=0)["u"][:, 0] - frame["u"][:20]
    assert report["tasks"]["u"]["error"] == pytest.approx((error**2).mean() ** 0.5)
    frame.drop(columns="a").to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(ValueError, match=r"the columns of .* Received: a\."):
        trained(frame, table={"test": tmp_path / "test.csv"})


@pytest.mark.traced
def test_a_table_has_logs_and_half_precision(tmp_path):
    path, out = tmp_path / "t.csv", tmp_path / "run"
    noise(60).to_csv(path, index=False)
    options = ["--table", str(path), "--targets", "u", "--out", str(out), *QUIET]
    pytest.importorskip("tensorboard")
    try:
        train.main([*options, "--log-dir", str(tmp_path / "logs"), "--mixed-precision"])
    finally:
        keras.config.set_dtype_policy("float32")
    report = json.loads((out / "report.json").read_text())
    assert report["config"]["precision"] == "mixed_bfloat16"
    assert np.isfinite(report["val_task_loss"])
    assert list((tmp_path / "logs").rglob("*tfevents*"))


def test_a_table_of_few_rows_is_refused(trained):
    with pytest.raises(ValueError, match=r"at least 10 rows\. Received: 9\."):
        trained(noise(9))
