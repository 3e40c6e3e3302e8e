"""Compare gates that choose experts, on many problems, or on your own table.

    python scripts/gatebench.py --data-dir DATA

trains all arms on all problems, and writes results, a page and pictures. An interrupted
run is continued. JAX trains the runs of a problem as one program, another --backend one
by one. Some problems read data that packages of the extra `bench` ship.

    python scripts/gatebench.py --mine TABLE.csv --targets price rating

says whether the choice of experts matters on the data of a table, and what it saves. It
takes any backend; JAX is fastest, with minutes for three draws of the rows. More draws
make the intervals narrower.

    python scripts/gatebench.py --module my_gate.py --problems "C.1, 32 tasks"

compares a gate of your own, on problems, or with --mine on your table. Of the other
gates, it takes the committed results of the problems.

    python scripts/gatebench.py --mine TABLE.csv --targets price --per-example

says whether gates that choose experts for each example are worth it on a table, or one
expert is enough. It takes some minutes with JAX. Without --mine, --per-example trains
all routers on problems of their own, with JAX.
"""

import dataclasses
import importlib.util
import pathlib
import shlex
import sys

from common.command_line import (
    add_backend,
    check_names,
    choose_backend,
    count,
    make_parser,
    refuse,
    without_data_dir,
)

DRAWS_OF_ROUTERS = 4


def main(arguments=None):
    """Parse, run, and say where the page is."""
    options, parser = parse(arguments)
    has_jax = importlib.util.find_spec("jax") is not None
    routers = options.per_example and not options.mine
    trains = not (options.mine or options.pages_only or options.dry_run)
    if trains and not (has_jax or options.backend):
        sys.exit(
            "GateBench needs JAX, which trains its runs as one program. Received: no "
            "package `jax`, and no --backend, which would train them one by one. Run "
            'in a copy of the repository: pip install ".[jax]".'
        )
    choose_backend("jax" if has_jax and not options.backend else options.backend)
    if routers:
        return compare_routers(options)
    from research.benches.gate_comparison import mine, own, page
    from research.benches.gate_comparison.problems import PROBLEMS

    try:
        gates = own.read_arms(options.module) if options.module else {}
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    label = f"-{pathlib.Path(options.module).stem}" if options.module else ""
    out = pathlib.Path(options.out or f"build/gatebench{label}")
    if options.mine:
        draws = options.draws or page.FEWEST_DRAWS
        asked = options.mine, options.targets, draws, out
        try:
            if options.per_example:
                from research.benches.router_comparison import mine as routers

                path, text = routers.answer(*asked, options.encoding)
            else:
                more = options.epochs or 30, gates, options.encoding
                path, text = mine.answer(*asked, *more)
        except (ImportError, OSError, ValueError) as error:
            parser.exit(2, f"{parser.prog}: {error}\n")
        print(f"{text}\n\nWritten to {path}.")
        return 0
    names = options.problems or list(PROBLEMS)
    check_names("problem", names, PROBLEMS)
    if not options.pages_only:
        train(options, parser, names, gates, out)
    if not options.dry_run:
        print(f"Written to {page.write(out, names if gates else None)}.")
    return 0


def compare_routers(options):
    """Run the routers on problems, and write their page, or say what it would cost."""
    from research.benches.router_comparison import page
    from research.benches.router_comparison.bench import Routers
    from research.benches.router_comparison.problems import PROBLEMS
    from research.engine import Results, reproduce
    from research.engine.plan import cost

    names, out = options.problems or list(PROBLEMS), options.out or "build/routers"
    check_names("problem", names, PROBLEMS)
    every = page.read(page.COMMITTED) if options.dry_run else {}
    for place, name in enumerate(names, 1):
        draws = options.draws or DRAWS_OF_ROUTERS
        bench = Routers(problem=name, seeds=draws, data_dir=options.data_dir)
        if options.dry_run:
            committed = every.get(name, Results(bench, bench.preset))
            done = Results(bench, bench.preset, out)
            print(f"{name}: {cost(bench, committed, done)}")
        elif not options.pages_only:
            print(f"Problem {place} of {len(names)}: {name}", flush=True)
            saved = {"preset": bench.preset, "folder": out, "command": options.command}
            reproduce(bench, **saved, together=10**6, fresh=options.fresh)
    if not options.dry_run:
        print(f"Written to {page.write(out)}.")
    return 0


