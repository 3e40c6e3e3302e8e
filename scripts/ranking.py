"""Compare models of the same size on MovieLens, as two ranking tasks.

    python scripts/ranking.py --data-dir data

tunes and trains each model, serves it, and writes docs/results/ranking_cpu.json, from
which `python docs/blocks.py` makes the table of docs/compared.md. What has been run is
not run again. It needs TensorFlow, and about half an hour on one core.
"""

import pathlib
import sys

from command_line import choose_backend, make_parser, without_data_dir

ROOT = pathlib.Path(__file__).parents[1]


def main(arguments=None):
    """Run what is missing, and say where the results are."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--preset", choices=("smoke", "cpu"), default="cpu", help="smoke: seconds")
    add("--data-dir", help="folder with MovieLens; it is downloaded if left out")
    add("--seeds", type=int, help="seeds to report; five if left out")
    add("--out", default=str(ROOT / "docs/results"), help="folder of the results")
    options = parser.parse_args(arguments)
    # The latency is that of a SavedModel, which TensorFlow writes.
    choose_backend("tensorflow")
    import dataclasses

    from ranking_experiment import Ranking

    from experiments import reproduce

    experiment = dataclasses.replace(
        Ranking.presets()[options.preset], data_dir=options.data_dir
    )
    if options.seeds:
        experiment = dataclasses.replace(experiment, seeds=options.seeds)
    given = sys.argv[1:] if arguments is None else arguments
    results = reproduce(
        experiment,
        preset=options.preset,
        folder=options.out,
        command=" ".join(["python scripts/ranking.py", *without_data_dir(given)]),
    )
    print(f"Written to {results.path}. Then run python docs/blocks.py.")


if __name__ == "__main__":
    sys.exit(main())
