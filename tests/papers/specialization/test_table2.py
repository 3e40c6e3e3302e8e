"""The claims and the rows of Table 2, and Figures 6 and 7, on made-up runs."""

import numpy as np
import pytest

from dselectk_keras.experiments import Results, Run
from papers import EXPERIMENTS
from papers.specialization import _ways
from papers.specialization.fig6_7 import Fig6And7, usage
from papers.specialization.table2 import AUTHORS, Table2

SEEDS = 3


def numbers_of(sample, used, seed, prefix=""):
    own = {
        "error": 0.05,
        "mutual_information": 1.0,
        "sample_entropy": sample + 0.01 * seed,
        "utilization_entropy": used + 0.01 * seed,
        "usage": [0.1, 0.6, 0.3],
        "table": [[1, 2, 3]] * 10,
        "sure": [0] * 9 + [4],
    }
    return {prefix + name: value for name, value in own.items()}


def results_of(kind, entropies):
    experiment = kind(seeds=SEEDS, datasets=("mnist",))
    results = Results(experiment, "test")
    for seed in range(SEEDS):
        results.add(Run("mnist: single", seed, {}, {"error": 0.2}, 1.0), {})
        for row, way in enumerate(experiment.ways):
            place = (seed + row) % SEEDS
            numbers = numbers_of(*entropies.get(way, (0.5, 2.0)), place)
            numbers["objective"] = abs(seed - 1)
            if way in _ways.STUDENTS.values():
                numbers |= numbers_of(0.7, 1.9, seed, "distilled_")
            results.add(Run(f"mnist: {way}", seed, {}, numbers, 1.0), {})
    return results


@pytest.mark.parametrize(
    ("entropies", "expected"),
    [
        (
            {"attentive": (0.3, 2.2), "original, L_s": (0.2, 2.3)},
            [True, True, True, True, None, None],
        ),
        ({"attentive": (0.6, 1.8)}, [False, False, None, None, None, None]),
        ({"original, L_s": (0.51, 2.3)}, [None, None, None, True, None, None]),
        ({"attentive, L_s": (0.3, 2.3)}, [None] * 4 + [True, True]),
    ],
)
def test_claims(entropies, expected):
    results = results_of(Table2, entropies)
    claims = results.experiment.report(results).claims
    assert [claim.holds for claim in claims] == expected


def test_rows_have_the_authors_numbers_beside_ours():
    results = results_of(Table2, {})
    table, best = results.experiment.report(results).tables
    rows = {row[0]: row[1:] for row in table.rows}
    assert list(rows) == list(AUTHORS)
    assert rows["single"][0] == "0.200 ± 0.000"
    assert rows["single"][1:4] == ["", "", ""]
    # The mean of 0.7, 0.71 and 0.72, and 0.01 / sqrt(3).
    assert rows["distilled, L_s"][2] == "0.710 ± 0.006"
    assert rows["distilled, L_s"][4:] == [0.028, 2.191, 0.056, 2.319]
    # Seed 1 has the lowest error on the validation images.
    assert best.rows[0] == ["MNIST", "original", 0.05, 1.0, 0.51, 2.01]


def test_students_are_kept_with_their_teachers():
    assert _ways.place_of("mnist", "distilled") == ("mnist: attentive", "distilled_")
    assert _ways.place_of("mnist", "original") == ("mnist: original", "")


def test_penalties_are_tuned():
    experiment = EXPERIMENTS["specialization-table2"].presets()["cpu"]
    spaces = {arm: list(experiment.space(arm)) for arm in experiment.arms}
    assert spaces["mnist: single"] == spaces["mnist: original"] == []
    assert spaces["mnist: original, importance"] == ["importance"]
    assert spaces["fashion_mnist: attentive, L_s"] == ["beta_d"]


def test_figures_show_the_runs_of_the_table():
    ours, theirs = (
        EXPERIMENTS[f"specialization-{name}"].presets() for name in ("fig6-7", "table2")
    )
    for preset in ours:
        assert ours[preset].config == theirs[preset].config
        assert ours[preset].source == theirs[preset].source


def test_usage_is_from_the_most_used_expert_on():
    results = results_of(Fig6And7, {})
    np.testing.assert_allclose(usage(results, "mnist", "distilled"), [0.6, 0.3, 0.1])


@pytest.mark.parametrize(("used", "holds"), [(2.3, True), (1.7, False), (2.0, None)])
def test_importance_evens_out(used, holds):
    results = results_of(Fig6And7, {"original, importance": (0.5, used)})
    (claim,) = results.experiment.report(results).claims
    assert claim.holds is holds
    assert "60% without" in claim.ours
