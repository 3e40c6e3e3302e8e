"""The command line runs experiments, and writes where it may."""

import json

import pytest
from reproduce import main

from research import engine
from research.papers import EXPERIMENTS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder in which the command runs, without a file."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_smoke_run_leaves_the_committed_pages_alone(folder, capsys):
    assert main(["dselectk-fig4", "--preset", "smoke", "--data-dir", "/private"]) == 0
    page = folder / "build/smoke/reproduction/dselectk-fig4.md"
    assert "Written to build/smoke/reproduction/dselectk-fig4.md." in (
        capsys.readouterr().out
    )
    assert (page.parent / "index.md").exists()
    text = (folder / "build/smoke/results/dselectk-fig4_smoke.json").read_text()
    kept = json.loads(text)
    assert len(kept["runs"]) == 2
    # The folder of the data is not written: it is private.
    assert "/private" not in text + page.read_text()
    assert "--data-dir DATA" in kept["environments"][0]["command"]


def test_pages_are_written_again_of_what_was_run_to_its_end(tmp_path, capsys):
    where = ["--out", str(tmp_path / "r"), "--pages", str(tmp_path / "p")]
    main(["dselectk-fig4", *where])
    page = tmp_path / "p/dselectk-fig4.md"
    before = page.read_text()
    page.unlink()
    main(["dselectk-fig4", *where, "--pages-only"])
    assert page.read_text() == before
    results = engine.Results(
        EXPERIMENTS["dselectk-fig4"].presets()["cpu"], "cpu", tmp_path / "r"
    )
    results.runs.pop()
    results._write(results.path)
    main(["dselectk-fig4", "--pages-only", *where])
    assert "dselectk-fig4 has not been run to its end" in capsys.readouterr().out
    assert "fig4" not in (tmp_path / "p/index.md").read_text()


def test_runs_that_two_names_share_begin_anew_once(tmp_path, monkeypatch):
    begun = {}

    def note(experiment, *, preset, folder, fresh, **_):
        begun[experiment.name] = fresh
        return engine.Results(experiment, preset, folder)

    monkeypatch.setattr(engine, "reproduce", note)
    where = ["--out", str(tmp_path), "--pages", str(tmp_path)]
    main(
        ["mmoe-fig4", "mmoe-fig5", "mmoe-fig3", "--preset", "smoke", "--fresh", *where]
    )
    assert begun == {"mmoe-fig4": True, "mmoe-fig5": False, "mmoe-fig3": True}


def test_names_are_listed(capsys):
    assert main(["--list"]) == 0
    assert "dselectk-fig4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig9"], r"no experiment 'fig9'\. Known: .*dselectk-fig4"),
        (["dselectk-fig4", "--set", "gama=2"], "no field 'gama'. It has: .*gamma, poi"),
    ],
)
def test_what_cannot_be_run_ends_with_a_message(arguments, message):
    with pytest.raises(SystemExit, match=message):
        main(arguments)


def test_a_changed_field_is_recorded_under_a_name_of_its_own(folder):
    assert main(["dselectk-fig4", "--set", "gamma=2", "--set", "points=11"]) == 0
    base = folder / "build/cpu-gamma=2-points=11"
    path = base / "results/dselectk-fig4_cpu-gamma=2-points=11.json"
    config = json.loads(path.read_text())["config"]
    assert (config["gamma"], config["points"]) == (2.0, 11)
    assert "| gamma | `2.0` |" in (base / "reproduction/dselectk-fig4.md").read_text()
    assert not (folder / "docs").exists()


def test_the_papers_preset_leaves_the_committed_pages_alone(folder):
    assert main(["dselectk-fig4"]) == 0
    committed = {path: path.read_bytes() for path in (folder / "docs").rglob("*.*")}
    assert main(["dselectk-fig4", "--preset", "paper"]) == 0
    assert (folder / "build/paper/reproduction/dselectk-fig4.md").exists()
    found = {path: path.read_bytes() for path in (folder / "docs").rglob("*.*")}
    assert found == committed


def test_without_a_page_there_is_no_index(folder, capsys):
    assert main(["dselectk-fig4", "--set", "gamma=3", "--pages-only"]) == 0
    assert "dselectk-fig4 has not been run to its end" in capsys.readouterr().out
    assert not list(folder.rglob("index.md"))
