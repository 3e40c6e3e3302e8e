"""Reproduce a figure or a table of a paper, or run a study of our own.

    python scripts/reproduce.py dselectk-fig5

tunes, trains and writes results into docs/results, and a page with the paper's numbers
beside them into docs/reproduction. What has been run is not run again. Our own
experiments, such as collapse, have no page: `python docs/blocks.py` writes their tables
into others. Presets other than cpu, and changed ones, are written into a folder in
build/.
"""

import dataclasses
import pathlib
import re
import shlex
import sys

from common import command_line as cli


def main(arguments=None):
    """Parse, run, and say where the page is."""
    options = parse(arguments)
    cli.choose_backend(options.backend)
    # The backend is chosen: Keras may be imported.
    from research.engine import Results
    from research.engine.plan import HOW, plan
    from research.papers import EXPERIMENTS
    from research.studies.catalog import STUDIES

    known = EXPERIMENTS | STUDIES
    if options.list:
        for name, kind in known.items():
            print(f"{name:28s}{kind.where or 'Experiment'}: {kind.title}")
        return 0
    names = options.names or list(EXPERIMENTS)
    cli.check_names("experiment", names, known)
    try:
        chosen = {name: choose(known[name], options) for name in names}
    except ValueError as error:
        sys.exit(str(error))
    if options.dry_run:
        print(HOW)
        for name, experiment in chosen.items():
            recorded = Results(type(experiment)(), "cpu", "docs/results")
            print(f"{name:28s}{plan(experiment, recorded)}")
        return 0
    # Results of a changed preset have a name of their own.
    label = re.sub(r"[^\w.=-]+", "_", "-".join([options.preset, *options.set]))
    # Only results of the preset cpu are committed, and are in the index of pages.
    committed = options.preset == "cpu" and not options.set
    base = pathlib.Path("docs" if committed else f"build/{label}")
    root = pathlib.Path(options.out or base / "results")
    site = pathlib.Path(options.pages or base / "reproduction")
    given = sys.argv[1:] if arguments is None else arguments
    command = shlex.join(
        ["python", "scripts/reproduce.py", *cli.without_data_dir(given)]
    )
    run(chosen, options, label, root, site, command)
    write_index(known, options, label, root, site)
    return 0


def write_index(known, options, label, root, site):
    """Write the index of the pages of a folder, if it has any."""
    from research.engine import Results, pages
    from research.papers import ABSTRACTS, COVERAGE, INTRODUCTION

    listed = []
    for name in known:
        if (site / f"{name}.md").exists():
            try:
                listed.append(Results(choose(known[name], options), label, root))
            except ValueError as error:
                print(f"Left out of the index: {error}")
    if listed:
        complete = [results for results in listed if results.complete]
        index = pages.index(complete, INTRODUCTION, COVERAGE, ABSTRACTS)
        pages.write(site / "index", index)


def run(chosen, options, label, root, site, command):
    """Run what experiments lack, and write their pages."""
    from research.engine import Results, pages, reproduce
    from research.studies.catalog import STUDIES

    begun = set()  # Some experiments share their runs: those begin anew only once.
    for number, (name, experiment) in enumerate(chosen.items(), start=1):
        if options.pages_only:
            results = Results(experiment, label, root)
        else:
            print(f"{name} ({number} of {len(chosen)}): {experiment.title}", flush=True)
            fresh = options.fresh and experiment.source not in begun
            own = {"together": options.together, "fresh": fresh, "command": command}
            results = reproduce(experiment, preset=label, folder=root, **own)
            begun.add(experiment.source)
        if not results.complete:
            print(f"{name} has not been run to its end: no page.")
        elif name in STUDIES:
            pages.write_pictures(results, site.parent / "images")
            print(f"\n{pages.block(results)}\n\nIts runs are in {results.path}.")
        else:
            print(f"Written to {pages.write_page(results, site)}.")


def choose(kind, options):
    """The preset of an experiment, with what the command line changes."""
    from common.set_fields import set_fields

    presets, preset = kind.presets(), options.preset
    if preset not in presets:
        known = ", ".join(presets)
        raise ValueError(f"{kind.name} has no preset {preset!r}. Known: {known}.")
    changes = {"data_dir": options.data_dir, "seeds": options.seeds}
    changes = {name: each for name, each in changes.items() if each is not None}
    return set_fields(dataclasses.replace(presets[preset], **changes), options.set)


def parse(arguments):
    """Read the command line."""
    parser = cli.make_parser(__doc__)
    cli.add_backend(parser)
    add = parser.add_argument
    names = "such as dselectk-fig5; all of the papers if none"
    add("names", nargs="*", metavar="NAME", help=names)
    add("--list", action="store_true", help="list the names, and stop")
    presets = "smoke: seconds, on noise; cpu: minutes to an hour; paper: for a GPU"
    known = "smoke", "cpu", "paper"
    add("--preset", choices=known, default="cpu", help=presets)
    change = "FIELD=VALUE, such as epochs=3; may be repeated"
    add("--set", action="append", default=[], metavar="CHANGE", help=change)
    add("--seeds", type=cli.count, help="seeds to report; the preset's own if left out")
    add("--data-dir", help="folder with the files of real data")
    together = "seeds or trials in one program, which an interruption loses"
    add("--together", type=int, help=together)
    add("--fresh", action="store_true", help="discard existing runs, and start again")
    add("--dry-run", action="store_true", help="list data, memory and time, and stop")
    add("--pages-only", action="store_true", help="write the pages, run nothing")
    add("--out", help="folder of the results, in docs/ or build/ if left out")
    add("--pages", help="folder of the pages, in docs/ or build/ if left out")
    options = parser.parse_args(arguments)
    given = sys.argv[1:] if arguments is None else arguments
    if options.pages_only:
        why = "not for --pages-only, which runs nothing."
        cli.refuse(parser, given, ["--fresh", "--together", "--dry-run"], why)
    return options


if __name__ == "__main__":
    sys.exit(main())
