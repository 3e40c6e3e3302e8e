"""Train an architecture with a gate on a data set of the package.

    python scripts/train.py --gate dselect_k --num-nonzeros 4 --out runs/dselect_k

writes the model, the gate history, the metrics and the figures to the folder.

    python scripts/train.py --table clicks.parquet --targets click purchase

trains a `TableModel` on a table of your own, CSV or Parquet, with strings, dates and
missing values. Targets have classes, or are numbers. It prints how good each task is
and what it costs to serve, and writes a model that takes the columns: `model.keras`,
and on TensorFlow a SavedModel.
"""

import argparse
import dataclasses
import shlex
import sys
from typing import Any, NoReturn

from common.command_line import (
    add_backend,
    choose_backend,
    json_object,
    make_parser,
    name_and_count,
    note_selection,
    refuse,
    registered,
)

# What a table is read by, the fields of `Table`; and other options of --table.
OF_TABLES = "targets", "drop", "split_by", "test", "encoding", "hashed"
SWITCHES = "quick", "compare", "mixed_precision"
OF_BOTH = "backend", "table", "seed", "out", "overwrite", "log_dir", "quiet"


def _add_table(add):
    """Add the options of a table of one's own."""
    add("--table", help="a CSV or Parquet file of your own, or a folder of such files")
    add("--targets", nargs="+", help="the columns of --table to predict")
    add("--drop", nargs="+", default=[], help="columns of --table to leave out")
    add("--test", metavar="FILE", help="a file of test rows, for --table")
    add(
        "--split-by",
        metavar="COLUMN",
        help="a column of --table, such as a date: the last rows are the test; drawn "
        "if omitted",
    )
    add("--encoding", default="utf-8", help="of a --table of text, such as latin-1")
    add(
        "--hashed",
        nargs="+",
        type=name_and_count,
        default={},
        metavar="NAME=N",
        help="columns of --table that are ids, and their numbers of embeddings",
    )
    add("--quick", action="store_true", help="train one network on --table once")
    add(
        "--compare",
        action="store_true",
        help="train boosted trees, extra trees and a linear model on --table too",
    )
    add(
        "--mixed-precision",
        action="store_true",
        help="compute in bfloat16, for --table on a recent GPU",
    )


def main(arguments=None):
    """Parse the arguments, train, and print the results and where they are."""
    parser = make_parser(__doc__)
    add_backend(parser)
    add = parser.add_argument
    add(
        "--data",
        default="synthetic_moe",
        help="name of the data set: see docs/datasets.md",
    )
    add(
        "--data-options",
        type=json_object,
        default={},
        metavar="JSON",
        help="arguments of the data set, such as '{\"num_train\": 1000}'",
    )
    _add_table(add)
    add("--num-tasks", type=int, help="tasks of synthetic_moe: 16, 32, 64 or 128")
    add("--num-train", type=int, help="number of training examples to generate")
    add(
        "--architecture",
        choices=registered("ARCHITECTURES", "models", "baselines"),
        default="mmoe",
        help="name of the architecture",
    )
    add(
        "--architecture-options",
        type=json_object,
        default={},
        metavar="JSON",
        help="options of the architecture, such as '{\"levels\": 3}'",
    )
    add(
        "--gate",
        choices=registered("GATES", "gates", "baselines"),
        default="dselect_k",
        help="name of the gate",
    )
    add(
        "--gate-options",
        type=json_object,
        default={},
        metavar="JSON",
        help="arguments of the gate, such as '{\"expert_dropout\": 0.1}'",
    )
    add(
        "--num-nonzeros",
        type=int,
        default=4,
        help="largest number of experts per task, for sparse gates",
    )
    add("--gamma", type=float, default=3.0, help="width of DSelect-k's smooth step")
    add(
        "--entropy",
        type=float,
        nargs=2,
        metavar=("START", "END"),
        help="entropy weight of DSelect-k at the start and at the end of training; "
        "none if omitted",
    )
    add(
        "--decide-by",
        type=float,
        default=0.5,
        help="part of the training after which DSelect-k decides on its experts, and "
        "experts chosen by fit stay; 0 leaves it to the entropy term",
    )
    add(
        "--per-example",
        action="store_true",
        help="compute the gate weights from each example's features",
    )
    add(
        "--num-experts",
        type=int,
        help="number of experts; if omitted, that of the data set, or 8",
    )
    add("--units", type=int, nargs="+", help="units of each layer of an expert")
    add("--epochs", type=int, default=50, help="number of training epochs")
    add("--batch-size", type=int, default=256, help="examples per training step")
    add("--learning-rate", type=float, default=0.01, help="learning rate of Adam")
    add(
        "--seed",
        type=int,
        default=0,
        help="seed of the data, the initial weights and the order of the examples",
    )
    add("--out", default="runs/train", help="output folder")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--overwrite", action="store_true", help="replace a run")
    again.add_argument(
        "--resume",
        action="store_true",
        help="go on with a run that was killed or stopped, if there is one",
    )
    add("--log-dir", help="folder for TensorBoard; none is written if omitted")
    add("--quiet", action="store_true", help="show no progress bar")
    options: dict[str, Any] = vars(parser.parse_args(arguments))

    given = sys.argv[1:] if arguments is None else arguments
    of_tables = (*OF_TABLES, *SWITCHES)
    if options["table"]:
        others, why = {*options} - {*of_tables, *OF_BOTH}, "not for a --table."
    else:
        others, why = of_tables, "for a --table."
    refuse(parser, given, [f"--{each.replace('_', '-')}" for each in others], why)
    choose_backend(options.pop("backend"))
    if options["table"]:
        _run_table(options, parser)
        print(f"Written to {options['out']}.")
        return
    results = _run(options, given, parser)
    out = options["out"]
    print(f"{results['label']}: {results['num_params']} parameters")
    print(f"  test loss per task   {results['test_task_loss']:.5f}")
    for name, value in results.get("gates", {}).items():
        print(f"  {name.replace('_', ' '):20s} {value:.4g}")
    print(f"  seconds              {results['seconds']:.1f}")
    print(f"Written to {out}.")


