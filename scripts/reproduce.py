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

from common.command_line import (
    add_backend,
    check_names,
    choose_backend,
    count,
    make_parser,
    refuse,
    without_data_dir,
)

PRESETS = ("smoke", "cpu", "paper")
INTRODUCTION = (
    "Every figure and table of the four papers: a page with the paper's claims and "
    "numbers beside ours, a verdict and the command that made it, or why there is no "
    "page. Before them is what each abstract says, and what we found of it.\n\n"
    "A claim *holds*, or it is *refuted*; *nil*, where half of the paper's difference "
    "is excluded; *not testable here*, with the reason, and what these runs alone "
    "would say; *inadmissible*, where no run keeps the paper's rules (no other run "
    "counts); *undecided*, with what would decide, if that is known: so many seeds of "
    "the same settings, or further searches of settings; or *not run*. What the paper "
    "says once is one claim, also where it is judged for two starts of Top-k or for "
    "three backends: it is undecided if they differ. A statement without a result is "
    "no claim.\n\n"
    "**Stand-ins.** Where the paper's data are private or too large, others stand in: "
    "a simulation for the logs of recommenders, garments in six styles for DomainNet, "
    "pairs of digits for CIFAR-100. There, only the order of methods is judged; what "
    "holds or is refuted does so *on a stand-in*, in all counts, and nothing is nil, "
    "because the paper's differences are of its own data. A stand-in has to have what "
    "a claim is about. It has neither named tasks and domains nor the size of a "
    "difference: such claims are not testable here. Nor are any on T5 and GLUE, since "
    "made-up sentences are no language that a network could have learned before.\n\n"
    "*Untrained* are pages on formulas, data or times. Each page says what the paper's "
    "size would cost. Verdicts and numbers are computed from the committed results in "
    "`docs/results`; no number of ours is typed by hand, and no seed is left out."
)


def main(arguments=None):
    """Parse, run, and say where the page is."""
    options = parse(arguments)
    choose_backend(options.backend)
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
    check_names("experiment", names, known)
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
    command = shlex.join(["python", "scripts/reproduce.py", *without_data_dir(given)])
    run(chosen, options, label, root, site, command)
    write_index(known, options, label, root, site)
    return 0


def write_index(known, options, label, root, site):
    """Write the index of the pages of a folder, if it has any."""
    from research.engine import Results, pages
    from research.papers import ABSTRACTS, COVERAGE

    listed = []
    for name, kind in known.items():
        if (site / f"{name}.md").exists():
            try:
                listed.append(Results(choose(kind, options), label, root))
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
            results = reproduce(
                experiment,
                preset=label,
                folder=root,
                together=options.together,
                fresh=options.fresh and experiment.source not in begun,
                command=command,
            )
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

    presets = kind.presets()
    if options.preset not in presets:
        raise ValueError(
            f"{kind.name} has no preset {options.preset!r}. Known: "
            f"{', '.join(presets)}."
        )
    changes = {"data_dir": options.data_dir}
    if options.seeds is not None:
        changes["seeds"] = options.seeds
    experiment = dataclasses.replace(presets[options.preset], **changes)
    return set_fields(experiment, options.set)


def parse(arguments):
    """Read the command line."""
    parser = make_parser(__doc__)
    add_backend(parser)
    add = parser.add_argument
    names = "such as dselectk-fig5; all of the papers if none"
    add("names", nargs="*", metavar="NAME", help=names)
    add("--list", action="store_true", help="list the names, and stop")
    add(
        "--preset",
        choices=PRESETS,
        default="cpu",
        help="smoke: seconds, on noise in place of real data; cpu: minutes to an hour; "
        "paper: the paper's protocol, for a GPU",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="change a field of the config, such as epochs=3; may be repeated",
    )
    add("--seeds", type=count, help="seeds to report; the preset's own if left out")
    add("--data-dir", help="folder with the files of real data")
    add(
        "--together",
        type=int,
        help="seeds or trials in one program, the experiment's own number if left out; "
        "an interrupted run loses these",
    )
    add("--fresh", action="store_true", help="discard existing runs, and start again")
    add("--dry-run", action="store_true", help="list data, memory and time, and stop")
    add("--pages-only", action="store_true", help="write the pages, run nothing")
    add("--out", help="folder of the results, in docs/ or build/ if left out")
    add("--pages", help="folder of the pages, in docs/ or build/ if left out")
    options = parser.parse_args(arguments)
    given = sys.argv[1:] if arguments is None else arguments
    if options.pages_only:
        why = "not for --pages-only, which runs nothing."
        refuse(parser, given, ["--fresh", "--together", "--dry-run"], why)
    return options


if __name__ == "__main__":
    sys.exit(main())
