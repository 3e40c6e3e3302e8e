"""Pictures of weights over training."""

import itertools
import sys

import numpy as np
import pytest

plt = pytest.importorskip("matplotlib.pyplot")
Text = pytest.importorskip("matplotlib.text").Text

from dselectk_keras import GateHistory  # noqa: E402
from dselectk_keras.plots import plot_gate_weights  # noqa: E402
from dselectk_keras.plots.plot_gate_weights import _line_styles  # noqa: E402

STEPS = np.arange(10) * 100


@pytest.fixture(autouse=True)
def close_figures():
    before = dict(plt.rcParams)
    yield
    assert dict(plt.rcParams) == before
    plt.close("all")


def weights_to(*final, records=10):
    final = np.array(final)
    start = np.full(final.shape, 1 / final.shape[-1])
    return np.linspace(start, final, records)


def lines(ax):
    return [line for line in ax.lines if len(line.get_xdata()) == len(STEPS)]


def labels(ax):
    return [text.get_text() for text in ax.texts]


def test_every_expert_is_a_line_with_its_values():
    weights = weights_to(0.7, 0.3, 0.0)
    (ax,) = plot_gate_weights(STEPS, weights).axes
    assert len(lines(ax)) == 3
    for expert, line in enumerate(lines(ax)):
        np.testing.assert_array_equal(line.get_xdata(), STEPS)
        np.testing.assert_allclose(line.get_ydata(), weights[:, expert])
    assert ax.get_xlabel() == "training step"
    assert ax.get_ylabel() == "expert weight"


def test_events_are_vertical_lines_with_a_text_in_each_panel():
    events = [(300, "decided, 34 % kept")]
    weights = np.stack([weights_to(0.7, 0.3, 0.0), weights_to(0.0, 0.3, 0.7)], axis=1)
    figure = plot_gate_weights(STEPS, weights, events=iter(events))
    for ax in figure.axes:
        (line,) = (line for line in ax.lines if line not in lines(ax))
        assert line.get_xdata() == [300, 300]
        assert "decided, 34 % kept" in labels(ax)
        assert ax.get_xlim() == (0, 900)


def test_the_text_of_an_event_is_between_the_lines_and_the_title():
    weights, events = weights_to(0.7, 0.3, 0.0), [(100, "decided, 34 % kept")]
    panels = plot_gate_weights(STEPS, weights[:, None], events=events).axes
    given = plt.subplots()[1]
    plot_gate_weights(STEPS, weights, events=events, title="a title", ax=given)
    for ax in (*panels, given):
        ax.figure.canvas.draw()
        text = Text.get_window_extent(ax.texts[0])
        assert text.y0 >= ax.get_window_extent().y1
        titles = [
            each
            for each in ax.findobj(Text)
            if each.get_text() in {"task 0", "a title"}
        ]
        assert [each.get_window_extent().y0 >= text.y1 for each in titles] == [True]


def test_used_experts_are_named_and_the_rest_counted():
    (ax,) = plot_gate_weights(STEPS, weights_to(0.7, 0.0, 0.3, 0.0)).axes
    assert labels(ax) == ["expert 0", "expert 2", "2 others"]
    grey = [line.get_color() for line in lines(ax)]
    assert grey[1] == grey[3]
    assert len({grey[0], grey[1], grey[2]}) == 3


def test_an_expert_above_a_highlighted_one_is_named():
    weights = weights_to(0.6, 0.1, 0.3, 0.0)
    (ax,) = plot_gate_weights(STEPS, weights, highlight=[0, 1]).axes
    assert labels(ax) == ["expert 0", "expert 1", "expert 2", "1 other"]


def test_at_most_seven_experts_are_named_unasked():
    final = np.arange(32, 64) / np.arange(32, 64).sum()
    (ax,) = plot_gate_weights(STEPS, weights_to(*final)).axes
    assert labels(ax) == [*(f"expert {i}" for i in range(25, 32)), "25 others"]


def test_highlight_names_the_experts_asked_for():
    figure = plot_gate_weights(
        STEPS,
        weights_to(0.7, 0.0, 0.3, 0.0),
        highlight=(3, 0),
    )
    names = ["expert 0", "expert 3", "expert 2", "1 other"]
    assert labels(figure.axes[0]) == names


def test_an_iterator_highlights_experts_in_all_panels():
    weights = np.stack([weights_to(0.7, 0.3, 0.0)] * 2, axis=1)
    figure = plot_gate_weights(STEPS, weights, highlight=iter([0]))
    for ax in figure.axes:
        assert labels(ax) == ["expert 0", "2 others"]


def test_labels_of_equal_weights_do_not_overlap():
    figure = plot_gate_weights(STEPS, weights_to(*[0.125] * 8), highlight=range(8))
    figure.canvas.draw()
    # Of the words alone: the extent of an annotation holds its leader too.
    boxes = [Text.get_window_extent(text) for text in figure.axes[0].texts]
    boxes.sort(key=lambda box: box.y0)
    for below, above in itertools.pairwise(boxes):
        assert above.y0 >= below.y1 - 1


