"""Differences by hand."""

import math

import numpy as np
import pytest

from experiments import (
    Gap,
    Results,
    Run,
    all_hold,
    compare,
    format_gap,
    mean_and_error,
    standard_error,
)
from experiments.results import NotRunError
from papers import EXPERIMENTS


def made_up(losses):
    """Results with a list of losses for each arm, a loss for each seed."""
    results = Results(EXPERIMENTS["mmoe-fig6"].presets()["smoke"], "smoke")
    for arm, values in losses.items():
        for seed, loss in enumerate(values):
            results.add(Run(arm, seed, {}, {"loss": loss}, 1.0), {})
    return results


def test_what_may_be_chance_is_not_judged():
    assert Gap(0.21, 0.1).is_positive() is True
    assert Gap(-0.21, 0.1).is_positive() is False
    assert Gap(-0.21, 0.1).is_negative() is True
    assert Gap(0.19, 0.1).is_positive() is None
    assert Gap(0.0, 0.0).is_positive() is None
    assert Gap(5.0, math.nan).is_positive() is None
    assert Gap(0.5, 0.1).is_positive(over=0.4) is None


def test_few_seeds_need_a_larger_difference():
    # The quantiles of Student's t with 4 and with 9 degrees of freedom.
    assert Gap(2.7, 1.0, 5).is_positive() is None
    assert Gap(2.8, 1.0, 5).is_positive() is True
    assert compare.quantile(9) == pytest.approx(2.262, abs=5e-3)
    assert compare.quantile(29) == pytest.approx(2.045, abs=1e-3)


def test_equal_needs_a_margin():
    assert Gap(-0.2, 0.1, 100).is_zero(0.5) is True
    assert Gap(-0.7, 0.05, 100).is_zero(0.5) is False
    assert Gap(-0.2, 0.3, 100).is_zero(0.5) is None


def test_differences_are_written_with_their_sign():
    assert format_gap(0.004, 0.00123) == "+0.0040 ± 0.0012"
    assert format_gap(-0.25, math.nan, 2) == "-0.25"


def test_differences_are_taken_seed_by_seed():
    results = made_up({"a": [1.0, 2.0, 3.0], "b": [1.5, 2.5, 4.5]})
    mean, error, _ = results.gap("a", "b")
    assert mean == pytest.approx((-0.5 - 0.5 - 1.5) / 3)
    assert error == pytest.approx(np.std([-0.5, -0.5, -1.5], ddof=1) / 3**0.5)


def test_pairs_are_of_the_seeds_that_both_arms_have():
    results = made_up({"a": [1.0, None, 3.0], "b": [1.5, 2.5]})
    ours, theirs = results.pairs("a", "b", "loss")
    np.testing.assert_array_equal(ours, [1.0, np.nan])
    np.testing.assert_array_equal(theirs, [1.5, 2.5])
    assert results.differences("a", "b").tolist() == [-0.5]


def test_gaps_of_other_runs_are_compared():
    assert Gap(0.5, 0.03, 5).minus(Gap(0.1, 0.04, 7)) == (0.4, 0.05, 5)


def test_what_is_within_the_error_is_not_told_apart():
    results = made_up({"a": [1.0, 2.0], "b": [1.1, 1.9], "c": [1.0]})
    for other in ("b", "c"):
        assert results.gap(other, "a").is_positive() is None
    with pytest.raises(NotRunError, match="nothing"):
        results.gap("nothing", "a")


def test_errors_are_over_the_first_axis():
    np.testing.assert_allclose(standard_error([[1.0, 0.0], [3.0, 0.0]]), [1.0, 0.0])
    assert np.isnan(standard_error([[1.0, 2.0]])).all()
    assert mean_and_error([1.0, 3.0]) == (2.0, 1.0)
    assert mean_and_error([2.0])[0] == 2.0
    assert np.isnan(mean_and_error([])).all()


@pytest.mark.parametrize(
    ("judgements", "expected"),
    [
        ([True, True], True),
        ([True, None], None),
        ([None, False, True], False),
        ([True, "not run", None], "not run"),
        ([], None),
    ],
)
def test_a_claim_needs_all_comparisons(judgements, expected):
    assert all_hold(judgements) == expected
