"""Fill the template of a page: Markdown with names in braces.

A template is what a page says, with `{name}` where a number goes, as in `str.format`:
`{epochs}`, `{num_train:,}`, `{paper.units}`. A name is an entry of the experiment's
`fields`, or else an attribute of the experiment; a function, or a method, gets the
`Results`. `cpu` and `paper` are the presets, and `{both.epochs}` is a field of both.

- A block `{claims}` is the table of the experiment's `claims`.
- A block `{name}` whose value is a list of rows, or a generator of them, is a table.
  The first row is its head, which may be a string: `"gate | loss"`.
- In a table whose first column is `protocol`, the cells in the column `here` are filled
  with the preset `cpu` and with `paper`: "cpu: 5; paper: 100" where they differ.
- `![caption](name)` is the picture that the experiment's `draw_name(results)` draws.

A block that names what is `None`, or has not been run, is left out, and so is a heading
without text.
A line `include: name.md` stands for the lines of that file.

Where an experiment `stands_in_for` the paper's data with others, what holds or is
refuted does so *on a stand-in*.
"""

import dataclasses
import functools
import inspect
import math
import pathlib
import re
import string
from collections.abc import Callable
from typing import Any, NamedTuple

from research.engine.claims import HOLDS, STAND_IN, Fact, Found, count, judge
from research.engine.compare import NOT_RUN
from research.engine.judging import NIL, Judged
from research.engine.reproduce import in_words
from research.engine.results import NotRunError, format_mean

INCLUDE = re.compile(r"^include: (\S+)$", re.MULTILINE)
CELLS = re.compile(r"(?<!\\)\|")
SAME = "Rows in which the paper says the same are one claim: undecided if they differ."
VERDICTS = {
    "yes": "Reproduced",
    "partly": "Partly reproduced",
    "no": "Not reproduced",
    "open": "Open",
}


class Picture(NamedTuple):
    """A picture: its path beside the page, its caption, and what draws it."""

    path: str
    caption: str
    draw: Callable[[], Any]


@dataclasses.dataclass
class Filled:
    """A template that is filled: its blocks of Markdown, claims and pictures."""

    blocks: list[str] = dataclasses.field(default_factory=list)
    claims: list[Found] = dataclasses.field(default_factory=list)
    pictures: list[Picture] = dataclasses.field(default_factory=list)
    place: int = 0  # Of the claims.
    trains: bool = True

    @property
    def counted(self):
        """The claims, each once.

        Rows in which the paper says the same differ in what is ours, such as the start
        of a rival. If they have several verdicts, the claim is undecided.
        """
        same: dict[tuple, list[Found]] = {}
        for claim in self.claims:
            same.setdefault(claim.said, []).append(claim)
        return [
            first if all(each.kind == first.kind for each in rest) else undecided
            for first, *rest in same.values()
            for undecided in [first._replace(holds=None)]
        ]

    @property
    def count(self):
        """Number of claims that hold, as text."""
        return count(self.counted)

    @property
    def verdict(self):
        """A key of `VERDICTS`: whether the claims hold."""
        held = [claim.holds for claim in self._deciding]
        if True in held:
            return "yes" if all(each is True for each in held) else "partly"
        return "no" if {False, NIL} & {*held} else "open"

    @property
    def words(self):
        """The verdict in words, without a full stop."""
        words = VERDICTS[self.verdict]
        if self.verdict != "open" and any(claim.kind[1] for claim in self._deciding):
            words += f", {STAND_IN}"
        return words if self.trains or self.verdict == "open" else f"{words}, untrained"

    @property
    def _deciding(self):
        """The claims that decide: facts only if there are no others."""
        claims = self.counted
        return [claim for claim in claims if not claim.fact] or claims


class Both:
    """The fields of two presets, as text."""

    def __init__(self, presets):
        self.presets = presets

    def __getattr__(self, name):
        texts = {n: readable(getattr(e, name)) for n, e in self.presets.items()}
        return by_preset(texts)


class Prose(string.Formatter):
    """`str.format` of an experiment's `fields` and attributes; it lists tuples."""

    def __init__(self, experiment, results):
        self.experiment, self.results = experiment, results
        presets = presets_of(experiment)
        self.known = {**experiment.fields, **presets, "both": Both(presets)}

    def get_value(self, key, args=(), kwargs=None):
        """The value of a name; a function gets the results."""
        known = key in self.known
        value = self.known[key] if known else getattr(self.experiment, str(key))
        value = value(self.results) if callable(value) else value
        return list(value) if inspect.isgenerator(value) else value

    def format_field(self, value, format_spec):
        """The text of a value; a `NotRunError` if it is `None`."""
        if value is None:
            raise NotRunError
        if type(value) in (tuple, list):
            return ", ".join(self.format_field(each, format_spec) for each in value)
        is_plain = isinstance(value, float) and not format_spec
        return format(value, "g" if is_plain else format_spec)


def template_of(experiment):
    """The template of an experiment: its `page`, or the `.md` beside its module."""
    text, folder = experiment.page, pathlib.Path()
    if not text:
        # A class of a notebook has no file, but then a `page`.
        path = pathlib.Path(inspect.getfile(type(experiment))).with_suffix(".md")
        text, folder = path.read_text(encoding="utf-8"), path.parent

    def included(match):
        text = (folder / match[1]).read_text(encoding="utf-8").rstrip()
        return INCLUDE.sub(included, text)

    return INCLUDE.sub(included, text)


