"""Fill the template of a page: Markdown with expressions in braces.

A template is what a page says, with `{...}` where a number goes. Text in braces is a
Python expression, as in an f-string. It may name

- the fields, properties and methods of the experiment; what its module has, and the
  modules of its folder whose names begin with an underscore;
- `results`, and its `text`, `mean`, `error`, `values`, `gap` and `differences`;
- `cpu` and `paper`, the presets, and `both(field)`, a field of both;
- `price(field=value)`, the runs, core-hours and memory with other fields;
- what the package `experiments` has.

Four things are more than text:

- A row `| for x in xs: {x} | ... |` of a table is repeated. The line of dashes below a
  head may be left out.
- A table whose last column is `holds` has claims. The last cell of a row is its test:
  `SMEAR > Tag by accuracy`, or a Python expression. `>=` is as good, and `=` is equal,
  `within` a margin: `SMEAR = Tag by accuracy within 0.01`. After `of` is the paper's
  difference: `SMEAR > Tag by accuracy of 0.006`. A test that begins with `fact:` is of
  the data or of a formula: such claims do not make a page reproduced. One that begins
  with `within rules:` is of the runs that are admissible. What these runs cannot test
  has the reason in place of a test: `untestable: The data are private.`, and what is
  not run yet, `not run: It needs a GPU.` A test may follow, whose outcome is said
  beside it: `untestable: Too few. But: a > b by accuracy`. Rows in which all is the
  same up to the column `here` are one claim.
- In a table whose first column is `protocol`, the cells in the column `here` are filled
  with the preset `cpu` and with `paper`: "cpu: 5; paper: 100" where they differ.
- `![caption](name)` is the picture that the experiment's `draw_name(results)` draws.

A block that is empty once it is filled is left out, and so is a heading without text.
A line `include: name.md` stands for the lines of that file.

Where an experiment `stands_in_for` the paper's data with others, what holds or is
refuted does so *on a stand-in*. The paper's differences are of its own data: they make
nothing nil there.
"""

import dataclasses
import functools
import inspect
import itertools
import math
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from experiments import compare, judging, search
from experiments.compare import NOT_RUN
from experiments.judging import (
    INADMISSIBLE,
    NIL,
    UNTESTABLE,
    Judged,
    all_hold,
    all_positive,
)
from experiments.plan import price
from experiments.reproduce import in_words
from experiments.results import NotRunError, format_mean

INCLUDE = re.compile(r"^include: (\S+)$", re.MULTILINE)
CELLS = re.compile(r"(?<!\\)\|")
TEST = re.compile(r"(.+) (>|<|>=|=) (.+) by (\w+?)(?: (?:within|of) ([\d.]+))?")
HOLDS = {True: "yes", False: "no", None: "undecided"}
STAND_IN = "on a stand-in"
# By `Claim.kind`; those that hold are counted before.
COUNTED = {
    (True, True): f"hold {STAND_IN}",
    (False, False): "refuted",
    (False, True): f"refuted {STAND_IN}",
    (NIL, False): NIL,
    (UNTESTABLE, False): UNTESTABLE,
    (INADMISSIBLE, False): INADMISSIBLE,
    (None, False): "undecided",
    (NOT_RUN, False): NOT_RUN,
}
SAME = "Rows in which the paper says the same are one claim: undecided if they differ."
VERDICTS = {
    "yes": "Reproduced",
    "partly": "Partly reproduced",
    "no": "Not reproduced",
    "open": "Open",
}
JUDGES = {
    # With a margin, or the paper's difference.
    ">": all_positive,
    "<": lambda gaps, effect: all_positive([-gap for gap in gaps], effect),
    ">=": lambda gaps, margin: all_positive(gaps, over=-margin),
    "=": lambda gaps, margin: all_hold(gap.is_zero(margin) for gap in gaps),
}


class Claim(NamedTuple):
    """A claim, and whether it holds here: see `Judged`."""

    cells: list[str]  # Of its row, without the last.
    holds: Any
    fact: bool = False  # Of the data or a formula.
    stand_in: bool = False  # Whether its data stand in for the paper's.
    said: tuple[str, ...] = ()  # The cells up to `here`: what the paper says.

    @property
    def kind(self):
        """What it is counted as: its verdict, and whether on a stand-in."""
        return self.holds, self.stand_in and self.holds in (True, False)


class Picture(NamedTuple):
    """A picture: its path beside the page, its caption, and what draws it."""

    path: str
    caption: str
    draw: Callable[[], Any]


