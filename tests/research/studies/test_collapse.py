"""The measurement of what keeps experts alive."""

import dataclasses
import pathlib

import numpy as np
import pytest
from matplotlib import pyplot as plt

from research.engine import Job, Results, Run
from research.engine.experiment import TRIAL_SEED
from research.studies.collapse import MODELS, OFFSET, RATES, Collapse

RESULTS = pathlib.Path(__file__).parents[3] / "docs" / "results"
SMOKE = dataclasses.replace(Collapse.presets()["smoke"], num_validation=32, num_test=32)


def test_no_committed_setting_is_at_an_edge_of_its_grid():
    results = Results(Collapse(), "cpu", RESULTS)
    assert results.complete
    for run in results.runs:
        strengths = MODELS[run.arm].space["strength"]
        rate, strength = run.settings["rate"], run.settings["strength"]
        assert min(RATES) < rate < max(RATES)
        assert strength in strengths
        # Nothing lies below a strength of zero.
        assert strength is None or strength < max(strengths)


def test_each_kind_and_task_has_a_function_of_its_own():
    x, y = Collapse().make_problem(0).train
    assert x.shape == (3_000, 16)
    assert y.shape == (3_000, 4)
    assert abs(x.mean() - OFFSET) < 1
    np.testing.assert_allclose(y.std(), 1.0, rtol=1e-4)
    assert np.abs(np.corrcoef(y.T) - np.eye(4)).max() < 0.3


def test_the_table_has_means_and_deviations():
    results = Results(Collapse(), "cpu")
    for arm in MODELS:
        for seed, error in enumerate((1.0, 3.0)):
            found = {
                "test_error": error,
                "dead_experts": 1 + seed,
                "largest_share": 0.6,
            }
            results.add(Run(arm, seed, {}, found, 1.0), {})
    _, *rows = results.experiment.table_errors(results)
    assert rows[0] == ["Top-2", "1.5 of 8", "0.60", "2.000 ± 1.414"]
    assert rows[-1][1:3] == ["", ""]


@pytest.mark.parametrize(
    ("arm", "strength"),
    [
        ("Top-2, standardized inputs, importance", 0.1),
        ("chosen by fit, 2, static", None),
        ("shared bottom", None),
    ],
)
def test_a_model_is_measured(arm, strength):
    settings = {"strength": strength, "rate": 0.01}
    jobs = [Job(4, settings), Job(1, settings)]
    found, other = SMOKE.run(arm, jobs)
    assert 0 < found["test_error"] != other["test_error"] > 0  # Of two problems.
    assert ("dead_experts" in found) == (arm != "shared bottom")
    if "dead_experts" in found:
        assert 0 <= found["dead_experts"] < 8
        assert 1 / 8 < found["largest_share"] <= 1
    (trial,) = SMOKE.run(arm, [Job(TRIAL_SEED, settings)])
    assert trial.keys() == {"objective"}


def test_gates_of_the_first_seed_are_drawn():
    results = Results(SMOKE, "smoke")
    settings = {"strength": None, "rate": 0.01}
    for arm in ("Top-2", "Top-2, standardized inputs"):
        jobs = [Job(seed, settings) for seed in (0, 1)]
        first, second = SMOKE.run(arm, jobs)
        assert np.shape(first["weights"]) == (SMOKE.epochs + 1, 8)
        assert "weights" not in second
        results.add(Run(arm, *jobs[0], first, 1.0), {})
    figure = SMOKE.draw_gates(results)
    assert [ax.get_title() for ax in figure.axes] == [
        "Top-2",
        "Top-2, standardized inputs",
    ]
    plt.close(figure)