def train(options, parser, names, gates, out):
    """Run what the results of some problems lack, or say what it would cost."""
    from research.benches.gate_comparison import bench, packaged
    from research.benches.gate_comparison.problems import PROBLEMS

    packages = {name: PROBLEMS[name].package for name in names}
    lacking = {n: p for n, p in packages.items() if not packaged.is_installed(p)}
    if lacking and not options.dry_run:
        text = f"{', '.join(lacking)}: {packaged.how_to_install(*lacking.values())}"
        if options.problems:
            parser.exit(2, f"{parser.prog}: {text}\n")
        print(f"Without {text}", flush=True)
        names = [name for name in names if name not in lacking]
    most = max(PROBLEMS[name].draws for name in names)
    draws = options.draws or most
    if draws > most:
        parser.error(f"--draws must be at most {most}. Received: {draws}.")
    for place, name in enumerate(names, 1):
        epochs = options.epochs or PROBLEMS[name].epochs
        compared = bench.Gates(
            problem=dataclasses.replace(PROBLEMS[name], epochs=epochs),
            compared={**gates, **bench.GATES},
            seeds=min(draws, PROBLEMS[name].draws),
            data_dir=options.data_dir,
        )
        try:
            done = bench.open_results(compared, out, options.fresh)
        except ValueError as error:
            parser.exit(2, f"{parser.prog}: {error}\n")
        else:
            if options.dry_run:
                print(f"{name}: {bench.price(done)}")
                continue
            print(f"Problem {place} of {len(names)}: {name}", flush=True)
            bench.run(done, out, options.command)


def parse(arguments):
    """Read the command line: the options, and the parser."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--problems", nargs="+", metavar="NAME", help="problems; all if omitted")
    text = "number of draws of the data; if omitted, 3 of a table, 4 of a problem for "
    text += "routers, all of another one"
    add("--draws", type=count, help=text)
    add("--epochs", type=count, help="number of epochs; as the problems if omitted")
    add("--data-dir", default=".", help="folder with the folders of the real data")
    add("--out", help="folder of results and page; in build/ if omitted")
    add("--fresh", action="store_true", help="throw away the results that are there")
    add("--dry-run", action="store_true", help="say what the runs cost, run nothing")
    add("--pages-only", action="store_true", help="write the page, run nothing")
    add("--mine", metavar="FILE", help="a table (CSV or Parquet) to ask about")
    add("--module", metavar="FILE", help="a .py file with a gate of your own, or GATES")
    add_backend(parser)
    add("--targets", nargs="+", metavar="NAME", help="its columns that are targets")
    add("--encoding", default="utf-8", help="encoding of a text file, as latin-1")
    text = "compare gates that choose experts for each example"
    add("--per-example", action="store_true", help=text)
    options = parser.parse_args(arguments)
    given = sys.argv[1:] if arguments is None else arguments
    runs = ["--problems", "--data-dir", "--fresh", "--dry-run"]
    if options.mine:
        refuse(parser, given, [*runs, "--pages-only"], "not for --mine.")
    else:
        of_tables = ["--targets", "--encoding"]
        refuse(parser, given, of_tables, "for --mine.")
    if options.per_example:
        not_used = ["--epochs", "--module"] + ["--backend"] * (not options.mine)
        refuse(parser, given, not_used, "not for --per-example.")
    if options.pages_only:
        not_used = [*runs, "--draws", "--epochs", "--backend", "--module"]
        refuse(parser, given, not_used, "not for --pages-only, which trains nothing.")
    command = ["python", "scripts/gatebench.py", *without_data_dir(given)]
    options.command = shlex.join(command)
    return options, parser


if __name__ == "__main__":
    sys.exit(main())