def _run_table(options, parser: argparse.ArgumentParser):
    """Train on a table, print the report, and end with a message if that fails."""
    import keras

    from common.table_run import Table, describe, train_table
    from dselectk_keras import TableModel

    if options["mixed_precision"]:
        keras.config.set_dtype_policy("mixed_bfloat16")
    reading = {name: options[name] for name in OF_TABLES}
    reading["hashed"] = dict(reading["hashed"])
    few: Any = {"members": 1, "time_limit": 0} if options["quick"] else {}
    shared = {"hashed": reading["hashed"], "seed": options["seed"]}
    callbacks = []
    if options["log_dir"]:
        callbacks = [keras.callbacks.TensorBoard(options["log_dir"], write_graph=False)]
    try:
        report = train_table(
            TableModel(**few, **shared, verbose=int(not options["quiet"])),
            Table(options["table"], **reading),
            *(options["out"], options["overwrite"], callbacks, options["compare"]),
        )
    except (OSError, TypeError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    print(describe(report))


def _check_gate(options, arguments, parser: argparse.ArgumentParser):
    """Refuse options that the gate does not have, or an architecture without gates."""
    from common.training_run import TrainingRun

    options["entropy"] = options["entropy"] and tuple(options["entropy"])
    names = "architecture", "gate", "data", "units"
    try:
        run = TrainingRun(**{name: options[name] for name in names})
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    why = f"for other gates. Received: --gate {run.gate}."
    if not run.has_gate:
        why = f"for gates, of which this has none: --architecture {run.architecture}."
    not_used = [f"--{name.replace('_', '-')}" for name in run.unused]
    refuse(parser, arguments, not_used, why)


def _run(options, arguments, parser: argparse.ArgumentParser):
    """Train with these options, and end with a message if that fails."""
    _check_gate(options, arguments, parser)
    from common.environment import device
    from common.training_run import TrainingRun

    print(f"Training on {device()}.", flush=True)
    names = [field.name for field in dataclasses.fields(TrainingRun)]
    settings, out = {name: options[name] for name in names}, options["out"]
    for name in ("num_tasks", "num_train"):
        if options[name] is not None:
            settings["data_options"] = settings["data_options"] | {name: options[name]}
    try:
        run = TrainingRun(**settings)
        note_selection(run)
        progress, more = not options["quiet"], (options["resume"], options["log_dir"])
        results = run.run(out, options["overwrite"], progress, *more)
    except KeyboardInterrupt:
        _say_how_to_go_on(parser, out, arguments)
    except (OSError, TypeError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    return results


def _say_how_to_go_on(parser: argparse.ArgumentParser, out, arguments) -> NoReturn:
    given = [each for each in arguments if each not in {"--overwrite", "--resume"}]
    parser.exit(
        130,
        f"\nStopped. {out} keeps the epochs that are done. To go on: "
        f"{shlex.join(['python', 'scripts/train.py', *given, '--resume'])}\n",
    )


if __name__ == "__main__":
    sys.exit(main())