@dataclasses.dataclass
class Filled:
    """A template that is filled: its blocks of Markdown, claims and pictures."""

    blocks: list[str] = dataclasses.field(default_factory=list)
    claims: list[Claim] = dataclasses.field(default_factory=list)
    pictures: list[Picture] = dataclasses.field(default_factory=list)
    place: int = 0  # Of the claims.
    trains: bool = True

    @property
    def counted(self):
        """The claims, each once.

        Rows in which the paper says the same differ in what is ours, such as the start
        of a rival. If they have several verdicts, the claim is undecided.
        """
        same: dict[tuple, list[Claim]] = {}
        for claim in self.claims:
            same.setdefault(claim.said or tuple(claim.cells), []).append(claim)
        return [
            first if all(each.kind == first.kind for each in rest) else undecided
            for first, *rest in same.values()
            for undecided in [first._replace(holds=None)]
        ]

    @property
    def count(self):
        """How many claims hold, as text."""
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


def count(claims):
    """How many claims hold, and how many have each other verdict, as text."""
    kinds = [claim.kind for claim in claims]
    others = (
        f", {kinds.count(kind)} {word}"
        for kind, word in COUNTED.items()
        if kind in kinds
    )
    return f"{kinds.count((True, False))} of {len(kinds)} claims hold{''.join(others)}."


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
    names = names_of(results)
    for block in re.split(r"\n{2,}", template_of(experiment).strip()):
        head = _cells(block.split("\n", maxsplit=1)[0])
        picture = re.fullmatch(r"!\[(.*)\]\((\S+)\)", block, re.DOTALL)
        if head[-1:] == ["holds"]:
            found.place = len(found.blocks)
            text = _claims(block, names, found)
        elif head[:1] == ["protocol"]:
            text = _protocol(block, head.index("here"), results)
        elif head:
            text = _table(
                block,
                names,
                lambda cells, own: [_or_not_run(fill, c, names | own) for c in cells],
            )
        elif picture:
            caption, name = fill(picture[1], names), picture[2]
            path = f"images/{experiment.name}-{name}.png"
            draw = getattr(experiment, f"draw_{name.replace('-', '_')}")
            found.pictures.append(
                Picture(path, caption, functools.partial(draw, results))
            )
            text = f"![{caption}]({path})\n\n*{caption}*"
        else:
            text = _or_not_run(fill, block, names, without="").strip()
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


def names_of(results, experiment=None):
    """What a template may name, as a dict."""
    experiment = experiment or results.experiment
    names = vars(compare) | vars(judging) | vars(search)
    names |= vars(sys.modules["experiments"]) | {"format_mean": format_mean}
    package = type(experiment).__module__.rpartition(".")[0]
    for name, module in list(sys.modules.items()):
        if package and name.startswith(f"{package}._"):
            names |= vars(module)
    for kind in reversed(type(experiment).__mro__):
        names |= vars(sys.modules[kind.__module__])
    public = (name for name in dir(experiment) if not name.startswith("_"))
    names |= {name: getattr(experiment, name) for name in public}
    names |= numbers_of(results)
    named = _presets(experiment)

    def both(field):
        return by_preset({n: readable(getattr(e, field)) for n, e in named.items()})

    names |= {"both": both, "across": " | ".join, "number": number, **named}
    names |= {"price": functools.partial(price, results)}
    return names | {"e": experiment}


def numbers_of(results):
    """The results, and their methods that a template may name."""
    methods = ("text", "mean", "error", "values", "gap", "differences")
    return {"results": results} | {name: getattr(results, name) for name in methods}


def fill(text, names):
    """Fill the expressions of a text, as those of an f-string."""
    if "{" not in text and "}" not in text:
        return text
    return eval(f'rf"""{text} """', names)[:-1]


def _or_not_run(do, *arguments, without=NOT_RUN):
    try:
        return do(*arguments)
    except NotRunError:
        return without


def _cells(line):
    """The cells of a line of a table; none of another line."""
    return [cell.strip() for cell in CELLS.split(line)[1:-1]] if line[:1] == "|" else []


def _row(cells):
    return "| " + " | ".join(cells) + " |"


def _table(block, names, fill_row):
    """A table whose rows are filled, and repeated, by a function of cells and names."""
    head, *lines = block.split("\n")
    head = fill(head, names)
    rows = [head, _row(["---"] * len(_cells(head)))]
    for line in lines:
        first, *cells = _cells(line)
        if first == "---":
            continue
        bound = [{}]
        if loop := re.match(r"(for .+?): (.*)", first):
            loop, first = loop.groups()
            targets = re.findall(r"\w+", " ".join(re.findall(r"for (.+?) in ", loop)))
            pairs = ", ".join(f"{name!r}: {name}" for name in targets)
            bound = eval(f"[{{{pairs}}} {loop}]", names)
        rows += [_row(fill_row([first, *cells], own)) for own in bound]
    return "\n".join(rows) if len(rows) > 2 else ""


