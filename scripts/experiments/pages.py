"""Pages that are generated from results: one for each experiment, and their index."""

import collections
import pathlib

from dselectk_keras.plots.style import save_figure
from experiments.report import VERDICTS
from experiments.reproduce import in_words
from experiments.results import format_mean
from experiments.search import best_settings
from experiments.template import fill_template

MARK = "<!-- Generated from the results of its runs; do not edit. -->\n"
HOLDS = {True: "yes", False: "no", None: "cannot be judged here"}


def write_page(results, folder):
    """Write the page of an experiment, and its pictures; return the path of the page.

    Args:
        results: A `Results`.
        folder: The folder of the page. Pictures are in its folder `images`.
    """
    folder = pathlib.Path(folder)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    report = report_of(results)
    for picture in report.pictures:
        path = folder / image(results.experiment, picture)
        save_figure(picture.draw(), path, dpi=150, metadata={"Software": None})
    path = folder / f"{results.experiment.name}.md"
    path.write_text(page(results, report), encoding="utf-8")
    return path


def image(experiment, picture):
    """The path of a picture, relative to the pages."""
    return f"images/{experiment.name}-{picture.name}.png"


def report_of(results):
    """The filled template of an experiment."""
    return results.experiment.report(results) or fill_template(results)


def page(results, report):
    """The page of an experiment."""
    if hasattr(report, "blocks"):
        parts = [MARK, f"# {_title(results.experiment)}", *report.blocks]
        if report.claims:
            place = next(i for i, b in enumerate(parts) if b.startswith("| where"))
            parts.insert(place, f"**{VERDICTS[report.verdict]}**")
        return "\n\n".join([*parts, "## How it was run", *_how(results)]) + "\n"
    experiment, paper = results.experiment, results.experiment.paper
    parts = [MARK, f"# {_title(experiment)}", experiment.about]
    if report.claims or paper:
        parts.append(f"**{VERDICTS[report.verdict]}**")
    if report.claims:
        rows = [
            [c.source, c.says, c.paper, c.ours, HOLDS[c.holds]] for c in report.claims
        ]
        columns = ["where", "the paper says", "its number", "here", "holds"]
        parts.append(table(columns, rows))
    for picture in report.pictures:
        parts.append(f"![{picture.caption}]({image(experiment, picture)})")
        parts.append(f"*{picture.caption}*")
    for shown in report.tables:
        parts += [f"## {shown.title}", table(shown.columns, shown.rows), shown.note]
    if report.questions:
        parts.append("## Our questions" if paper else "## Questions")
        parts.append("The paper does not ask these." if paper else "")
        rows = [vars(question).values() for question in report.questions]
        parts.append(table(["question", "here"], rows))
    if report.protocol:
        rows = [vars(fact).values() for fact in report.protocol]
        columns = ["protocol", "paper", "here", "why it differs"]
        parts += ["## Protocol", table(columns, rows)]
    if report.notes:
        parts += ["## Remarks", *report.notes]
    parts += ["## How it was run", *_how(results)]
    return "\n\n".join(filter(None, parts)) + "\n"


def index(every, introduction="", coverage=None):
    """The page that lists all experiments, in a table for each paper.

    Args:
        every: A list of `Results`, of all experiments.
        introduction: Markdown to stand below the title.
        coverage: For each paper a dict from its figures and tables to the name of an
            experiment, or to the reason why there is none. An experiment that is not in
            it has a row of its own.
    """
    rows, verdicts = {}, collections.Counter()
    for results in every:
        experiment = results.experiment
        verdict = VERDICTS[report_of(results).verdict]
        verdicts[verdict] += 1
        link = f"[{experiment.where or experiment.name}]({experiment.name}.md)"
        command = f"`python scripts/reproduce.py {experiment.name}`"
        row = [link, experiment.title, verdict, command]
        rows.setdefault(experiment.paper, {})[experiment.name] = row
    counts = [f"{each.rstrip('.')}: {verdicts[each]}" for each in VERDICTS.values()]
    parts = [MARK, "# Reproduction", f"**Pages: {len(every)}. {', '.join(counts)}.**"]
    parts.append(introduction)
    for paper, found in rows.items():
        places = (coverage or {}).get(paper, {})
        shown = list(found.values())
        without = {}
        for place, why in places.items():
            if why not in found:
                without.setdefault(why, []).append(place)
        for why, those in without.items():
            command = f"`python scripts/reproduce.py {why}`"
            rest = [why, "", ""] if " " in why else ["", "Not run yet.", command]
            shown.append([_joined(those), *rest])
        parts += [f"## {paper or 'Further experiments'}"]
        parts += [table(["", "what", "verdict", "command"], shown)]
    names = "\n".join(results.experiment.name for results in every)
    parts.append(f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{names}\n```")
    return "\n\n".join(filter(None, parts)) + "\n"


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


def table(columns, rows):
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value):
    if value is None:
        return ""
    if isinstance(value, float):
        return format_mean(value, float("nan"))
    return str(value).replace("\n", " ").replace("|", "\\|")


def _title(experiment):
    """Paper, place in it and title, without those that are empty."""
    place = (experiment.paper.split(" (", maxsplit=1)[0], experiment.where)
    return ": ".join(filter(None, [", ".join(filter(None, place)), experiment.title]))


def _how(results):
    """List the commands, the machines and the settings of the runs."""
    experiment = results.experiment
    reported = [run for run in results.runs if not run.tuning]
    trials = len(results.runs) - len(reported)
    seeds = sorted({run.seed for run in reported})
    seconds = sum(run.seconds for run in results.runs)
    several = f"seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else "one seed"
    tuned = f", after {trials} trials of settings" if trials else ""
    parts = [
        f"Preset `{results.preset}`: {len(reported)} runs, {several}{tuned}; "
        f"{in_words(seconds)} in all. Uncertainties are standard errors over the seeds."
        if reported
        else "Not run yet."
    ]
    for each in results.environments:
        command = f"`{each['command']}` on " if each["command"] else ""
        parts.append(
            f"- {command}{each['date']}: {each['device']}, Keras {each['keras']} with "
            f"{each['backend']} {each['backend_version']}, NumPy {each['numpy']}, "
            f"Python {each['python']}."
        )
    config = experiment.config
    rows = [[name, f"`{config[name]}`"] for name in config if name != "stand_in"]
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
