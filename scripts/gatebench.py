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

    python scripts/gatebench.py --per-example --data-dir DATA

trains gates that choose experts for each example, on problems of their own.
"""

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


def main(arguments=None):
    """Parse, run, and say where the page is."""
    options, parser = parse(arguments)
    has_jax = importlib.util.find_spec("jax") is not None
    trains = not (options.mine or options.pages_only or options.dry_run)
    if trains and not (has_jax or options.backend):
        sys.exit(
            "GateBench needs JAX, which trains its runs as one program. Received: no "
            "package `jax`, and no --backend, which would train them one by one. Run "
            'in a copy of the repository: pip install ".[jax]".'
        )
    choose_backend("jax" if has_jax and not options.backend else options.backend)
    try:
        return answer(options) if options.mine else compare(options)
    except (ImportError, OSError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def own_gates(options):
    """The gates of --module as arms, and the folder to write into."""
    from research.benches.gate_comparison.own import read_arms

    gates = read_arms(options.module) if options.module else {}
    label = "gatebench"
    if options.module:
        label += f"-{pathlib.Path(options.module).stem}"
    if options.per_example:
        label = "routers"
    return gates, pathlib.Path(options.out or f"build/{label}")


def answer(options):
    """Ask a table of the user, and say where the answer is."""
    from research.benches.gate_comparison import mine, statistics

    gates, out = own_gates(options)
    asked = options.mine, options.targets, options.draws or statistics.FEWEST_DRAWS
    path, text = mine.answer(*asked, out, options.epochs or 30, gates, options.encoding)
    print(f"{text}\n\nWritten to {path}.")
    return 0


def compare(options):
    """Run what problems lack, and write a page; or say what it would cost."""
    if options.per_example:
        from research.benches.router_comparison import bench, page, problems
    else:
        from research.benches.gate_comparison import bench, page, problems
    from research.engine import reproduce
    from research.engine.plan import cost

    known, (gates, out) = problems.PROBLEMS, own_gates(options)
    names = options.problems or list(known)
    check_names("problem", names, known)
    if not (options.pages_only or options.per_example):
        names = installed(names, options)
    for place, name in enumerate([] if options.pages_only else names, 1):
        compared = bench.of_problem(name, options, gates)
        folder = out if options.per_example else out / compared.name
        done = bench.open_results(compared, folder, options.fresh)
        if options.dry_run:
            print(f"{name}: {cost(compared, bench.committed(name), done)}")
            continue
        print(f"Problem {place} of {len(names)}: {name}", flush=True)
        saved = {"preset": compared.preset, "folder": folder}
        # A gate of the user may have been changed.
        fresh = options.fresh or bool(gates)
        reproduce(compared, **saved, fresh=fresh, command=options.command)
    if not options.dry_run:
        print(f"Written to {page.write(out, names if gates else None)}.")
    return 0


def installed(names, options):
    """Those of some problems whose data are there; say what others need."""
    from research.benches.gate_comparison import packaged
    from research.benches.gate_comparison.problems import PROBLEMS

    most = max(PROBLEMS[name].draws for name in names)
    if options.draws and options.draws > most:
        raise ValueError(f"--draws must be at most {most}. Received: {options.draws}.")
    packages = {name: PROBLEMS[name].package for name in names}
    lacking = {n: p for n, p in packages.items() if not packaged.is_installed(p)}
    if not lacking or options.dry_run:
        return names
    text = f"{', '.join(lacking)}: {packaged.how_to_install(*lacking.values())}"
    if options.problems:
        raise ValueError(text)
    print(f"Without {text}", flush=True)
    return [name for name in names if name not in lacking]


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
        not_used = [*runs, "--pages-only", "--per-example"]
        refuse(parser, given, not_used, "not for --mine.")
    else:
        refuse(parser, given, ["--targets", "--encoding"], "for --mine.")
    if options.per_example:
        not_used = ["--epochs", "--module", "--backend"]
        refuse(parser, given, not_used, "not for --per-example.")
    if options.module and not options.mine:
        refuse(parser, given, ["--epochs"], "not for --module without --mine.")
    if options.pages_only:
        not_used = [*runs, "--draws", "--epochs", "--backend", "--module"]
        refuse(parser, given, not_used, "not for --pages-only, which trains nothing.")
    command = ["python", "scripts/gatebench.py", *without_data_dir(given)]
    options.command = shlex.join(command)
    return options, parser


if __name__ == "__main__":
    sys.exit(main())
