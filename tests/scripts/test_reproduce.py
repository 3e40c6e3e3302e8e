"""The command line runs experiments, and writes where it may."""

import importlib
import json
import pathlib

import pytest

import experiments
from papers import EXPERIMENTS

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"


@pytest.fixture
def main(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    return importlib.import_module("reproduce").main


def test_a_smoke_run_leaves_the_committed_pages_alone(
    main, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["dselectk-fig4", "--preset", "smoke", "--data-dir", "/private"]) == 0
    page = tmp_path / "build/smoke/reproduction/dselectk-fig4.md"
    assert "Written to build/smoke/reproduction/dselectk-fig4.md." in (
        capsys.readouterr().out
    )
    assert (page.parent / "index.md").exists()
    text = (tmp_path / "build/smoke/results/dselectk-fig4_smoke.json").read_text()
    kept = json.loads(text)
    assert len(kept["runs"]) == 2
    # Where the data lie is nobody's business.
    assert "/private" not in text + page.read_text()
    assert "--data-dir DATA" in kept["environments"][0]["command"]


def test_pages_can_be_written_again_without_a_run(main, tmp_path):
    where = ["--out", str(tmp_path / "r"), "--pages", str(tmp_path / "p")]
    main(["dselectk-fig4", *where])
    page = tmp_path / "p/dselectk-fig4.md"
    before = page.read_text()
    page.unlink()
    main(["dselectk-fig4", *where, "--pages-only"])
    assert page.read_text() == before


def test_what_has_not_been_run_to_its_end_gets_no_page(main, tmp_path, capsys):
    where = ["--out", str(tmp_path / "r"), "--pages", str(tmp_path / "p")]
    main(["dselectk-fig4", *where])
    results = experiments.Results(
        EXPERIMENTS["dselectk-fig4"].presets()["cpu"], "cpu", tmp_path / "r"
    )
    results.runs.pop()
    results._write(results.path)
    main(["dselectk-fig4", "--pages-only", *where])
    assert "dselectk-fig4 has not been run to its end" in capsys.readouterr().out
    assert "fig4" not in (tmp_path / "p/index.md").read_text()


def test_runs_that_two_names_share_begin_anew_once(main, tmp_path, monkeypatch):
    begun = {}

    def note(experiment, *, preset, folder, fresh, **_):
        begun[experiment.name] = fresh
        return experiments.Results(experiment, preset, folder)

    monkeypatch.setattr(experiments, "reproduce", note)
    where = ["--out", str(tmp_path), "--pages", str(tmp_path)]
    main(
        ["mmoe-fig4", "mmoe-fig5", "mmoe-fig3", "--preset", "smoke", "--fresh", *where]
    )
    assert begun == {"mmoe-fig4": True, "mmoe-fig5": False, "mmoe-fig3": True}


def test_names_are_listed(main, capsys):
    assert main(["--list"]) == 0
    assert "dselectk-fig4" in capsys.readouterr().out


def test_an_unknown_name_ends_with_the_known_ones(main):
    with pytest.raises(
        SystemExit, match=r"no experiment 'fig9'\. Known: .*dselectk-fig4"
    ):
        main(["fig9"])


OWN_EXPERIMENT = """
import dataclasses

from experiments import Experiment


@dataclasses.dataclass(frozen=True)
class Coin(Experiment):
    name = "coin"
    title = "a coin that is thrown"
    page = '''
| where | we expect | here | holds |
| --- | --- | --- | --- |
| our guess | The bent coin: more. | 6 | mean("bent", "heads") > mean("fair", "heads") |
'''
    throws: int = 10

    @property
    def arms(self):
        return {"fair": 0.5, "bent": 0.6}

    def run(self, arm, jobs):
        return [{"heads": self.throws * self.arms[arm]} for _ in jobs]
"""
OWN_GATE = """
from dselectk_keras import TopKGate

GATES = {"mine": lambda num_nonzeros, num_steps: TopKGate(num_nonzeros)}
"""


def test_an_experiment_of_another_module_gets_a_page(main, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_coin.py").write_text(OWN_EXPERIMENT)
    assert main(["--module", "own_coin.py"]) == 0
    page = tmp_path / "build/cpu/reproduction/coin.md"
    assert "# a coin that is thrown" in page.read_text()
    assert "**Reproduced.**" in page.read_text()
    assert "[coin](coin.md)" in (page.parent / "index.md").read_text()
    assert not (tmp_path / "docs").exists()
    # By its name as a module, and beside the papers' own.
    assert main(["coin", "--module", "own_coin", "--set", "throws=20"]) == 0
    assert (tmp_path / "build/cpu-throws=20/reproduction/coin.md").exists()


def test_gates_of_a_module_are_compared(main, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_gate.py").write_text(OWN_GATE)
    chosen = ["dselectk-fig6", "--preset", "smoke", "--module", "own_gate.py"]
    assert main(chosen) == 0
    base = tmp_path / "build/smoke-mine"
    kept = json.loads((base / "results/dselectk-table1-5_smoke-mine.json").read_text())
    assert kept["config"]["gates"] == ["mine"]
    arms = {run["arm"] for run in kept["runs"]}
    assert {"DSelect-k, static, alpha 0.5", "mine, static, alpha 0.5"} <= arms
    assert "mine" in (base / "reproduction/dselectk-fig6.md").read_text()
    with pytest.raises(SystemExit, match=r"own_gate.py has no experiments: name"):
        main(["--module", "own_gate.py"])
    with pytest.raises(SystemExit, match=r"mmoe-fig2 has no arms for the gates mine"):
        main(["mmoe-fig2", "--module", "own_gate.py"])


def test_a_changed_field_is_recorded_under_a_name_of_its_own(
    main, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["dselectk-fig4", "--set", "gamma=2", "--set", "points=11"]) == 0
    base = tmp_path / "build/cpu-gamma=2-points=11"
    path = base / "results/dselectk-fig4_cpu-gamma=2-points=11.json"
    config = json.loads(path.read_text())["config"]
    assert (config["gamma"], config["points"]) == (2.0, 11)
    assert "| gamma | `2.0` |" in (base / "reproduction/dselectk-fig4.md").read_text()
    assert not (tmp_path / "docs").exists()
    with pytest.raises(SystemExit, match=r"no field 'gama'. It has: .*gamma, points"):
        main(["dselectk-fig4", "--set", "gama=2"])


def test_the_papers_preset_leaves_the_committed_pages_alone(
    main, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["dselectk-fig4"]) == 0
    committed = {path: path.read_bytes() for path in (tmp_path / "docs").rglob("*.*")}
    assert main(["dselectk-fig4", "--preset", "paper"]) == 0
    assert (tmp_path / "build/paper/reproduction/dselectk-fig4.md").exists()
    found = {path: path.read_bytes() for path in (tmp_path / "docs").rglob("*.*")}
    assert found == committed


def test_without_a_page_there_is_no_index(main, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["dselectk-fig4", "--set", "gamma=3", "--pages-only"]) == 0
    assert "dselectk-fig4 has not been run to its end" in capsys.readouterr().out
    assert not list(tmp_path.rglob("index.md"))


def test_a_preset_that_an_experiment_lacks_ends_with_its_own(
    main, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_coins.py").write_text(OWN_EXPERIMENT)
    with pytest.raises(SystemExit, match=r"no preset 'smoke'. Known: cpu"):
        main(["--module", "own_coins.py", "--preset", "smoke"])
