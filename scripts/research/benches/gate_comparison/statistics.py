"""Paired ratios of test errors, with intervals by Student's t."""

from typing import Any, NamedTuple

import numpy as np

from research.benches.gate_comparison.problems import PROBLEMS
from research.engine.compare import interval

FEWEST_DRAWS = 3  # For a verdict.
# Problems with the functions or data of others are in their families.
TWINS = {
    "100,000 examples": "tasks in groups",
    "convolutional experts": "images",
    "C.1, 32 tasks, long": "mixtures",
    "32 tasks, 4 groups, long": "tasks in groups",
    "recommender, long": "ranking",
    # Of routers.
    "products, deeper router": "products",
}


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

    It is the exponential of the mean over the families of the mean over their problems
    of the mean over the draws of the log ratio.
    """
    drawn = _drawn(errors, others)
    return float(np.exp(np.mean(drawn))) if drawn else None


def ratio(errors, others, among=1) -> Any:
    """The mean ratio, and its interval of 95 % by Student's t on log ratios.

    What is drawn are families of problems; in one family, its problems; and on one
    problem, its draws. Of several intervals for one verdict, `among`, each is wider.
    """
    drawn = _drawn(errors, others)
    if not drawn:
        return None
    mean, low, high = np.exp(interval(drawn, among)).tolist()
    return Ratio(mean, low, high, len(drawn) == 1)


def _drawn(errors, others):
    """The log ratios of families; of one family, of its problems; of one, its draws."""
    families = {}
    for key in sorted(errors.keys() & others.keys()):
        log = float(np.log(errors[key]) - np.log(others[key]))
        problems = families.setdefault(family_of(key[0]), {})
        problems.setdefault(key[0], []).append(log)
    if len(families) > 1:
        return [
            np.mean([*map(np.mean, problems.values())])
            for problems in families.values()
        ]
    draws = [draws for problems in families.values() for draws in problems.values()]
    if len(draws) > 1:
        return [*map(np.mean, draws)]
    return [log for logs in draws for log in logs]


def family_of(problem):
    """The family of a problem of GateBench; another one is a family of its own."""
    if problem in TWINS or problem not in PROBLEMS:
        return TWINS.get(problem, problem)
    return PROBLEMS[problem].family


def only(errors, problems):
    """The errors on some problems."""
    return {key: value for key, value in errors.items() if key[0] in problems}
