"""Train any architecture with any gate on any data set that the package knows.

    python scripts/train.py --gate dselect_k --num-nonzeros 4 --out runs/dselect_k

writes the model, the gate history, the metrics and the pictures into the folder.
"""

import argparse
import json
import os
import sys
from typing import Any


def main(arguments=None):
    """Parse, train, and say what came out and where it is."""
    choose_backend(arguments)
    # The backend is chosen: Keras may be imported.
    from dselectk_keras import datasets, gates
    from dselectk_keras.experiments import TrainingRun
    from dselectk_keras.models import ARCHITECTURES

    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--data", choices=datasets.NAMES, default="synthetic_moe", help="data set")
    add(
        "--data-options",
        type=json.loads,
        default={},
        metavar="JSON",
        help='its arguments, such as \'{"data_dir": "data"}\'',
    )
    add("--num-tasks", type=int, help="tasks of synthetic_moe: 16, 32, 64 or 128")
    add("--num-train", type=int, help="training examples to generate")
    add("--architecture", choices=ARCHITECTURES, default="mmoe", help="architecture")
    add(
        "--architecture-options",
        type=json.loads,
        default={},
        metavar="JSON",
        help="its options, such as '{\"levels\": 3}'",
    )
    add("--gate", choices=gates.GATES, default="dselect_k", help="gate")
    add(
        "--gate-options",
        type=json.loads,
        default={},
        metavar="JSON",
        help="its arguments, such as '{\"temperature\": 0.5}'",
    )
    add("--num-nonzeros", type=int, default=4, help="experts of a sparse gate")
    add("--gamma", type=float, default=1.0, help="width of DSelect-k's smooth step")
    add(
        "--entropy",
        type=float,
        nargs=2,
        default=(1e-5, 1e-2),
        metavar=("BEGIN", "END"),
        help="DSelect-k's entropy weight at the begin and the end of the run",
    )
    add("--per-example", action="store_true", help="gates look at the features")
    add("--num-experts", type=int, help="experts; the data's own number if left out")
    add("--units", type=int, nargs="+", help="widths of an expert's layers")
    add("--epochs", type=int, default=50, help="passes over the training data")
    add("--batch-size", type=int, default=256, help="examples in a step")
    add("--learning-rate", type=float, default=0.01, help="of Adam")
    add("--seed", type=int, default=0, help="of the data, the weights and the order")
    add("--out", default="runs/train", help="folder to write into")
    add("--overwrite", action="store_true", help="replace a finished run")
    add("--quiet", action="store_true", help="no progress bar")
    options: dict[str, Any] = vars(parser.parse_args(arguments))

    options.pop("backend")
    options["entropy"] = tuple(options["entropy"])
    out, overwrite = options.pop("out"), options.pop("overwrite")
    progress = not options.pop("quiet")
    data_options = options.pop("data_options") | {
        name: value
        for name in ("num_tasks", "num_train")
        if (value := options.pop(name)) is not None
    }
    try:
        run = TrainingRun(**options, data_options=data_options)
        results = run.run(out, overwrite, progress)
    except (OSError, TypeError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")

    print(f"{results['label']}: {results['num_params']} parameters")
    print(f"  test loss per task   {results['test_task_loss']:.5f}")
    for name, value in results.get("gates", {}).items():
        print(f"  {name.replace('_', ' '):20s} {value:.4g}")
    print(f"  seconds              {results['seconds']:.1f}")
    print(f"Written to {out}.")


def make_parser(doc):
    """A parser described by a docstring's first line, with the choice of a backend."""
    parser = argparse.ArgumentParser(
        description=doc.split("\n", maxsplit=1)[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_backend(parser)
    return parser


def add_backend(parser):
    """Add the option that says which backend to train on."""
    parser.add_argument(
        "--backend",
        choices=("tensorflow", "jax", "torch"),
        default=os.environ.get("KERAS_BACKEND", "tensorflow"),
        help="Keras backend",
    )


def choose_backend(arguments=None):
    """Tell Keras the backend before anything imports it."""
    parser = argparse.ArgumentParser(add_help=False)
    add_backend(parser)
    os.environ["KERAS_BACKEND"] = parser.parse_known_args(arguments)[0].backend
    os.environ.setdefault("MPLBACKEND", "agg")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


if __name__ == "__main__":
    sys.exit(main())
