"""Claims: what a paper says, what there is here, and a test that judges it."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from research.engine.compare import NOT_RUN
from research.engine.judging import (
    INADMISSIBLE,
    NIL,
    UNTESTABLE,
    Judged,
    all_hold,
    all_positive,
)
from research.engine.results import NotRunError, Results

HOLDS = {True: "yes", False: "no", None: "undecided"}
STAND_IN = "on a stand-in"
# By `Found.kind`; those that hold are counted before.
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
# A verdict (see `Judged`), or a function of the `Results` that gives one.
Test = Judged | bool | str | None | Callable[[Results], Any]


class Claim(NamedTuple):
    """A claim of a row in the template of a page, which has its text.

    Args:
        id: The first cell of the row, and perhaps which one: `"binary 0.1"`.
        test: A function of the `Results` such as `Higher`, or one that gives a
            `Judged`, a boolean or `None`; or one of these.
        names: What the text names beside the fields of the experiment.

    Example:
        >>> claim = Claim(
        ...     "above-tag", Higher("SMEAR", "Tag", by="accuracy", effect=0.006)
        ... )
    """

    id: str
    test: Test
    names: Mapping[str, Any] = {}


@dataclasses.dataclass(frozen=True)
class Higher:
    """Test that a number is higher, seed by seed, for arms than for others.

    Args:
        arms: The name of an arm, or several; each is compared with each other one.
        others: The same.
        by: The name of the number.
        effect: The paper's difference, if known. It is not used on a stand-in.
        within: By how much it may be lower.
    """

    arms: str | Sequence[str]
    others: str | Sequence[str]
    by: str
    effect: float = 0.0
    within: float = 0.0

    def __call__(self, results):
        """The verdict of the runs."""
        effect = 0.0 if results.experiment.stands_in_for else self.effect
        return all_positive(_gaps(self, results), effect, over=-self.within)


@dataclasses.dataclass(frozen=True)
class Equal:
    """Test that a number differs by at most a margin; see `Higher`.

    Args:
        arms: The name of an arm, or several.
        others: The same.
        by: The name of the number.
        within: The margin.
    """

    arms: str | Sequence[str]
    others: str | Sequence[str]
    by: str
    within: float

    def __call__(self, results):
        """The verdict of the runs."""
        return all_hold(gap.is_zero(self.within) for gap in _gaps(self, results))


@dataclasses.dataclass(frozen=True)
class Fact:
    """A test of the data or of a formula: such claims make no page reproduced.

    Args:
        test: A test, as that of a `Claim`.
    """

    test: Test

    def __call__(self, results):
        """The verdict of the runs."""
        return judge(self.test, results)


@dataclasses.dataclass(frozen=True)
class Untestable:
    """Reason why runs cannot test a claim, and a test of what they would say.

    Args:
        why: The reason.
        but: A test whose verdict is said beside it; left out if `""`.
        word: The verdict.
    """

    why: str
    but: Test = ""
    word: str = UNTESTABLE

    def __call__(self, results):
        """The verdict of the runs."""
        why = self.why
        if self.but != "":
            found = all_hold([judge(self.but, results)])
            why += f" These runs alone would say: {HOLDS.get(found, found)}."
        return Judged(self.word, why=why)


def not_run(why, but: Test = ""):
    """The `Untestable` of a claim that is not run yet.

    Args:
        why: The reason.
        but: A test whose verdict is said beside it; left out if `""`.
    """
    return Untestable(why, but, NOT_RUN)


@dataclasses.dataclass(frozen=True)
class WithinRules:
    """A test of the runs that are admissible; `INADMISSIBLE` if an arm has none.

    Args:
        test: A test, as that of a `Claim`; a function gets these runs.
    """

    test: Test

    def __call__(self, results):
        """The verdict of the runs."""
        kept = results.within_rules()
        try:
            judged = judge(self.test, kept)
        except NotRunError as error:
            if results.of(*error.args):
                return Judged(INADMISSIBLE)
            raise
        arms = results.experiment.arms
        runs = ((len(results.of(arm)), len(kept.of(arm))) for arm in arms)
        share = min((some / every for every, some in runs if some), default=1.0)
        return judged._replace(seeds=judged.seeds / share)


def judge(test, results):
    """The `Judged` of a test."""
    found = test(results) if callable(test) else test
    found = bool(found) if isinstance(found, np.bool_) else found
    return found if isinstance(found, Judged) else Judged(found)


def _gaps(test, results):
    """The `Gap`s of each arm of a test to each other one."""
    arms, others = (
        [names] if isinstance(names, str) else names
        for names in (test.arms, test.others)
    )
    pairs = itertools.product(arms, others)
    return [results.gap(arm, other, test.by) for arm, other in pairs]


class Found(NamedTuple):
    """A claim as it was judged, and whether it holds: see `Judged`."""

    id: str
    cells: list[str]  # Of its row, without the last.
    holds: Any
    fact: bool = False  # Of the data or a formula.
    stand_in: bool = False  # Whether its data stand in for the paper's.
    said: tuple[str, ...] = ()  # The cells up to `here`: what the paper says.

    @property
    def kind(self):
        """Kind as which it is counted: its verdict, and whether on a stand-in."""
        return self.holds, self.stand_in and self.holds in (True, False)


def count(claims):
    """Count the claims that hold, and those of each other verdict, as text."""
    kinds = [claim.kind for claim in claims]
    others = (
        f", {kinds.count(kind)} {word}"
        for kind, word in COUNTED.items()
        if kind in kinds
    )
    return f"{kinds.count((True, False))} of {len(kinds)} claims hold{''.join(others)}."
