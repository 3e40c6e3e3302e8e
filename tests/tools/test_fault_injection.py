"""A kill in CI; `scripts/tools/fault_injection.py` itself injects many."""

import subprocess

import pytest

from tools import fault_injection

pytestmark = pytest.mark.backend_independent


def test_a_killed_training_goes_on_as_if_nothing_had_happened(capsys):
    fault_injection.main(["--backend", "torch", "--kills", "0", "--writes", "1"])
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| kill -9 at a random moment, torch | 0 | nothing |",
        "| kill -9 at a random write, torch | 1 | nothing |",
    ]


@pytest.mark.parametrize(
    ("train", "after", "found"),
    [
        ("print('digest')", None, "digest"),
        ("time.sleep(60)", 0.1, None),
        ("os.kill(os.getpid(), 9)", None, None),
        ("folder.mkdir(parents=True); sys.exit(3)", None, ""),
    ],
)
def test_an_attempt_says_how_a_training_ended(
    tmp_path, monkeypatch, train, after, found
):
    monkeypatch.setattr(fault_injection, "__file__", script(tmp_path, train))
    digest, seconds = fault_injection.attempt("torch", tmp_path / "run", after)
    assert digest == found
    assert 0 < seconds < 30


def test_an_attempt_that_fails_otherwise_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(fault_injection, "LIMIT", 1)
    monkeypatch.setattr(fault_injection, "__file__", script(tmp_path, "time.sleep(60)"))
    with pytest.raises(subprocess.TimeoutExpired):
        fault_injection.attempt("torch", tmp_path / "run")
    monkeypatch.setattr(fault_injection, "__file__", script(tmp_path, "sys.exit(3)"))
    with pytest.raises(RuntimeError, match="A training ended with the code 3"):
        fault_injection.attempt("torch", tmp_path / "run")


def script(folder, train):
    """The path of a script in place of the training."""
    path = folder / "train.py"
    path.write_text(
        "import os, pathlib, sys, time\n"
        "folder = pathlib.Path(sys.argv[-2])\n"
        f"print('training', flush=True)\n{train}\n"
    )
    return str(path)
