"""Compare all gates that select experts, on synthetic and real problems.

    python scripts/gatebench.py --data-dir DATA

tunes and trains every method on every problem with the same budget, and writes ranks, a
table for each problem and a picture. An interrupted run is continued.
"""

import dataclasses
import pathlib
import sys

from command_line import (
    add_backend,
    check_names,
    choose_backend,
    make_parser,
    without_data_dir,
)

PRESETS = ("smoke", "small", "cpu", "gpu")


def main(arguments=None):
    """Parse, run, and say where the page is."""
    options = parse(arguments)
    choose_backend(options.backend)
    from gate_comparison import GateComparison

    from experiments import Results, reproduce, write_page

    experiment = GateComparison.presets()[options.preset]
    changes = {"data_dir": options.data_dir}
    for name in ("problems", "methods"):
        if getattr(options, name):
            changes[name] = tuple(getattr(options, name))
    experiment = dataclasses.replace(experiment, **changes)
    for name, chosen in (
        ("problem", experiment.problems),
        ("method", experiment.methods),
    ):
        check_names(name, chosen, getattr(GateComparison(), f"{name}s"))
    if options.list:
        print("\n".join([*experiment.problems, "", *experiment.methods]))
        return 0
    out = pathlib.Path(options.out)
    if options.pages_only:
        results = Results(experiment, options.preset, out)
    else:
        given = sys.argv[1:] if arguments is None else arguments
        command = ["python scripts/gatebench.py", *without_data_dir(given)]
        results = reproduce(
            experiment,
            preset=options.preset,
            folder=out,
            together=max(experiment.trials, experiment.seeds),
            fresh=options.fresh,
            command=" ".join(command),
        )
    if not results.complete:
        sys.exit("Not all methods have been run: there is no page yet.")
    print(f"Written to {write_page(results, out)}.")
    return 0


def parse(arguments):
    """Read the command line."""
    parser = make_parser(__doc__)
    add_backend(parser)
    add = parser.add_argument
    add(
        "--preset",
        choices=PRESETS,
        default="small",
        help="smoke: seconds, on noise in place of real data; small: an hour of two "
        "cores; cpu: a day of two cores; gpu: more data and seeds",
    )
    add("--problems", nargs="+", metavar="NAME", help="problems; all if omitted")
    add("--methods", nargs="+", metavar="NAME", help="methods; all if omitted")
    add("--list", action="store_true", help="list problems and methods, and stop")
    add("--data-dir", help="folder with the folders of the real data")
    add("--fresh", action="store_true", help="discard existing runs, and start again")
    add("--pages-only", action="store_true", help="write the page, run nothing")
    add("--out", default="build/gatebench", help="folder of results and page")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
