"""The demo and the experiment behind it."""

import dataclasses
import math
import pathlib
import re

import demo
import matplotlib.pyplot as plt
import numpy as np
import pytest
from helpers import overlapping
from jobs import run_python

from research.engine import Job, Results, Run
from research.engine.experiment import TRIAL_SEED
from research.studies.demo import (
    DECAYS,
    RATES,
    SHOWN,
    Demo,
    multiplications,
    problem_of,
    title_of,
)

ROOT = pathlib.Path(__file__).parents[3]


def test_the_demo_compares_errors_and_costs(tmp_path, capsys, monkeypatch):
    from research.studies import demo as study

    @dataclasses.dataclass(frozen=True)
    class Small(Demo):
        num_tasks: int = 16
        epochs: int = 5

    monkeypatch.setattr(
        study, "FEW", ("2 of 16, side by side", "shared bottom, 256 units")
    )
    monkeypatch.setattr(study, "Demo", Small)
    monkeypatch.setattr(Small, "config", Demo().config)  # As that of the settings.
    demo.main(["--out", str(tmp_path)])
    shown = capsys.readouterr().out
    # Two experts of 16 units for 30 inputs, and a tower; 256 units.
    assert re.search(r"0\.\d{3} +992  chosen by fit: 2 of 16, side by side\n", shown)
    assert re.search(r"0\.\d{3} +7,936  no gate: shared bottom, 256 units\n", shown)
    assert "| chosen by fit | 2 of 16, side by side | " in shown
    assert {"demo-errors.png", "demo-experts.png"} == {
        each.name for each in tmp_path.iterdir()
    }


def test_the_first_picture_names_every_model_without_overlap():
    experiment = Demo()
    figure = experiment.draw_errors(Results(experiment, "cpu", ROOT / "docs/results"))
    (ax,) = figure.axes
    # The pruned shared bottom, at the same cost as ours, is among them.
    assert {text.get_text() for text in ax.texts} == {*map(title_of, experiment.arms)}
    assert not overlapping(figure, around=1.4)
    plt.close(figure)


def test_the_second_picture_has_the_groups_of_the_problem():
    results = Results(Demo(), "demo")
    weights = np.eye(16)[np.arange(64) // 4]
    results.add(Run(SHOWN, 0, {}, {"weights": weights}, 0.0), {})
    figure = results.experiment.draw_experts(results)
    assert not overlapping(figure, around=1.4)
    ax = figure.axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == [*"01234567"]
    assert len(ax.collections[-1].get_paths()) == 7  # Lines between groups.
    plt.close(figure)


def test_a_tower_reads_mixed_experts_once():
    # GateBench counts the same: shares are part of the kernels.
    arms = Demo().arms
    assert multiplications(arms["2 of 16, mixed"], 32) == 32 * 30 + 16
    assert multiplications(arms["2 of 16, side by side"], 32) == 32 * 30 + 32
    assert multiplications(arms["shared bottom, 105 units"], 105) == 105 * 30 + 105


def test_settings_are_tuned_on_problems_that_are_not_reported():
    settings = {"rate": 0.1, "decide_by": 0.5}
    assert problem_of(Job(TRIAL_SEED + 1, settings)) == (101, 0.5)
    assert problem_of(Job(1, settings)) == (1, 0.5)


def test_the_committed_runs_are_whole():
    experiment = Demo()
    results = Results(experiment, "cpu", ROOT / "docs/results")
    assert results.complete
    for arm, model in experiment.arms.items():
        runs = results.of(arm)
        assert [run.seed for run in runs] == [*range(10)]
        assert len(results.of(arm, tuning=True)) == 2 * math.prod(
            map(len, model.space.values())
        )
        found = runs[0].settings
        assert min(RATES) < found["rate"] < max(RATES)
        assert found["decay"] < max(DECAYS)


@pytest.mark.backend_independent
def test_the_demo_needs_neither_pandas_nor_scikit_learn_nor_scipy():
    root = pathlib.Path(__file__).parents[3]
    blocked = {"pandas": None, "sklearn": None, "scipy": None}
    code = f"import sys; sys.path.append('scripts'); sys.modules |= {blocked}; "
    code += "import research.engine, research.studies.demo"
    run_python("-c", code, cwd=root)
