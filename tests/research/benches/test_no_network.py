"""Models without a network have GateBench's losses, by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from common.rivals import Rival
from research.benches.gate_comparison import no_network
from research.benches.gate_comparison.no_network import NoNetwork, error_of, paragraphs
from research.benches.gate_comparison.tables import Table
from research.engine import Results, Run, pages


@pytest.fixture
def seen(monkeypatch):
    """Rivals that predict what is known; the frames that they see."""
    frames = []

    def rivals(train, validation, names, settings, seed):
        frames.extend([train, validation])

        def model(loss, predicted, classes=None):
            return Rival({}, loss, classes, lambda x: np.array([predicted] * len(x)))

        halves = model(0.1, [0.25, 0.75], np.array([0.0, 1.0]))
        return {
            "0": {"trees": halves, "linear": model(0.2, [0.5, 0.5], halves.classes)},
            "1": {"trees": model(0.3, 9.0), "linear": model(0.2, 1.0)},
            "2": {"trees": halves},
        }

    monkeypatch.setattr(no_network, "rivals", rivals)
    return frames


def test_losses_are_the_mean_over_tasks(seen):
    """A log loss, a squared error, and numbers with two values in the training."""
    y = np.array([[1.0, 3.0, 0.0], [0.0, np.nan, 1.75]], "float32")
    x = np.array([[7.0], [8.0]], "float32")
    data = Table([(x, y)] * 3, np.array([True, False, False]))
    error, wins = error_of(data, 0)
    log = -(math.log(0.75) + math.log(0.25)) / 2
    assert error == pytest.approx((log + 4.0 + (0.75**2 + 1.0) / 2) / 3)
    assert wins == {"trees": 2, "linear": 1}
    assert list(seen[0]["x0"]) == [7.0, 8.0]


def test_columns_of_a_frame_are_taken_by_the_numbers_of_rows(seen):
    """Texts stay texts."""
    y, frame = np.zeros((1, 3), "float32"), pd.DataFrame({"text": list("abc")})
    splits = [(np.array([[row]], "float32"), y) for row in (2, 0, 1)]
    error_of(Table(splits, np.array([True, False, False])), 0, frame)
    assert [list(each["text"]) for each in seen] == [["c"], ["a"]]


def test_the_page_says_first_where_they_win():
    """Errors over theirs, per table, with the best gate."""
    results = Results(NoNetwork(seeds=2), "cpu")
    assert paragraphs([], ["fit"], ["fit"], results) == []
    assert pages.block(results).startswith("| table | test error |")
    rows = []
    for problem, gates in {"energy": (2.0, 3.0), "adult": (0.5, 2.0)}.items():
        for draw in range(2):
            results.add(Run(problem, draw, {}, {"test": 1.0}, 1.0), {})
            for arm, error in zip(("fit", "softmax"), gates, strict=True):
                own = {"problem": problem, "draw": draw, "arm": arm, "test": error}
                rows.append(own)
    first, found = paragraphs(rows, ["fit", "softmax"], ["softmax"], results)
    assert "than every gate on 1 of 2 real" in " ".join(first.split())
    assert "| energy | fit 2.00 | 3.00 |" in found
    assert "| adult | fit 0.50 | 2.00 |" in found
