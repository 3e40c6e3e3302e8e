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
  the data or of a formula: such claims do not make a page reproduced. What these runs
  cannot test has the reason in place of a test: `untestable: The data are private.`
  A test may follow, whose outcome is said beside it: `untestable: Too few. But: a > b
  by accuracy`.
- In a table whose first column is `protocol`, the cells in the column `here` are filled
  with the preset `cpu` and with `paper`: "cpu: 5; paper: 100" where they differ.
- `![caption](name)` is the picture that the experiment's `draw_name(results)` draws.

A block that is empty once it is filled is left out, and so is a heading without text.
A line `include: name.md` stands for the lines of that file.
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
COUNTED = {False: "refuted", NIL: NIL, UNTESTABLE: UNTESTABLE}
COUNTED |= {INADMISSIBLE: INADMISSIBLE, None: "undecided", NOT_RUN: NOT_RUN}
VERDICTS = {
    "yes": "Reproduced.",
    "partly": "Partly reproduced.",
    "no": "Not reproduced.",
    "open": "Open.",
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

    @property
    def count(self):
        """How many claims hold, as text."""
        return count([claim.holds for claim in self.claims])

    @property
    def verdict(self):
        """A key of `VERDICTS`: whether the claims hold."""
        trained = [claim.holds for claim in self.claims if not claim.fact]
        held = trained or [claim.holds for claim in self.claims]
        if True in held:
            return "yes" if all(each is True for each in held) else "partly"
        return "no" if {False, NIL} & {*held} else "open"


def count(held):
    """How many claims hold, and how many have each other verdict, as text."""
    others = (
        f", {held.count(kind)} {word}" for kind, word in COUNTED.items() if kind in held
    )
    return f"{held.count(True)} of {len(held)} claims hold{''.join(others)}."


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
    experiment, found = results.experiment, Filled()
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
        found.blocks.insert(found.place, f"**{VERDICTS[found.verdict]}** {found.count}")
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
    for name in ("text", "mean", "error", "values", "gap", "differences"):
        names[name] = getattr(results, name)
    named = _presets(experiment)

    def both(field):
        return by_preset({n: readable(getattr(e, field)) for n, e in named.items()})

    names |= {"both": both, "across": " | ".join, "number": number, **named}
    names |= {"price": functools.partial(price, results)}
    return names | {"results": results, "e": experiment}


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
    def fill_row(cells, own):
        *cells, test = cells
        own = names | own
        texts = [_or_not_run(fill, cell, own) for cell in cells]
        fact = test.startswith("fact: ")
        judged = _or_not_run(judge, test.removeprefix("fact: "), own)
        judged = judged if isinstance(judged, Judged) else Judged(judged)
        found.claims.append(Claim(texts, judged.holds, fact))
        word = str(HOLDS.get(judged.holds, judged.holds))
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
    if test.startswith("untestable: "):
        why, _, rest = test.removeprefix("untestable: ").partition(" But: ")
        why = fill(why, names)
        if rest:
            found = all_hold([judge(rest, names)])
            why += f" These runs alone would say: {HOLDS.get(found, found)}."
        return Judged(UNTESTABLE, why=why)
    comparison = TEST.fullmatch(test)
    if not comparison:
        holds = eval(test, names)
        return bool(holds) if isinstance(holds, np.bool_) else holds
    mine, sign, other, number, size = comparison.groups()
    pairs = itertools.product(_arms(mine, names), _arms(other, names))
    gaps = [names["gap"](one, another, number) for one, another in pairs]
    return JUDGES[sign](gaps, float(size or 0))


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
