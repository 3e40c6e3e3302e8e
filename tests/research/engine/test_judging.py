"""Verdicts by hand, and how often chance alone gets one."""

import math

import numpy as np
import pytest

from research.engine import Gap, Judged, all_hold, all_positive, gap_of, most
from research.engine.judging import NIL, bootstrap_gap, holm, trimmed_gap

DRAWS = 600
THREE_ERRORS = 3 * math.sqrt(0.05 * 0.95 / DRAWS)  # Of a rate of 0.05.


@pytest.mark.parametrize(
    ("gaps", "effects", "wanted"),
    [
        ([Gap(2.1, 1.0)], None, True),
        ([Gap(-2.1, 1.0)], None, False),
        ([Gap(1.9, 1.0)], 100.0, NIL),
        ([Gap(0.0, 0.1)], 1.0, NIL),
        ([Gap(1.9, 1.0)], 4.0, None),  # 1.9 to 2 is within the error.
        ([Gap(2.1, 1.0)], 100.0, True),
        ([Gap(2.1, 1.0), Gap(0.0, 1.0)], None, None),
        # Among two a difference has to be 2.24 errors.
        ([Gap(-2.1, 1.0), Gap(0.0, 1.0)], None, None),
        ([Gap(-2.3, 1.0), Gap(9.0, 1.0)], None, False),
        # Only the second falls short of the paper's.
        ([Gap(2.1, 1.0), Gap(0.0, 1.0)], [50.0, 10.0], NIL),
        ([Gap(2.1, 1.0), Gap(0.0, 1.0)], [50.0, 0.0], None),
        ([], None, None),
    ],
)
def test_verdicts_on_several_differences(gaps, effects, wanted):
    assert all_positive(gaps, effects).holds is wanted


@pytest.mark.parametrize(
    ("gap", "options", "wanted"),
    [
        (Gap(-1.0, 1.0), {"over": -3.1}, True),
        (Gap(-1.0, 0.1), {"over": -0.5}, False),
        (Gap(0.0, 1.0), {"over": -1.0}, None),
        # Half of the paper's difference counts if it is more than the claim.
        (Gap(1.0, 0.1), {"effects": 2.0, "over": 1.0}, None),
        (Gap(1.0, 0.1), {"effects": 2.5, "over": 1.0}, NIL),
        # One chance of several needs more.
        (Gap(2.1, 1.0), {"among": 2}, None),
        (Gap(2.3, 1.0), {"among": 2}, True),
    ],
)
def test_margins_halves_and_chances(gap, options, wanted):
    assert all_positive([gap], **options).holds is wanted


def test_so_many_seeds_decide():
    for gap, effect in ((Gap(1.0, 1.0, 10), 0.0), (Gap(0.0, 1.0, 10), 2.5)):
        judged = all_positive([gap], effect)
        assert judged.holds is None
        for seeds, decided in (
            (judged.seeds * 1.05, True),
            (judged.seeds / 1.05, False),
        ):
            more = Gap(gap.mean, math.sqrt(gap.size / seeds), seeds)
            assert (all_positive([more], effect).holds is not None) is decided
    # All have to be positive: the last decides.
    both = [Gap(1.0, 1.0, 10), Gap(0.1, 1.0, 10)]
    assert all_positive(both).seeds == all_positive(both[1:]).seeds > 1000
    assert all_positive([Gap(1.0, math.nan, 1)]).seeds == math.inf


def test_holm_steps_down():
    # Errors that 4, 3, 2 and 1 comparisons need: 2.50, 2.39, 2.24, 1.96.
    gaps = [Gap(mean, 1.0) for mean in (2.0, 2.6, -2.45, 2.3)]
    assert holm(gaps) == [True, True, False, True]
    # The second is not far enough: nothing after it counts.
    gaps = [Gap(mean, 1.0) for mean in (2.0, 2.6, 2.35, 2.3)]
    assert holm(gaps) == [None, True, None, None]


@pytest.mark.parametrize(
    ("gap", "over", "wanted"),
    [
        (Gap(3.776, 1.0, 5), 1.0, 0.05),
        (Gap(-4.25, 1.0, 10), -1.0, 0.01),
        (Gap(1.0, 0.0, 5), 0.0, 0.0),
        (Gap(0.0, 0.0, 5), 0.0, 1.0),
        (Gap(1.0, math.nan, 1), 0.0, 1.0),
    ],
)
def test_probabilities_are_those_of_tables(gap, over, wanted):
    assert gap.p_value(over) == pytest.approx(wanted, rel=1e-3)


