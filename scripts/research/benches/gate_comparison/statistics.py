"""Paired ratios of test errors, with intervals by bootstrap."""

from typing import Any, NamedTuple

import numpy as np

from research.benches.gate_comparison.problems import PROBLEMS


class Ratio(NamedTuple):
    """The mean ratio of two errors, its interval of 95 %, and if it is of one pair."""

    mean: float
    low: float
    high: float
    is_single: bool = False

    def __str__(self):
        """As in 0.95 [0.90, 1.01]; a single pair has no interval."""
        if self.is_single:
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} [{self.low:.2f}, {self.high:.2f}]"


def errors(rows, arm, number="test"):
    """The errors of an arm: a dict from (problem, draw).

    A setting that is not in the grid of a problem has no error there.
    """
    return {
        (row["problem"], row["draw"]): row[number]
        for row in rows
        if row["arm"] == arm and number in row
    }


def random_errors(rows, arm):
    """The mean error of some random choices, which is geometric."""
    return {
        key: float(np.exp(np.log(choices).mean()))
        for key, choices in errors(rows, arm, "choices").items()
    }


def luck(rows, arm, problem):
    """The error of the best of some trainings on a problem, over their mean."""
    means = random_errors(rows, arm)
    own = only(errors(rows, arm), [problem])
    return {key: error / means[key] for key, error in own.items()}


def mean_ratio(errors, others) -> Any:
    """The mean ratio of errors to others, over the problems and draws of both.

    It is the exponential of the mean over the problems of the mean over their draws of
    the log ratio.
    """
    logs = _logs(errors, others)
    means = [each.mean() for each in logs.values()]
    return float(np.exp(np.mean(means))) if means else None


def ratio(errors, others) -> Any:
    """The mean ratio, and its interval.

    It is by a bootstrap of families, of their problems and of the draws of these: new
    problems may be of other families.
    """
    logs = _logs(errors, others)
    if not logs:
        return None
    rng = np.random.default_rng(0)
    families = list(map(family_of, logs))
    # Problems of a family are neighbours, and draws of a problem.
    problems = np.unique(families, return_counts=True)[1]
    draws = np.array([*map(len, logs.values())])
    flat = np.concatenate([*logs.values()])

    def resampled():
        chosen = rng.integers(len(problems), size=len(problems))
        chosen = _drawn_within(problems, chosen, rng)
        drawn, own = flat[_drawn_within(draws, chosen, rng)], draws[chosen]
        return np.mean(np.add.reduceat(drawn, np.cumsum(own) - own) / own)

    interval = np.quantile([resampled() for _ in range(1000)], (0.025, 0.975))
    low, high = map(float, np.exp(interval))
    return Ratio(mean_ratio(errors, others), low, high, len(flat) == 1)


def _drawn_within(counts, chosen, rng):
    """Indices of members of the chosen groups: as many of each as it has."""
    own, starts = counts[chosen], np.cumsum(counts) - counts
    return np.repeat(starts[chosen], own) + rng.integers(np.repeat(own, own))


def family_of(problem):
    """The family of a problem of GateBench; another one is a family of its own."""
    return PROBLEMS[problem].family if problem in PROBLEMS else problem


def _logs(errors, others):
    """The log ratios of each problem, in the order of families and names."""
    by_problem = {}
    for key in errors.keys() & others.keys():
        log = np.log(errors[key]) - np.log(others[key])
        by_problem.setdefault(key[0], []).append(log)
    order = sorted(by_problem, key=lambda problem: (family_of(problem), problem))
    # Sorted: the interval is to be the same each time.
    return {problem: np.sort(by_problem[problem]) for problem in order}


def only(errors, problems):
    """The errors on some problems."""
    return {key: value for key, value in errors.items() if key[0] in problems}
