"""The comparison with other libraries reads real files, and scores predictions."""

import gzip
import importlib.metadata

import numpy as np
import pytest

from research.engine import Job, Results, Run
from research.studies.libraries import Libraries, count_lines

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


def test_the_package_is_trained_and_scored_on_files_of_the_format(tmp_path):
    folder = tmp_path / "adult"
    folder.mkdir()
    write(folder / "adult.data.gz", ["<=50K", ">50K"])
    write(folder / "adult.test.gz", ["<=50K.", ">50K."])
    experiment = Libraries(epochs=1, data_dir=str(tmp_path))
    ours = [name for name in experiment.arms if name.startswith("dselectk_keras")]
    assert len(ours) == 4
    for name in ours:
        (found,) = experiment.run(name, [Job(0, {})])
        assert 0 <= found["income"] <= 1
        assert 0 <= found["never_married"] <= 1
        assert found["examples_per_second"] > 0


def test_a_library_that_is_missing_is_named(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(ImportError, match="pip install torch-rechub"):
        Libraries().run("torch-rechub", [Job(0, {})])


def test_the_table_has_versions_medians_and_lines():
    experiment = Libraries(seeds=2)
    results = Results(experiment, "cpu")
    for arm in experiment.arms:
        for seed, speed in enumerate((100, 3000, 2000)):
            numbers = {"income": 0.8 + 0.1 * (seed > 0), "never_married": 0.5}
            numbers |= {"examples_per_second": speed, "version": "1.2"}
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    head, first, *_, last = experiment.table_libraries(results)
    assert head[0] == "library"
    assert first[0] == "dselectk_keras"
    assert first[2:] == ["0.8667 ± 0.0333", "0.5000 ± 0.0000", "2,000"]
    assert last[0] == "DeepCTR-Torch 1.2"
    assert 20 < int(first[1]) < 30


def test_lines_are_counted_without_comments_and_docstring():
    assert count_lines(two_lines) == 2


def two_lines(x):
    """Two lines."""

    # The first.
    x += 1
    return x
