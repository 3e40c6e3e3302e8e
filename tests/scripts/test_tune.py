"""A study survives the death of its processes, in each database."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import jobs
import optuna
import pytest
import tune

from common.set_fields import set_fields
from common.spaces import space_of
from common.training_run import TrainingRun

pytestmark = [
    pytest.mark.backend_independent,
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
]

SIZES = {"num_tasks": 16, "num_train": 64, "num_validation": 16, "num_test": 16}
RUN = ["epochs=2", "num_nonzeros=2", f"data_options={SIZES}", "batch_size=32"]
SPACE = '{"gamma": [1.0, 3.0], "units": [[4], [8]]}'
STATES = optuna.trial.TrialState


def arguments(folder, *more, space=SPACE):
    given = [] if space is None else ["--space", space]
    return [*map(str, (folder, *given, "--set", *RUN, *more))]


@pytest.fixture
def search(tmp_path, monkeypatch, capsys):
    """Runs the command line, and returns its study and what it prints."""
    studies, opened = [], tune.tune
    monkeypatch.setattr(
        tune, "tune", lambda o: studies.append(opened(o)) or studies[-1]
    )

    def search(*more, space=SPACE):
        tune.main(arguments(tmp_path / "study", *more, space=space))
        return studies[-1], json.loads(capsys.readouterr().out)

    yield search
    for study in studies:
        close(study)


def close(study):
    study._storage.remove_session()
    study._storage._backend.engine.dispose()


@pytest.fixture
def trainings(monkeypatch):
    """In place of trainings: the runs, whose losses a test gives as a function."""
    runs = []

    def train(self, folder, **_):
        runs.append(self)
        loss, gates = train.result(self)
        curve = {"val_task_loss": [loss]}
        return {"curve": curve, "gates": gates, "test_task_loss": 2 * loss}

    train.result = lambda run: (run.gamma + sum(run.units or ()), {})
    train.runs = runs
    monkeypatch.setattr(TrainingRun, "run", train)
    return train


@pytest.fixture
def postgresql(tmp_path):
    """The URL of a database of a PostgreSQL server on the loopback device."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    servers = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    found = shutil.which("postgres") or (servers and servers[-1] / "postgres")
    if not found:
        pytest.skip("There is no PostgreSQL server on this machine.")
    binaries = pathlib.Path(found).resolve().parent
    # The server refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    place = pathlib.Path("/tmp", f"tune_{os.getpid()}") if user else tmp_path / "server"
    place.mkdir()
    if user:
        shutil.chown(place, user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "user": user}
    command = [binaries / "initdb", "-D", place / "data", "-U", "tune", "-A", "trust"]
    jobs.run(*command, "--no-sync", cwd=place, user=user)
    command = [binaries / "postgres", "-D", place / "data", "-h", "127.0.0.1", "-F"]
    command += ["-p", str(port), "-k", place]
    question = [binaries / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]

    def ready():
        with jobs.started(*question, cwd=place, **quiet) as process:
            return process.wait(timeout=60) == 0

    try:
        with jobs.started(*command, cwd=place, **quiet) as server:
            wait_for(ready, server)
            yield f"postgresql+psycopg://tune@127.0.0.1:{port}/postgres"
            server.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(timeout=60)
    finally:
        shutil.rmtree(place)


def wait_for(found, process):
    """Call a function until it finds something, or fail."""
    left = jobs.LIMIT
    while not (result := found()):
        assert process.poll() is None, "The process has ended."
        assert left > 0, f"Nothing after {jobs.LIMIT} seconds."
        time.sleep(0.1)
        left -= 0.1 / jobs.crowding()
    return result


