"""Pictures of which tasks use which experts."""

import sys

import numpy as np
import pytest

plt = pytest.importorskip("matplotlib.pyplot")

from dselectk_keras.plots import plot_expert_heatmap  # noqa: E402

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
    values = cells(plot_expert_heatmap(WEIGHTS))
    np.testing.assert_array_equal(values.filled(0), WEIGHTS)
    np.testing.assert_array_equal(values.mask, WEIGHTS == 0)


def test_the_legend_explains_zeros_only_where_there_are_any():
    (text,) = plot_expert_heatmap(WEIGHTS).axes[0].get_legend().get_texts()
    assert text.get_text() == "not used (zero)"
    assert plot_expert_heatmap([[0.4, 0.6]]).axes[0].get_legend() is None


def test_weights_of_one_value_have_no_colour_bar():
    (ax,) = plot_expert_heatmap([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]).axes
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["not used (zero)", "weight 0.5"]
    assert len(plot_expert_heatmap([[0.5, 0.5]], largest=1.0).axes) == 2
    assert len(plot_expert_heatmap([[0.5, 0.5], [0.0, 0.7]]).axes) == 2


def test_the_first_task_is_on_top():
    low, high = plot_expert_heatmap(WEIGHTS).axes[0].get_ylim()
    assert low > high


def test_groups_are_gathered_with_a_line_between():
    figure = plot_expert_heatmap(
        WEIGHTS, task_names=["a", "b", "c"], groups=["x", "y", "x"]
    )
    ax = figure.axes[0]
    np.testing.assert_array_equal(cells(figure).filled(0), WEIGHTS[[0, 2, 1]])
    assert tick_labels(ax.yaxis) == ["a", "c", "b"]
    segments = ax.collections[1].get_segments()
    assert [segment[0][1] for segment in segments] == [2]


def test_tasks_without_names_keep_their_numbers_in_groups():
    ax = plot_expert_heatmap(WEIGHTS, groups=["x", "y", "x"]).axes[0]
    assert tick_labels(ax.yaxis) == ["0", "2", "1"]


def test_many_tasks_are_labelled_by_group():
    weights = np.tile(np.eye(4), (32, 1))
    figure = plot_expert_heatmap(weights, groups=np.arange(128) // 16)
    ax = figure.axes[0]
    assert tick_labels(ax.yaxis) == [str(group) for group in range(8)]
    np.testing.assert_array_equal(ax.get_yticks(), np.arange(8) * 16 + 8)


def test_many_experts_have_few_numbers():
    (ax,) = plot_expert_heatmap(np.full((2, 32), 1 / 32)).axes
    assert tick_labels(ax.xaxis) == [str(i) for i in range(0, 32, 4)]


def test_names_are_shown():
    figure = plot_expert_heatmap(
        WEIGHTS,
        task_names=["age", "income", "rent"],
        expert_names=["u", "v", "w"],
        title="Census",
    )
    ax = figure.axes[0]
    assert tick_labels(ax.yaxis) == ["age", "income", "rent"]
    assert tick_labels(ax.xaxis) == ["u", "v", "w"]
    assert ax.get_title(loc="left") == "Census"


def test_given_axes_are_drawn_on():
    figure, (left, right) = plt.subplots(1, 2)
    assert plot_expert_heatmap(WEIGHTS, ax=right) is figure
    assert right.collections
    assert not left.collections


def test_heat_maps_share_a_scale_if_asked():
    figures = [plot_expert_heatmap(w, largest=0.9) for w in (WEIGHTS, WEIGHTS[2:])]
    ends = [figure.axes[0].collections[0].get_clim() for figure in figures]
    assert ends == [(0, 0.9), (0, 0.9)]
    assert plot_expert_heatmap(WEIGHTS[2:]).axes[0].collections[0].get_clim() == (
        0,
        0.6,
    )


def test_weights_of_zero_only_are_drawn():
    plot_expert_heatmap(np.zeros((2, 3))).canvas.draw()


def test_a_new_figure_is_one_column_wide(tmp_path):
    figure = plot_expert_heatmap(np.tile(WEIGHTS, (43, 1)))
    assert figure.get_figwidth() == pytest.approx(3.3)
    assert figure.get_figheight() < 6
    figure.savefig(tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 1000


def test_missing_matplotlib_is_answered_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "dselectk-keras\[plots\]"'):
        plot_expert_heatmap(WEIGHTS)


@pytest.mark.parametrize("shape", [(3,), (0, 3), (2, 3, 4)])
def test_weights_are_tasks_by_experts(shape):
    with pytest.raises(ValueError, match=r"`weights` must have shape \(tasks, experts"):
        plot_expert_heatmap(np.zeros(shape))


def test_nan_weights_are_not_taken_for_zeros():
    with pytest.raises(ValueError, match=r"with 1 NaN"):
        plot_expert_heatmap([[0.5, np.nan]])


def test_every_task_has_a_group():
    with pytest.raises(ValueError, match=r"one label for each of the 3 tasks"):
        plot_expert_heatmap(WEIGHTS, groups=[0, 1])


def test_names_are_as_many_as_tasks():
    with pytest.raises(ValueError, match=r"one name for each of the 3 tasks"):
        plot_expert_heatmap(WEIGHTS, task_names=["a"])
