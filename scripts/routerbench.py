"""Compare gates that choose experts for each example, on generated and real problems.

    python scripts/routerbench.py --data-dir DATA

trains all routers on all problems, and writes results, a page and a picture. An
interrupted run is continued, also with more draws. It needs JAX, which trains the
settings of a router as one program.
"""

import importlib.util
import pathlib
import shlex
import sys

from common.command_line import (
    check_names,
    choose_backend,
    count,
    make_parser,
    refuse,
    without_data_dir,
)


def main(arguments=None):
    """Parse, run, and say where the page is."""
    options = parse(arguments)
    has_jax = importlib.util.find_spec("jax") is not None
    if not (has_jax or options.pages_only or options.dry_run):
        sys.exit(
            "The comparison of routers needs JAX, which trains their settings as one "
            "program. Received: no package `jax`. Run in a copy of the repository: "
            'pip install ".[jax]".'
        )
    choose_backend("jax" if has_jax else None)
    from research.benches.router_comparison import page
    from research.benches.router_comparison.bench import Routers
    from research.benches.router_comparison.problems import PROBLEMS
    from research.engine import Results, reproduce
    from research.engine.plan import cost

    names = options.problems or list(PROBLEMS)
    check_names("problem", names, PROBLEMS)
    out = pathlib.Path(options.out)
    every = page.read(page.COMMITTED) if options.dry_run else {}
    given = sys.argv[1:] if arguments is None else arguments
    command = shlex.join(["python", "scripts/routerbench.py", *without_data_dir(given)])
    for place, name in enumerate(names, 1):
        bench = Routers(problem=name, seeds=options.draws, data_dir=options.data_dir)
        if options.dry_run:
            committed = every.get(name, Results(bench, bench.preset))
            done = Results(bench, bench.preset, out)
            print(f"{name}: {cost(bench, committed, done)}")
        elif not options.pages_only:
            print(f"Problem {place} of {len(names)}: {name}", flush=True)
            saved = {"preset": bench.preset, "folder": out, "command": command}
            reproduce(bench, **saved, together=10**6, fresh=options.fresh)
    if not options.dry_run:
        print(f"Written to {page.write(out)}.")
    return 0


def parse(arguments):
    """Read the command line."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--problems", nargs="+", metavar="NAME", help="problems; all if omitted")
    add("--draws", type=count, default=4, help="number of draws that are reported")
    add("--data-dir", default=".", help="folder with the folders of the real data")
    add("--out", default="build/routers", help="folder of results and page")
    add("--fresh", action="store_true", help="discard existing runs, and start again")
    add("--dry-run", action="store_true", help="say what the runs cost, run nothing")
    add("--pages-only", action="store_true", help="write the page, run nothing")
    options = parser.parse_args(arguments)
    given = sys.argv[1:] if arguments is None else arguments
    if options.dry_run:
        refuse(parser, given, ["--pages-only", "--fresh"], "not for --dry-run.")
    if options.pages_only:
        not_used = ["--problems", "--draws", "--data-dir", "--fresh"]
        refuse(parser, given, not_used, "not for --pages-only, which trains nothing.")
    return options


if __name__ == "__main__":
    sys.exit(main())
