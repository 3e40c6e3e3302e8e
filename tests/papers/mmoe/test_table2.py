"""What the second table says about both."""

import dataclasses

from experiments import Results, Run
from papers import EXPERIMENTS

FIRST, SECOND = (EXPERIMENTS[f"mmoe-table{n}"].presets()["cpu"] for n in (1, 2))


def results_of(table, folder, gain, spread=0.001):
    results = Results(table, "cpu", folder)
    for arm in table.arms:
        for seed, shift in enumerate((-spread, 0.0, spread)):
            area = 0.9 - shift + gain if arm == "MMoE" else 0.9 + shift
            numbers = {table.main: area, "never_married": 0.9, "label_correlation": 0.2}
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return results


def test_gains_of_both_tables_are_told(tmp_path):
    results_of(FIRST, tmp_path, 0.03)
    question = SECOND.report(results_of(SECOND, tmp_path, 0.01)).questions[0]
    assert "+0.0300 ± 0.0012 for income, with a correlation of 0.1768" in question.ours
    assert "+0.0100 ± 0.0012 for education, with a" in question.ours


def test_without_the_first_table_nothing_is_told(tmp_path):
    for folder in (None, tmp_path):
        question = SECOND.report(results_of(SECOND, folder, 0.01)).questions[0]
        assert question.ours == "The runs of Table 1 are not there."


def test_a_first_table_of_another_config_is_left_out(tmp_path):
    other = dataclasses.replace(FIRST, max_units=8)
    results_of(other, tmp_path, 0.03)
    question = SECOND.report(results_of(SECOND, tmp_path, 0.01)).questions[0]
    assert question.ours == "The runs of Table 1 are not there."


def test_mmoe_is_to_be_above_all_others_in_the_second_group():
    claim = SECOND.report(results_of(SECOND, None, 0.02)).claims[0]
    assert (claim.holds, claim.paper) == (True, "0.8826 and 0.8823")
    assert claim.source == "Section 6.3.2, on group 2"
    assert SECOND.report(results_of(SECOND, None, -0.02)).claims[0].holds is False
