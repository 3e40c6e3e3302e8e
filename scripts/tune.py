"""Tune fields of a training run with Optuna, in one process or several.

    python scripts/tune.py runs/gamma --space '{"gamma": [1.0, 3.0, 10.0]}'

trains one run per setting, keeps the study in a database, and prints the best setting.
The same command continues a study. For the fields, see `TrainingRun`.
"""

import collections
import dataclasses
import json
import math
import pathlib
import shutil
import sys
import warnings

from common.command_line import add_backend, choose_backend, json_object, make_parser

PRUNERS = "NopPruner", "MedianPruner", "HyperbandPruner"
# Seconds between the signs of life of a process, and until it counts as dead.
HEARTBEAT, GRACE = 15, 60
MAX_RETRIES = 4


def main(arguments=None):
    """Parse the arguments, train what the study lacks, and print the best setting."""
    parser = make_parser(__doc__)
    add_backend(parser)
    add = parser.add_argument
    add("folder", type=pathlib.Path, help="folder of the runs; its name is the study's")
    add("--space", type=json_object, required=True, help="JSON: lists of values")
    add("--set", nargs="+", default=[], metavar="FIELD=VALUE", help="of all runs")
    add("--trials", type=int, default=20, help="settings to try; 0 only prints")
    add("--sampler", default="grid", choices=("grid", "gp"), help="sampler")
    add("--pruner", default="NopPruner", choices=PRUNERS, help="stops bad runs early")
    add("--binary", action="store_true", help="only admit runs with binary selectors")
    add("--at-most", type=int, help="only admit runs with so many experts per task")
    add("--storage", help="URL of the database; if omitted, SQLite in the folder")
    add("--seed", type=int, default=0, help="seed of the sampler")
    options = parser.parse_args(arguments)
    choose_backend(options.backend)
    try:
        study = tune(options)
    except KeyboardInterrupt:
        sys.exit(f"Stopped. To continue: same command. Written to {options.folder}.")
    except (ImportError, OSError, TypeError, ValueError) as error:
        parser.error(str(error))
    found = summary(study)
    if found["run"]:
        found["model"] = str(options.folder / found["run"] / "model.keras")
    print(json.dumps(found, indent=1))
    if found["errors"] and found["trials"].keys() == {"PRUNED"}:
        reasons = " ".join(dict.fromkeys(found["errors"]))
        parser.exit(1, f"{parser.prog}: No trial has ended. Received: {reasons}\n")


def tune(options):
    """Open or create the study of a command line, and run the trials that it lacks."""
    from common.set_fields import set_fields
    from common.training_run import TrainingRun
    from dselectk_keras.utils import optional_import

    optuna = optional_import("optuna", extra="tune", purpose="scripts/tune.py")
    # Heartbeats and constraints are experimental.
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    run, space = set_fields(TrainingRun(), options.set), options.space
    _check_fields(run, space, options)
    retry = optuna.storages.RetryHeartbeatStaleTrialCallback(MAX_RETRIES)
    options.folder.mkdir(parents=True, exist_ok=True)
    url = options.storage or f"sqlite:///{options.folder.resolve()}/study.db"
    # Processes wait for each other's writes. Servers may close idle connections.
    wait, ping = {"connect_args": {"timeout": 60}}, {"pool_pre_ping": True}
    study = optuna.create_study(
        storage=optuna.storages.RDBStorage(
            url,
            wait if url.startswith("sqlite") else ping,
            heartbeat_interval=HEARTBEAT,
            grace_period=GRACE,
            heartbeat_stale_trial_callback=retry,
        ),
        pruner=getattr(optuna.pruners, options.pruner)(),
        study_name=options.folder.name,
        load_if_exists=True,
    )
    study.sampler = _sampler(optuna, space, options, len(study.trials))
    config = {"run": run.config, "space": space, "sampler": options.sampler}
    config |= {"binary": options.binary, "at_most": options.at_most}
    # Processes with one grid share its order.
    config |= {"seed": options.seed} if options.sampler == "grid" else {}
    kept = study.user_attrs.get("config", config)
    names = {**config, **kept}
    if differing := [name for name in names if kept.get(name) != config.get(name)]:
        raise ValueError(
            f"The study {study.study_name!r} has another {' and '.join(differing)}. "
            "Use its own, or another folder."
        )
    study.set_user_attr("config", config)

    def objective(trial):
        # A retry has the attributes of the trial whose process was stopped.
        number = trial.user_attrs.get("number", trial.number)
        trial.set_user_attr("number", number)
        folder = options.folder / f"{number:04d}"
        try:
            return _train(trial, run, folder, options)
        except KeyboardInterrupt:
            retry(study, study.trials[trial.number])
            raise
        except Exception as error:
            shutil.rmtree(folder, ignore_errors=True)
            if not isinstance(error, optuna.TrialPruned):
                trial.set_user_attr("error", f"{type(error).__name__}: {error}"[:500])
            raise optuna.TrialPruned from error

    states = optuna.trial.TrialState
    begun = (states.COMPLETE, states.PRUNED, states.RUNNING)
    size = math.prod(map(len, space.values()))
    count = min(options.trials, size) if options.sampler == "grid" else options.trials
    optuna.storages.fail_stale_trials(study)
    if len(study.get_trials(states=begun)) < count:
        enough = optuna.study.MaxTrialsCallback(count, begun)
        study.optimize(objective, callbacks=[enough])
    return study


