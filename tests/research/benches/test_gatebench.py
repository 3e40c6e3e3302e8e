"""The command, and the pages of both benches."""

import dataclasses
import importlib.util
import json

import gatebench
import keras
import numpy as np
import pytest

from research.benches import packaged
from research.benches import page as bench_page
from research.benches.bench import COMMITTED, rows_of
from research.benches.gates import arms, bench, page, problems, training
from research.benches.gates.bench import Gates
from research.benches.routers import page as routers_page
from research.benches.routers.bench import Routers

needs_jax = pytest.mark.backends("jax", reason="the runs are one program of JAX")
independent = pytest.mark.backend_independent
NAME = "correlation 0.5"


def refused(capsys, *arguments):
    """The message of a command that is refused."""
    with pytest.raises(SystemExit) as ended:
        gatebench.main([*arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err.partition(": ")[2]


@independent
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--mine", "t.csv", "--problems", "adult"], "--problems is not for --mine"),
        (["--mine", "t.csv", "--per-example"], "--per-example is not for --mine"),
        (["--draws", "0"], "must be a positive integer, received 0"),
        (["--gates", "b.py"], "--gates is for --mine"),
        (["--per-example", "--epochs", "3"], "--epochs is not for --per-example"),
        (["--pages-only", "--draws", "2"], "--draws is not for --pages-only"),
        (["--problems", "adult", "--draws", "9"], "must be at most 5. Received: 9."),
    ],
)
def test_options_that_would_do_nothing_are_refused(tmp_path, capsys, arguments, text):
    backend = ["--backend", keras.backend.backend()]
    backend *= not {"--pages-only", "--per-example"} & {*arguments}
    assert text in refused(capsys, *arguments, *backend, "--out", str(tmp_path))
    assert not list(tmp_path.glob("*.md"))


@independent
def test_without_jax_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"no package `jax`(.|\n)*\.\[jax\]"):
        gatebench.main([])


@pytest.fixture
def untrained(monkeypatch):
    """Give arms results without a training, some infinite; return what was run."""
    ran = []

    def run(self, arm, jobs):
        ran.extend((self.problem.name, arm, job.seed) for job in jobs)
        numbers = {"test": 0.1 + jobs[0].seed, "choices": [1.0, np.inf]}
        settings = {"settings": {"rate": 0.1}, "epoch": 3}
        return [dict(settings, **numbers) for _ in jobs]

    monkeypatch.setattr(Gates, "run", run)
    monkeypatch.setattr(bench_page, "write", lambda *_: "")
    return ran


@independent
def test_problems_whose_package_is_lacking_are_left_out_or_refused(
    tmp_path, monkeypatch, capsys, untrained
):
    monkeypatch.setattr(packaged, "is_installed", lambda package: package != "qm9pack")
    backend = ["--backend", keras.backend.backend(), "--out", str(tmp_path)]
    assert refused(capsys, "--problems", "molecules", *backend).startswith(
        "molecules: The data must be installed with `qm9pack`. Received: no such"
    )
    known = {name: problems.PROBLEMS[name] for name in ("adult", "molecules")}
    monkeypatch.setattr(Gates, "problems", known)
    gatebench.main(["--dry-run", *backend])
    assert "molecules: " in capsys.readouterr().out
    gatebench.main(backend)
    assert {problem for problem, *_ in untrained} == {"adult"}
    assert "Without molecules: The data" in capsys.readouterr().out
    with pytest.raises(ImportError, match=r"`qm9pack`.*\.\[bench\]"):
        packaged.molecules((1, 1, 1))(0, ".")


