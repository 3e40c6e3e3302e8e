"""Tune fields of a training run with Optuna, in one process or several.

    python scripts/tune.py runs/gamma --space '{"gamma": [1.0, 3.0, 10.0]}'

trains one run per setting, keeps the study in a database, and prints the best setting.
The same command continues a study. Fields are the options of `scripts/train.py`.
"""

import collections
import dataclasses
import json
import math
import pathlib
import sys

from common.command_line import add_backend, choose_backend, json_object, make_parser


def main(arguments=None):
    """Parse the arguments, train what the study lacks, and print the best setting."""
    parser = make_parser(__doc__)
    add_backend(parser)
    add = parser.add_argument
    add("folder", type=pathlib.Path, help="folder of the runs; its name is the study's")
    text = "JSON: lists of values; if omitted, those of the gate in common/spaces.py"
    add("--space", type=json_object, help=text)
    add("--set", nargs="+", default=[], metavar="FIELD=VALUE", help="of all runs")
    add("--trials", type=int, default=20, help="settings to try; 0 only prints")
    add("--sampler", default="grid", choices=("grid", "gp"), help="sampler")
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
    from common.spaces import space_of
    from common.study import open_study, optimize, suggest
    from common.training_run import TrainingRun

    run = set_fields(TrainingRun(), options.set)
    given = {text.partition("=")[0] for text in options.set}
    if options.space is None:
        options.space = space_of(run, given)
    _check_fields(run, options.space, given)
    config = {"run": run.config, "space": options.space, "sampler": options.sampler}
    config |= {"binary": options.binary, "at_most": options.at_most}
    study = open_study(options, config)

    def objective(trial, folder):
        own = dataclasses.replace(run, **suggest(trial, options))
        return _train(trial, own, folder, options)

    count = options.trials
    if options.sampler == "grid":
        count = min(count, math.prod(map(len, options.space.values())))
    optimize(study, objective, count, options.folder)
    return study


def _check_fields(run, space, given):
    """Refuse fields that there are not, or that no run of the study would read."""
    known = {field.name for field in dataclasses.fields(run)} - {"seed"}
    for name, values in space.items():
        if name not in known or not isinstance(values, list) or not values:
            raise ValueError(
                "--space must give lists of values for fields of `TrainingRun`. "
                f"Received: {name}={values!r}."
            )
    unused = set() if {"gate", "architecture"} & space.keys() else {*run.unused}
    if lost := sorted((space.keys() | given) & unused):
        raise ValueError(
            f"{', '.join(lost)} would do nothing: no run of {run.label} reads it."
        )


def _train(trial, run, folder, options):
    """Train with the settings of a trial, and return the validation loss."""
    import keras

    results = run.run(folder, progress=False, resume=True)
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
