"""Pages that are generated from results: one for each experiment, and their index."""

import collections
import pathlib

from common.files import write_whole
from dselectk_keras.plots.style import save_figure
from research.engine.claims import HOLDS, count
from research.engine.headlines import COLUMNS, cells
from research.engine.plan import cost
from research.engine.reproduce import in_words
from research.engine.search import best_settings
from research.engine.template import VERDICTS, fill_template, table

MARK = "<!-- Generated from the results of its runs; do not edit. -->\n"


def write(path, *parts, figures=None, **options):
    """Write a page of parts, and figures beside it; return its path.

    Args:
        path: The path of the page, without `.md`.
        *parts: Blocks of Markdown.
        figures: A dict of figures by their path from the folder of the page.
        **options: Arguments of `save_figure` for the figures.
    """
    path = pathlib.Path(f"{path}.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, figure in (figures or {}).items():
        (path.parent / name).parent.mkdir(exist_ok=True)
        save_figure(figure, path.parent / name, **options)
    write_whole(path, "\n\n".join(parts).rstrip("\n") + "\n")
    return path


def write_page(results, folder):
    """Write the page of an experiment, and its pictures; return the path of the page.

    Args:
        results: A `Results`.
        folder: The folder of the page. Pictures are in its folder `images`.
    """
    filled = fill_template(results)
    figures = {picture.path: picture.draw() for picture in filled.pictures}
    path = pathlib.Path(folder) / results.experiment.name
    look = {"dpi": 150, "metadata": {"Software": None}}
    return write(path, page(results, filled), figures=figures, **look)


def page(results, filled=None):
    """The page of an experiment, with its template `filled` or not yet."""
    filled = filled or fill_template(results)
    parts = [MARK, f"# {_title(results.experiment)}", *filled.blocks]
    return "\n\n".join([*parts, "## How it was run", *_how(results)]) + "\n"


def block(results):
    """The text of an experiment that is shown in other pages."""
    return "\n\n".join(fill_template(results).blocks)


def write_pictures(results, folder, names=()):
    """Draw pictures of an experiment that is shown in other pages.

    The method `draw_gates` draws the picture with the name `gates.svg`.

    Args:
        results: A `Results`.
        folder: The folder of the files.
        names: The names of pictures; the experiment's `pictures` if left out.
    """
    experiment = results.experiment
    for name in names or experiment.pictures:
        stem, _, kind = name.partition(".")
        key = "Date" if kind == "svg" else "Software"
        path = pathlib.Path(folder) / f"{experiment.name}-{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        figure = getattr(experiment, f"draw_{stem}")(results)
        save_figure(figure, path, dpi=200, metadata={key: None})


def index(every, introduction="", coverage=None, headlines=None):
    """The page that lists the `Results` of all experiments, in a table for each paper.

    Args:
        every: A list of `Results`.
        introduction: Text.
        coverage: For each paper a dict from its figures and tables to the name of an
            experiment, or to the reason why there is none.
        headlines: For each paper a list of `Headline`.
    """
    rows, claims, found, places = {}, {}, collections.Counter(), {}
    for results in every:
        experiment = results.experiment
        filled = fill_template(results)
        claims[experiment.name] = filled.counted
        found[filled.words] += 1
        places[experiment.name] = experiment.where or experiment.name
        link = f"[{places[experiment.name]}]({experiment.name}.md)"
        command = f"`python scripts/reproduce.py {experiment.name}`"
        row = [link, experiment.title, f"{filled.words}. {filled.count}", command]
        rows.setdefault(experiment.paper, {})[experiment.name] = row
    order = sorted(found, key=_rank)
    counts = ", ".join(f"{words.replace(', ', ' ')}: {found[words]}" for words in order)
    total = count([claim for each in claims.values() for claim in each])
    parts = [MARK, "# Reproduction", f"**Pages: {len(every)}. {counts}.** {total}"]
    parts.append(introduction)
    for paper, own in rows.items():
        shown = list(own.values())
        without = {}
        for place, why in (coverage or {}).get(paper, {}).items():
            if why not in own:
                without.setdefault(why, []).append(place)
        for why, those in without.items():
            command = f"`python scripts/reproduce.py {why}`"
            rest = [why, "", ""] if " " in why else ["", "Not run yet.", command]
            shown.append([_joined(those), *rest])
        parts += [f"## {paper or 'Further experiments'}"]
        if known := [
            each
            for each in (headlines or {}).get(paper, [])
            if claims.keys() >= each.claims.keys()
        ]:
            parts += [table(COLUMNS, [cells(each, claims, places) for each in known])]
        parts += [table(["", "what", "verdict", "command"], shown)]
    names = "\n".join(results.experiment.name for results in every)
    parts.append(f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{names}\n```")
    return "\n\n".join(filter(None, parts)) + "\n"


def _rank(words):
    """A place in the order of `VERDICTS`, and in that of what follows a comma."""
    verdict, _, rest = words.partition(",")
    return list(VERDICTS.values()).index(verdict), rest


def _joined(places):
    """Such as "Figures 5, 6 and 9", of places in the order of their paper."""
    numbers = {}
    for place in places:
        kind, number = place.split()
        numbers.setdefault(kind, []).append(number)
    return ", ".join(
        f"{kind}s {', '.join(most)} and {last}" if most else f"{kind} {last}"
        for kind, (*most, last) in numbers.items()
    )


def _title(experiment):
    """Paper, place in it and title, without those that are empty."""
    place = (experiment.paper.split(" (", maxsplit=1)[0], experiment.where)
    return ": ".join(filter(None, [", ".join(filter(None, place)), experiment.title]))


def _paper_size(results):
    """The cost of the preset `paper`, as a list of texts; empty if it has been run."""
    experiment = results.experiment
    larger = type(experiment).presets().get("paper")
    if results.preset != "cpu" or larger is None or larger == experiment:
        return []
    needed, (data, _) = cost(larger, results), larger.needs
    text = (
        f"Preset `paper`, not run: {needed}; {data}. The time is estimated from that "
        "of these runs, by the numbers of runs, examples and epochs; wider networks "
        "take longer."
    )
    return [text]


def _how(results):
    """List the commands, the machines and the settings of the runs."""
    experiment = results.experiment
    reported = [run for run in results.runs if not run.tuning]
    trials = len(results.runs) - len(reported)
    seeds = sorted({run.seed for run in reported})
    seconds = sum(run.seconds for run in results.runs)
    several = f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else "one seed"
    counts = sorted({len(results.of(arm)) for arm in experiment.arms} - {0})
    if len(counts) > 1:
        several = f"{' or '.join(map(str, counts))} seeds for each arm"
    tuned = f", after {trials} trials of settings" if trials else ""
    parts = [
        f"Preset `{results.preset}`: {len(reported)} runs, {several}{tuned}; "
        f"{in_words(seconds)} in all. Uncertainties are standard errors over the seeds."
        if reported
        else "Not run yet."
    ]
    if experiment.looks > 1:
        parts[0] += (
            f" The verdicts were read {experiment.looks} times, each time with more "
            f"seeds: in all, their chance of an error is 5 %."
        )
    for each in results.environments:
        command = f"`{each['command']}` on " if each["command"] else ""
        parts.append(
            f"- {command}{each['date']}: {each['device']}, Keras {each['keras']} with "
            f"{each['backend']} {each['backend_version']}, NumPy {each['numpy']}, "
            f"Python {each['python']}."
        )
    parts += _paper_size(results)
    config = experiment.config
    shown = [name for name in config if name not in ("stand_in", "space")]
    rows = [[name, f"`{config[name]}`"] for name in shown]
    parts.append(table(["config", ""], rows))
    rows = []
    for arm in experiment.arms:
        tried = results.of(arm, tuning=True)
        if tried:
            settings, admissible = best_settings(tried)
            text = ", ".join(
                f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in settings.items()
            )
            rows.append([arm, len(tried), text, HOLDS[admissible]])
    if rows:
        columns = ["arm", "settings tried", "taken", "admissible"]
        parts += [f"What tuning took, by {experiment.tuned_by}:", table(columns, rows)]
    return parts
