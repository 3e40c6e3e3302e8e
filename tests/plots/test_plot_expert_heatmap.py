"""Pictures of which tasks use which experts."""

import sys
from functools import partial

import numpy as np
import pytest
from helpers import numbers, overlapping, refusals
from matplotlib import pyplot as plt

from dselectk_keras.plots import plot_expert_heatmap

WEIGHTS = np.array([[0.7, 0.3, 0.0], [0.0, 0.001, 0.999], [0.4, 0.0, 0.6]])


@pytest.fixture(autouse=True)
def close_figures():
    before = dict(plt.rcParams)
    yield
    assert dict(plt.rcParams) == before
    plt.close("all")


def cells(figure):
    (mesh,) = figure.axes[0].collections[:1]
    return mesh.get_array()


def tick_labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_cells_hold_the_weights_and_zeros_are_left_out():
    figure = plot_expert_heatmap(WEIGHTS)
    values = cells(figure)
    np.testing.assert_array_equal(values.filled(0), WEIGHTS)
    np.testing.assert_array_equal(values.mask, WEIGHTS == 0)
    (text,) = figure.axes[0].get_legend().get_texts()
    assert text.get_text() == "not used (zero)"
    assert plot_expert_heatmap([[0.4, 0.6]]).axes[0].get_legend() is None
    low, high = figure.axes[0].get_ylim()  # The first task is on top.
    assert low > high
    plot_expert_heatmap(np.zeros((2, 3))).canvas.draw()


def test_weights_of_one_value_have_no_colour_bar():
    (ax,) = plot_expert_heatmap([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]).axes
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["not used (zero)", "weight 0.5"]
    assert len(plot_expert_heatmap([[0.5, 0.5]], largest=1.0).axes) == 2
    assert len(plot_expert_heatmap([[0.5, 0.5], [0.0, 0.7]]).axes) == 2


@pytest.mark.parametrize(
    ("names", "wanted"), [(["a", "b", "c"], ["a", "c", "b"]), (None, ["0", "2", "1"])]
)
def test_groups_are_gathered_with_a_line_between(names, wanted):
    figure = plot_expert_heatmap(WEIGHTS, task_names=names, groups=["x", "y", "x"])
    ax = figure.axes[0]
    np.testing.assert_array_equal(cells(figure).filled(0), WEIGHTS[[0, 2, 1]])
    assert tick_labels(ax.yaxis) == wanted
    segments = ax.collections[1].get_segments()
    assert [segment[0][1] for segment in segments] == [2]


def test_many_tasks_are_labelled_by_group_and_many_experts_have_few_numbers():
    weights = np.tile(np.eye(32), (4, 1))
    ax = plot_expert_heatmap(weights, groups=np.arange(128) // 16).axes[0]
    assert tick_labels(ax.yaxis) == [str(group) for group in range(8)]
    np.testing.assert_array_equal(ax.get_yticks(), np.arange(8) * 16 + 8)
    assert tick_labels(ax.xaxis) == [str(i) for i in range(0, 32, 4)]


@pytest.mark.parametrize("num_experts", [4, 16, 64])
@pytest.mark.parametrize("groups", [None, np.arange(24) // 4])
def test_no_label_overlaps_another(num_experts, groups):
    weights = numbers((24, num_experts)) ** 2
    names = [f"task of a long name {i}" for i in range(24)]
    figure = plot_expert_heatmap(weights, task_names=names, groups=groups, title="all")
    assert not overlapping(figure)


def test_names_are_shown_on_given_axes():
    names = {"task_names": ["age", "income", "rent"], "expert_names": list("uvw")}
    figure, (left, ax) = plt.subplots(1, 2)
    assert plot_expert_heatmap(WEIGHTS, **names, title="Census", ax=ax) is figure
    assert tick_labels(ax.yaxis) == ["age", "income", "rent"]
    assert tick_labels(ax.xaxis) == ["u", "v", "w"]
    assert ax.get_title(loc="left") == "Census"
    assert not left.collections


def test_heat_maps_share_a_scale_if_asked():
    def ends(weights, **settings):
        figure = plot_expert_heatmap(weights, **settings)
        return figure.axes[0].collections[0].get_clim()

    assert ends(WEIGHTS, largest=0.9) == ends(WEIGHTS[2:], largest=0.9) == (0, 0.9)
    assert ends(WEIGHTS[2:]) == (0, 0.6)


def test_a_new_figure_is_one_column_wide():
    figure = plot_expert_heatmap(np.tile(WEIGHTS, (43, 1)))
    assert figure.get_figwidth() == pytest.approx(3.3)
    assert figure.get_figheight() < 6


def test_missing_matplotlib_is_answered_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "dselectk-keras\[plots\]"'):
        plot_expert_heatmap(WEIGHTS)


OF_THREE = partial(plot_expert_heatmap, WEIGHTS)
test_what_cannot_be_drawn_is_refused = refusals(
    (
        plot_expert_heatmap,
        r"`weights` must have shape \(tasks, experts",
        *map(np.zeros, [(3,), (0, 3), (2, 3, 4)]),
    ),
    (plot_expert_heatmap, "with 1 NaN", [[0.5, np.nan]]),
    (OF_THREE, "one label for each of the 3 tasks", {"groups": [0, 1]}),
    (OF_THREE, "one name for each of the 3 tasks", {"task_names": ["a"]}),
)
