"""Train an architecture with a gate on a data set of the package.

    python scripts/train.py --gate dselect_k --num-nonzeros 4 --out runs/dselect_k

writes the model, the gate history, the metrics and the figures to the folder.

    python scripts/train.py --table clicks.parquet --targets click purchase

trains a `TableModel` on a table of your own, CSV or Parquet, with strings, dates and
missing values. Targets have classes, or are numbers. It prints how good each task is
and what it costs to serve, and writes a model that takes the columns: `model.keras`,
and on TensorFlow a SavedModel. With `--gate`, `--architecture` or `--num-nonzeros`, it
trains a network with gates in its place.
"""

import argparse
import shlex
import sys
from typing import Any, NoReturn

from common.command_line import (
    OF_TABLES,
    add_backend,
    add_table,
    choose_backend,
    json_object,
    make_parser,
    note_selection,
    refuse,
    refuse_without_table,
    registered,
)

# What builds a network with gates for a --table, and what such a network alone reads.
BUILD_A_NETWORK = "--gate", "--architecture", "--num-nonzeros"
OF_NETWORKS = (
    *("architecture_options", "gate_options", "gamma", "entropy", "decide_by"),
    *("per_example", "num_experts", "units", "epochs", "batch_size", "learning_rate"),
)
# Of a --table alone.
SWITCHES = "mixed_precision", "quick", "compare"


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
    add_table(parser)
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

    choose_backend(options.pop("backend"))
    out = options["out"]
    given = sys.argv[1:] if arguments is None else arguments
    if options["table"]:
        _run_table(options, given, parser)
        print(f"Written to {out}.")
        return
    results = _run(options, given, parser)
    print(f"{results['label']}: {results['num_params']} parameters")
    print(f"  test loss per task   {results['test_task_loss']:.5f}")
    for name, value in results.get("gates", {}).items():
        print(f"  {name.replace('_', ' '):20s} {value:.4g}")
    print(f"  seconds              {results['seconds']:.1f}")
    print(f"Written to {out}.")


def _run_table(options, arguments, parser: argparse.ArgumentParser):
    """Train on a table, print the report, and end with a message if that fails."""
    others = "data", "data-options", "num-tasks", "num-train"
    not_used = [f"--{option}" for option in others]
    refuse(parser, arguments, not_used, "not for tables. Received: --table.")
    given = {each.partition("=")[0] for each in map(str, arguments)}
    has_gates = bool(given & {*BUILD_A_NETWORK})
    if has_gates:
        why = "for a --table without --gate, --architecture and --num-nonzeros."
        refuse(parser, arguments, ["--quick"], why)
        _check_gate(options, arguments, parser)
    else:
        names = [f"--{each.replace('_', '-')}" for each in OF_NETWORKS]
        why = "for a network on a --table: pass also --gate or --architecture."
        refuse(parser, arguments, names, why)
    import keras

    from common.table_run import describe, train_table
    from common.training_run import TrainingRun
    from dselectk_keras import TableModel

    if options.pop("mixed_precision"):
        keras.config.set_dtype_policy("mixed_bfloat16")
    path, targets = options.pop("table"), options.pop("targets")
    more = {name: options.pop(name) for name in OF_TABLES[1:]}
    more["hashed"] = dict(more["hashed"])
    names = ("out", "overwrite", "quiet", "resume", "log_dir")
    out, overwrite, quiet, *others_of_run = (options[name] for name in names)
    arguments_of_run = out, overwrite, not quiet, *others_of_run
    left_out = {*names, *(option.replace("-", "_") for option in others)}
    settings = {name: each for name, each in options.items() if name not in left_out}
    settings["num_experts"] = settings["num_experts"] or 8
    quick, more["compare"] = settings.pop("quick"), settings.pop("compare")
    try:
        run: Any = TrainingRun(**settings) if has_gates else None
        if has_gates:
            note_selection(run)
        else:
            few: Any = {"members": 1, "time_limit": 0} if quick else {}
            run = TableModel(
                **few,
                hashed=more["hashed"],
                seed=options["seed"],
                verbose=int(not quiet),
            )
        report = train_table(run, path, targets, *arguments_of_run, **more)
    except KeyboardInterrupt:
        _say_how_to_go_on(parser, out, arguments)
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
    if options["table"] and not run.has_gate:
        not_used.append("--num-experts")
    refuse(parser, arguments, not_used, why)


def _run(options, arguments, parser: argparse.ArgumentParser):
    """Train with these options, and end with a message if that fails."""
    refuse_without_table(parser, arguments, *SWITCHES)
    _check_gate(options, arguments, parser)
    from common.environment import device
    from common.training_run import TrainingRun

    print(f"Training on {device()}.", flush=True)
    for name in ("table", *SWITCHES, *OF_TABLES):
        options.pop(name)
    out, overwrite = options.pop("out"), options.pop("overwrite")
    progress, resume = not options.pop("quiet"), options.pop("resume")
    log_dir = options.pop("log_dir")
    data_options = options.pop("data_options") | {
        name: value
        for name in ("num_tasks", "num_train")
        if (value := options.pop(name)) is not None
    }
    try:
        run = TrainingRun(**options, data_options=data_options)
        note_selection(run)
        results = run.run(out, overwrite, progress, resume, log_dir)
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
