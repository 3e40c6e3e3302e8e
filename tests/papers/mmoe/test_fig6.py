"""What is computed from gates, by hand, and what follows from it."""

import numpy as np
import pytest
from matplotlib import pyplot as plt

from experiments import Results, Run
from papers import EXPERIMENTS
from papers.mmoe.fig6 import draw_gates, gate_numbers

FIGURE = EXPERIMENTS["mmoe-fig6"].presets()["smoke"]


def test_numbers_of_two_gates():
    # Two examples, two tasks, three experts: the second gate always takes one.
    weights = np.array(
        [[[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]
    )
    numbers = gate_numbers(weights)
    assert numbers["engagement_mean"] == pytest.approx([0.25, 0.75, 0.0])
    assert numbers["engagement_low"] == pytest.approx([0.05, 0.55, 0.0])
    assert numbers["engagement_high"] == pytest.approx([0.45, 0.95, 0.0])
    assert numbers["distance"] == pytest.approx(1.0)
    assert numbers["engagement_focus"] == pytest.approx(0.75)
    assert numbers["more_focus"] == pytest.approx(0.25)
    # Two experts for the first example, and one for the second.
    assert numbers["engagement_experts"] == pytest.approx(1.5)
    assert numbers["satisfaction_experts"] == pytest.approx(1.0)


def judgements(apart, more_focus):
    """Of results with these distances and differences in focus, by arm."""
    results = Results(FIGURE, "smoke")
    for row, arm in enumerate(FIGURE.arms):
        for seed, shift in enumerate(np.roll((-0.01, 0.0, 0.01), row)):
            numbers = gate_numbers(np.full((2, 2, 3), 1 / 3))
            numbers["distance"] = apart[row] + shift
            numbers["more_focus"] = more_focus[row] + shift
            numbers |= {"engagement_auc": 0.8, "satisfaction_auc": 0.7}
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return [claim.holds for claim in FIGURE.report(results).claims]


def test_claims():
    assert judgements((0.5, 0.4, 0.1), (0.3, 0.1, 0.0)) == [True] * 4
    assert judgements((0.1, 0.4, 0.5), (-0.3, 0.1, 0.0)) == [False] * 4
    assert judgements((0.1, 0.4, 0.1), (0.0, 0.0, 0.0)) == [None] * 4
    # Gates that have no expert in common share nothing.
    assert judgements((1.1, 0.4, 0.1), (0.3, 0.1, 0.0))[:2] == [True, False]


def test_a_panel_for_each_run():
    numbers = gate_numbers(np.array([[[0.2, 0.8], [0.6, 0.4]]]))
    figure = draw_gates([numbers] * 6)
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert len(shown) == 6
    # In the order of the engagement gate's weights, its bars first.
    heights = [bar.get_extents().height for bar in shown[0].patches]
    assert np.array(heights) / heights[0] == pytest.approx([1, 0.25, 0.5, 0.75])
    plt.close(figure)
