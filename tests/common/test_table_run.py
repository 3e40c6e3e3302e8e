"""`train.py --table` goes from a file of one's own to a model of its raw columns."""

import json

import keras
import numpy as np
import pandas as pd
import pytest
import train

from common import rivals, table_run
from common.table_run import Table, train_table
from dselectk_keras import TableModel

BACKEND = keras.backend.backend()
SERVED = {"parameters": 2, "milliseconds": 3.0}


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


def noise(size=150):
    """Two targets that are noise."""
    draws = np.random.default_rng(0).normal(size=(size, 12))
    return pd.DataFrame(draws.round(4), columns=list("pqrsabcdefuv"))


@pytest.fixture
def short(monkeypatch):
    """Fits of two epochs."""
    fit = TableModel.fit

    def shorter(self, *arguments, **options):
        self.settings = {"epochs": 2, "units": (4,)}
        return fit(self, *arguments, **options)

    monkeypatch.setattr(TableModel, "fit", shorter)


@pytest.mark.traced
@pytest.mark.every_backend
def test_a_csv_file_becomes_a_served_model(tmp_path, capsys, short):
    path, out = tmp_path / "adult.csv", tmp_path / "run"
    adult().to_csv(path, index=False)
    options = ["--table", str(path), "--targets", "income", "married", "--quick"]
    options += ["--quiet", "--out", str(out)]
    train.main(options)
    shown = capsys.readouterr().out
    assert "income: 1 is '>50K', and 0 is '<=50K'." in shown
    assert "Left out" not in shown  # Quietly.
    assert "TableModel, 170 rows to train on" in shown
    assert "auc " in shown
    assert f"Written to {out}." in shown
    report = json.loads((out / "report.json").read_text(), parse_constant=pytest.fail)
    assert report["rows"] == [170, 30]
    assert report["tasks"]["married"]["labels"] < 30
    assert (out / "served").exists() == (BACKEND == "tensorflow")
    columns = {
        "age": [30.0, np.nan],
        "education-num": [9.0, 13.0],
        "work class": ["Private", "never seen"],
    }
    found = TableModel.load(out / "model.keras").predict(pd.DataFrame(columns))
    assert {*found["income"]} <= {">50K", "<=50K"}
    with pytest.raises(SystemExit):
        train.main(options)
    assert "overwrite it (--overwrite)" in capsys.readouterr().err


def test_rows_are_split_as_they_are_drawn(tmp_path):
    path, frame = tmp_path / "adult.csv", adult()
    frame["row"] = np.arange(200)
    frame.to_csv(path, index=False)
    frames = Table(path, ["income", "married"]).split(seed=1)
    assert [len(each) for each in frames] == [140, 30, 30]
    order = np.random.default_rng(1).permutation(200)
    np.testing.assert_array_equal(pd.concat(frames)["row"], order)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--targets", "marrid"], "must name columns of "),
        ([], "Received: none."),
        (["--targets", "same"], "Received: 1, such as 7, in 140 rows."),
        (["--targets", "married", "--data", "mnist"], "--data is not for a --table."),
        (["--targets", "married", "--drop", "agee"], "--drop must name columns of"),
        (["--targets", "married", "--split-by", "agee"], "by one of the columns age,"),
        (["--gate=top_k"], "--gate is not for a --table."),
        (["--targets", "married", "--resume"], "--resume is not for a --table."),
        (["--targets", "married", "--encoding", "none"], "must be text in its enc"),
        (["--targets", "married", "--hashed", "agee=3"], "`hashed` must name columns"),
        (
            ["--targets", "married", "--split-by", "work"],
            "numbers or dates without gap",
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


def trained(frame, folder, **table):
    """The report on a table."""
    frame.to_csv(folder / "table.csv", index=False)
    model = TableModel(members=1, time_limit=0, verbose=0)
    asked = Table(folder / "table.csv", ["u", "v"], **table)
    return train_table(model, asked, folder / "run", overwrite=True), model


def test_a_report_has_no_number_where_none_is(tmp_path, short):
    order = np.random.default_rng(0).permutation(150)
    frame = noise().assign(u=1.0)
    frame.loc[order[:60], "u"] = 0.0
    frame.loc[order[127:], "v"] = np.nan
    report, _ = trained(frame, tmp_path)
    assert report["tasks"]["v"] == {"labels": 0}
    # All labels of the test are 1.
    assert report["tasks"]["u"].keys() == {"labels", "log_loss", "accuracy"}


def test_rows_are_taken_in_time_and_the_column_is_left_out(tmp_path):
    frame = noise(100).assign(time=np.arange(100)[::-1] // 50, row=np.arange(100))
    frame.to_csv(tmp_path / "t.csv", index=False)
    frames = Table(tmp_path / "t.csv", ["u"], ["a"], "time").split(0)
    # The first rows of the file are the last ones in time; equal ones keep their order.
    wanted = [*range(50, 100), *range(50)]
    for each, rows in zip(frames, np.split(wanted, [70, 85]), strict=True):
        assert not {"time", "a"} & {*each}
        np.testing.assert_array_equal(each["row"], rows)


def test_the_rows_of_a_test_file_are_the_test(tmp_path, short):
    frame = noise(100)
    frame[:20].to_csv(tmp_path / "test.csv", index=False)
    report, model = trained(frame, tmp_path, test=tmp_path / "test.csv")
    assert report["rows"] == [100, 20]
    assert report["config"]["test"] == str(tmp_path / "test.csv")
    error = model.predict(frame[:20])["u"] - frame["u"][:20]
    assert report["tasks"]["u"]["rmse"] == pytest.approx((error**2).mean() ** 0.5)
    frame.drop(columns="a").to_csv(tmp_path / "test.csv", index=False)
    with pytest.raises(ValueError, match=r"the columns of .* Received: a\."):
        trained(frame, tmp_path, test=tmp_path / "test.csv")
    with pytest.raises(ValueError, match=r"at least 10 rows\. Received: 9\."):
        trained(noise(9), tmp_path)


@pytest.mark.traced
def test_a_table_has_logs_and_half_precision(tmp_path, short):
    path, out = tmp_path / "t.csv", tmp_path / "run"
    noise(60).to_csv(path, index=False)
    options = ["--table", str(path), "--targets", "u", "--out", str(out), "--quick"]
    options += ["--quiet", "--log-dir", str(tmp_path / "logs"), "--mixed-precision"]
    pytest.importorskip("tensorboard")
    try:
        train.main(options)
    finally:
        keras.config.set_dtype_policy("float32")
    report = json.loads((out / "report.json").read_text())
    assert report["config"]["precision"] == "mixed_bfloat16"
    assert np.isfinite(report["loss"])
    assert list((tmp_path / "logs").rglob("*tfevents*"))


@pytest.mark.parametrize("worse", [False, True])
def test_models_without_a_network_begin_a_report_where_they_win(
    tmp_path, capsys, monkeypatch, short, worse
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
