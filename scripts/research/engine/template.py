"""Fill the template of a page: Markdown with names in braces.

A template is what a page says, with `{name}` where a number goes, as in `str.format`:
`{epochs}`, `{num_train:,}`, `{paper.units}`. A name is an entry of the experiment's
`fields`, an attribute of the experiment, or a name of its module or of a module beside
it whose name begins with `_`; a function, or a method, gets the `Results`. `cpu` and
`paper` are the presets, and `{both.epochs}` is a field of both.

- `{loss of Top-k}` is a mean with its error, `{loss of Top-k:2%}` with two digits in
  percent, `{loss of Top-k:.2f}` the mean alone, and `{loss of A minus B}` a difference.
  `{share of A, B}` of a function `share` is what it makes of the `Results`, A and B.
  An arm whose name has a comma is in quotes. An array of booleans is `3 of 5`.
- A table whose first column is `claim` has a row for each of the experiment's `claims`:
  by its id, where the paper says what, its number, and what there is here. A row with
  several claims is repeated, with the `names` of each.
- A block `{name}` whose value is a list of rows, or a generator of them, is a table.
  The first row is its head, which may be a string: `"gate | loss"`.
- In a table whose first column is `protocol`, the cells in the column `here` are filled
  with the preset `cpu` and with `paper`: "cpu: 5; paper: 100" where they differ.
- `![text](name "caption")` is the picture that the experiment's `draw_name(results)`
  draws. The text says what one sees, for readers without pictures. Without a caption,
  it is the caption too.

A block that names what is `None`, or has not been run, is left out, and so is a heading
without text.
A line `include: name.md` stands for the lines of that file.

Where an experiment `stands_in_for` the paper's data with others, what holds or is
refuted does so *on a stand-in*.
"""

import ast
import dataclasses
import functools
import inspect
import math
import pathlib
import re
import string
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from research.engine.claims import HOLDS, STAND_IN, Fact, Found, count, judge
from research.engine.compare import NOT_RUN, judged_often
from research.engine.judging import NIL, Judged
from research.engine.reproduce import in_words
from research.engine.results import NotRunError, Results, format_mean, how_many

INCLUDE = re.compile(r"^include: (\S+)$", re.MULTILINE)
ARGUMENT = re.compile(r"('.*?'|.+?)(?:, | minus |$)")
PICTURE = re.compile(r'!\[(.*?)\]\((\S+)(?: "(.*)")?\)', re.DOTALL)
CELLS = re.compile(r"(?<!\\)\|")
SAME = "Rows in which the paper says the same are one claim: undecided if they differ."
VERDICTS = {
    "yes": "Reproduced",
    "partly": "Partly reproduced",
    "no": "Not reproduced",
    "open": "Open",
}


class Picture(NamedTuple):
    """A picture: its path beside the page, and what draws it."""

    path: str
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


class Number(NamedTuple):
    """A number of an arm, which is formatted as `Results.text` or as its mean."""

    results: Results
    arm: str
    name: str

    def __format__(self, format_spec):
        text = re.fullmatch(r"(\d?)(%?)", format_spec)
        if not text:
            return format(self.results.mean(self.arm, self.name), format_spec)
        digits, scale = int(text[1] or 3), 100 if text[2] else 1
        return self.results.text(self.arm, self.name, digits, scale)


class Prose(string.Formatter):
    """`str.format` of the names of a template; it lists tuples, and counts flags."""

    def __init__(self, experiment, results, names=None):
        self.experiment, self.results = experiment, results
        presets = presets_of(experiment)
        self.known = {**experiment.fields, **presets, "both": Both(presets)}
        self.known |= names or {}

    def get_value(self, key, args=(), kwargs=None):
        """The value of a name; a function gets the results."""
        value = self.named(key)
        value = value(self.results) if callable(value) else value
        return list(value) if inspect.isgenerator(value) else value

    def get_field(self, field_name, args, kwargs):
        """The value of a field, also of a number or a function *of* something."""
        name, of, rest = field_name.partition(" of ")
        if not of:
            return super().get_field(field_name, args, kwargs)
        given, function = self.arguments(rest), self.named(name, None)
        if callable(function):
            return function(self.results, *given), name
        kind: Any = Number if len(given) == 1 else Results.gap
        return kind(self.results, *given, name), name

    def arguments(self, text):
        """What a text names, parted by commas or `minus`; a name may be in quotes."""
        arms = self.experiment.arms
        parts = [text] if text in arms else ARGUMENT.findall(text)
        return [x if x in arms else self.named(x, _literal(x)) for x in parts]

    def named(self, key, *default):
        """What has a name: a field, an attribute, or what the module has."""
        if key in self.known:
            return self.known[key]
        if not hasattr(self.experiment, key):
            own = [vars(module) for module in _modules(type(self.experiment))]
            default = [names[key] for names in own if key in names] or default
        return getattr(self.experiment, key, *default[:1])

    def format_field(self, value, format_spec):
        """The text of a value; a `NotRunError` if it is `None`."""
        if value is None:
            raise NotRunError
        if isinstance(value, np.ndarray) and value.dtype.kind == "b":
            return how_many(value)
        if type(value) in (tuple, list):
            return ", ".join(self.format_field(each, format_spec) for each in value)
        is_plain = isinstance(value, float) and not format_spec
        return format(value, "g" if is_plain else format_spec)


