"""Claims about accuracies, which the tables of SMEAR share."""

import math

from experiments import Claim, all_hold, format_mean, is_positive
from experiments.compare import SURE, difference

RESULTS = "Section 4, Results"
ESTIMATORS = ("Top-k", "ST-Gumbel", "REINFORCE", "DSelect-k")
HEURISTICS = ("Tag", "Hash", "1x compute", "1x parameters")
NOT_RUN = "not run"


def better(gap, error):
    """Whether a difference is positive; `None` if it may be chance."""
    return is_positive(gap, error)


def worse(gap, error):
    """Whether a difference is negative; `None` if it may be chance."""
    return is_positive(-gap, error)


def as_good(gap, error):
    """Whether a difference is positive, or may be chance."""
    return gap > -SURE * (0 if math.isnan(error) else error)


def unchanged(gap, error):
    """Whether a difference may be chance."""
    return None if math.isnan(error) else abs(gap) <= SURE * error


def compare(results, says, arm, others, judge, source, paper="", number="accuracy"):
    """A claim on how the accuracy of an arm differs from that of others.

    Args:
        results: A `Results`.
        says: The claim.
        arm: Name of an arm.
        others: Names of arms.
        judge: A function of a difference and its standard error, in points: whether
            the claim holds for one of the others.
        source: Where the paper makes the claim.
        paper: The paper's numbers.
        number: What to compare.

    Returns:
        A `Claim`. It does not hold if one of the arms was not run.
    """
    run = [other for other in others if results.of(other)]
    if not results.of(arm) or not run:
        return Claim(says, NOT_RUN, False, source, paper)
    gaps = {
        other: [100 * x for x in difference(results, number, arm, other)]
        for other in run
    }
    text = "; ".join(f"{other}: {signed(*gap)}" for other, gap in gaps.items())
    ours = f"{arm} {100 * results.mean(arm, number):.1f} %. Points above {text}."
    holds = all_hold(judge(*gap) for gap in gaps.values())
    if missing := [other for other in others if other not in run]:
        ours += f" {', '.join(missing)}: {NOT_RUN}."
        holds = False
    return Claim(says, ours, holds, source, paper)


def of_each(says, arms, judge, source, run):
    """A claim that holds if it does for each of several arms.

    Args:
        says: The claim.
        arms: Names of arms.
        judge: A function of an arm: what was found, and whether the claim holds.
        source: Where the paper makes the claim.
        run: Names of the arms that were run; without the others it does not hold.

    Returns:
        A `Claim`.
    """
    found = {arm: judge(arm) for arm in arms if arm in run}
    texts = [f"{arm}: {text}" for arm, (text, _) in found.items()]
    held = [holds for _, holds in found.values()]
    if missing := [arm for arm in arms if arm not in run]:
        texts.append(f"{', '.join(missing)}: {NOT_RUN}")
        held.append(False)
    return Claim(says, f"{'; '.join(texts)}.", all_hold(held), source)


def signed(gap, error):
    """A difference in points, with its sign."""
    text = format_mean(gap, error, digits=2)
    return text if text.startswith("-") else f"+{text}"
