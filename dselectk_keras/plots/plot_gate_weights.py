"""The weights of a gate over training."""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dselectk_keras.plots import style
from dselectk_keras.plots.label_ends import label_ends
from dselectk_keras.utils import check_count, check_type, convert

_MAX_PANELS = 8


def plot_gate_weights(
    steps: Any,
    weights: Any = None,
    *,
    task_names: Sequence[str] | None = None,
    highlight: Iterable[int] | None = None,
    events: Iterable[tuple[float, str]] = (),
    title: str | None = None,
    ax: Any = None,
) -> Any:
    """Expert weights over training, with one line per expert.

    Highlighted experts are coloured and labelled at the end of their lines, the others
    are grey. An expert has the same colour in every panel.

    Args:
        steps: Array (records,), the training step of each record. Or the history of a
            `GateRecorder`, of one layer: it has the weights, names and events too.
        weights: Array (records, n) of one gate, or (records, tasks, n) for one panel
            per task, at most eight.
        task_names: One name per task, the titles of the panels. `None` is numbers.
        highlight: Indices of the experts to colour, such as the true ones. By default,
            in each panel at most seven, those with the largest final weights above half
            the uniform weight, `1 / (2 * n)`.
        events: Pairs of a training step and a text, each drawn as a vertical line, such
            as `history.events["mmoe"]` of a `GateHistory`.
        title: Title of the figure.
        ax: Matplotlib axes to draw one panel on. `None` is a new figure.

    Returns:
        The matplotlib figure. It is not shown and not saved.

    Example:
        >>> import numpy as np
        >>> weights = np.linspace([0.5, 0.5], [1.0, 0.0], 11)
        >>> figure = plot_gate_weights(np.arange(11), weights, events=[(5, "decided")])

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Figures 2 and 6 to 8.
    """
    if weights is None:
        layer, weights = _read_history(steps)
        task_names = steps.tasks[layer] if task_names is None else task_names
        events = style.list_events(events) or steps.events.get(layer, ())
        steps = steps.steps
    steps, panels, titles = _split_panels(steps, weights, task_names)
    if ax is not None and len(panels) > 1:
        raise ValueError(
            "`ax` holds one panel. Received weights of "
            f"{len(panels)} tasks. Choose one with weights[:, 0], or omit `ax`."
        )
    if highlight is not None:
        check_type("highlight", highlight, Iterable, "a list of integers")
        most = panels[0].shape[1] - 1
        highlight = [check_count("highlight", each, 0, most) for each in highlight]
    highlights = [_choose_highlighted(panel, highlight) for panel in panels]
    styles = _line_styles(highlights)

    figure, axes = _open_panels(ax, len(panels))
    events = style.list_events(events)
    drawn = list(zip(axes, panels, highlights, titles, strict=True))
    for panel, values, chosen, name in drawn:
        _draw_lines(panel, steps, values, chosen, styles)
        style.mark_events(panel, events)
        style.label(panel, title=name)
    if title is not None:
        write = (
            figure.suptitle if ax is None else functools.partial(style.write_title, ax)
        )
        write(title, fontsize=style.FONT + 1)
    # Now the shared axis has its final range.
    figure.canvas.draw()
    for panel, values, chosen, _ in drawn:
        label_ends(panel, _line_ends(steps, values, chosen, styles), x=1.07)
    if len(panels) == 1:
        style.label(axes[0], "training step", "expert weight")
    else:
        figure.supxlabel("training step", fontsize=style.FONT)
        figure.supylabel("expert weight", fontsize=style.FONT)
    return figure


def _open_panels(ax, count):
    """A figure and the axes of its panels, two in a row."""
    if count == 1:
        figure, ax = style.open_axes(ax, style.COLUMN_WIDTH, 2.4)
        return figure, [ax]
    rows = math.ceil(count / 2)
    size = (style.PAGE_WIDTH, 2.4 if rows == 1 else 0.3 + 1.7 * rows)
    shared = {"sharex": True, "sharey": True, "layout": "constrained"}
    figure, grid = style.import_pyplot().subplots(rows, 2, figsize=size, **shared)
    axes = list(grid.ravel())
    for empty in axes[count:]:
        empty.remove()
        # The panel above the gap is now the lowest in its column.
        axes[count - 2].tick_params(labelbottom=True)
    return figure, axes[:count]


