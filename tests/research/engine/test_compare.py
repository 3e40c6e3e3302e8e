"""Differences by hand."""

import math

import numpy as np
import pytest

from research.engine import Gap, Results, Run, compare
from research.engine.judging import most
from research.engine.results import NotRunError, format_mean
from research.papers import EXPERIMENTS


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
    # Few seeds need a larger difference.
    assert Gap(2.7, 1.0, 5).is_positive() is None
    assert Gap(2.8, 1.0, 5).is_positive() is True


@pytest.mark.parametrize(
    ("degrees", "wanted"),
    [
        (1, 12.7062),
        (1.5, 6.0167),
        (4, 2.7764),
        (5, 2.5706),
        (9, 2.2622),
        (29, 2.0452),
        (math.inf, 1.9600),
    ],
)
def test_quantiles_are_those_of_tables(degrees, wanted):
    assert compare.quantile(degrees) == pytest.approx(wanted, rel=2e-4)


def test_equal_needs_a_margin():
    assert Gap(-0.2, 0.1, 100).is_zero(0.5) is True
    assert Gap(-0.7, 0.05, 100).is_zero(0.5) is False
    assert Gap(-0.2, 0.3, 100).is_zero(0.5) is None


def test_differences_are_written_with_their_sign():
    assert f"{Gap(0.004, 0.00123)}" == "+0.0040 ± 0.0012"
    assert f"{Gap(-0.25, math.nan):2}" == "-0.25"
    assert format_mean(0.01532, 0.00021) == "0.0153 ± 0.0002"
    assert format_mean(12.3, math.nan) == "12.3"


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
    with pytest.raises(NotRunError, match="nothing"):
        results.gap("nothing", "a")


def test_gaps_of_other_runs_are_compared():
    mean, error, size = Gap(0.5, 0.03, 5).minus(Gap(0.1, 0.04, 7))
    assert (mean, error) == pytest.approx((0.4, 0.05))
    # 0.05^4 / (0.03^4 / 4 + 0.04^4 / 6) degrees of freedom.
    assert size == pytest.approx(1 + 9.934, abs=1e-3)
    # All of the error is of two runs.
    assert Gap(0.0, 0.0, 10).minus(Gap(0.0, 1.0, 2)).size == 2
    assert Gap(0.0, 0.0, 3).minus(Gap(0.1, 0.0, 3)).is_negative() is True
    assert Gap(9.0, math.nan, 1).minus(Gap(0.0, 0.1, 5)).is_positive() is None


def test_one_in_twenty_differences_by_chance_is_judged():
    rng = np.random.default_rng(0)
    judged = [
        compare.gap_of(rng.normal(scale=0.01, size=10))
        .minus(compare.gap_of(rng.normal(size=2)))
        .is_positive()
        for _ in range(2000)
    ]
    # Three standard errors of a rate of 0.05.
    assert np.mean([each is not None for each in judged]) == pytest.approx(
        0.05, abs=0.015
    )


def test_several_looks_at_growing_runs_share_the_chance_of_an_error():
    """Of 5 numbers, 95 % reach 2.78 standard errors, 97.5 % reach 3.50."""
    gap = Gap(3.0, 1.0, 5)
    assert gap.is_positive() is True
    assert most([True] * 6).holds is True
    with compare.judged_often(2):
        assert gap.is_positive() is None
        assert Gap(3.6, 1.0, 5).is_positive() is True
        assert most([True] * 6).holds is None  # By chance, 3 %.
    assert gap.is_positive() is True
