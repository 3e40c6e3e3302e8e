"""Tune fields of a training run with Optuna, in several processes that may be killed.

    python scripts/tune.py runs/gamma --space '{"gamma": [1.0, 3.0, 10.0]}' --workers 2

trains one run per setting, keeps the study in a database, and prints the best setting.
The same command goes on with a study that was stopped. For the fields, see
`experiments.TrainingRun`.
"""

import argparse
import contextlib
import dataclasses
import datetime as dt
import json
import math
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import warnings
from typing import Any

from command_line import add_backend, choose_backend, json_object, make_parser

# A setting whose process was killed so often is given up.
MAX_TRIES = 5
PRUNERS = {
    "none": "NopPruner",
    "median": "MedianPruner",
    "hyperband": "HyperbandPruner",
}


def main(arguments=None):
    """Parse the arguments, run what the study lacks, and print the best setting."""
    options = _parse(arguments)
    choose_backend(options.backend)
    given = sys.argv[1:] if arguments is None else list(map(str, arguments))
    try:
        sweep = Sweep(options)
        if options.worker is not None or options.workers == 1:
            sweep.work()
        else:
            # Here, lest each worker does the same.
            sweep.mend()
            _supervise(given, options.workers)
    except KeyboardInterrupt:
        print(
            f"\nStopped. {options.folder} keeps what was done. To go on: same command."
        )
        return 130
    except (ImportError, OSError, TypeError, ValueError) as error:
        print(f"tune.py: {error}", file=sys.stderr)
        return 2
    if options.worker is None:
        print(json.dumps(sweep.summary(), indent=1))
    return 0