def _claims(block, names, found):
    head = _cells(block.split("\n", maxsplit=1)[0])
    place = head.index("here") if "here" in head else None

    def fill_row(cells, own):
        *cells, test = cells
        own = names | own
        texts = [_or_not_run(fill, cell, own) for cell in cells]
        fact = test.startswith("fact: ")
        judged = _or_not_run(judge, test.removeprefix("fact: "), own)
        judged = judged if isinstance(judged, Judged) else Judged(judged)
        stand_in = bool(names["e"].stands_in_for) and not fact
        claim = Claim(texts, judged.holds, fact, stand_in, tuple(texts[:place]))
        found.claims.append(claim)
        word = str(HOLDS.get(judged.holds, judged.holds))
        word += f", {STAND_IN}" if claim.kind[1] else ""
        if judged.why:
            word += f": {judged.why}"
        elif judged.holds is None and judged.seeds < math.inf:
            word += _price(judged.seeds, names["results"])
        return [*texts, word]

    return _table(block, names, fill_row)


def _price(seeds, results):
    """How many seeds would decide, and how long they take, as text."""
    reported = [run for run in results.runs if not run.tuning]
    each = sum(run.seconds for run in reported) / len({run.seed for run in reported})
    seeds = math.ceil(float(f"{seeds:.2g}"))
    return f"; about {seeds:,} seeds would decide, in {in_words(seeds * each)}"


def judge(test, names):
    """Whether a claim holds: what a comparison of arms, or an expression, says."""
    for prefix, word in (("untestable: ", UNTESTABLE), ("not run: ", NOT_RUN)):
        if test.startswith(prefix):
            why, _, rest = test.removeprefix(prefix).partition(" But: ")
            why = fill(why, names)
            if rest:
                found = all_hold([judge(rest, names)])
                why += f" These runs alone would say: {HOLDS.get(found, found)}."
            return Judged(word, why=why)
    if test.startswith("within rules: "):
        return _within_rules(test.removeprefix("within rules: "), names)
    comparison = TEST.fullmatch(test)
    if not comparison:
        holds = eval(test, names)
        return bool(holds) if isinstance(holds, np.bool_) else holds
    mine, sign, other, number, size = comparison.groups()
    pairs = itertools.product(_arms(mine, names), _arms(other, names))
    gaps = [names["gap"](one, another, number) for one, another in pairs]
    theirs = sign in "<>" and names["e"].stands_in_for  # A difference of other data.
    return JUDGES[sign](gaps, 0.0 if theirs else float(size or 0))


def _within_rules(test, names):
    """The same of the runs that are admissible; `INADMISSIBLE` if an arm has none."""
    results = names["results"]
    kept = results.within_rules()
    try:
        judged = judge(test, names | numbers_of(kept))
    except NotRunError as error:
        if results.of(*error.args):
            return Judged(INADMISSIBLE)
        raise
    if not isinstance(judged, Judged):
        return Judged(judged)
    runs = ((len(results.of(arm)), len(kept.of(arm))) for arm in names["e"].arms)
    share = min((some / every for every, some in runs if some), default=1.0)
    return judged._replace(seeds=judged.seeds / share)


def _arms(text, names):
    """The arms of one side of a comparison: a name, or names in braces."""
    if re.fullmatch(r"\{\w+\}", text):
        arms = names[text[1:-1]]
        return [arms] if isinstance(arms, str) else arms
    return [fill(text, names)]


def _protocol(block, place, results):
    presets = _presets(results.experiment)
    names = {name: names_of(results, each) for name, each in presets.items()}

    def fill_row(cells, own):
        here = {name: fill(cells[place], each | own) for name, each in names.items()}
        texts = [fill(cell, names["cpu"] | own) for cell in cells]
        texts[place] = by_preset(here)
        return texts

    return _table(block, names["cpu"], fill_row)


def _presets(experiment):
    presets = type(experiment).presets()
    return {name: presets.get(name, presets["cpu"]) for name in ("cpu", "paper")}


def by_preset(texts):
    """What is so in each preset: "cpu: 5; paper: 100", or "5" if they agree."""
    if len({*texts.values()}) == 1:
        return next(iter(texts.values()))
    return "; ".join(f"{name}: {text}" for name, text in texts.items())


def readable(value):
    """The value of a field, as text."""
    if isinstance(value, (tuple, list)):
        return ", ".join(map(readable, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_heading(text):
    return text.startswith("#") and "\n" not in text


def number(value):
    """A number of a table, with three digits; nothing for `None`."""
    if value is None:
        return ""
    return format_mean(value, float("nan")) if isinstance(value, float) else str(value)
