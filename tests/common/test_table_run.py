"""`train.py --table` goes from a file of one's own to a model of its raw columns."""

import itertools
import json

import keras
import numpy as np
import pandas as pd
import pytest
import train
from helpers import numpy

from common import rivals, table_run
from common.table_run import Table, encode_labels, read_parts, train_table
from common.training_run import TrainingRun
from dselectk_keras import TableModel

BACKEND = keras.backend.backend()
SERVED = {"experts": 1, "parameters": 2, "milliseconds": 3.0}
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
@pytest.mark.every_backend
def test_a_csv_file_becomes_a_served_model(tmp_path, capsys):
    path, out = tmp_path / "adult.csv", tmp_path / "run"
    adult().to_csv(path, index=False)
    options = ["--table", str(path), "--targets", "income", "married"]
    train.main([*options, *QUIET, "--out", str(out)])
    shown = capsys.readouterr().out
    assert "income: 1 is '>50K', and 0 is '<=50K'." in shown
    assert "Left out: nothing, which has no value in the rows to train on." in shown
    assert "mmoe dselect_k, 140 rows to train on" in shown
    assert "auc " in shown
    assert f"Written to {out}." in shown
    report = json.loads((out / "report.json").read_text())
    assert report["rows"] == [140, 30, 30]
    gates = np.array([report["gates"][name] for name in ("income", "married")])
    np.testing.assert_allclose(gates.sum(axis=1), 1.0, rtol=1e-5)
    assert 1 <= report["served"]["experts"] <= 4  # Two for each task, at most.
    assert report["served"]["experts"] == (gates.max(axis=0) > 0).sum()

    assert (out / "served").exists() == (BACKEND == "tensorflow")
    saved = keras.saving.load_model(out / "model.keras")
    frame = pd.DataFrame(
        {
            "age": [30.0, np.nan],
            "education-num": [9.0, 13.0],
            "work class": ["Private", "never seen"],
        }
    )
    wanted = saved.predict(frame, verbose=0)
    assert {name: each.shape for name, each in wanted.items()} == {
        "income": (2, 1),
        "married": (2, 1),
    }
    with pytest.raises(SystemExit):
        train.main([*options, *QUIET, "--out", str(out)])
    assert "overwrite it (--overwrite)" in capsys.readouterr().err


@pytest.mark.parametrize("gate", ["dselect_k", "softmax"])
def test_a_parquet_file_of_numbers_trains(tmp_path, capsys, gate):
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
    assert tasks["log_loss"] > 0


def test_targets_of_numbers_are_predicted_in_their_units(tmp_path, capsys):
    path, out = tmp_path / "homes.csv", tmp_path / "run"
    rng = np.random.default_rng(0)
    size = rng.uniform(20, 200, 600)
    frame = pd.DataFrame({"size": size, "sold": (size > 100).astype(int)})
    frame["price"] = 1e5 + 3e3 * size + 1e4 * rng.normal(size=600)
    frame.loc[:40, "price"] = np.nan
    frame.to_csv(path, index=False)
    options = ["--table", str(path), "--targets", "price", "sold", "--quiet"]
    options += ["--epochs", "20", "--units", "8", "--batch-size", "64"]
    options += ["--learning-rate", "0.05"]
    train.main([*options, "--num-nonzeros", "2", "--out", str(out)])
    shown = capsys.readouterr().out
    assert "price: numbers of mean 4" in shown
    assert "sold: " not in shown.partition("mmoe")[0]
    assert "  price                labels 81, rmse " in shown
    found = json.loads((out / "report.json").read_text())["tasks"]
    assert 5e3 < found["price"]["rmse"] < 4e4  # The noise has 1e4.
    assert 0.9 < found["price"]["explained"] < 1
    assert found["sold"]["auc"] > 0.9
    saved = keras.saving.load_model(out / "model.keras")
    guesses = saved.predict(pd.DataFrame({"size": [50.0, 150.0]}), verbose=0)["price"]
    np.testing.assert_allclose(guesses, [[2.5e5], [5.5e5]], rtol=0.15)


def test_rows_are_split_and_read_as_the_rows_to_train_on_say(tmp_path):
    path, frame = tmp_path / "adult.csv", adult()
    frame["row"] = np.arange(200)
    frame.to_csv(path, index=False)
    frames, targets = read_parts(Table(path, ["income", "married", "income"]), seed=1)
    assert [target.name for target in targets] == ["income", "married"]
    assert [len(each) for each in frames] == [140, 30, 30]
    order = np.random.default_rng(1).permutation(200)
    np.testing.assert_array_equal(pd.concat(frames)["row"], order)
    labels = encode_labels(pd.concat(frames), targets)
    wanted = frame.iloc[order].reset_index()
    np.testing.assert_array_equal(labels["income"], wanted["income"] == ">50K")
    np.testing.assert_array_equal(labels["married"], wanted["married"].astype(float))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--targets", "marrid"], "must name columns of "),
        ([], "Received: none."),
        (["--targets", "same"], "Received: 1, such as 7, in 140 rows."),
        (["--targets", "married", "--data", "mnist"], "--data is not for tables"),
        (["--targets", "married", "--drop", "agee"], "--drop must name columns of"),
        (["--targets", "married", "--split-by", "agee"], "by one of the columns age,"),
        (["--gate=top_k", "--learning-rate", "-1"], "finite number above 0"),
        (["--targets", "married", "--learning-rate", "1"], "--learning-rate is for a"),
        (["--quick", "--gate", "softmax"], "--quick is for a --table without --gate"),
        (["--targets", "married", "--encoding", "none"], "must be text in its enc"),
        (["--targets", "married", "--hashed", "agee=3"], "`hashed` must name columns"),
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
    monkeypatch.setattr(table_run, "train_table", lambda *_, **__: {})
    monkeypatch.setattr(table_run, "describe", str)
    given = ["--num-nonzeros", "4", "--num-experts", "4"]
    train.main(["--table", "t.csv", "--targets", "y", *given])
    assert "Note: with num_nonzeros=4 of 4 experts" in capsys.readouterr().err


