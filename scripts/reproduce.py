"""Reproduce a figure or a table of a paper.

    python scripts/reproduce.py dselectk-fig5

tunes, trains and writes results into docs/results, and a page with the paper's numbers
beside them into docs/reproduction. What has been run is not run again.
"""

import argparse
import dataclasses
import os
import pathlib
import sys

PRESETS = ("smoke", "cpu", "paper")
INTRODUCTION = (
    "Every figure and table of the four papers that needs no private data: the paper's "
    "numbers beside ours, a verdict, and the command that made them. Verdicts and "
    "numbers are computed from the committed results in `docs/results`; no number of "
    "ours is typed by hand, and no seed is left out."
)


def main(arguments=None):
    """Parse, run, and say where the page is."""
    options = parse(arguments)
    if options.backend:
        os.environ["KERAS_BACKEND"] = options.backend
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # The backend is chosen: Keras may be imported.
    from dselectk_keras.experiments import Results, pages, reproduce
    from papers import EXPERIMENTS

    if options.list:
        for name, kind in EXPERIMENTS.items():
            print(f"{name:28s}{kind.where}: {kind.title}")
        return 0
    names = options.names or list(EXPERIMENTS)
    if unknown := [name for name in names if name not in EXPERIMENTS]:
        sys.exit(f"There is no {unknown[0]!r}. Known: {', '.join(EXPERIMENTS)}.")
    given = sys.argv[1:] if arguments is None else arguments
    command = " ".join(["python scripts/reproduce.py", *_public(given)])
    # What is committed stays free of runs that only show that everything works.
    base = "build/smoke" if options.preset == "smoke" else "docs"
    root = pathlib.Path(options.out or f"{base}/results")
    site = pathlib.Path(options.pages or f"{base}/reproduction")
    changes = {"data_dir": options.data_dir}
    if options.seeds is not None:
        changes["seeds"] = options.seeds
    begun = set()  # Some experiments share their runs: those begin anew only once.
    for number, name in enumerate(names, start=1):
        experiment = EXPERIMENTS[name].presets()[options.preset]
        experiment = dataclasses.replace(experiment, **changes)
        if options.pages_only:
            results = Results(experiment, options.preset, root)
        else:
            print(f"{name} ({number} of {len(names)}): {experiment.title}", flush=True)
            results = reproduce(
                experiment,
                preset=options.preset,
                folder=root,
                together=options.together,
                fresh=options.fresh and experiment.source not in begun,
                command=command,
            )
            begun.add(experiment.source)
        if not results.complete:
            print(f"{name} has not been run to its end: no page.")
        else:
            print(f"Written to {pages.write_page(results, site)}.")
    write_index(site, root, options.preset)
    return 0


def write_index(site, root, preset):
    """List all experiments that have been run, with their verdicts."""
    from dselectk_keras.experiments import Results, pages
    from papers import EXPERIMENTS

    every = []
    for name, kind in EXPERIMENTS.items():
        if not (site / f"{name}.md").exists():
            continue
        try:
            results = Results(kind.presets()[preset], preset, root)
        except ValueError as error:
            print(f"Left out of the index: {error}")
            continue
        if results.complete:
            every.append(results)
    index = pages.index(every, INTRODUCTION)
    (site / "index.md").write_text(index, encoding="utf-8")


def parse(arguments):
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n", maxsplit=1)[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="such as dselectk-fig5; all if none")
    add("--list", action="store_true", help="list the names, and stop")
    add(
        "--preset",
        choices=PRESETS,
        default="cpu",
        help="smoke: seconds, on noise in place of real data; cpu: minutes to an hour; "
        "paper: the full protocol, for a GPU",
    )
    add("--seeds", type=int, help="seeds to report; the preset's own if left out")
    add("--backend", choices=("tensorflow", "jax", "torch"), help="Keras' backend")
    add("--data-dir", help="folder with the files of real data")
    add(
        "--together",
        type=int,
        default=1,
        help="seeds or trials in one program; what is cut short loses these",
    )
    add("--fresh", action="store_true", help="throw away what has been run")
    add("--pages-only", action="store_true", help="write the pages, run nothing")
    add("--out", help="folder of the results: docs/results if left out")
    add("--pages", help="folder of the pages: docs/reproduction if left out")
    return parser.parse_args(arguments)


def _public(given):
    """The arguments, with the folder of the data left open."""
    given = list(given)
    for place, argument in enumerate(given):
        if argument.startswith("--data-dir="):
            given[place] = "--data-dir=DATA"
        elif place and given[place - 1] == "--data-dir":
            given[place] = "DATA"
    return given


if __name__ == "__main__":
    sys.exit(main())