@pytest.mark.parametrize("server", ["sqlite", "postgresql"])
def test_the_trial_of_a_killed_process_is_run_again(
    server, request, tmp_path, monkeypatch, search, trainings
):
    # Keras would import it, for nothing.
    (tmp_path / "tensorflow.py").write_text("raise ImportError")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    found = {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    given = ["--seed", "1"]
    if server == "postgresql":
        given += ["--storage", request.getfixturevalue("postgresql")]
    study, printed = search(*given, "--trials", "0")
    assert printed["best"] is None
    command = [sys.executable, tune.__file__, *arguments(tmp_path / "study", *given)]
    with jobs.started(*command, env=os.environ | found) as process:
        (trial,) = wait_for(
            lambda: [t for t in study.trials if "units" in t.params], process
        )
        process.kill()
    time.sleep(2)
    monkeypatch.setattr("common.study.GRACE", 1)
    again, printed = search(*given)
    assert printed["trials"] == {"FAIL": 1, "COMPLETE": 4}
    assert {t.user_attrs["number"] for t in again.trials} == {0, 2, 3, 4}
    first, *_, retried = sorted(again.trials, key=lambda t: t.user_attrs["number"])[:2]
    assert (first.params, first.state) == (trial.params, STATES.FAIL)
    assert (retried.params, retried.state) == (trial.params, STATES.COMPLETE)
    assert len({json.dumps(t.params) for t in again.trials}) == 4
    assert len(trainings.runs) == 4


def test_the_job_of_the_page_shares_a_study(postgresql, tmp_path):
    places = {"/shared/gamma": str(tmp_path / "gamma")}
    places["scripts/tune.py"] = tune.__file__
    places["postgresql+psycopg://me@db/studies"] = postgresql
    smaller = f'epochs=1 num_nonzeros=2 batch_size=32 "data_options={SIZES}"'
    script = jobs.job("tuning.md", "scripts/tune.py")
    for theirs, ours in {**places, "epochs=30": smaller}.items():
        assert theirs in script
        script = script.replace(theirs, ours)
    (tmp_path / "tensorflow.py").write_text("raise ImportError")
    given = jobs.environment(tmp_path, SLURM_NTASKS="2", STUDIES=postgresql)
    given["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{given['PYTHONPATH']}"
    jobs.run("bash", "-c", script, env=given)
    study = optuna.load_study(study_name="gamma", storage=postgresql)
    complete = study.get_trials(states=[STATES.COMPLETE])
    assert len({json.dumps(trial.params) for trial in complete}) == 4
    (snippet,) = jobs.blocks("tuning.md", "py")
    assert jobs.run_python("-c", snippet, env=given).split()[0] == str(study.best_value)
    close(study)


def test_a_stopped_trial_is_run_again(search, trainings):
    def interrupted(run):
        if len(trainings.runs) == 2:
            raise KeyboardInterrupt
        return run.gamma + run.units[0], {}

    trainings.result = interrupted
    with pytest.raises(SystemExit, match="To continue: same command"):
        search()
    study, printed = search()
    assert printed["trials"] == {"COMPLETE": 4, "FAIL": 1}
    assert len({json.dumps(trial.params) for trial in study.trials}) == 4
    assert len(trainings.runs) == 5


def test_a_longer_search_goes_on_and_a_grid_ends(search, trainings):
    shorter, _ = search("--trials", "2")
    first = [trial.params for trial in shorter.trials]
    assert len(first) == 2
    longer, printed = search("--trials", "9")
    assert printed["trials"] == {"COMPLETE": 4}
    assert [t.params for t in longer.trials[:2]] == first
    assert printed["val_task_loss"] == 1.0 + 4
    assert printed["best"] == {"gamma": 1.0, "units": "[4]"}
    (best,) = (t for t in longer.trials if t.value == 5)
    assert printed["run"] == f"{best.number:04d}"
    assert best.user_attrs["test_task_loss"] == 10
    search()
    assert len(trainings.runs) == 4


@pytest.mark.parametrize(
    ("rules", "best"),
    [
        ([], 1.0),
        (["--at-most", "2"], 2.0),
        (["--binary"], 3.0),
        (["--binary", "--at-most", "1"], None),
    ],
)
def test_the_best_setting_keeps_the_rules(search, trainings, rules, best):
    gates = {
        1: {"binary_selectors": 0.5, "most_experts": 3.0},
        2: {"binary_selectors": 0.5, "most_experts": 2.0},
        3: {"binary_selectors": 1.0, "most_experts": 2.0},
    }
    trainings.result = lambda run: (run.gamma, gates[run.gamma])
    _, printed = search(*rules, space='{"gamma": [1.0, 2.0, 3.0]}')
    assert printed["val_task_loss"] == best
    assert printed["trials"] == {"COMPLETE": 3}


def test_values_may_be_lists_objects_or_null(search, trainings):
    trainings.result = lambda run: (1.0, {})
    search(space='{"entropy": [null, [0.1, 1.0]], "data_options": [{}, {"gap": 1}]}')
    assert {run.entropy for run in trainings.runs} == {None, (0.1, 1.0)}
    assert {} in [run.data_options for run in trainings.runs]
    assert {"gap": 1} in [run.data_options for run in trainings.runs]


@pytest.mark.parametrize(
    ("more", "space", "text"),
    [
        (["gate=softmax"], {"gamma": [1.0, 3.0]}, "gamma, num_nonzeros would do noth"),
        (["gate=top_k"], {"decide_by": [0.2]}, "decide_by would do nothing: no run of"),
        (["architecture=smear", "gate=switch"], {"units": [[4]]}, "num_nonzeros would"),
        (["architecture=shared_bottom"], {"epochs": [1]}, "num_nonzeros would do noth"),
        (["architecture=single_task"], {"num_experts": [2]}, "num_experts, num_nonz"),
    ],
)
def test_fields_that_no_run_would_read_are_refused(search, capsys, more, space, text):
    with pytest.raises(SystemExit):
        search(*more, space=json.dumps(space))
    assert text in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            ["gate=dselect_k", "learning_rate=0.1"],
            {"decide_by": 3, "num_nonzeros": 3, "gamma": 4},
        ),
        (["gate=gumbel_softmax"], {"learning_rate": 4, "gate_options": 4}),
        (["gate=softmax"], {"learning_rate": 4}),
        (["gate=hash", "learning_rate=0.1", "num_nonzeros=2"], {}),
        (["architecture=shared_bottom"], {"learning_rate": 4}),
    ],
)
def test_a_gate_has_a_space_of_its_own_without_what_is_set(given, wanted):
    run = set_fields(TrainingRun(), given)
    names = [text.partition("=")[0] for text in given]
    space = space_of(run, names)
    sizes = {name: len(values) for name, values in space.items()}
    assert sizes == wanted
    for name, values in space.items():
        for value in values:
            dataclasses.replace(run, **{name: value})


