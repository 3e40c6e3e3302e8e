"""The parts of a report: claims, questions, tables and pictures."""

import dataclasses
from collections.abc import Callable
from typing import Any

VERDICTS = {
    "yes": "Reproduced.",
    "partly": "Partly reproduced.",
    "no": "Not reproduced.",
    "open": "Undecided.",
}


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of a paper, and whether it holds here.

    Args:
        says: The claim, in your words.
        ours: What was measured here, with the numbers.
        holds: Whether it holds; `None` if these runs cannot tell.
        source: Where the paper says it, such as "Section 3.3, first result".
        paper: The paper's own number, where it gives one.
    """

    says: str
    ours: str
    holds: bool | None
    source: str
    paper: str = ""


@dataclasses.dataclass(frozen=True)
class Question:
    """A question that no paper answers. It does not count in the verdict.

    Args:
        asks: The question, such as "Do restarts lower the error?".
        ours: What was measured here, with the numbers.
    """

    asks: str
    ours: str


@dataclasses.dataclass(frozen=True)
class Fact:
    """A setting in a paper's protocol, and the same setting here.

    Args:
        what: The setting, such as "Training examples".
        paper: The paper's value, with its place if it is not obvious.
        here: The value here.
        why: Why it differs; empty if it does not.
    """

    what: str
    paper: Any
    here: Any
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table, such as of the paper's numbers and ours.

    Args:
        title: The title.
        columns: Names of the columns.
        rows: A list of rows: strings, numbers, or `None` where there is nothing.
        note: A remark below it.
    """

    title: str
    columns: list[str]
    rows: list[list[Any]]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure that is drawn from the results.

    Args:
        name: The last part of its file's name, after the experiment's.
        caption: The caption, which is also the alternative text of the picture.
        draw: A function without arguments that gives a matplotlib figure.
    """

    name: str
    caption: str
    draw: Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Report:
    """Everything that an experiment reports.

    Args:
        claims: A list of `Claim`, all those of the figure or table. A method that was
            left out fails its claims.
        tables: A list of `Table`.
        pictures: A list of `Picture`.
        notes: Paragraphs of Markdown: where this departs from the paper, and what was
            tried.
        questions: A list of `Question`: what we ask beyond the paper.
        protocol: A list of `Fact`.

    Example:
        >>> from experiments import Claim, Report
        >>> claims = [
        ...     Claim("a < b", "1 < 2", True, "Section 4, first result"),
        ...     Claim("b < c", "not run", None, "Table 2"),
        ... ]
        >>> Report(claims).verdict
        'partly'
    """

    claims: list[Claim] = dataclasses.field(default_factory=list)
    tables: list[Table] = dataclasses.field(default_factory=list)
    pictures: list[Picture] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    questions: list[Question] = dataclasses.field(default_factory=list)
    protocol: list[Fact] = dataclasses.field(default_factory=list)

    @property
    def verdict(self):
        """A key of `VERDICTS`: whether the claims hold."""
        held = [claim.holds for claim in self.claims]
        if True in held:
            return "yes" if all(held) else "partly"
        return "no" if False in held else "open"
