"""The benchmark on census data agrees with itself, and with nothing else."""

import gzip
import json

import census_benchmark
import numpy as np
import pytest

from papers.data import census_income

pytest.importorskip("pandas")
NAME = "census-income.test.gz"


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """The folder of a small file in the format of the data set, and a short run."""
    loader = census_income.__globals__
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(300):
        age = int(rng.integers(18, 90))
        row = dict.fromkeys(loader["COLUMNS"], "Not in universe")
        row |= dict.fromkeys(loader["NUMERIC"], "0") | {"age": str(age)}
        row["migration code-change in msa"] = rng.choice(["?", "MSA to MSA"])
        row["marital stat"] = "Never married" if rng.random() < 0.5 else "Divorced"
        row["income"] = "50000+." if age * rng.random() > 30 else "- 50000."
        lines.append(", ".join(row.values()))
    (tmp_path / NAME).write_bytes(gzip.compress("\n".join(lines).encode()))
    monkeypatch.setitem(loader["NUM_ROWS"], NAME, len(lines))
    monkeypatch.setattr(census_benchmark, "EPOCHS", 2)
    monkeypatch.setattr(census_benchmark, "BATCH_SIZE", 60)
    monkeypatch.setattr(census_benchmark, "SEEDS", (0, 1))
    arms = ("shared_bottom", census_benchmark.DECIDED, census_benchmark.CHOSEN)
    monkeypatch.setattr(census_benchmark, "ARMS", arms)
    return ["--data-dir", str(tmp_path), "--results", str(tmp_path)]


def test_a_run_agrees_with_its_own_results_and_not_with_others(
    arguments, tmp_path, capsys
):
    census_benchmark.main([*arguments, "--write"])
    assert capsys.readouterr().out.count("±") == 6
    path = tmp_path / "census_benchmark.json"
    results = json.loads(path.read_text())
    assert results["command"].endswith(f"--results {tmp_path} --write")
    assert "--data-dir DATA" in results["command"]
    assert results["about"]["device"]
    for arm in census_benchmark.ARMS:
        for name in ("income", "never_married"):
            assert len(results["arms"][arm][name]) == 2
            assert all(0 <= area <= 1 for area in results["arms"][arm][name])
    census_benchmark.main(arguments)

    results["arms"]["shared_bottom"]["income"][0] += 0.01  # The mean by 0.005.
    path.write_text(json.dumps(results))
    with pytest.raises(SystemExit, match="shared_bottom, income: AUC ") as ended:
        census_benchmark.main(arguments)
    assert "never_married" not in str(ended.value)


@pytest.mark.parametrize(
    ("mean", "differs"),
    [(0.9, False), (0.9029, False), (0.9031, True), (0.8969, True), (np.nan, True)],
)
def test_a_mean_may_differ_by_three_thousandths(mean, differs):
    found = {"arm": {"income": [mean - 0.05, mean + 0.05]}}
    committed = {"arm": {"income": [0.9, 0.9]}}
    assert len(census_benchmark.differences(found, committed)) == differs


def test_every_architecture_of_the_builder_is_an_arm():
    from dselectk_keras.models import architectures

    module = architectures.__name__
    own = [
        name
        for name, f in architectures.ARCHITECTURES.items()
        if f.__module__ == module
    ]
    assert list(census_benchmark.ARMS) == [
        *own,
        "mmoe, DSelectKGate",
        "mmoe, ChooseExperts",
    ]
