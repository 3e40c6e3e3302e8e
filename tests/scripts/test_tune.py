"""A study survives the death of its processes, in each database."""

import collections
import contextlib
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
import sqlalchemy
import tune

pytestmark = [
    pytest.mark.backend_independent,
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Heartbeat of storage is supposed:UserWarning"),
]

SIZES = {"num_tasks": 16, "num_train": 64, "num_validation": 16, "num_test": 16}
RUN = ["epochs=2", "num_nonzeros=2", f"data_options={SIZES}", "batch_size=32"]
SPACE = '{"gamma": [1.0, 3.0], "units": [[4], [8]]}'
NAMES = optuna.trial.TrialState
# In place of TensorFlow, which Keras would import for nothing: wait for both workers.
BOTH = """
import os
import pathlib
import time

started = pathlib.Path(__file__).parent / "started"
started.mkdir(exist_ok=True)
(started / str(os.getpid())).touch()
while len([*started.iterdir()]) < 2:
    time.sleep(0.1)
raise ImportError
"""


def arguments(folder, *more, space=SPACE):
    return [*map(str, (folder, "--space", space, "--set", *RUN, *more))]


def sweep(folder, *more, space=SPACE):
    return tune.Sweep(tune._parse(arguments(folder, *more, space=space)))


def of_state(study, state):
    return [trial for trial in study.get_trials() if trial.state is state]


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
    once = {"cwd": place, "timeout": 60, **quiet}
    subprocess.run([*command, "--no-sync"], check=True, **once)
    command = [binaries / "postgres", "-D", place / "data", "-h", "127.0.0.1", "-F"]
    command += ["-p", str(port), "-k", place]
    server = subprocess.Popen(command, cwd=place, **quiet)
    try:
        ready = [binaries / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]
        wait_for(
            lambda: not subprocess.run(ready, check=False, **once).returncode,
            server,
            "PostgreSQL does not answer",
        )
        yield f"postgresql+psycopg://tune@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)
        end(server, 60)
        shutil.rmtree(place)


def wait_for(found, process, problem, seconds=240):
    """Call a function until it finds something, or fail with the problem."""
    until = time.monotonic() + seconds
    while not (result := found()):
        assert process.poll() is None, f"{problem}: its process ended."
        assert time.monotonic() < until, f"{problem} after {seconds} seconds."
        time.sleep(0.1)
    return result


def end(process, seconds=240):
    """Wait for the end of a process, and kill it if that takes too long."""
    try:
        return process.communicate(timeout=seconds)[0]
    finally:
        process.kill()


