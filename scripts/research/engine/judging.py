"""Verdicts on claims, by the differences between arms and by the paper's own."""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from research.engine.compare import NOT_RUN, Gap, chance, quantile, stats

NIL, INADMISSIBLE = "below half of the paper's difference", "inadmissible"
UNTESTABLE = "not testable here"
RESAMPLES = 1_000
MOST_SEEDS = 1_000  # More than any experiment would have.


class Judged(NamedTuple):
    """A verdict, and the seeds that would decide it.

    Args:
        holds: `True`, `False`, `None` if it is undecided, `NIL`,
            `"not testable here"`, `"inadmissible"` or `"not run"`.
        seeds: How many would decide if the differences stay what they are, if known.
        why: The reason why it is not testable here, or not run; of what is undecided,
            what would decide where seeds would not.
    """

    holds: Any
    seeds: float = math.inf
    why: str = ""


def all_positive(gaps, effects=None, over=0.0, among=1):
    """Judge whether all of some differences are positive: a `Judged`.

    Yes if each is, by its 95 % interval. By intervals with Holm's correction, no if any
    is not, and `NIL` if any excludes half of the paper's difference.

    Args:
        gaps: A list of `Gap`.
        effects: The paper's differences: a list, or a number for all. 0 is unknown.
        over: What they should exceed.
        among: The number of such claims, if some of them are enough.

    Example:
        >>> all_positive([Gap(0.0, 0.1, 9)], effects=2.0).holds == NIL
        True
    """
    gaps = list(gaps)
    effects = np.broadcast_to(effects or 0.0, len(gaps)).tolist()
    each = [gap.is_positive(over, among) for gap in gaps]
    if gaps and all(each):
        return Judged(True)
    if False in holm(gaps, over):
        return Judged(False)
    pairs = zip(gaps, effects, each, strict=True)
    rest = [(gap, effect / 2) for gap, effect, held in pairs if not held]
    if False in holm([gap.above(half) for gap, half in rest if half > max(over, 0)]):
        return Judged(NIL)
    return Judged(None, _seeds(rest, over, len(gaps)))


def _seeds(gaps, over, among):
    """Count the seeds that would decide: all positive, or one not, or below half."""
    yes = [_needed(gap, gap.mean - over) for gap, _ in gaps]
    limits = [(gap, half if half > max(over, 0) else over) for gap, half in gaps]
    no = [_needed(gap, limit - gap.mean, among) for gap, limit in limits]
    return min(max(yes, default=math.inf), *no, math.inf)


def _needed(gap, apart, among=1):
    """Count the seeds that would tell such a difference, if it stays as it is."""
    if not (apart > 0 and math.isfinite(gap.error * gap.size)):
        return math.inf
    level, needed = 1 - chance(among), gap.size
    for _ in range(3):  # With more seeds, Student's t is narrower.
        # Rounded, because a quantile takes a while, and is kept.
        reach = quantile(float(f"{needed:.1g}"), level) * gap.error
        needed = max(gap.size + 1, gap.size * (reach / apart) ** 2)
    return needed


def holm(gaps, over=0.0):
    """For each `Gap` whether it is above a number, by Holm's correction at 5 %.

    `None` is what may be chance among so many.
    """
    found = [None] * len(gaps)
    order = sorted(range(len(gaps)), key=lambda i: gaps[i].p_value(over))
    for rank, i in enumerate(order):
        found[i] = gaps[i].is_positive(over, among=len(gaps) - rank)
        if found[i] is None:
            break
    return found


def trimmed_gap(values, share=0.05):
    """The `Gap` of the mean without a share of the values at each end, after Yuen.

    A single failed run does not decide it. Of fewer than 20 values it is `gap_of`.
    """
    values = np.sort(values)
    cut = int(share * len(values))
    kept = values[cut : len(values) - cut]
    if len(kept) < 2:
        return Gap(float(np.mean(kept)), math.nan, len(kept))
    winsorized = np.clip(values, kept[0], kept[-1])
    squares = float(((winsorized - winsorized.mean()) ** 2).sum())
    error = math.sqrt(squares / (len(kept) * (len(kept) - 1)))
    return Gap(float(kept.mean()), error, len(kept))


def bootstrap_gap(find, *values):
    """The `Gap` of what a function finds, by drawing the runs of arrays anew, in pairs.

    Entry i of all arrays has the same seed. The function gets runs on the last axis.
    """
    values = [np.asarray(each) for each in values]
    size = len(values[0])
    drawn = np.random.default_rng(0).integers(size, size=(RESAMPLES, size))
    error = find(*(each[drawn] for each in values)).std() if size > 1 else math.nan
    return Gap(float(find(*values)), float(error), size)


def most(flags):
    """Judge whether most booleans are true, by a sign test at 5 %: a `Judged`.

    Args:
        flags: A list of them.

    Example:
        >>> most([True] * 6).holds, most([True] * 5)
        (True, Judged(holds=None, seeds=6, why=''))
    """
    return _most(len(flags), int(np.sum(flags)), chance())


@functools.lru_cache(maxsize=256)
def _most(size, count, level):
    if not size:
        return Judged(None)
    if _is_clear(size, count, level):
        return Judged(count > size / 2)
    # If the share stays what it is.
    more = range(size + 1, MOST_SEEDS)
    decide = (n for n in more if _is_clear(n, round(count / size * n), level))
    return Judged(None, next(decide, math.inf))


def _is_clear(size, count, level):
    """Check whether so many of a size are more, or fewer, than by chance."""
    most = max(count, size - count)
    return 2 * stats().binom.sf(most - 1, size, 0.5) <= level


def all_hold(judgements):
    """Judge whether several judgements all hold: the first of these among them.

    Args:
        judgements: Booleans, `None` for what cannot be judged, or one of the words of
            `Judged`.

    Example:
        >>> all_hold([True, True]), all_hold([True, None]), all_hold([None, False])
        (True, None, False)
    """
    found = [each.holds if isinstance(each, Judged) else each for each in judgements]
    for word in (False, NOT_RUN, UNTESTABLE, INADMISSIBLE, NIL, None):
        if word in found:
            return word
    return True if found else None
