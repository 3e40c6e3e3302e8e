"""What an experiment reports: claims, tables and pictures."""

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
    """A claim, and whether it holds here.

    Args:
        says: The claim, such as a paper's, in your words.
        ours: What came out here, with the numbers.
        holds: Whether it holds; `None` if these runs cannot tell.
    """

    says: str
    ours: str
    holds: bool | None


@dataclasses.dataclass(frozen=True)
class Table:
    """A table, with the paper's numbers beside ours.

    Args:
        title: What it shows.
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
        caption: What it shows; also the alternative text of the picture.
        draw: A function without arguments that gives a matplotlib figure.
    """

    name: str
    caption: str
    draw: Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Report:
    """All that an experiment reports.

    Args:
        claims: A list of `Claim`.
        tables: A list of `Table`.
        pictures: A list of `Picture`.
        notes: Paragraphs of Markdown: where this departs from the paper, and what was
            tried.

    Example:
        >>> from dselectk_keras.experiments import Claim, Report
        >>> Report([Claim("a < b", "1 < 2", True), Claim("b < c", "", None)]).verdict
        'partly'
    """

    claims: list[Claim] = dataclasses.field(default_factory=list)
    tables: list[Table] = dataclasses.field(default_factory=list)
    pictures: list[Picture] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def verdict(self):
        """A key of `VERDICTS`: whether the claims hold."""
        held = [claim.holds for claim in self.claims]
        if True in held:
            return "yes" if all(held) else "partly"
        return "no" if False in held else "open"