def _sampler(optuna, space, options, done):
    """A sampler for a study that has so many trials."""
    import numpy as np

    if options.sampler == "grid":
        grid = {name: _texts(values) for name, values in space.items()}
        return optuna.samplers.GridSampler(grid, seed=options.seed)
    # The first settings are drawn: others than before if a study is continued.
    (seed,) = np.random.SeedSequence([options.seed, done]).generate_state(1).tolist()
    return optuna.samplers.GPSampler(seed=seed, n_startup_trials=4)


def _check_fields(run, space, options):
    """Refuse fields that there are not, or that no run of the study would read."""
    known = {field.name for field in dataclasses.fields(run)} - {"seed"}
    for name, values in space.items():
        if name not in known or not isinstance(values, list) or not values:
            raise ValueError(
                "--space must give lists of values for fields of `TrainingRun`. "
                f"Received: {name}={values!r}."
            )
    unused = set() if {"gate", "architecture"} & space.keys() else {*run.unused}
    given = space.keys() | {text.partition("=")[0] for text in options.set}
    if lost := sorted(given & unused):
        raise ValueError(
            f"{', '.join(lost)} would do nothing: no run of {run.label} reads it."
        )


def _train(trial, run, folder, options):
    """Train with the settings of a trial, and return the validation loss."""
    import keras
    import optuna

    settings = {
        name: _suggest(trial, name, values, between=options.sampler == "gp")
        for name, values in options.space.items()
    }

    def report(epoch, logs):
        trial.report(logs["val_task_loss"], epoch)
        if trial.should_prune():
            raise optuna.TrialPruned

    own = dataclasses.replace(run, **settings)
    watching = [keras.callbacks.LambdaCallback(on_epoch_end=report)]
    results = own.run(folder, progress=False, resume=True, callbacks=watching)
    loss = results["curve"]["val_task_loss"][-1]
    keras.utils.clear_session()
    if not math.isfinite(loss):
        raise ValueError(f"The validation loss is {loss}.")
    gates = results.get("gates", {})
    trial.set_user_attr("gates", gates)
    trial.set_user_attr("test_task_loss", results["test_task_loss"])
    # A constraint is kept by numbers of 0 and less.
    if options.binary:
        trial.set_constraint("binary", 1 - gates.get("binary_selectors", 1))
    if options.at_most is not None:
        most = gates.get("most_experts", 0)
        trial.set_constraint("at_most", most - options.at_most)
    return loss


def _suggest(trial, name, values, between):
    """A value of the list; of numbers with `between`, one between them."""
    from research.engine.search import box

    found = box(values) if between else None
    if found is None:
        texts = _texts(values)
        value = values[texts.index(trial.suggest_categorical(name, texts))]
        return tuple(value) if isinstance(value, list) else value
    kind, ends = found
    suggest = trial.suggest_int if kind is int else trial.suggest_float
    return suggest(name, **ends)


def _texts(values):
    """The values, with those that Optuna does not take as JSON."""
    return [json.dumps(v) if isinstance(v, (list, dict)) else v for v in values]


def summary(study):
    """The best admissible setting, and how many trials ended in which way."""
    trials = study.get_trials(deepcopy=False)
    try:
        best = study.best_trial
    except ValueError:  # No trial is complete and admissible.
        best = None
    return {
        "best": best and best.params,
        "run": best and f"{best.user_attrs['number']:04d}",
        "val_task_loss": best and best.value,
        "trials": collections.Counter(trial.state.name for trial in trials),
        "errors": [t.user_attrs["error"] for t in trials if "error" in t.user_attrs],
    }


if __name__ == "__main__":
    sys.exit(main())
