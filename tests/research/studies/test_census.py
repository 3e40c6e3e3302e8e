"""The test on census data agrees with itself, and with nothing else."""

import gzip
import json

import numpy as np
import pytest
from reproduce import main

from research.engine import Results, Run
from research.papers.data import census_income
from research.studies.census import Census

pytest.importorskip("pandas")
NAME = "census-income.test.gz"


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """A run on a small file in the format of the data set."""
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
    names = "shared_bottom", "mmoe, DSelectKGate", "mmoe, ChooseExperts"
    arms = {name: Census().arms[name] for name in names}
    monkeypatch.setattr(Census, "arms", arms)
    options = ["--data-dir", str(tmp_path), "--out", str(tmp_path), "--seeds", "2"]
    return ["census", *options, "--set", "epochs=2", "--set", "batch_size=60"]


def test_a_run_agrees_with_its_own_results_and_not_with_others(
    arguments, tmp_path, capsys
):
    main(arguments)
    assert capsys.readouterr().out.count("±") == 6
    (path,) = tmp_path.glob("census_*.json")
    kept = json.loads(path.read_text())
    assert "--data-dir DATA" in kept["environments"][0]["command"]
    for run in kept["runs"]:
        assert run["numbers"].keys() == {"income", "never_married"}
        assert all(0 <= area <= 1 for area in run["numbers"].values())
    before = path.read_text()
    assert main([*arguments, "--check"]) == 0
    assert path.read_text() == before

    kept["runs"][0]["numbers"]["income"] += 0.01  # The mean by 0.005.
    del kept["checksum"]
    path.write_text(json.dumps(kept))
    with pytest.raises(SystemExit, match="shared_bottom, income: ") as ended:
        main([*arguments, "--check"])
    assert "never_married" not in str(ended.value)


@pytest.mark.parametrize(
    ("mean", "differs"),
    [(0.9, False), (0.9029, False), (0.9031, True), (0.8969, True), (np.nan, True)],
)
def test_a_mean_may_differ_by_three_thousandths(mean, differs):
    both = []
    for areas in ((mean - 0.05, mean + 0.05), (0.9, 0.9)):
        results = Results(Census(), "cpu")
        for arm in results.experiment.arms:
            for seed, area in enumerate(areas):
                found = {"income": area, "never_married": 0.5}
                results.add(Run(arm, seed, {}, found, 1.0), {})
        both.append(results)
    assert len(both[0].drifted(both[1])) == differs * len(Census().arms)


def test_every_architecture_of_the_builder_is_an_arm():
    from dselectk_keras.models import architectures

    module = architectures.__name__
    own = [
        name
        for name, f in architectures.ARCHITECTURES.items()
        if f.__module__ == module
    ]
    assert list(Census().arms) == [*own, "mmoe, DSelectKGate", "mmoe, ChooseExperts"]
