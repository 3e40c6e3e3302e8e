"""Whether the choice of experts matters on the data of a user's table."""

import numpy as np
import pandas as pd

from gate_comparison.arms import NUM_CHOICES, RECIPE
from gate_comparison.comparison import compare
from gate_comparison.page import BEST, CONTROL, FIT, verdict
from gate_comparison.problems import Problem, as_numbers, split_rows
from gate_comparison.statistics import errors, luck, random_errors, ratio

ARMS = ("softmax", "shared bottom", FIT, RECIPE, "Top-k, noisy", "random")


def answer(path, targets, draws, epochs=30):
    """Compare gates on a table, and say whether the choice of experts matters.

    Args:
        path: A CSV file.
        targets: Names of numeric columns that are the labels, which may be missing.
            Those with only 0 and 1 are binary.
        draws: The number of splits.
        epochs: The number of epochs.
    """
    frame = pd.read_csv(path)
    unknown = [name for name in targets or [] if name not in frame]
    if not targets or unknown:
        raise SystemExit(
            f"`--targets` must name columns of {path}: {', '.join(frame.columns)}. "
            f"Received: {targets}."
        )
    texts = [name for name in targets if not pd.api.types.is_numeric_dtype(frame[name])]
    if texts:
        raise SystemExit(
            "`--targets` must name columns of numbers. Received: "
            f"{', '.join(texts)}, with {frame[texts[0]].iloc[0]!r} in the first row. "
            "Write 0 and 1 for two classes, and a column of 0 and 1 for each of more."
        )
    y = frame[targets].to_numpy("float32")
    binary = [set(np.unique(column[~np.isnan(column)])) <= {0, 1} for column in y.T]
    x = as_numbers(frame.drop(columns=targets))
    tables = [split_rows(x, y, binary, seed) for seed in range(draws)]
    problem = Problem("mine", lambda seed, _: tables[seed], epochs=epochs)
    rows = compare(problem, range(draws), ".", ARMS)
    return sentences([{"problem": "mine", **row} for row in rows])


def sentences(rows):
    """The errors over the mean of random choices, and what follows."""
    others = random_errors(rows, BEST)
    lines = [f"Test error over the mean of {NUM_CHOICES} random choices of experts:"]
    lines += [f"  {arm:20} {ratio(errors(rows, arm), others)}" for arm in ARMS[:-1]]
    best, one = luck(rows, BEST, "mine"), luck(rows, CONTROL, "mine")
    gains = [ratio(each, dict.fromkeys(each, 1.0)).mean for each in (best, one)]
    answer = {"yes": "matters", "no": "hardly matters"}
    words = answer.get(verdict(rows, "mine"), "may matter (more --draws would say it)")
    lines.append(
        f"The choice of experts {words} here: the best of {NUM_CHOICES} choices has "
        f"{gains[0]:.2f} times the error of their mean, and the best of {NUM_CHOICES} "
        f"trainings with one choice has {gains[1]:.2f} times theirs."
    )
    return "\n".join(lines)