def test_failed_runs_are_trimmed():
    values = [*range(19), 1e6]
    mean, error, size = trimmed_gap(values)
    assert (mean, size) == (9.5, 18)  # 1 to 18.
    # Winsorized: 1, 1, 2, ..., 18, 18.
    spread = np.square(np.clip(range(20), 1, 18) - 9.5).sum()
    assert error == pytest.approx(math.sqrt(spread / (18 * 17)))
    # Five of a hundred at each end.
    assert trimmed_gap([*range(95), *[1e6] * 5])[::2] == (49.0 + 0.5, 90)
    assert trimmed_gap([*range(94), *[1e6] * 6]).mean > 1e4
    assert trimmed_gap([3.0, 1.0, 2.0]) == pytest.approx(gap_of([3.0, 1.0, 2.0]))
    assert math.isnan(trimmed_gap([1.0]).error)


def test_the_bootstrap_draws_pairs():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=200)
    gap = bootstrap_gap(
        lambda a, b: a.mean(axis=-1) - b.mean(axis=-1), shared + 1.0, shared
    )
    assert gap[:2] == pytest.approx((1.0, 0.0), abs=1e-12)
    alone = bootstrap_gap(lambda a: a.mean(axis=-1), shared)
    assert alone.error == pytest.approx(gap_of(shared).error, rel=0.1)
    assert math.isnan(bootstrap_gap(lambda a: a.mean(axis=-1), [1.0]).error)


def skewed(rng, size=40):
    """Differences of mean zero, of which some are far off."""
    return rng.standard_t(3, size=size)


@pytest.mark.parametrize(
    ("judge", "exact"),
    [
        (lambda rng: trimmed_gap(skewed(rng)).is_positive(), True),
        (lambda rng: gap_of(rng.normal(size=5)).is_positive(), True),
        (
            lambda rng: bootstrap_gap(
                lambda a, b: np.log(a.std(axis=-1) / b.std(axis=-1)),
                rng.normal(size=40),
                rng.normal(size=40),
            ).is_positive(),
            True,
        ),
        # The family of errors, of which none is more often than in one in twenty.
        (
            lambda rng: next(
                (
                    each
                    for each in holm([gap_of(x) for x in rng.normal(size=(8, 10))])
                    if each is not None
                ),
                None,
            ),
            True,
        ),
        (lambda rng: most(rng.integers(2, size=15) > 0).holds, False),
    ],
)
def test_chance_alone_gets_a_verdict_in_one_of_twenty(judge, exact):
    rng = np.random.default_rng(1)
    rate = np.mean([judge(rng) is not None for _ in range(DRAWS)])
    assert rate <= 0.05 + THREE_ERRORS
    assert not exact or rate >= 0.05 - THREE_ERRORS


def test_half_of_the_papers_effect_is_excluded_in_one_of_forty():
    # The truth is half of the paper's difference.
    rng = np.random.default_rng(3)
    judged = [
        all_positive([gap_of(rng.normal(0.1, size=10))], effects=0.2).holds
        for _ in range(DRAWS)
    ]
    assert judged.count(NIL) / DRAWS == pytest.approx(0.025, abs=0.015)


@pytest.mark.parametrize(
    ("true", "size", "wanted"),
    [(5, 5, None), (6, 6, True), (0, 6, False), (11, 15, None), (12, 15, True)],
)
def test_most_is_a_sign_test(true, size, wanted):
    assert most([True] * true + [False] * (size - true)).holds is wanted


@pytest.mark.parametrize(
    ("flags", "seeds"),
    [
        ([True] * 5, 6),  # 2 / 2^6 is below 5 %, and 2 / 2^5 is not.
        ([False] * 3, 6),
        ([True, True, True, False], 17),  # 13 of 17 are chance in 4.9 %, 12 of 16 not.
        ([True, False], math.inf),
        ([], math.inf),
    ],
)
def test_a_sign_test_says_how_many_seeds_decide(flags, seeds):
    assert most(flags).seeds == seeds


@pytest.mark.parametrize(
    ("judgements", "expected"),
    [
        ([True, True], True),
        ([True, None], None),
        ([None, False, True], False),
        ([True, "not run", None], "not run"),
        ([None, NIL], NIL),
        ([NIL, "inadmissible"], "inadmissible"),
        ([Judged(True), True], True),
        ([Judged(None), True], None),
        ([], None),
    ],
)
def test_a_claim_needs_all_comparisons(judgements, expected):
    assert all_hold(judgements) == expected
