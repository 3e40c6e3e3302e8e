"""Files of UCI Adult and Census-Income, as they come, go through the pages' code."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest
from checks import assert_close

from papers.data import census_income

pd = pytest.importorskip("pandas")
DOCS = Path(__file__).parents[2] / "docs"
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
LABELS = ["rich", "married"]
ADULT = (
    "age workclass fnlwgt education education-num marital-status occupation "
    "relationship race sex capital-gain capital-loss hours-per-week native-country "
    "income"
)
CENSUS = list(census_income.__globals__["COLUMNS"])


def code(page):
    """The Python blocks of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"(?s)```python\n(.*?)```", text)


def adult(rng):
    """A row of adult.data."""
    work, country = rng.choice(["Private", "?"]), rng.choice(["United-States", "?"])
    status = rng.choice(["Never-married", "Divorced"])
    return (
        f"{rng.integers(17, 90)}, {work}, {rng.integers(10_000, 99_999)}, HS-grad, "
        f"{rng.integers(1, 16)}, {status}, Sales, Husband, White, Male, 0, 0, 40, "
        f"{country}, {rng.choice(['<=50K', '>50K'])}"
    )


def census(rng):
    """A row of census-income.data."""
    row = dict.fromkeys(CENSUS, "Not in universe") | {
        "age": str(rng.integers(90)),
        "detailed industry recode": str(rng.integers(50)),
        "instance weight": f"{rng.uniform(100, 2000):.2f}",
        "marital stat": rng.choice(["Never married", "Divorced"]),
        "migration code-change in msa": rng.choice(["?", "MSA to MSA"]),
        "citizenship": "Foreign born- Not a citizen of U S ",
        "year": rng.choice(["94", "95"]),
        "income": rng.choice(["- 50000.", "50000+."]),
    }
    return ", ".join(row.values())


FILES = {
    "adult": (adult, ADULT.split(), ">50K", "marital-status", "Never-married"),
    "census": (census, CENSUS, "50000+.", "marital stat", "Never married"),
}


@pytest.fixture(params=FILES)
def frame(request, tmp_path, monkeypatch):
    """The rows of a file, read as docs/tabular.md reads them."""
    monkeypatch.chdir(tmp_path)
    make_row, columns, rich, status, never_married = FILES[request.param]
    rng = np.random.default_rng(0)
    path = tmp_path / "table.data"
    path.write_text("".join(make_row(rng) + "\n" for _ in range(120)))
    frame = pd.read_csv(path, names=columns, skipinitialspace=True)
    frame["rich"] = frame.pop("income") == rich
    frame["married"] = frame.pop(status) == never_married
    assert frame[LABELS].mean().between(0.2, 0.8).all()
    return frame


def renamed(block):
    """A block about a shop, for these labels."""
    names = ("click", "rich"), ("purchase", "married"), ("epochs=6", "epochs=4")
    for old, new in names:
        block = block.replace(old, new)
    return block


@pytest.mark.traced
@pytest.mark.skipif(not ON_TENSORFLOW, reason="TensorFlow looks strings up.")
def test_a_file_becomes_a_served_model(frame):
    import tensorflow as tf

    train, validation, test = frame[:80], frame[80:100], frame[100:]
    space = {"train": train, "validation": validation, "test": test}
    imports, *blocks = map(renamed, code("tabular.md")[:5])
    exec(imports.partition("keras.utils")[0], space)
    blocks[-1] = blocks[-1].partition("answers =")[0]
    for block in blocks:
        exec(block, space)
    assert set(space["STRINGS"]) | set(space["NUMBERS"]) == {*frame} - {*LABELS}
    served = tf.saved_model.load("shop")
    row = {
        name: tf.constant(test[name].tolist())
        if name in space["STRINGS"]
        else tf.constant(test[[name]].to_numpy("float32"))
        for name in [*space["STRINGS"], *space["NUMBERS"]]
    }
    assert_close(served.serve(row), space["predicted"], rtol=1e-4, atol=1e-6)


def trained_on_ids(frame):
    """The names that the code of docs/ids.md gives."""
    imports, block = code("ids.md")[:2]
    space = {"frame": frame, "LABELS": LABELS}
    exec(imports.partition("keras.utils")[0], space)
    exec(block, space)
    return space


def test_a_file_becomes_ids_on_every_backend(frame):
    space = trained_on_ids(frame)
    ids = space["as_ids"](frame)
    new = space["as_ids"](frame.assign(**dict.fromkeys(space["STRINGS"], "new")))
    for name in space["STRINGS"]:
        assert sorted(set(ids[name])) == list(range(1, frame[name].nunique() + 1))
        assert (new[name] == 0).all()
    saved = keras.saving.load_model("people.keras")
    wanted = space["model"].predict(ids, verbose=0)
    found = saved.predict(ids, verbose=0)
    assert all(np.isfinite(wanted[name]).all() for name in LABELS)
    assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert np.isfinite(saved.predict(new, verbose=0)["rich"]).all()


@pytest.mark.skipif(not ON_TENSORFLOW, reason="TensorFlow exports models.")
@pytest.mark.filterwarnings("ignore:In the future `np.object`:FutureWarning")
def test_ids_are_served_as_onnx(frame):
    pytest.importorskip("tf2onnx")
    pytest.importorskip("onnxruntime")
    space = trained_on_ids(frame)
    wanted = space["model"].predict(space["as_ids"](frame[:5]), verbose=0)
    text = (DOCS / "ids.md").read_text(encoding="utf-8")
    for block in re.findall(r"(?s)```py\n(.*?)```", text):
        exec(block, space)
    assert_close({name: space[name] for name in LABELS}, wanted, rtol=1e-4, atol=1e-6)
