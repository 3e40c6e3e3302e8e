"""The comparison with other libraries reads real files, and scores predictions."""

import gzip

import compare_libraries
import keras
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="The other libraries need torch."
)
ROW = "{n}, {work}, 7, MA, 13, {status}, Sales, Wife, White, F, {n}, {n}, {n}, US, "


def write(path, incomes):
    rng = np.random.default_rng(0)
    lines = [
        ROW.format(
            n=20 + i,
            work="Private" if i % 3 else "?",
            status="Never-married" if rng.random() < 0.5 else "Divorced",
        )
        + incomes[i % 2]
        for i in range(40)
    ]
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines))


def test_the_package_is_trained_and_scored_on_files_of_the_format(
    tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "adult"
    folder.mkdir()
    write(folder / "adult.data.gz", ["<=50K", ">50K"])
    write(folder / "adult.test.gz", ["<=50K.", ">50K."])
    monkeypatch.setattr(compare_libraries, "EPOCHS", 1)
    compare_libraries.main(["--data-dir", str(tmp_path), "--seeds", "2"])
    rows = capsys.readouterr().out.splitlines()[2:]
    ours = [row.split(" | ") for row in rows if row.startswith("| dselectk_keras")]
    names = "", *(f", {name}" for name in compare_libraries.OTHERS)
    assert [row[0] for row in ours] == [f"| dselectk_keras{name}" for name in names]
    for row in ours:
        assert 20 < int(row[1]) < 30
        assert sum("±" in cell for cell in row) == 2
        assert float(row[-1].strip(" |").replace(",", "")) > 0
