"""The command lines parse, train, and say what came out."""

import json
import pathlib

import keras
import pytest
import train
from jobs import run_python

from common.command_line import registered
from common.environment import device
from dselectk_keras.gates import GATES
from dselectk_keras.models import ARCHITECTURES

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
COMMANDS = (
    "train",
    "demo",
    "reproduce",
    "gatebench",
    "benchmark",
    "research.speed.sparse_decoder",
)
TINY = ["--num-tasks", "16", "--num-train", "64", "--epochs", "1", "--quiet"]


def run(command, *arguments):
    """Run a command line in this process."""
    return command.main([*map(str, arguments)])


# Each prints its help and ends; `keras` in the modules would mean seconds.
HELP = """
import contextlib, importlib, sys
for name in sys.argv[1:]:
    *folder, name = name.split(".")  # As a script, which does not import its folder.
    sys.path.insert(0, "/".join(folder) or ".")
    with contextlib.suppress(SystemExit):
        importlib.import_module(name).main(["--help"])
print("imported:", "keras" in sys.modules)
"""


@pytest.mark.backend_independent
def test_help_imports_no_keras_and_shows_no_empty_default():
    shown = run_python("-c", HELP, *COMMANDS, cwd=SCRIPTS)
    assert shown.count("usage: ") == len(COMMANDS)
    assert shown.endswith("imported: False\n")
    for empty in ("default: None", "default: {}", "default: []", "default: False"):
        assert empty not in shown
    options = " ".join(shown.split())
    assert "--gamma GAMMA width of DSelect-k's smooth step (default: 3.0)" in options
    assert "[--entropy ENTROPY ENTROPY] [--decide-by DECIDE_BY]" in options


@pytest.mark.backend_independent
def test_names_are_found_without_an_import():
    assert set(registered("GATES", "gates", "baselines")) == set(GATES)
    assert set(registered("ARCHITECTURES", "models", "baselines")) == set(ARCHITECTURES)


@pytest.mark.traced
@pytest.mark.backend_independent
def test_train_writes_a_run_and_says_where(tmp_path, capsys):
    out = tmp_path / "run"
    options = [*TINY, "--units", "3", "--log-dir", tmp_path / "logs"]
    backend = keras.backend.backend()
    assert run(train, "--backend", backend, *options, "--out", out) is None
    shown = capsys.readouterr().out
    assert shown.startswith(f"Training on {device()}.")
    config = json.loads((out / "metrics.json").read_text())["config"]
    assert config["units"] == [3]
    assert config["epochs"] == 1
    assert "mmoe dselect_k: " in shown
    assert "test loss per task" in shown
    assert f"Written to {out}." in shown
    logs = {path.parent.name for path in (tmp_path / "logs").rglob("events.out.*")}
    assert logs == {"train", "validation"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--gate", "hard"], "softmax"),
        (["--num-tasks", "5"], "num_tasks=5"),
        (["--gate-options", "{gamma"], "expected JSON such as '{\"name\": 1}', recei"),
        (["--gate-options", '{"gama": 1}'], "num_nonzeros, gamma, entropy_reg, "),
        (["--gate", "softmax", "--num-nonzeros=2"], "other gates. Received: --gate so"),
        (["--gate", "top_k", "--gamma", "2"], "--gamma is for other gates"),
        (["--gate", "softmax", "--gam", "1"], "unrecognized arguments: --gam 1"),
        (["--gate", "softmax", "--decide-by", "1"], "--decide-by is for other gates"),
        (["--architecture", "shared_bottom", "--gate", "top_k"], "--gate is for gates"),
        (["--architecture=single_task", "--per-example"], "--per-example is for gates"),
        (
            ["--architecture=shared_bottom", "--units", "8", "--num-experts=4"],
            "--num-experts is for gates",
        ),
        (["--targets", "click"], "--targets is for a --table."),
    ],
)
def test_what_cannot_be_trained_ends_with_a_message(tmp_path, capsys, arguments, text):
    with pytest.raises(SystemExit) as ended:
        run(train, *arguments, "--out", tmp_path / "run")
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert text in shown
    assert "Traceback" not in shown


def test_a_run_is_stopped_resumed_and_then_finished(tmp_path, capsys, monkeypatch):
    sizes = {"num_tasks": 16, "num_train": 64, "num_validation": 16, "num_test": 16}
    options = ["--data-options", json.dumps(sizes), "--epochs", "3"]
    options += ["--num-nonzeros", "2"]

    def start(out, *more):
        return run(train, *options, "--out", tmp_path / out, *more)

    start("whole", "--quiet")
    with monkeypatch.context() as patch:
        patch.setattr(keras.utils.Progbar, "update", interrupt_after_an_epoch)
        with pytest.raises(SystemExit) as ended:
            start("parts")
    assert ended.value.code == 130
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"{tmp_path / 'parts'} keeps the epochs that are done." in line
    assert line.endswith(f"--out {tmp_path / 'parts'} --resume")

    assert refusal(capsys, start, "parts", "--quiet") == "unfinished"
    assert refusal(capsys, start, "parts", "--seed", "1", "--resume") == "seed"
    for _ in range(2):
        start("parts", "--quiet", "--resume")
    assert refusal(capsys, start, "parts", "--quiet") == "finished"
    files = {path.name for path in (tmp_path / "whole").iterdir()}
    assert {path.name for path in (tmp_path / "parts").iterdir()} == files
    whole, parts = (
        json.loads((tmp_path / out / "metrics.json").read_text())
        for out in ("whole", "parts")
    )
    for name in ("test", "curve", "gates"):
        assert parts[name] == whole[name], name


def interrupt_after_an_epoch(self, current, values=None):
    if current == 2:
        raise KeyboardInterrupt


def refusal(capsys, start, *arguments):
    """Find which of these words the error of a run has."""
    with pytest.raises(SystemExit) as ended:
        start(*arguments)
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    return next(word for word in ("unfinished", "finished", "seed") if word in shown)


def test_a_damaged_result_is_neither_a_finished_run_nor_replaced(tmp_path, capsys):
    (tmp_path / "metrics.json").touch()
    for option in ("--quiet", "--resume"):
        with pytest.raises(SystemExit) as ended:
            run(train, "--out", tmp_path, option)
        assert ended.value.code == 2
        assert f"{tmp_path / 'metrics.json'} is damaged" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.json"]