@functools.cache
def _modules(kind):
    """The modules of a class and its parents, and the `_shared` ones beside it."""
    package = kind.__module__.rpartition(".")[0]
    names = [parent.__module__ for parent in kind.__mro__]
    names += [name for name in sys.modules if name.startswith(f"{package}._")]
    return [sys.modules[name] for name in names]


def _literal(text):
    """A number as it is written; other texts stay."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


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
    if block.startswith("| claim |"):
        found.place = len(found.blocks)
        return _claims(block, prose, found)
    if alone := re.fullmatch(r"\{(\w+)\}", block):
        value = _or_not_run(prose.get_value, alone[1], without="")
        return _table(value) if isinstance(value, list) else value
    if block.startswith("| protocol |"):
        return _protocol(block, results)
    if block.startswith("|"):
        return "\n".join(_filled_row(line, prose) for line in block.split("\n"))
    if picture := PICTURE.fullmatch(block):
        text, name = prose.format(picture[1]), picture[2]
        caption = prose.format(picture[3]) if picture[3] else text
        path = f"images/{experiment.name}-{name}.png"
        draw = getattr(experiment, f"draw_{name.replace('-', '_')}")
        found.pictures.append(Picture(path, functools.partial(draw, results)))
        return f"![{text}]({path})\n\n*{caption}*"
    return _or_not_run(prose.format, block, without="").strip()


def _or_not_run(do, *arguments, without=NOT_RUN):
    try:
        return do(*arguments)
    except NotRunError:
        return without


def cells_of(line):
    """The cells of a line of a table; none of another line."""
    return [cell.strip() for cell in CELLS.split(line)[1:-1]] if line[:1] == "|" else []


def _filled_row(line, prose):
    return _row(_or_not_run(prose.format, cell) for cell in cells_of(line))


def _row(cells):
    return "| " + " | ".join(cells) + " |"


def _table(rows):
    """A table of rows, the first of which is its head; nothing without others."""
    head, *rest = rows
    columns = head.split(" | ") if isinstance(head, str) else head
    return table(columns, rest) if rest else ""


def _claims(block, prose, found):
    """The table of the claims; what they come to is added to a `Filled`."""
    experiment, results, rows = prose.experiment, prose.results, []
    (_, *columns), _, *lines = map(cells_of, block.split("\n"))
    claims = {}
    for claim in experiment.claims:
        claims.setdefault(claim.id.split()[0], []).append(claim)
    if lost := claims.keys() - {name for name, *_ in lines}:
        raise ValueError(
            f"Each claim of {experiment.name} must have a row in its table of claims. "
            f"Received: {', '.join(sorted(lost))} without one."
        )
    for name, *cells in lines:
        for claim in claims.get(name, ()):
            views = experiment.views(results).items()
            own = [Prose(experiment, view, claim.names) for _, view in views]
            *said, here = [_or_not_run(own[0].format, cell) for cell in cells]
            if len(own) > 1:
                here = _or_not_run(_in_views, views, own, cells[-1])
            rows.append([*said, here, _judged(claim, results, said, here, found)])
    shown = [i for i in range(len(columns) + 1) if any(row[i] for row in rows)]
    shown = range(len(columns) + 1) if experiment.paper else shown
    return _table([[row[i] for i in shown] for row in ([*columns, "holds"], *rows)])


def _in_views(views, proses, cell):
    pairs = zip(views, proses, strict=True)
    return " ".join(f"{name}: {own.format(cell)}" for (name, _), own in pairs)


def _judged(claim, results, said, here, found):
    """The verdict on a claim, as text; the claim is added to a `Filled`."""
    with judged_often(results.experiment.looks):
        judged = _or_not_run(judge, claim.test, results)
    judged = judged if isinstance(judged, Judged) else Judged(judged)
    fact = isinstance(claim.test, Fact)
    stand_in = bool(results.experiment.stands_in_for) and not fact
    one = Found(claim.id, [*said, here], judged.holds, fact, stand_in, tuple(said))
    found.claims.append(one)
    word = str(HOLDS.get(judged.holds, judged.holds))
    word += f", {STAND_IN}" if one.kind[1] else ""
    if judged.why:
        word += f": {judged.why}"
    elif judged.holds is None and judged.seeds < math.inf:
        word += _price(judged.seeds, results)
    return word


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
    place, rows = cells_of(head).index("here"), [head]
    for line in lines:
        cells = cells_of(line)
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
