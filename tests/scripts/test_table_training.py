"""`train.py --table` goes from a file of one's own to a model of its raw columns."""

import json

import keras
import numpy as np
import pandas as pd
import pytest
import train
from table_training import read_table, split_rows

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
@pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow looks up strings.")
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
    assert "Pass --overwrite" in capsys.readouterr().err


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
    options += ["--epochs", "30", "--units", "8", "--batch-size", "32"]
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


@pytest.mark.skipif(BACKEND == "tensorflow", reason="TensorFlow looks up strings.")
def test_strings_need_tensorflow(tmp_path, capsys):
    path = tmp_path / "adult.csv"
    adult().to_csv(path, index=False)
    options = ["--table", str(path), "--targets", "income", *QUIET]
    with pytest.raises(SystemExit):
        train.main([*options, "--out", str(tmp_path / "run")])
    assert "The column 'work class' has strings, and only" in capsys.readouterr().err


def test_labels_and_numbers_are_read(tmp_path):
    path = tmp_path / "adult.csv"
    frame = adult()
    frame.to_csv(path, index=False)
    found = read_table(path, ["income", "married"])
    assert list(found) == ["age", "education-num", "work class", "income", "married"]
    wanted = (frame["income"] == ">50K").to_numpy("float32")
    np.testing.assert_array_equal(found["income"], wanted)
    np.testing.assert_array_equal(found["married"], frame["married"].astype("float32"))
    assert found["age"].dtype == found["education-num"].dtype == "float32"
    assert found["work class"].isna().sum() == frame["work class"].isna().sum()
    parts = split_rows(found, seed=1)
    assert [len(part) for part in parts] == [140, 30, 30]
    assert sorted(np.concatenate([part.index for part in parts])) == list(range(200))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--targets", "marrid"], "must name columns of "),
        ([], "Received: none."),
        (["--targets", "work"], "The target 'work' must have two values, such as"),
        (["--targets", "same"], "Received 1: ['7']."),
        (["--targets", "married", "--resume"], "--resume is not for tables"),
        (["--targets", "married", "--data", "mnist"], "--data is not for tables"),
        (["--targets", "married", "--gate", "softmax", "--gamma", "2"], "other gates"),
    ],
)
def test_what_cannot_be_trained_ends_with_a_message(tmp_path, capsys, arguments, text):
    path = tmp_path / "adult.csv"
    adult().assign(same=7, work=["a", "b", "c", None] * 50).to_csv(path, index=False)
    with pytest.raises(SystemExit) as ended:
        train.main(["--table", str(path), *arguments, "--out", str(tmp_path / "run")])
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


def test_other_columns_and_files_are_refused(tmp_path):
    path = tmp_path / "dates.parquet"
    frame = adult()[["married"]]
    frame["day"] = pd.to_datetime("2020-01-01")
    pytest.importorskip("pyarrow")
    frame.to_parquet(path)
    with pytest.raises(ValueError, match="column 'day' must have numbers, or strings"):
        read_table(path, ["married"])
    with pytest.raises(ValueError, match=r"a \.csv or a \.parquet file"):
        read_table(tmp_path / "table.xls", ["married"])
