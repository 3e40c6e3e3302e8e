"""A study of Optuna that several processes share, and that survives their death."""

import json
import shutil
import warnings

import numpy as np

from common.spaces import box_around
from dselectk_keras.utils import optional_import

# Seconds between the signs of life of a process, and until it counts as dead.
HEARTBEAT, GRACE = 15, 60
MAX_RETRIES = 4


def open_study(options, config):
    """Open or create the study of a command line, which must have this config."""
    optuna = optional_import("optuna", extra="tune", purpose="scripts/tune.py")
    # Heartbeats and constraints are experimental.
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    options.folder.mkdir(parents=True, exist_ok=True)
    url = options.storage or f"sqlite:///{options.folder.resolve()}/study.db"
    # Processes wait for each other's writes. Servers may close idle connections.
    wait, ping = {"connect_args": {"timeout": 60}}, {"pool_pre_ping": True}
    storage = optuna.storages.RDBStorage(
        url,
        wait if url.startswith("sqlite") else ping,
        heartbeat_interval=HEARTBEAT,
        grace_period=GRACE,
        heartbeat_stale_trial_callback=_retry(),
    )
    name = options.folder.name
    study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True)
    if options.sampler == "grid":
        grid = {name: _texts(values) for name, values in options.space.items()}
        study.sampler = optuna.samplers.GridSampler(grid, seed=options.seed)
        config = {**config, "seed": options.seed}  # Processes share its order.
    else:
        # The first settings are drawn: others than before if a study is continued.
        draw = np.random.SeedSequence([options.seed, len(study.trials)])
        seed = int(draw.generate_state(1)[0])
        study.sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=4)
    kept = study.user_attrs.get("config", config)
    names = {**config, **kept}
    if differing := [each for each in names if kept.get(each) != config.get(each)]:
        raise ValueError(
            f"The study {name!r} has another {' and '.join(differing)}. Use its own, "
            "or another folder."
        )
    study.set_user_attr("config", config)
    return study


def optimize(study, train, count, folder):
    """Run the trials that a study lacks; trials whose process was killed run again.

    Args:
        study: The study.
        train: A function of a trial and of its folder that returns the objective.
        count: The number of trials that are wanted.
        folder: The folder of the study.
    """
    import optuna

    def objective(trial):
        # A retry has the attributes of the trial whose process was stopped.
        number = trial.user_attrs.get("number", trial.number)
        trial.set_user_attr("number", number)
        own = folder / f"{number:04d}"
        try:
            return train(trial, own)
        except KeyboardInterrupt:
            _retry()(study, study.trials[trial.number])
            raise
        except Exception as error:
            shutil.rmtree(own, ignore_errors=True)
            trial.set_user_attr("error", f"{type(error).__name__}: {error}"[:500])
            raise optuna.TrialPruned from error

    states = optuna.trial.TrialState
    begun = (states.COMPLETE, states.PRUNED, states.RUNNING)
    optuna.storages.fail_stale_trials(study)
    if len(study.get_trials(states=begun)) < count:
        enough = optuna.study.MaxTrialsCallback(count, begun)
        study.optimize(objective, callbacks=[enough])


def suggest(trial, options):
    """The settings of a trial: values of the lists, or with `gp` between numbers."""
    found = {}
    for name, values in options.space.items():
        between = box_around(values) if options.sampler == "gp" else None
        if between:
            kind, ends = between
            take = trial.suggest_int if kind is int else trial.suggest_float
            found[name] = take(name, **ends)
        else:
            texts = _texts(values)
            value = values[texts.index(trial.suggest_categorical(name, texts))]
            found[name] = tuple(value) if isinstance(value, list) else value
    return found


def _retry():
    import optuna

    return optuna.storages.RetryHeartbeatStaleTrialCallback(MAX_RETRIES)


def _texts(values):
    """The values, with those that Optuna does not take as JSON."""
    return [json.dumps(v) if isinstance(v, (list, dict)) else v for v in values]