def noise(size=150):
    """Two targets that are noise: a model gets worse with each epoch."""
    draws = np.random.default_rng(0).normal(size=(size, 12))
    return pd.DataFrame(draws.round(4), columns=list("pqrsabcdefuv"))


def drawn(frame, seed=0):
    """The rows of the parts of a table."""
    order = np.random.default_rng(seed).permutation(len(frame))
    ends = [int(0.7 * len(frame)), int(0.85 * len(frame))]
    return np.split(order, ends)


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A function that trains on a table, and returns report, model and folder."""
    monkeypatch.setattr(table_run, "serve", lambda *_: {})

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
        ({"gate": "dselect_k", "num_nonzeros": 2, "decide_by": 0.0}, 0),
        # Gates decide within the first of two epochs.
        ({"gate": "dselect_k", "num_nonzeros": 2, "decide_by": 0.3}, 1),
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
    frames, targets = read_parts(Table(folder.parent / "table.csv", ["u", "v"]), 0)
    labels = encode_labels(frames[1], targets)
    found = model.evaluate(frames[1], labels, verbose=0, return_dict=True)
    assert report["val_task_loss"] == pytest.approx(found["task_loss"], rel=1e-4)


@pytest.mark.parametrize("gate", ["chosen", "dselect_k"])
def test_a_run_that_is_stopped_ends_as_an_unbroken_one(tmp_path, monkeypatch, gate):
    monkeypatch.setattr(table_run, "serve", lambda *_: {})
    noise(90).to_csv(tmp_path / "table.csv", index=False)
    table = tmp_path / "table.csv", ["u", "v"]
    # Four batches per epoch, in another order each time.
    settings = {"num_experts": 4, "num_nonzeros": 2, "epochs": 5, "batch_size": 16}
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
    monkeypatch.setattr(table_run, "serve", lambda *_: {})
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
    # At its end are the sums over the tasks, and no metric of one.
    end = capsys.readouterr().out
    assert ("val_task_loss" in end) == progress
    assert "u_loss" not in end


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
    rows = np.isin(np.arange(len(frame)), drawn(frame)[0])
    report, *_ = trained(frame.assign(w=column(rows)), epochs=1)
    for task in report["tasks"].values():
        assert 0.5 < task["rmse"] < 10  # The labels have a deviation of 1.


def test_a_string_that_is_the_same_in_all_rows_is_left_out(trained, capsys):
    frame = noise().assign(w="a")
    frame.loc[drawn(frame)[2], "w"] = "b"
    _, model, _ = trained(frame, epochs=1)
    assert "w" not in model.input
    assert "Left out: w, which has one value in the rows to" in capsys.readouterr().out


def test_a_report_has_no_number_where_none_is(trained):
    frame = noise().assign(u=1.0, v=np.nan)
    train, validation, test = drawn(frame)
    frame.loc[[*train[:9], *validation[:3], *test[:5]], "u"] = 0.0
    frame.loc[[*train, *validation], "v"] = noise()["v"]
    report, *_ = trained(frame, epochs=1)
    first, second = report["tasks"].values()
    assert first["labels"] == len(test)
    assert 0 <= first["auc"] <= 1
    assert second == {"labels": 0}
    frame.loc[test, "u"] = 0.0
    report, *_ = trained(frame, epochs=1)
    found = report["tasks"]["u"]
    assert (found["auc"], found["explained"]) == (None, None)


def test_a_target_of_one_value_in_the_rows_to_train_on_is_refused(trained):
    frame = noise()
    frame.loc[drawn(frame)[0], "v"] = 2.0
    with pytest.raises(ValueError, match=r"'v' must have two values .*Received: 1, "):
        trained(frame)


def test_a_target_without_labels_in_the_rows_to_validate_on_is_refused(trained):
    frame = noise()
    frame.loc[drawn(frame)[1], "v"] = np.nan
    with pytest.raises(ValueError, match=r"'v' must have labels .* none in 22"):
        trained(frame)


def test_kinds_and_weights_of_targets_are_those_of_the_rows_to_train_on(
    trained, capsys
):
    frame = noise().assign(u=np.arange(150) % 2)
    train, _, test = drawn(frame)
    frame.loc[test, "u"] = 7.0
    frame.loc[test, "v"] *= 100
    report, model, _ = trained(frame, epochs=1)
    assert [task.kind for task in model.tasks] == ["binary", "regression"]
    assert model.tasks[1].weight == pytest.approx(1 / frame["v"][train].var(ddof=0))
    assert report["tasks"]["u"]["labels"] == 0
    assert "u: 23 labels, such as 7" in capsys.readouterr().out


def test_a_run_is_not_resumed_with_another_content_of_the_table(trained):
    frame = noise(40)
    *_, folder = trained(frame, epochs=1)
    frame.loc[0, "a"] = 5.0
    table = folder.parent / "table.csv"
    frame.to_csv(table, index=False)
    settings = {"units": (8,), "num_experts": 4, "epochs": 1, "batch_size": 64}
    asked = TrainingRun(**settings), table, ["u", "v"], folder
    with pytest.raises(ValueError, match="other settings: contents of the table diff"):
        train_table(*asked, progress=False, resume=True)


def test_the_contents_of_a_folder_of_tables_are_those_of_all_its_files(tmp_path):
    folder = tmp_path / "all"
    folder.mkdir()
    digests = set()
    for name in ("a.csv", "b.csv", "b.csv"):
        (folder / name).write_text(f"{name}{len(digests)}")
        digests.add(*Table(folder, ["y"]).config["contents of the table"])
    assert len(digests) == 3


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
    frame = noise(100).assign(time=np.arange(100)[::-1] // 50, row=np.arange(100))
    frame.to_csv(tmp_path / "t.csv", index=False)
    frames, _ = read_parts(Table(tmp_path / "t.csv", ["u"], ["a"], "time"), 0)
    # The first rows of the file are the last ones in time; equal ones keep their order.
    wanted = [*range(50, 100), *range(50)]
    for each, rows in zip(frames, np.split(wanted, [70, 85]), strict=True):
        assert not {"time", "a"} & {*each}
        np.testing.assert_array_equal(each["row"], rows)


def test_the_rows_of_a_test_file_are_the_test(trained, tmp_path):
    frame = noise(100)
    frame[:20].to_csv(tmp_path / "test.csv", index=False)
    report, model, _ = trained(frame, table={"test": tmp_path / "test.csv"}, epochs=1)
    assert report["rows"] == [82, 18, 20]
    assert report["config"]["test"] == str(tmp_path / "test.csv")
    assert report["config"]["data"] == str(tmp_path / "table.csv")
    error = model.predict(frame[:20], verbose=0)["u"][:, 0] - frame["u"][:20]
    assert report["tasks"]["u"]["rmse"] == pytest.approx((error**2).mean() ** 0.5)
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


def quick_fit(fit):
    """A `fit` of two epochs."""

    def shorter(self, *arguments, **options):
        self.settings = {"epochs": 2, "units": (4,)}
        return fit(self, *arguments, **options)

    return shorter


@pytest.mark.parametrize("worse", [False, True])
def test_models_without_a_network_begin_a_report_where_they_win(
    tmp_path, capsys, monkeypatch, worse
):
    pytest.importorskip("sklearn")
    monkeypatch.setattr(table_run, "serve", lambda *_: SERVED)
    frame = noise(60).assign(u=np.where(noise(60)["p"] > 0, "up", "down"))
    frame["day"] = pd.date_range("2020-01-01", periods=60).astype(str)
    frame.to_csv(tmp_path / "t.csv", index=False)
    error = 1e9 if worse else 0.0

    def train_rivals(train, validation, targets, seed):
        days = {f"day_{part}" for part in ("days", "month", "weekday", "hour")}
        assert {*train} == {*validation} == {*frame} - {"day"} | days
        assert (len(train), len(validation), targets, seed) == (42, 9, ["u", "v"], 0)
        found = rivals.Rival({}, 0.5, None, lambda x: np.zeros(len(x)))
        other = found._replace(loss=0.6)
        return {each: {"linear model": found, "extra trees": other} for each in targets}

    monkeypatch.setattr(rivals, "rivals", train_rivals)
    monkeypatch.setattr(rivals, "error", lambda *_: error)
    monkeypatch.setattr(TableModel, "fit", quick_fit(TableModel.fit))
    options = ["--table", str(tmp_path / "t.csv"), "--targets", "u", "v", "--compare"]
    train.main([*options, "--quick", "--quiet", "--out", str(tmp_path / "run")])
    shown = capsys.readouterr().out.splitlines()
    first, second, third = (x for x in shown if " error by " in x or " rows " in x)
    which = "no lower" if worse else "lower"
    assert first.startswith(f"u: {which} error by linear model, {error:.4g} for ")
    assert second.startswith(f"v: {which} error by linear model, {error:.4g} for ")
    assert third.startswith("TableModel, 51 rows to train on")
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["without a network"]["u"][0] == "linear model"
    loaded = TableModel.load(tmp_path / "run" / "model.keras")
    assert set(loaded.predict(frame)["u"]) <= {"up", "down"}
    assert len(loaded.classes_["u"]) == 2