def _read_history(history):
    """The name and the weights of the only layer of a history."""
    check_type("steps", history, Mapping, "a history if `weights` is left out")
    if len(history) != 1:
        raise ValueError(
            "Without `weights`, the history must have one layer. Received: "
            f"{', '.join(history) or 'none'}. Choose one of several with "
            'plot_gate_weights(history.steps, history["name"]["weights"]).'
        )
    (layer,) = history
    return layer, history[layer]["weights"]


def _split_panels(steps, weights, task_names):
    """Steps, and a list of weights (records, n) and of titles, one for each panel."""
    steps = convert("steps", steps, lambda given: np.asarray(given, dtype=float))
    weights = np.asarray(weights, dtype=float)
    axes = (2, 3) if task_names is None else (3,)
    if (
        weights.ndim not in axes
        or 0 in weights.shape
        or steps.shape != weights.shape[:1]
        or (weights.ndim == 3 and weights.shape[1] > _MAX_PANELS)
    ):
        raise ValueError(
            "`weights` must have shape (records, experts) or, with `task_names`, "
            f"(records, tasks, experts), with at most {_MAX_PANELS} tasks, and `steps` "
            f"one step for each record. Received: weights of shape {weights.shape} and "
            f"steps of shape {steps.shape}. Choose a few tasks with weights[:, [0, 1]],"
            " or show the final weights of all with plot_expert_heatmap."
        )
    if weights.ndim == 2:
        return steps, [weights], [None]
    titles = style.check_names("task_names", task_names, weights.shape[1], "task")
    return steps, [*weights.swapaxes(0, 1)], titles


def _choose_highlighted(weights, highlight):
    """Ascending indices of the experts to colour in one panel."""
    num_experts = weights.shape[1]
    if highlight is not None:
        return sorted({*highlight})
    final = np.nan_to_num(weights[-1])
    largest = np.argsort(-final, kind="stable")[: len(style.COLORS)]
    return sorted(int(e) for e in largest if final[e] >= 0.5 / num_experts)


def _line_styles(highlights):
    """A colour and a line style per expert: equal in all panels, no two equal."""
    colors, uses, styles = {}, Counter(), {}
    for expert in sorted(set().union(*highlights)):
        taken = {
            colors.get(e) for panel in highlights if expert in panel for e in panel
        }
        color = min(range(len(style.COLORS)), key=lambda c: (c in taken, uses[c], c))
        line = (color + uses[color]) % len(style.LINE_STYLES)
        colors[expert] = color
        uses[color] += 1
        styles[expert] = {
            "color": style.COLORS[color],
            "linestyle": style.LINE_STYLES[line],
        }
    return styles


def _draw_lines(ax, steps, weights, highlighted, styles):
    for expert in range(weights.shape[1]):
        if expert in highlighted:
            line = {**styles[expert], "linewidth": 1.4, "zorder": 3}
        else:
            line = {"color": style.GREY, "linewidth": 0.6, "zorder": 2}
        # A single record has no line to show.
        marker = "o" if len(steps) == 1 else None
        ax.plot(steps, weights[:, expert], marker=marker, markersize=3, **line)
    style.tidy_axes(ax, "y")
    ax.margins(x=0, y=0.04)


def _line_ends(steps, weights, highlighted, styles):
    """The ends of the lines, with their labels."""
    final = weights[-1]
    named = {expert: styles[expert]["color"] for expert in highlighted}
    lowest = min(final[highlighted], default=np.inf)
    others = []
    for expert in sorted({*range(len(final))} - {*highlighted}):
        # An expert that ends above a highlighted one has its own label.
        if final[expert] > lowest:
            named[expert] = style.GREY
        else:
            others.append(expert)
    ends = [(final[e], f"expert {e}", color) for e, color in named.items()]
    if others:
        text = f"{len(others)} other{'s' if len(others) > 1 else ''}"
        ends.append((np.median(final[others]), text, style.GREY))
    return [(steps[-1], *end) for end in ends if np.isfinite(end[0])]