def _parse(arguments):
    parser = make_parser(__doc__)
    add_backend(parser)
    add = parser.add_argument
    add("folder", type=pathlib.Path, help="folder of the runs; its name is the study's")
    add(
        "--space", type=json_object, required=True, help="JSON: fields and their values"
    )
    add(
        "--set", nargs="+", default=[], metavar="FIELD=VALUE", help="fields of all runs"
    )
    add("--trials", type=int, default=20, help="settings to try; a grid tries all")
    add("--sampler", default="random", choices=("random", "grid", "gp"), help="sampler")
    add(
        "--pruner", default="none", choices=PRUNERS, help="which runs are stopped early"
    )
    add("--binary", action="store_true", help="only admit runs with binary selectors")
    add("--at-most", type=int, help="only admit runs with so many experts per task")
    add("--storage", help="URL of the database; if omitted, SQLite in the folder")
    add("--workers", type=int, default=1, help="number of processes")
    add("--grace", type=int, default=60, help="seconds after which a process is dead")
    add("--seed", type=int, default=0, help="seed of the sampler")
    add("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _supervise(arguments, count):
    """Run worker processes, and replace those that are killed."""

    def start(number):
        command = [sys.executable, __file__, *arguments, "--worker", str(number)]
        return subprocess.Popen(command)

    running = {number: start(number) for number in range(count)}
    try:
        while running:
            time.sleep(0.2)
            for number, process in list(running.items()):
                code = process.poll()
                if code is None:
                    continue
                del running[number]
                if code < 0:
                    print(f"Worker {number} was killed.", file=sys.stderr)
                    running[number] = start(number)
                elif code:
                    raise ValueError(f"Worker {number} ended with the status {code}.")
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()


class Sweep:
    """A study in a database.

    Each setting has a place in a plan. Every worker derives from the trials which
    places are not taken: those of which all trials have failed. A trial fails if its
    process does not report for some time. Of two trials of one place, the first counts.

    Args:
        options: The arguments of the command line.
    """

    def __init__(self, options):
        from dselectk_keras.utils import check_count, optional_import
        from experiments import TrainingRun, set_fields
        from experiments.search import distributions

        optuna = optional_import("optuna", extra="tune", purpose="scripts/tune.py")
        # Heartbeats are experimental, and so are constraints.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        for name in ("trials", "workers", "grace"):
            check_count(name, getattr(options, name))
        self.options, self.optuna = options, optuna
        self.run = set_fields(TrainingRun(), options.set)
        if not isinstance(options.space, dict) or not options.space:
            raise ValueError(
                f"--space must be a JSON object. Received: {options.space}"
            )
        known = {field.name for field in dataclasses.fields(self.run)} - {"seed"}
        for name, values in options.space.items():
            if name not in known or not isinstance(values, list) or not values:
                raise ValueError(
                    "--space must give lists of values for fields of `TrainingRun`. "
                    f"Received: {name}={values!r}."
                )
        # Optuna's values are numbers and texts.
        self.space = {
            name: [value if _is_plain(value) else json.dumps(value) for value in values]
            for name, values in options.space.items()
        }
        self.box = distributions(self.space, discrete=options.sampler != "gp")
        self.plan = self._plan()
        options.folder.mkdir(parents=True, exist_ok=True)
        self.study = self._study()

    def _plan(self):
        """List the settings to try; those of a Gaussian process are not known yet."""
        from experiments.search import grid_size, random_settings

        if self.options.sampler == "gp":
            return [{} for _ in range(self.options.trials)]
        size = grid_size(self.space)
        count = size if self.options.sampler == "grid" else self.options.trials
        return random_settings(self.space, min(count, size), self.options.seed)

    def _study(self):
        optuna, options = self.optuna, self.options
        url = options.storage or f"sqlite:///{options.folder.resolve()}/study.db"
        sqlite = url.startswith("sqlite")
        storage = self._storage(
            url,
            # Workers wait for each other's writes.
            {"connect_args": {"timeout": 60}} if sqlite else {"pool_pre_ping": True},
        )
        sampler = None
        if options.sampler == "gp":
            sampler = optuna.samplers.GPSampler(
                seed=options.seed + (options.worker or 0),
                n_startup_trials=min(4, options.trials),
            )
        study = optuna.create_study(
            storage=storage,
            sampler=sampler or optuna.samplers.RandomSampler(seed=options.seed),
            pruner=getattr(optuna.pruners, PRUNERS[options.pruner])(),
            study_name=options.folder.name,
            load_if_exists=True,
        )
        config = {
            "run": self.run.config,
            "space": self.space,
            "sampler": options.sampler,
            "seed": options.seed,
        }
        kept = study.user_attrs.get("config", config)
        if kept != config:
            differing = [name for name in config if kept.get(name) != config[name]]
            raise ValueError(
                f"The study {options.folder.name!r} has other settings: "
                f"{', '.join(differing)} differ. Use its own, or another folder."
            )
        study.set_user_attr("config", config)
        return study

    def _storage(self, url, settings, tries=5):
        """Open the database, whose tables another process may create at this moment."""
        from sqlalchemy.exc import IntegrityError, ProgrammingError

        try:
            return self.optuna.storages.RDBStorage(
                url,
                settings,
                heartbeat_interval=max(1, self.options.grace // 4),
                grace_period=self.options.grace,
            )
        except (IntegrityError, ProgrammingError):
            if tries == 1:
                raise
            time.sleep(0.5)
            return self._storage(url, settings, tries - 1)

    def work(self):
        """Run trials until every place of the plan is taken and no trial is running."""
        states = self.optuna.trial.TrialState
        while True:
            self.mend()
            found = {trial.state for trial in self.study.get_trials(deepcopy=False)}
            if states.WAITING in found:
                self._run_one()
            elif states.RUNNING in found:
                time.sleep(min(1.0, self.options.grace / 4))
            else:
                return

    def _run_one(self):
        """Run the next trial."""
        try:
            self.study.optimize(self.objective, n_trials=1, catch=(Exception,))
        except (ValueError, self.optuna.exceptions.UpdateFinishedTrialError) as error:
            # This process was taken for dead, and its trial has failed.
            if "Cannot tell" not in str(error) and isinstance(error, ValueError):
                raise

    def mend(self):
        """Fail the trials of dead processes, and queue each place that is not taken."""
        states = self.optuna.trial.TrialState
        self.optuna.storages.fail_stale_trials(self.study)
        # Optuna's times are naive and local.
        latest = dt.datetime.now() - dt.timedelta(seconds=self.options.grace)  # noqa: DTZ005
        taken, tries, begun = set(), {}, {}
        for trial in self.study.get_trials(deepcopy=False):
            attributes = trial.user_attrs
            place = attributes.get("place")
            # A process that died before its first heartbeat is none of Optuna's.
            if (
                trial.state is states.RUNNING
                and "worker" not in attributes
                and trial.datetime_start < latest
            ):
                # Unless it has ended, or another worker was faster.
                with contextlib.suppress(ValueError):
                    self.study.tell(trial.number, state=states.FAIL)
            elif trial.state is not states.FAIL or "error" in attributes:
                taken.add(place)
            elif "worker" in attributes:
                tries[place] = tries.get(place, 0) + 1
                begun[place] = trial.params
        for place, settings in enumerate(self.plan):
            if place not in taken and tries.get(place, 0) < MAX_TRIES:
                # One that was killed early had not chosen all of its values.
                self.study.enqueue_trial(
                    {**settings, **begun.get(place, {})}, user_attrs={"place": place}
                )

    def objective(self, trial):
        """Train with the settings of a trial, and return the validation loss."""
        place = trial.user_attrs.get("place")
        if place is None or self._has_earlier(trial.number, place):
            raise RuntimeError("Another trial has this place.")
        trial.set_user_attr("worker", f"{socket.gethostname()} {os.getpid()}")
        folder = self.options.folder / f"{place:04d}"
        try:
            return self._train(trial, folder)
        except self.optuna.TrialPruned:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        except Exception as error:
            trial.set_user_attr("error", f"{type(error).__name__}: {error}"[:500])
            raise

    def _train(self, trial, folder):
        import keras

        settings = {name: _suggest(trial, name, self.box[name]) for name in self.space}
        run = dataclasses.replace(self.run, **self._decoded(settings))

        def report(epoch, logs):
            trial.report(logs["val_task_loss"], epoch)
            if trial.should_prune():
                raise self.optuna.TrialPruned

        callback = keras.callbacks.LambdaCallback(on_epoch_end=report)
        results = run.run(folder, progress=False, resume=True, callbacks=[callback])
        keras.utils.clear_session()
        loss = results["curve"]["val_task_loss"][-1]
        if not math.isfinite(loss):
            raise ValueError(f"The validation loss is {loss}.")
        gates = results.get("gates", {})
        for name, value in self._constraints(gates).items():
            trial.set_constraint(name, value)
        trial.set_user_attr("gates", gates)
        trial.set_user_attr("test_task_loss", results["test_task_loss"])
        return loss

    def _constraints(self, gates):
        """By rule, a number that is 0 or less if a run with such gates keeps it."""
        found = {}
        if self.options.binary:
            found["binary"] = 1.0 - gates.get("binary_selectors", 1.0)
        if self.options.at_most is not None:
            found["at_most"] = gates.get("most_experts", 0.0) - self.options.at_most
        return found

    def _is_admissible(self, trial):
        # Not by the trial's own constraints: an earlier call may have had other rules.
        gates = trial.user_attrs.get("gates", {})
        return all(value <= 0 for value in self._constraints(gates).values())

    def _decoded(self, settings):
        """The settings, with the lists, objects and null that Optuna has as texts."""
        return {
            name: _decode(value)
            if isinstance(value, str) and value not in self.options.space[name]
            else value
            for name, value in settings.items()
        }

    def _has_earlier(self, number, place):
        states = self.optuna.trial.TrialState
        return any(
            trial.number < number
            and trial.user_attrs.get("place") == place
            and (trial.state is not states.FAIL or "error" in trial.user_attrs)
            for trial in self.study.get_trials(deepcopy=False)
        )

    def summary(self):
        """The best admissible setting, and how many trials ended in which way."""
        from experiments import Run
        from experiments.search import best_settings

        trials = self.study.get_trials(deepcopy=False)
        states = self.optuna.trial.TrialState
        runs = [
            Run(
                "",
                trial.user_attrs["place"],
                trial.params,
                {
                    "objective": trial.value,
                    "admissible": self._is_admissible(trial),
                },
                0.0,
            )
            for trial in trials
            if trial.state is states.COMPLETE
        ]
        best, admissible = best_settings(runs)
        errors = [t.user_attrs["error"] for t in trials if "error" in t.user_attrs]
        pruned = sum(trial.state is states.PRUNED for trial in trials)
        ended = {
            trial.user_attrs.get("place")
            for trial in trials
            if trial.state in {states.COMPLETE, states.PRUNED}
            or "error" in trial.user_attrs
        }
        return {
            "best": self._decoded(best),
            "objective": min(
                (run.numbers["objective"] for run in runs if run.settings == best),
                default=None,
            ),
            "objective_is": "val_task_loss, a sum over the tasks",
            "admissible": admissible,
            "complete": len(runs),
            "pruned": pruned,
            "errors": errors,
            # An earlier call may have had more trials.
            "given_up": len({*range(len(self.plan))} - ended),
        }


def _is_plain(value):
    return isinstance(value, (bool, int, float, str))


def _decode(text):
    value = json.loads(text)
    return tuple(value) if isinstance(value, list) else value


def _suggest(trial, name, distribution) -> Any:
    if hasattr(distribution, "choices"):
        return trial.suggest_categorical(name, distribution.choices)
    whole = isinstance(distribution.low, int)
    suggest = trial.suggest_int if whole else trial.suggest_float
    return suggest(name, distribution.low, distribution.high, log=distribution.log)


if __name__ == "__main__":
    sys.exit(main())