@independent
def test_only_what_is_lacking_is_run(tmp_path, untrained, capsys, monkeypatch):
    count = len(Gates.of(NAME).arms)
    given = ["--problems", NAME, "--out", str(tmp_path)]
    given += ["--backend", keras.backend.backend()]
    gatebench.main([*given, "--dry-run"])
    assert capsys.readouterr().out.startswith(f"{NAME}: {5 * count} runs, ")
    for draws in (1, 2):
        gatebench.main([*given, "--draws", str(draws)])
    assert len(untrained) == 2 * count
    gatebench.main([*given, "--draws", "3", "--dry-run"])
    assert f"{NAME}: {count} runs, " in capsys.readouterr().out
    # Infinity is null in the file only.
    (path,) = (tmp_path / "gates").iterdir()
    json.loads(path.read_text(), parse_constant=pytest.fail)
    row, *rows = rows_of(Gates.read(tmp_path).values())
    assert len(rows) + 1 == 2 * count
    assert (row["test"], row["choices"]) == (0.1, [1.0, np.inf])
    assert (row["settings"], row["family"]) == ({"rate": 0.1}, "correlated tasks")
    text = refused(capsys, *given, "--epochs", "1")
    assert "runs of another config: epochs differ" in text
    gatebench.main([*given, "--epochs", "1", "--draws", "1", "--fresh"])
    (found,) = Gates.read(tmp_path).values()
    assert found.experiment.epochs == 1
    assert {run.seed for run in found.runs} == {0}
    monkeypatch.setattr(keras.backend, "backend", lambda: "numpy")
    with pytest.raises(ValueError, match=r"of the backend .* Received: numpy\. Pass"):
        found.experiment.results(tmp_path / "gates")
    assert not found.experiment.results(tmp_path / "gates", fresh=True).runs


@independent
@pytest.mark.parametrize(("kind", "text"), [(Gates, page), (Routers, routers_page)])
def test_the_committed_page_has_the_committed_results(kind, text):
    committed = (COMMITTED / f"{text.NAME}.md").read_text(encoding="utf-8")
    assert committed == text.text(kind.committed())
    for results in kind.committed().values():
        assert results.experiment.problem.name in kind.problems


@independent
def test_a_page_without_results_is_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"routers has no results\."):
        gatebench.main(["--per-example", "--pages-only", "--out", str(tmp_path)])


@needs_jax
@pytest.mark.traced
@pytest.mark.usefixtures("two_choices")
def test_a_short_run_writes_a_page_and_is_continued(tmp_path, monkeypatch):
    short = {"rates": (0.03,), "decays": (0.3,)}
    problem = dataclasses.replace(problems.PROBLEMS[NAME], **short)
    monkeypatch.setitem(problems.PROBLEMS, NAME, problem)
    for arm in (*arms.NORMALIZED, "COMET", "Top-k, wide start", "DSelect-k, entropy"):
        monkeypatch.delitem(bench.ARMS, arm)  # To save time.
    trainers, make = [], training.GateTrainer
    monkeypatch.setattr(bench, "GateTrainer", lambda *a: trainers.append(a) or make(*a))
    arguments = ["--problems", NAME, "--draws", "1", "--epochs", "3"]
    arguments += ["--out", str(tmp_path), "--data-dir", "/private"]
    gatebench.main(arguments)
    (path,) = (tmp_path / "gates").iterdir()
    kept = json.loads(path.read_text())
    # A program is compiled once.
    assert len(trainers) == len({each[2:] for each in trainers})
    text = (tmp_path / "gatebench.md").read_text()
    assert "/private" not in json.dumps(kept) + text
    assert "| Top-k, noisy | sparse | " in text
    assert (tmp_path / "images" / "gatebench.png").exists()
    rows = {run["arm"]: run["numbers"] for run in kept["runs"]}
    assert all(np.isfinite(row["test"]) for row in rows.values())
    settings = {run["arm"]: run["settings"] for run in kept["runs"]}
    assert settings["random"] == {"rate": 0.03, "decay": 0.3}
    assert settings[arms.BEST].items() > settings["random"].items()
    choices = rows[arms.BEST]["choices"]
    assert choices[0] == pytest.approx(rows["random"]["test"], rel=1e-4)
    assert rows[arms.BEST]["test"] == choices[settings[arms.BEST]["choice"]]
    assert rows["softmax"]["untuned"] == rows["softmax"]["test"]
    gatebench.main(arguments)
    assert json.loads(path.read_text()) == kept
