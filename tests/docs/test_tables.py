"""Files of UCI Adult, as they come, go through the pages' code."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal

pd = pytest.importorskip("pandas")
DOCS = Path(__file__).parents[2] / "docs"
LABELS = ["rich", "never_married"]


def code(page, kind="python"):
    """The Python blocks of a page, of those that run anywhere or of others."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"(?s)```{kind}\n(.*?)```", text)


def adult_row(rng):
    """A row of adult.data, in which two columns say the labels."""
    work, country = rng.choice(["Private", "?"]), rng.choice(["United-States", "?"])
    years, status = rng.integers(1, 16), rng.choice(["Never-married", "Divorced"])
    relation = "Own-child" if status == "Never-married" else "Unmarried"
    return (
        f"{rng.integers(17, 90)}, {work}, {rng.integers(10_000, 99_999)}, HS-grad, "
        f"{years}, {status}, Sales, {relation}, White, Male, 0, 0, 40, {country}, "
        f"{'>50K' if years > 9 else '<=50K'}"
    )


def adult(rng, rows):
    """Tables for training, validation and test, as the page reads the files."""
    data, test = ([adult_row(rng) for _ in range(n)] for n in (rows, rows // 4))
    # Both files end with an empty line, and that for the test differs.
    Path("adult.data").write_text("\n".join([*data, "", ""]))
    test = ["|1x3 Cross validator", *(f"{row}." for row in test), "", ""]
    Path("adult.test").write_text("\n".join(test))
    space = {"pd": pd}
    exec(next(block for block in code("tabular.md", "py") if "adult" in block), space)
    assert space["LABELS"] == LABELS
    return [space[name] for name in ("train", "validation", "test")]


def test_files_of_adult_are_read_as_they_come(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for table in adult(np.random.default_rng(0), 120):
        assert table[LABELS].mean().between(0.2, 0.8).all()
        assert table["workclass"].isna().mean() > 0.2
        # By the rule of the rows; a first line that is no row would be a gap.
        assert_equal(table["rich"], table["education-num"] > 9)
        assert_equal(table["never_married"], table["relationship"] == "Own-child")
    with pytest.raises(AssertionError, match="A label has one value only"):
        adult(np.random.default_rng(0), 4)


@pytest.mark.traced
@pytest.mark.backends("tensorflow", reason="TensorFlow looks strings up.")
def test_a_file_becomes_a_served_model(tmp_path, monkeypatch):
    import tensorflow as tf

    monkeypatch.chdir(tmp_path)
    train, validation, test = adult(np.random.default_rng(0), 2_000)
    space = {"train": train, "validation": validation, "test": test, "LABELS": LABELS}
    blocks = [each for each in code("tabular.md")[:6] if "TableModel(" not in each]
    imports, *blocks = blocks
    exec(imports.partition("keras.utils")[0], space)
    blocks[-1] = blocks[-1].partition("answers =")[0]
    for block in blocks:
        exec(block, space)
    inputs = space["encoder"].get_layer("table_encoder").raw_columns().input
    constant = {name for name in train if train[name].nunique(dropna=False) < 2}
    assert set(inputs) == {*test} - {*LABELS} - constant
    served = tf.saved_model.load("shop")
    row = {
        name: tf.constant(test[name].fillna("").tolist())
        if tensor.dtype == "string"
        else tf.constant(test[[name]].to_numpy("float32"))
        for name, tensor in inputs.items()
    }
    assert_close(served.serve(row), space["predicted"], rtol=1e-4, atol=1e-6)
    assert min(space["found"][f"{name}_AUC"] for name in LABELS) > 0.9


@pytest.fixture
def ids(tmp_path, monkeypatch):
    """The names that the code of docs/ids.md gives."""
    monkeypatch.chdir(tmp_path)
    space = {}
    exec(code("ids.md")[0], space)
    return space


@pytest.mark.filterwarnings("ignore:No value of the column 'work class' is known")
def test_ids_strings_and_lists_are_saved_with_the_model(ids):
    frame = ids["frame"][:20]
    saved = keras.saving.load_model("people.keras")
    wanted = ids["model"].predict(frame, verbose=0)
    assert_close(saved.predict(frame, verbose=0), wanted, rtol=1e-4, atol=1e-6)
    new = frame.assign(user=-1, viewed=[["new"]] * 20).assign(**{"work class": "new"})
    assert np.isfinite(saved.predict(new, verbose=0)["rich"]).all()


@pytest.mark.backends("tensorflow", reason="TensorFlow exports models.")
@pytest.mark.filterwarnings("ignore:In the future `np.object`:FutureWarning")
def test_ids_are_served_as_onnx(ids):
    pytest.importorskip("tf2onnx")
    pytest.importorskip("onnxruntime")
    wanted = ids["model"].predict(ids["frame"][:5], verbose=0)
    for block in code("ids.md", "py"):
        exec(block, ids)
    found = {name: ids[name] for name in ids["LABELS"]}
    assert_close(found, wanted, rtol=1e-4, atol=1e-6)
