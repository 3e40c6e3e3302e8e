"""Differences by hand."""

import math

import numpy as np
import pytest

from dselectk_keras.experiments import EXPERIMENTS, Results, Run
from dselectk_keras.experiments.compare import (
    all_lower,
    count,
    difference,
    is_lower,
    judged,
    signed,
)


def made_up(losses):
    """Results with a list of losses for each arm, a loss for each seed."""
    results = Results(EXPERIMENTS["mmoe-fig6"].presets()["smoke"], "smoke")
    for arm, values in losses.items():
        for seed, loss in enumerate(values):
            results.add(Run(arm, seed, {}, {"loss": loss}, 1.0), {})
    return results


def test_what_may_be_chance_is_not_judged():
    assert judged(0.21, 0.1) is True
    assert judged(-0.21, 0.1) is False
    assert judged(0.19, 0.1) is None
    assert judged(0.0, 0.0) is None
    assert judged(5.0, math.nan) is None


def test_differences_are_written_with_their_sign():
    assert signed(0.004, 0.00123) == "+0.0040 ± 0.0012"
    assert signed(-0.25, math.nan, 2) == "-0.25"


def test_differences_are_taken_seed_by_seed():
    results = made_up({"a": [1.0, 2.0, 3.0], "b": [1.5, 2.5, 4.5]})
    mean, error = difference(results, "loss", "a", "b")
    assert mean == pytest.approx((-0.5 - 0.5 - 1.5) / 3)
    assert error == pytest.approx(np.std([-0.5, -0.5, -1.5], ddof=1) / 3**0.5)
    # Two and a half standard errors.
    assert is_lower(results, "a", "b", "loss") == 1
    assert is_lower(results, "b", "a", "loss") == -1


def test_what_is_within_the_error_is_not_told_apart():
    results = made_up({"a": [1.0, 2.0], "b": [1.1, 1.9], "c": [1.0]})
    assert is_lower(results, "a", "b", "loss") == 0
    assert is_lower(results, "a", "c", "loss") is None
    assert is_lower(results, "a", "nothing", "loss") is None


def test_a_claim_needs_all_comparisons():
    assert all_lower([1, 1]) is True
    assert all_lower([1, 0, -1]) is False
    assert all_lower([1, 0]) is None
    assert all_lower([1, None]) is None
    assert all_lower([]) is None
    assert "in 2 of 4 comparisons, higher for sure in 1, within 2" in count(
        [1, 1, 0, -1]
    )
