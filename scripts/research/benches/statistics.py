"""Paired ratios of test errors, with intervals by Student's t.

Rows are dicts, and errors a dict by family of problems, problem and draw.
"""

import math
from typing import NamedTuple

import numpy as np

from research.engine.compare import interval

FEWEST_DRAWS = 3  # For a verdict.


class Ratio(NamedTuple):
    """The mean ratio of errors to others, and its interval of 95 %.

    Args:
        mean: The mean; NaN without errors.
        low: The lower end of the interval.
        high: The upper end.
        size: The number of ratios that are drawn.
    """

    mean: float
    low: float
    high: float
    size: int

    def __str__(self):
        """As in 0.95 [0.90, 1.01]; without an end where an interval would have none."""
        if self.size < 2 or not (math.isfinite(self.mean) and math.isfinite(self.high)):
            return format(self, ".3f")
        return f"{self:.3f} [{self.low:.2f}, {self.high:.2f}]"

    def __format__(self, form):
        """The mean; nothing without errors."""
        if not form:
            return str(self)
        if math.isinf(self.mean):
            return "no result"
        return format(self.mean, form) if self.size else ""


def grouped(rows, name):
    """The rows by one of their columns, in the order of the rows."""
    found = {}
    for row in rows:
        found.setdefault(row[name], []).append(row)
    return found


def errors(rows, arm, number="test"):
    """The errors of an arm, of the draws that have the number."""
    return {
        (row["family"], row["problem"], row["draw"]): row[number]
        for row in rows
        if row["arm"] == arm and number in row
    }


def only(errors, problems):
    """The errors on some problems."""
    return {key: error for key, error in errors.items() if key[1] in problems}


def log_ratios(own, others=None):
    """The logarithms of the ratios of errors to others, or 1, of the draws of both."""
    others = others if others is not None else dict.fromkeys(own, 1.0)
    keys = sorted(own.keys() & others.keys())
    return {key: np.log(own[key]) - np.log(others[key]) for key in keys}


def by_problem(logs):
    """The means of problems; of a single problem, its draws."""
    problems = _means(logs, 2)
    return problems if len(problems) > 1 else logs


def _means(logs, size):
    """The means of logarithms whose keys begin with the same names."""
    groups = {}
    for key, log in logs.items():
        groups.setdefault(key[:size], []).append(log)
    return {key: float(np.mean(own)) for key, own in groups.items()}


def ratio(own, others=None, among=1, overlap=0.0):
    """The mean ratio, and its interval of 95 % by Student's t on log ratios.

    The mean is the exponential of the mean over the families of the mean over their
    problems of the mean over the draws. What is drawn are families of problems; in one
    family, its problems; and on one problem, its draws. Of several intervals for one
    verdict, `among`, each is wider, and so is that of one problem whose draws have an
    `overlap` (see `Problem`).
    """
    logs = by_problem(log_ratios(own, others))
    families = _means(logs, 1)
    drawn = [*(families if len(families) > 1 else logs).values()]
    if not drawn or not np.isfinite(drawn).all():
        mean = math.inf if drawn else math.nan
        return Ratio(mean, math.nan, math.nan, len(drawn))
    overlap *= len({key[:2] for key in logs}) == 1
    mean, low, high = np.exp(interval(drawn, among, overlap)).tolist()
    return Ratio(mean, low, high, len(drawn))


def verdict(*pairs, no_below=0.98, overlap=0.0):
    """Judge if errors are lower than others by 2 %: "yes", "no" or "undecided".

    Yes is one of several intervals, by Bonferroni's correction: any of them may be low
    by chance. Fewer than `FEWEST_DRAWS` draws say hardly anything.

    Args:
        *pairs: Errors and others, which are compared.
        no_below: The ratio above which all intervals must be for a no.
        overlap: Of the draws of one problem; see `Problem`.
    """
    pairs = [pair for pair in pairs if pair[0].keys() & pair[1].keys()]
    if min((len(log_ratios(*pair)) for pair in pairs), default=0) < FEWEST_DRAWS:
        return "undecided"
    several = {"among": len(pairs), "overlap": overlap}
    if any(ratio(*pair, **several).high < 0.98 for pair in pairs):
        return "yes"
    lows = [ratio(*pair, overlap=overlap).low for pair in pairs]
    return "no" if min(lows) > no_below else "undecided"
