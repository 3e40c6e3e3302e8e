"""What the second table says about both."""

import dataclasses

import pytest

from dselectk_keras.experiments import Results, Run
from papers import EXPERIMENTS

FIRST, SECOND = (EXPERIMENTS[f"mmoe-table{n}"].presets()["cpu"] for n in (1, 2))


def results_of(table, folder, gain, spread=0.001):
    results = Results(table, "cpu", folder)
    for arm in table.arms:
        for seed, shift in enumerate((-spread, 0.0, spread)):
            area = 0.9 - shift + gain if arm == "MMoE" else 0.9 + shift
            numbers = {table.main: area, "never_married": 0.9}
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return results


@pytest.mark.parametrize(
    ("gains", "holds"),
    [((0.03, 0.01), True), ((0.01, 0.03), False), ((0.02, 0.0201), None)],
)
def test_gains_of_both_tables_are_compared(gains, holds, tmp_path):
    results_of(FIRST, tmp_path, gains[0])
    results = results_of(SECOND, tmp_path, gains[1])
    claim = SECOND.report(results).claims[-1]
    assert claim.holds is holds
    assert f"{gains[0]:+.4f} ± 0.0012 for income" in claim.ours


def test_without_the_first_table_nothing_is_judged(tmp_path):
    for folder in (None, tmp_path):
        claim = SECOND.report(results_of(SECOND, folder, 0.01)).claims[-1]
        assert (claim.holds, claim.ours) == (None, "The runs of Table 1 are not there.")


def test_a_first_table_of_another_config_is_left_out(tmp_path):
    other = dataclasses.replace(FIRST, max_units=8)
    results_of(other, tmp_path, 0.03)
    claim = SECOND.report(results_of(SECOND, tmp_path, 0.01)).claims[-1]
    assert claim.holds is None