@contextlib.contextmanager
def start(tmp_path, *given):
    """Start `tune.py`, on torch, and kill it at the end."""
    # Keras would import it in each process, for nothing.
    (tmp_path / "tensorflow.py").write_text("raise ImportError")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {
        "KERAS_BACKEND": "torch",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": paths,
    }
    with subprocess.Popen(
        [sys.executable, tune.__file__, *given],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def kill_a_worker(process, database):
    """Kill a worker as soon as it trains: its trial, and the study."""

    def begun():
        if not database.get_all_studies():
            return []
        study = optuna.load_study(study_name="killed", storage=database)
        running = of_state(study, NAMES.RUNNING)
        return [(each, study) for each in running if "worker" in each.user_attrs]

    trial, study = wait_for(begun, process, "No worker has a trial")[0]
    os.kill(int(trial.user_attrs["worker"].split()[1]), signal.SIGKILL)
    return trial, study


def assert_nothing_is_lost(killed, study, summary):
    """Each place of the plan has one complete trial, that of the killed one too."""
    assert (summary["complete"], summary["errors"], summary["given_up"]) == (4, [], 0)
    complete = of_state(study, NAMES.COMPLETE)
    places = collections.Counter(trial.user_attrs["place"] for trial in complete)
    assert places == {0: 1, 1: 1, 2: 1, 3: 1}
    assert len({tuple(trial.params.items()) for trial in complete}) == 4
    again = study.get_trials()[killed.number]
    # It may have ended just before.
    assert again.state in {NAMES.FAIL, NAMES.COMPLETE}


def test_no_trial_is_lost_or_run_twice_if_a_worker_is_killed(tmp_path):
    folder, url = tmp_path / "killed", f"sqlite:///{tmp_path}/study.db"
    given = ("--sampler", "grid", "--grace", "8", "--storage", url)
    database = optuna.storages.RDBStorage(url)
    with start(tmp_path, *arguments(folder, *given), "--workers", "2") as process:
        killed, study = kill_a_worker(process, database)
        summary = json.loads(end(process))
    assert process.returncode == 0
    assert_nothing_is_lost(killed, study, summary)
    assert len(list(folder.glob("*/metrics.json"))) == 4
    database.remove_session()
    database.engine.dispose()


def test_postgresql_keeps_what_a_killed_process_began(postgresql, tmp_path):
    folder = tmp_path / "killed"
    given = ("--sampler", "grid", "--grace", "2", "--storage", postgresql)
    database = optuna.storages.RDBStorage(postgresql)
    with start(tmp_path, *arguments(folder, *given), "--worker", "0") as process:
        killed, study = kill_a_worker(process, database)
    found = sweep(folder, *given)
    summary = run_with(found, [1.0, 2.0, 3.0, 4.0])
    assert_nothing_is_lost(killed, study, summary)
    for each in (database, found.study._storage._backend):
        each.remove_session()
        each.engine.dispose()


def test_the_job_of_the_page_shares_a_study(postgresql, tmp_path):
    places = {"/shared/gamma": str(tmp_path / "gamma")}
    places["scripts/tune.py"] = tune.__file__
    places["postgresql+psycopg://me@db/studies"] = postgresql
    smaller = f'epochs=5 num_nonzeros=2 batch_size=32 "data_options={SIZES}"'
    script = jobs.job("tuning.md", "scripts/tune.py")
    for theirs, ours in {**places, "epochs=30": smaller}.items():
        assert theirs in script
        script = script.replace(theirs, ours)
    (tmp_path / "tensorflow.py").write_text(BOTH)
    given = jobs.environment(tmp_path, SLURM_NTASKS="2", STUDIES=postgresql)
    given["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{given['PYTHONPATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        check=False,
        env=given,
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert not done.returncode, done.stderr
    database = optuna.storages.RDBStorage(postgresql)
    study = optuna.load_study(study_name="gamma", storage=database)
    complete = of_state(study, NAMES.COMPLETE)
    assert sorted(trial.user_attrs["place"] for trial in complete) == [0, 1, 2, 3]
    assert len({trial.user_attrs["worker"] for trial in complete}) == 2
    (snippet,) = jobs.blocks("tuning.md", "py")
    shown = subprocess.run(
        [sys.executable, "-c", snippet],
        check=True,
        env=given,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert shown.stdout.split()[0] == str(study.best_value)
    database.remove_session()
    database.engine.dispose()


def test_another_worker_may_create_the_tables_at_the_same_time(tmp_path, monkeypatch):
    storage, failures = optuna.storages.RDBStorage, [None]
    opened = storage.__init__

    def fails_once(self, *arguments, **settings):
        if failures:
            failures.pop()
            raise sqlalchemy.exc.IntegrityError("", {}, Exception("already exists"))
        opened(self, *arguments, **settings)

    monkeypatch.setattr(storage, "__init__", fails_once)
    sweep(tmp_path)
    assert not failures


def test_a_trial_that_died_before_its_first_heartbeat_is_run_again(tmp_path):
    found = sweep(tmp_path, "--trials", "2", "--grace", "1")
    found.mend()
    lost = found.study.ask()
    assert lost.user_attrs["place"] == 0
    found.mend()
    assert len(found.study.get_trials()) == 2
    time.sleep(1.1)
    for _ in range(2):
        found.mend()
    trials = found.study.get_trials()
    assert [trial.user_attrs["place"] for trial in trials] == [0, 1, 0]
    states = [trial.state for trial in trials]
    assert states == [NAMES.FAIL, NAMES.WAITING, NAMES.WAITING]


def test_of_two_trials_of_one_place_the_first_is_run(tmp_path):
    found = sweep(tmp_path, "--trials", "1")
    found._train = lambda trial, folder: 1.0
    for _ in range(2):
        found.study.enqueue_trial({}, user_attrs={"place": 0})
    found.study.optimize(found.objective, n_trials=2, catch=(RuntimeError,))
    states = [trial.state for trial in found.study.get_trials()]
    assert states == [NAMES.COMPLETE, NAMES.FAIL]
    found.mend()
    assert len(found.study.get_trials()) == 2


def test_a_killed_trial_keeps_its_settings_and_is_given_up_in_the_end(tmp_path):
    found = sweep(tmp_path, "--trials", "1", "--sampler", "gp")

    def dies(trial, folder):
        raise SystemExit(trial.suggest_float("gamma", 1.0, 3.0))

    found._train = dies
    for _ in range(tune.MAX_TRIES):
        found.mend()
        with pytest.raises(SystemExit):
            found.study.optimize(found.objective, n_trials=1)
        (running,) = of_state(found.study, NAMES.RUNNING)
        found.study.tell(running.number, state=NAMES.FAIL)
    found.mend()
    trials = found.study.get_trials()
    assert len(trials) == tune.MAX_TRIES
    assert len({trial.params["gamma"] for trial in trials}) == 1
    assert found.summary()["given_up"] == 1


def test_a_trial_that_was_killed_before_it_chose_gets_its_setting(tmp_path):
    found = sweep(tmp_path, "--sampler", "grid")

    def dies(trial, folder):
        raise SystemExit

    found._train = dies
    found.mend()
    with pytest.raises(SystemExit):
        found.study.optimize(found.objective, n_trials=1)
    (running,) = of_state(found.study, NAMES.RUNNING)
    found.study.tell(running.number, state=NAMES.FAIL)
    run_with(found, [1.0, 2.0, 3.0, 4.0])
    complete = of_state(found.study, NAMES.COMPLETE)
    assert len({tuple(trial.params.items()) for trial in complete}) == 4


def run_with(found, losses, gates=None):
    """Run all trials, with these losses and gates in place of trainings."""

    def train(trial, folder):
        place = trial.user_attrs["place"]
        for name in found.space:
            tune._suggest(trial, name, found.box[name])
        trial.set_user_attr("gates", (gates or {}).get(place, {}))
        for name, value in found._constraints(trial.user_attrs["gates"]).items():
            trial.set_constraint(name, value)
        if isinstance(losses[place], Exception):
            raise losses[place]
        return losses[place]

    found._train = train
    found.work()
    return found.summary()


GATES = {
    1: {"binary_selectors": 0.5},
    2: {"most_experts": 3.0},
    3: {"binary_selectors": 1.0, "most_experts": 1.0},
}


def test_the_best_setting_keeps_the_rules(tmp_path):
    found = sweep(tmp_path, "--sampler", "grid", "--binary", "--at-most", "2")
    summary = run_with(found, [3.0, 1.0, 1.0, 2.0], GATES)
    assert (summary["objective"], summary["admissible"]) == (2.0, True)
    assert summary["objective_is"] == "val_task_loss, a sum over the tasks"
    (best,) = (t for t in found.study.get_trials() if t.user_attrs["place"] == 3)
    assert summary["best"]["gamma"] == best.params["gamma"]
    assert isinstance(summary["best"]["units"], tuple)


@pytest.mark.parametrize("first", [[], ["--binary", "--at-most", "2"]])
def test_the_rules_are_those_of_the_last_call(tmp_path, first):
    run_with(sweep(tmp_path, "--sampler", "grid", *first), [3.0, 1.0, 1.5, 2.0], GATES)
    for rules, objective in (
        (["--binary"], 1.5),
        (["--binary", "--at-most", "2"], 2.0),
        ([], 1.0),
    ):
        summary = sweep(tmp_path, "--sampler", "grid", *rules).summary()
        assert (summary["objective"], summary["admissible"]) == (objective, True)


def test_values_may_be_objects_or_null(tmp_path):
    space = {"entropy": [None, [0.1, 1.0]], "gate_options": [{}, {"expert_dropout": 0}]}
    found = sweep(tmp_path, "--sampler", "grid", space=json.dumps(space))
    decoded = [found._decoded(settings) for settings in found.plan]
    assert {each["entropy"] for each in decoded} == {None, (0.1, 1.0)}
    assert {"expert_dropout": 0} in [each["gate_options"] for each in decoded]
    assert {} in [each["gate_options"] for each in decoded]


def test_fewer_trials_than_before_give_up_none(tmp_path):
    run_with(sweep(tmp_path, "--trials", "3"), [3.0, 1.0, 2.0])
    assert sweep(tmp_path, "--trials", "1").summary()["given_up"] == 0


def test_an_error_is_kept_and_not_tried_again(tmp_path):
    found = sweep(tmp_path, "--trials", "2")
    summary = run_with(found, [ValueError("too wide"), 1.0])
    assert summary["errors"] == ["ValueError: too wide"]
    assert (summary["complete"], summary["given_up"]) == (1, 0)


def test_a_gaussian_process_searches_between_the_values(tmp_path):
    space = '{"gamma": [1.0, 3.0]}'
    given = ("--trials", "6", "--sampler", "gp", "--at-most", "2")
    found = sweep(tmp_path, *given, space=space)
    run_with(found, [3.0] * 6, {place: {"most_experts": 2.0} for place in range(6)})
    values = [trial.params["gamma"] for trial in found.study.get_trials()]
    assert len(set(values)) == 6
    assert all(1.0 <= value <= 3.0 for value in values)


def test_a_study_has_one_set_of_settings(tmp_path):
    sweep(tmp_path, "--trials", "1")
    sweep(tmp_path, "--trials", "9")
    with pytest.raises(ValueError, match="has other settings: seed differ"):
        sweep(tmp_path, "--seed", "1")
    with pytest.raises(ValueError, match="Received: gama="):
        sweep(tmp_path / "other", space='{"gama": [1.0]}')


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_is_worse_than_the_others_is_pruned(tmp_path):
    space = '{"gamma": [1.0], "learning_rate": [0.01, 1e-9]}'
    given = ("--sampler", "grid", "--at-most", "2")
    found = sweep(tmp_path, *given, space=space)

    class WorseThanTheFirst(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.number > 0

    found.study.pruner = WorseThanTheFirst()
    found.work()
    summary = found.summary()
    assert (summary["complete"], summary["pruned"], summary["errors"]) == (1, 1, [])
    (complete,) = of_state(found.study, NAMES.COMPLETE)
    most = complete.user_attrs["gates"]["most_experts"]
    assert complete.constraints == {"at_most": most - 2}
    assert summary["admissible"] == (most <= 2)
    assert [path.name for path in tmp_path.glob("0*")] == ["0000"]


def test_without_optuna_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r'"dselectk-keras\[tune\]"'):
        sweep(tmp_path)