def test_without_a_space_that_of_the_gate_is_tried(search, trainings):
    trainings.result = lambda run: (run.gamma, {})
    _, printed = search("decide_by=0.5", "learning_rate=0.01", space=None)
    assert printed["best"] == {"gamma": 0.3}
    assert sorted(run.gamma for run in trainings.runs) == [0.3, 1.0, 3.0, 10.0]


def test_fields_that_some_gates_read_are_tuned_with_the_gates(search, trainings):
    search(space='{"gate": ["softmax", "dselect_k"], "gamma": [1.0, 3.0]}')
    assert len({(run.gate, run.gamma) for run in trainings.runs}) == 4


def test_a_study_of_which_no_trial_has_ended_ends_with_an_error(
    search, trainings, capsys
):
    trainings.result = lambda run: 1 / 0
    with pytest.raises(SystemExit) as ended:
        search(space='{"gamma": [1.0, 2.0]}')
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert (
        said.count("No trial has ended. Received: ZeroDivisionError: division by") == 1
    )
    assert said.count("ZeroDivisionError") == 1


def test_a_gaussian_process_searches_between_the_values(search, trainings):
    trainings.result = lambda run: ((run.gamma - 2) ** 2, {"most_experts": 2.0})
    space = '{"gamma": [1.0, 3.0], "num_experts": [4, 8], "gate": ["softmax"]}'
    search("--trials", "6", "--sampler", "gp", "--at-most", "2", space=space)
    gammas = {run.gamma for run in trainings.runs}
    assert len(gammas) == 6
    assert all(1 <= gamma <= 3 for gamma in gammas)
    assert {run.num_experts for run in trainings.runs} <= {4, 5, 6, 7, 8}
    assert {run.gate for run in trainings.runs} == {"softmax"}


def test_a_gaussian_process_that_is_continued_draws_other_settings(search, trainings):
    for count in (1, 2, 3):
        search("--sampler", "gp", "--trials", count, space='{"gamma": [1.0, 3.0]}')
    assert len({run.gamma for run in trainings.runs}) == 3


def test_an_error_is_kept_and_not_tried_again(search, trainings):
    trainings.result = lambda run: ({1: 1.0, 2: float("nan")}[run.gamma], {})
    for _ in range(2):
        _, printed = search(space='{"gamma": [1.0, 2.0, 4.0]}')
        assert printed["trials"] == {"COMPLETE": 1, "PRUNED": 2}
        errors = ["KeyError: 4.0", "ValueError: The validation loss is nan."]
        assert sorted(printed["errors"]) == errors
    assert len(trainings.runs) == 3


@pytest.mark.parametrize(
    ("more", "space", "text"),
    [
        (["--seed", "1"], SPACE, "'study' has another seed"),
        (["--sampler", "gp", "--binary"], SPACE, "another sampler and binary"),
        ([], '{"gama": [1.0]}', "Received: gama="),
        ([], '{"gamma": 1.0}', "Received: gamma=1.0"),
        ([], '{"seed": [1]}', "Received: seed="),
    ],
)
def test_what_does_not_fit_the_study_is_refused(search, capsys, more, space, text):
    search("--trials", "0")
    with pytest.raises(SystemExit):
        search(*more, space=space)
    assert text in capsys.readouterr().err


def test_without_optuna_the_error_names_the_extra(search, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SystemExit):
        search()
    assert '"dselectk-keras[tune]"' in capsys.readouterr().err