def test_tasks_are_panels_with_one_colour_an_expert():
    weights = np.stack([weights_to(0.7, 0.3, 0.0), weights_to(0.0, 0.4, 0.6)], axis=1)
    figure = plot_gate_weights(STEPS, weights, task_names=["left", "right"])
    left, right = figure.axes
    assert [ax.get_title(loc="left") for ax in (left, right)] == ["left", "right"]
    assert lines(left)[1].get_color() == lines(right)[1].get_color()
    assert left.get_ylim() == right.get_ylim()


def test_no_two_experts_of_a_panel_share_a_colour():
    rng = np.random.default_rng(0)
    final = np.zeros((8, 28))
    for row in final:
        row[rng.choice(28, 4, replace=False)] = 0.25
    for ax in plot_gate_weights(STEPS, weights_to(*final)).axes:
        named = [int(name.split()[1]) for name in labels(ax)[:-1]]
        assert len({lines(ax)[expert].get_color() for expert in named}) == 4


def test_no_two_of_28_experts_share_colour_and_line_style():
    styles = _line_styles([range(i, i + 4) for i in range(25)])
    looks = {(style["color"], style["linestyle"]) for style in styles.values()}
    assert len(looks) == len(styles) == 28


def test_three_tasks_leave_no_empty_panel():
    weights = np.stack([weights_to(0.7, 0.3)] * 3, axis=1)
    assert len(plot_gate_weights(STEPS, weights).axes) == 3


def test_given_axes_are_drawn_on():
    figure, (left, right) = plt.subplots(1, 2)
    returned = plot_gate_weights(STEPS, weights_to(0.7, 0.3), ax=right, title="here")
    assert returned is figure
    assert not left.lines
    assert right.get_title() == "here"


def test_a_single_record_is_a_point():
    (ax,) = plot_gate_weights([0], [[0.7, 0.3]]).axes
    assert all(line.get_marker() == "o" for line in ax.lines)


def test_diverged_weights_are_still_drawn():
    weights = weights_to(0.7, 0.3)
    weights[5:] = np.nan
    plot_gate_weights(STEPS, weights).canvas.draw()


def test_a_new_figure_is_one_column_wide(tmp_path):
    figure = plot_gate_weights(STEPS, weights_to(0.7, 0.3), title="title")
    assert figure.get_figwidth() == pytest.approx(3.3)
    figure.savefig(tmp_path / "weights.png")
    assert (tmp_path / "weights.png").stat().st_size > 1000


def test_missing_matplotlib_is_answered_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "dselectk-keras\[plots\]"'):
        plot_gate_weights(STEPS, weights_to(0.7, 0.3))


@pytest.mark.parametrize("shape", [(10,), (10, 0), (10, 2, 3, 4)])
def test_weights_have_two_or_three_axes(shape):
    with pytest.raises(ValueError, match=r"`weights` must have shape \(records, "):
        plot_gate_weights(STEPS, np.zeros(shape))


def test_steps_and_records_are_as_many():
    with pytest.raises(ValueError, match=r"one step for each record.* \(9,\)"):
        plot_gate_weights(STEPS[:-1], weights_to(0.7, 0.3))


def test_many_tasks_are_sent_to_the_heat_map():
    with pytest.raises(ValueError, match=r"most 8 tasks.*10, 9, 3.*_heatmap"):
        plot_gate_weights(STEPS, np.zeros((10, 9, 3)))


def test_a_single_gate_has_no_tasks():
    with pytest.raises(ValueError, match=r"with `task_names`, \(records, tasks"):
        plot_gate_weights(STEPS, weights_to(0.7, 0.3), task_names=["a"])


def test_highlight_holds_indices():
    with pytest.raises(ValueError, match=r"`highlight` must be at most 1.*=2"):
        plot_gate_weights(STEPS, weights_to(0.7, 0.3), highlight=[2])


def test_several_tasks_do_not_fit_given_axes():
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match=r"`ax` holds one panel"):
        plot_gate_weights(STEPS, np.zeros((10, 2, 3)), ax=ax)


def test_a_history_of_one_layer_has_all_that_is_drawn():
    weights = np.stack([weights_to(0.7, 0.3, 0.0), weights_to(0.0, 0.4, 0.6)], axis=1)
    history = GateHistory({"mmoe": ["left", "right"]})
    with pytest.raises(ValueError, match=r"Received: none\. Choose one of several"):
        plot_gate_weights(GateHistory())
    for step, record in zip(STEPS.tolist(), weights, strict=True):
        history.append(step, {"mmoe": {"weights": record}})
    history.events["mmoe"].append((300, "decided"))
    left, right = plot_gate_weights(history).axes
    assert [ax.get_title(loc="left") for ax in (left, right)] == ["left", "right"]
    np.testing.assert_array_equal(lines(right)[2].get_xdata(), STEPS)
    np.testing.assert_allclose(lines(right)[2].get_ydata(), weights[:, 1, 2])
    assert "decided" in labels(left)
    given = plot_gate_weights(history, task_names="ab", events=[(1, "mine")]).axes[0]
    assert given.get_title(loc="left") == "a"
    assert "mine" in labels(given)
    assert "decided" not in labels(given)
    with pytest.raises(ValueError, match=r"`steps` must be a history if `weights`"):
        plot_gate_weights(STEPS)
    history.tasks["moe"] = ["c"]
    with pytest.raises(ValueError, match=r"Received: mmoe, moe\. Choose one"):
        plot_gate_weights(history)
