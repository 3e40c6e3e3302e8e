"""Train an architecture with a gate on a data set of the package.

    python scripts/train.py --gate dselect_k --num-nonzeros 4 --out runs/dselect_k

writes the model, the gate history, the metrics and the figures to the folder.

    python scripts/train.py --table clicks.parquet --targets click purchase

trains a `TableModel` on a table of your own, CSV or Parquet, with strings, dates and
missing values. Targets have classes, or are numbers. It prints how good each task is
and what it costs to serve, and writes a model that takes the columns: `model.keras`,
and on TensorFlow a SavedModel.
"""

import dataclasses
import shlex
import sys
from typing import Any

from common import command_line as cli
from common.training_fields import TrainingFields

# What a table is read by, the fields of `Table`; and other options of --table.
OF_TABLES = "targets", "drop", "split_by", "test", "encoding", "hashed"
SWITCHES = "quick", "compare", "mixed_precision"
OF_BOTH = "backend", "table", "seed", "out", "overwrite", "log_dir", "quiet"


def parse(arguments):
    """Read the command line; return the parser and a dict."""
    parser = cli.make_parser(__doc__)
    cli.add_backend(parser)
    add = parser.add_argument
    add("--table", help="a CSV or Parquet file of your own, or a folder of such files")
    add("--targets", nargs="+", help="the columns of --table to predict")
    add("--drop", nargs="+", default=[], help="columns of --table to leave out")
    add("--test", metavar="FILE", help="a file of test rows, for --table")
    date = "a column of --table, such as a date: the last rows are the test, not drawn"
    add("--split-by", metavar="COLUMN", help=date)
    add("--encoding", default="utf-8", help="of a --table of text, such as latin-1")
    ids = "columns of --table that are ids, and their numbers of embeddings"
    own: Any = {"type": cli.name_and_count, "default": {}, "metavar": "NAME=N"}
    add("--hashed", nargs="+", help=ids, **own)
    add("--quick", action="store_true", help="train one network on --table once")
    trees = "train boosted trees, extra trees and a linear model on --table too"
    add("--compare", action="store_true", help=trees)
    half = "compute in bfloat16, for --table on a recent GPU"
    add("--mixed-precision", action="store_true", help=half)
    choices = {
        "architecture": cli.registered("ARCHITECTURES", "models", "baselines"),
        "gate": cli.registered("GATES", "gates", "baselines"),
    }
    cli.add_fields(parser, TrainingFields, choices)
    add("--num-tasks", type=int, help="tasks of synthetic_moe: 16, 32, 64 or 128")
    add("--num-train", type=int, help="number of training examples to generate")
    add("--out", default="runs/train", help="output folder")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--overwrite", action="store_true", help="replace a run")
    resume = "go on with a run that was killed or stopped, if there is one"
    again.add_argument("--resume", action="store_true", help=resume)
    add("--log-dir", help="folder for TensorBoard; none is written if omitted")
    add("--quiet", action="store_true", help="show no progress bar")
    options = vars(parser.parse_args(arguments))
    others, why = (*OF_TABLES, *SWITCHES), "for a --table."
    if options["table"]:
        others, why = {*options} - {*others, *OF_BOTH}, "not for a --table."
    cli.refuse(parser, arguments, cli.as_options(others), why)
    return parser, options


def main(arguments=None):
    """Parse the arguments, train, and print the results and where they are."""
    given = [*map(str, sys.argv[1:] if arguments is None else arguments)]
    parser, options = parse(given)
    cli.choose_backend(options["backend"])
    train = _train_table if options["table"] else _train
    try:
        print(train(options, given, parser))
    except (OSError, TypeError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        again = [each for each in given if each not in {"--overwrite", "--resume"}]
        command = shlex.join(["python", "scripts/train.py", *again, "--resume"])
        kept = f"{options['out']} keeps the epochs that are done. To go on: {command}"
        parser.exit(130, f"\nStopped. {kept}\n")
    print(f"Written to {options['out']}.")


def _train_table(options, *_):
    """Train on a table; the report, as text."""
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
    report = train_table(
        TableModel(**few, **shared, verbose=int(not options["quiet"])),
        Table(options["table"], **reading),
        *(options["out"], options["overwrite"], callbacks, options["compare"]),
    )
    return describe(report)


def _train(options, given, parser):
    """Train on a data set of the package; the results, as text."""
    from common.environment import device
    from common.training_run import TrainingRun

    settings: dict[str, Any] = {}
    for field in dataclasses.fields(TrainingRun):
        value = options[field.name]
        settings[field.name] = tuple(value) if isinstance(value, list) else value
    sizes = {name: options[name] for name in ("num_tasks", "num_train")}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    settings["data_options"] = settings["data_options"] | sizes
    run = TrainingRun(**settings)
    why = f"for other gates. Received: --gate {run.gate}."
    if not run.has_gate:
        why = f"for gates, of which this has none: --architecture {run.architecture}."
    cli.refuse(parser, given, cli.as_options(run.unused), why)
    print(f"Training on {device()}.", flush=True)
    progress, more = not options["quiet"], (options["resume"], options["log_dir"])
    results = run.run(options["out"], options["overwrite"], progress, *more)
    gates = results.get("gates", {}).items()
    lines = [
        f"{results['label']}: {results['num_params']} parameters",
        f"  test loss per task   {results['test_task_loss']:.5f}",
        *(f"  {name.replace('_', ' '):20s} {value:.4g}" for name, value in gates),
        f"  seconds              {results['seconds']:.1f}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