def fill_template(results):
    """Fill the template of an experiment; returns a `Filled`.

    Args:
        results: The `Results` of the experiment.
    """
    experiment = results.experiment
    found = Filled(trains=experiment.trains)
    prose = Prose(experiment, results)
    for block in re.split(r"\n{2,}", template_of(experiment).strip()):
        text = _filled(block, prose, found)
        if found.blocks and _is_heading(found.blocks[-1]) and _is_heading(text):
            found.blocks.pop()
        if text:
            found.blocks.append(text)
    if found.blocks and _is_heading(found.blocks[-1]):
        found.blocks.pop()
    if found.claims:
        repeats = len(found.counted) < len(found.claims)
        text = f"**{found.words}.** {found.count}{f' {SAME}' if repeats else ''}"
        found.blocks.insert(found.place, text)
    return found


def _filled(block, prose, found):
    """A block of a template as text; claims and pictures are added to a `Filled`."""
    experiment, results = prose.experiment, prose.results
    if block == "{claims}":
        found.place = len(found.blocks)
        return _claims(results, found)
    if alone := re.fullmatch(r"\{(\w+)\}", block):
        value = _or_not_run(prose.get_value, alone[1], without="")
        return _table(value) if isinstance(value, list) else value
    if block.startswith("| protocol |"):
        return _protocol(block, results)
    if block.startswith("|"):
        return "\n".join(_filled_row(line, prose) for line in block.split("\n"))
    if picture := re.fullmatch(r"!\[(.*)\]\((\S+)\)", block, re.DOTALL):
        caption, name = prose.format(picture[1]), picture[2]
        path = f"images/{experiment.name}-{name}.png"
        draw = getattr(experiment, f"draw_{name.replace('-', '_')}")
        found.pictures.append(Picture(path, caption, functools.partial(draw, results)))
        return f"![{caption}]({path})\n\n*{caption}*"
    return _or_not_run(prose.format, block, without="").strip()


def _or_not_run(do, *arguments, without=NOT_RUN):
    try:
        return do(*arguments)
    except NotRunError:
        return without


def _cells(line):
    """The cells of a line of a table; none of another line."""
    return [cell.strip() for cell in CELLS.split(line)[1:-1]] if line[:1] == "|" else []


def _filled_row(line, prose):
    return _row(_or_not_run(prose.format, cell) for cell in _cells(line))


def _row(cells):
    return "| " + " | ".join(cells) + " |"


def _table(rows):
    """A table of rows, the first of which is its head; nothing without others."""
    head, *rest = rows
    columns = head.split(" | ") if isinstance(head, str) else head
    return table(columns, rest) if rest else ""


def _claims(results, found):
    """The table of the claims; what they come to is added to a `Filled`."""
    experiment, rows = results.experiment, []
    for claim in experiment.claims:
        here = claim.here
        here = here if isinstance(here, str) else _or_not_run(here, results)
        judged = _or_not_run(judge, claim.test, results)
        judged = judged if isinstance(judged, Judged) else Judged(judged)
        fact = isinstance(claim.test, Fact)
        stand_in = bool(experiment.stands_in_for) and not fact
        said = claim.where, claim.says, claim.number
        one = Found([*said, here], judged.holds, fact, stand_in, said)
        found.claims.append(one)
        word = str(HOLDS.get(judged.holds, judged.holds))
        word += f", {STAND_IN}" if one.kind[1] else ""
        if judged.why:
            word += f": {judged.why}"
        elif judged.holds is None and judged.seeds < math.inf:
            word += _price(judged.seeds, results)
        rows.append([*one.cells, word])
    if experiment.paper:
        return _table(
            [["where", "the paper says", "its number", "here", "holds"], *rows]
        )
    head = ["where", "hypothesis", "number", "here", "holds"]
    shown = [i for i in range(len(head)) if any(row[i] for row in rows)]
    return _table([[row[i] for i in shown] for row in (head, *rows)])


def _price(seeds, results):
    """The number of seeds that would decide, and their time, as text."""
    reported = [run for run in results.runs if not run.tuning]
    each = sum(run.seconds for run in reported) / len({run.seed for run in reported})
    seeds = math.ceil(float(f"{seeds:.2g}"))
    return f"; about {seeds:,} seeds would decide, in {in_words(seeds * each)}"


def _protocol(block, results):
    """A protocol, whose cells `here` are filled with each preset."""
    proses = {
        name: Prose(preset, results)
        for name, preset in presets_of(results.experiment).items()
    }
    head, *lines = block.split("\n")
    place, rows = _cells(head).index("here"), [head]
    for line in lines:
        cells = _cells(line)
        here = {name: own.format(cells[place]) for name, own in proses.items()}
        texts = [proses["cpu"].format(cell) for cell in cells]
        texts[place] = by_preset(here)
        rows.append(_row(texts))
    return "\n".join(rows)


def presets_of(experiment):
    """The presets `cpu` and `paper` of an experiment."""
    presets = type(experiment).presets()
    return {name: presets.get(name, presets["cpu"]) for name in ("cpu", "paper")}


def by_preset(texts):
    """One text for all presets: "cpu: 5; paper: 100", or "5" if they agree."""
    if len({*texts.values()}) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{name}: {text}" for name, text in texts.items())


def readable(value):
    """The value of a field, as text."""
    if type(value) in (tuple, list):
        return ", ".join(map(readable, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_heading(text):
    return text.startswith("#") and "\n" not in text


def table(columns, rows):
    """A table in Markdown; a column whose name ends with a colon is aligned right."""
    marks = ["---:" if name.endswith(":") else "---" for name in columns]
    lines = [[name.removesuffix(":") for name in columns], marks, *rows]
    return "\n".join(_row(map(_cell, line)) for line in lines)


def _cell(value):
    if value is None:
        return ""
    if isinstance(value, float):
        return format_mean(value, float("nan"))
    return str(value).replace("\n", " ").replace("|", "\\|")
