"""Paired ratios of test errors, with intervals by bootstrap."""

from typing import Any, NamedTuple

import numpy as np


class Ratio(NamedTuple):
    """The mean ratio of two errors, and its interval of 95 %."""

    mean: float
    low: float
    high: float

    def __str__(self):
        """As in 0.95 [0.90, 1.01]."""
        return f"{self.mean:.3f} [{self.low:.2f}, {self.high:.2f}]"


def errors(rows, arm, number="test"):
    """The errors of an arm: a dict from (problem, draw)."""
    return {
        (row["problem"], row["draw"]): row[number] for row in rows if row["arm"] == arm
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
    return float(np.exp(np.mean([each.mean() for each in logs]))) if logs else None


def ratio(errors, others) -> Any:
    """The mean ratio, and its interval by a bootstrap of problems and their draws."""
    logs = _logs(errors, others)
    if not logs:
        return None
    rng = np.random.default_rng(0)
    counts, draws = np.array([*map(len, logs)]), np.concatenate(logs)
    starts = np.cumsum(counts) - counts

    def resampled():
        chosen = rng.integers(len(logs), size=len(logs))
        own = counts[chosen]
        drawn = np.repeat(starts[chosen], own) + rng.integers(np.repeat(own, own))
        return np.mean(np.add.reduceat(draws[drawn], np.cumsum(own) - own) / own)

    interval = np.quantile([resampled() for _ in range(1000)], (0.025, 0.975))
    return Ratio(mean_ratio(errors, others), *map(float, np.exp(interval)))


def _logs(errors, others):
    """The log ratios of each problem."""
    by_problem = {}
    for key in errors.keys() & others.keys():
        log = np.log(errors[key]) - np.log(others[key])
        by_problem.setdefault(key[0], []).append(log)
    # Sorted: the interval is to be the same each time.
    return [np.sort(by_problem[problem]) for problem in sorted(by_problem)]


def only(errors, problems):
    """The errors on some problems."""
    return {key: value for key, value in errors.items() if key[0] in problems}
