"""Pictures of weights over training."""

import sys
from functools import partial

import numpy as np
import pytest
from helpers import overlapping, refusals
from matplotlib import pyplot as plt
from matplotlib.text import Text

from dselectk_keras import GateHistory
from dselectk_keras.plots import plot_gate_weights
from dselectk_keras.plots.plot_gate_weights import _line_styles

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


def title(ax):
    return ax.get_title(loc="left")


# Those of two tasks.
BOTH = np.stack([weights_to(0.7, 0.3, 0.0), weights_to(0.0, 0.4, 0.6)], axis=1)


def test_every_expert_is_a_line_with_its_values():
    weights = weights_to(0.7, 0.3, 0.0)
    (ax,) = plot_gate_weights(STEPS, weights).axes
    assert len(lines(ax)) == 3
    for expert, line in enumerate(lines(ax)):
        np.testing.assert_array_equal(line.get_xdata(), STEPS)
        np.testing.assert_allclose(line.get_ydata(), weights[:, expert])
    assert ax.get_xlabel() == "training step"
    assert ax.get_ylabel() == "expert weight"


def test_tasks_are_panels_with_one_colour_an_expert_and_lines_of_events():
    events = iter([(300, "decided, 34 % kept")])
    figure = plot_gate_weights(STEPS, BOTH, task_names=["a", "b"], events=events)
    left, right = figure.axes
    assert [title(left), title(right)] == ["a", "b"]
    assert lines(left)[1].get_color() == lines(right)[1].get_color()
    assert left.get_ylim() == right.get_ylim()
    for ax in figure.axes:
        (line,) = (line for line in ax.lines if line not in lines(ax))
        assert line.get_xdata() == [300, 300]
        assert "decided, 34 % kept" in labels(ax)
        assert ax.get_xlim() == (0, 900)
    three = np.stack([weights_to(0.7, 0.3)] * 3, axis=1)  # No empty panel is left.
    assert len(plot_gate_weights(STEPS, three).axes) == 3


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


@pytest.mark.parametrize(
    ("final", "highlight", "named"),
    [
        ([0.7, 0.0, 0.3, 0.0], None, ["expert 0", "expert 2", "2 others"]),
        # At most seven are named unasked.
        (
            np.arange(32, 64) / np.arange(32, 64).sum(),
            None,
            [*(f"expert {i}" for i in range(25, 32)), "25 others"],
        ),
        (
            [0.7, 0.0, 0.3, 0.0],
            (3, 0),
            ["expert 0", "expert 3", "expert 2", "1 other"],
        ),
        # One above a highlighted one is named too.
        (
            [0.6, 0.1, 0.3, 0.0],
            [0, 1],
            ["expert 0", "expert 1", "expert 2", "1 other"],
        ),
    ],
)
def test_used_or_highlighted_experts_are_named_and_the_rest_counted(
    final, highlight, named
):
    (ax,) = plot_gate_weights(STEPS, weights_to(*final), highlight=highlight).axes
    assert labels(ax) == named


def test_experts_without_a_name_are_grey():
    (ax,) = plot_gate_weights(STEPS, weights_to(0.7, 0.0, 0.3, 0.0)).axes
    colours = [line.get_color() for line in lines(ax)]
    assert colours[1] == colours[3]
    assert len({*colours}) == 3


def test_an_iterator_highlights_experts_in_all_panels():
    figure = plot_gate_weights(STEPS, BOTH, highlight=iter([2]))
    assert ["expert 2" in labels(ax) for ax in figure.axes] == [True, True]


def test_labels_of_equal_weights_do_not_overlap():
    figure = plot_gate_weights(STEPS, weights_to(*[0.125] * 8), highlight=range(8))
    assert len(figure.axes[0].texts) == 8
    assert not overlapping(figure)


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


def test_given_axes_are_drawn_on_and_a_new_figure_is_one_column_wide():
    figure, (left, right) = plt.subplots(1, 2)
    returned = plot_gate_weights(STEPS, weights_to(0.7, 0.3), ax=right, title="here")
    assert returned is figure
    assert not left.lines
    assert right.get_title() == "here"
    figure = plot_gate_weights(STEPS, weights_to(0.7, 0.3), title="title")
    assert figure.get_figwidth() == pytest.approx(3.3)


def test_a_single_record_is_a_point_and_diverged_weights_are_drawn():
    (ax,) = plot_gate_weights([0], [[0.7, 0.3]]).axes
    assert all(line.get_marker() == "o" for line in ax.lines)
    weights = weights_to(0.7, 0.3)
    weights[5:] = np.nan
    plot_gate_weights(STEPS, weights).canvas.draw()


def test_missing_matplotlib_is_answered_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "dselectk-keras\[plots\]"'):
        plot_gate_weights(STEPS, weights_to(0.7, 0.3))


def test_a_history_of_one_layer_has_all_that_is_drawn():
    history = GateHistory({"mmoe": ["left", "right"]})
    with pytest.raises(ValueError, match=r"Received: none\. Choose one of several"):
        plot_gate_weights(GateHistory())
    for step, record in zip(STEPS.tolist(), BOTH, strict=True):
        history.append(step, {"mmoe": {"weights": record}})
    history.events["mmoe"].append((300, "decided"))
    left, right = plot_gate_weights(history).axes
    assert [title(left), title(right)] == ["left", "right"]
    np.testing.assert_array_equal(lines(right)[2].get_xdata(), STEPS)
    np.testing.assert_allclose(lines(right)[2].get_ydata(), BOTH[:, 1, 2])
    assert "decided" in labels(left)
    given = plot_gate_weights(history, task_names="ab", events=[(1, "mine")]).axes[0]
    assert title(given) == "a"
    assert "mine" in labels(given)
    assert "decided" not in labels(given)
    history.tasks["moe"] = ["c"]
    with pytest.raises(ValueError, match=r"Received: mmoe, moe\. Choose one"):
        plot_gate_weights(history)


DRAW, ONE = partial(plot_gate_weights, STEPS), weights_to(0.7, 0.3)
test_what_cannot_be_drawn_is_refused = refusals(
    (
        DRAW,
        r"`weights` must have shape \(records, ",
        *map(np.zeros, [(10,), (10, 0), (10, 2, 3, 4)]),
    ),
    (plot_gate_weights, r"one step for each record.* \(9,\)", (STEPS[:-1], ONE)),
    (DRAW, r"most 8 tasks.*10, 9, 3.*_heatmap", np.zeros((10, 9, 3))),
    (
        DRAW,
        r"with `task_names`, \(records, tasks",
        {"weights": ONE, "task_names": ["a"]},
    ),
    (DRAW, "`highlight` must be at most 1.*=2", {"weights": ONE, "highlight": [2]}),
    (DRAW, "`ax` holds one panel", {"weights": BOTH, "ax": object()}),
    (DRAW, "`steps` must be a history if `weights`"),
)
