"""The command line runs experiments, and writes where it may."""

import importlib
import json
import pathlib

import pytest

from dselectk_keras import experiments
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
    with pytest.raises(SystemExit, match=r"no 'fig9'\. Known: .*dselectk-fig4"):
        main(["fig9"])
