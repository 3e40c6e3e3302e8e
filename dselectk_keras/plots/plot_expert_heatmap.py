"""A heatmap of the experts that tasks use."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from dselectk_keras.plots import style
from dselectk_keras.utils import check_number

_MAX_NAMED = 32  # More names do not fit along one side.


def plot_expert_heatmap(
    weights: Any,
    *,
    task_names: Sequence[str] | None = None,
    expert_names: Sequence[str] | None = None,
    groups: Any = None,
    largest: float | None = None,
    title: str | None = None,
    ax: Any = None,
) -> Any:
    """Heat map of expert weights, with a row per task and a column per expert.

    Experts that a task does not use are hatched, which distinguishes a zero from a
    small weight. Weights that are all the same have a legend in place of a colour bar.

    Args:
        weights: Array or tensor (tasks, n) of expert weights.
        task_names: One name per task. `None` is numbers.
        expert_names: One name per expert. `None` is numbers.
        groups: One group label per task. The tasks of a group are drawn next to each
            other, with a line between groups. `None` is no groups.
        largest: Weight of the darkest colour. Give heat maps that are compared the same
            number. `None` is the largest of `weights`.
        title: Title of the figure.
        ax: Matplotlib axes to draw on. `None` is a new figure.

    Returns:
        The matplotlib figure. It is not shown and not saved.

    Example:
        >>> figure = plot_expert_heatmap([[0.7, 0.3, 0.0], [0.0, 0.4, 0.6]])

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Figure 3.
    """
    # A tensor of torch may need a gradient.
    if keras.ops.is_tensor(weights):
        weights = keras.ops.convert_to_numpy(weights)
    weights = np.asarray(weights, dtype=float)
    if weights.ndim != 2 or 0 in weights.shape or np.isnan(weights).any():
        raise ValueError(
            "`weights` must have shape (tasks, experts), neither of them empty, "
            f"without NaN. Received shape: {weights.shape}, with "
            f"{np.isnan(weights).sum()} NaN. Average per-example weights over "
            "the examples, and give a single gate a leading axis: weights[None]."
        )
    num_tasks, num_experts = weights.shape
    tasks = style.check_names("task_names", task_names, num_tasks, "task")
    experts = style.check_names("expert_names", expert_names, num_experts, "expert")
    if largest is not None:
        check_number("largest", largest, minimum=0)
    order, bounds, group_labels = _group_rows(groups, num_tasks)
    used = np.ma.masked_array(weights, weights <= 0)[order]

    height = min(max(0.15 * num_tasks, 1.2), 4.2) + 0.7
    figure, ax = style.open_axes(ax, style.COLUMN_WIDTH, height)
    ax.patch.set(facecolor="white", edgecolor="#DDDDDD", hatch="/////", linewidth=0)
    few = num_tasks * num_experts <= 1024
    mesh = ax.pcolormesh(
        used,
        cmap=_color_map(),
        vmin=0,
        vmax=largest or (used.max() if used.count() else 1),
        edgecolors="white" if few else "face",
        linewidth=0.5 if few else 0,
    )
    ax.invert_yaxis()
    ax.hlines(bounds[1:-1], 0, num_experts, color="black", linewidth=0.9)

    ax.set_xlabel("expert", fontsize=style.FONT)
    named = expert_names is not None, task_names is not None
    # A number is wider than it is high.
    _set_ticks(ax.xaxis, experts, range(num_experts), named[0], 12, rotation=90)
    if groups is not None and num_tasks > _MAX_NAMED:
        centers = (bounds[1:] + bounds[:-1]) / 2
        ax.set_yticks(centers, group_labels)
        ax.set_ylabel("task group", fontsize=style.FONT)
    else:
        ax.set_ylabel("task", fontsize=style.FONT)
        _set_ticks(ax.yaxis, tasks, order, named[1])
    ax.tick_params(labelsize=style.SMALL_FONT, length=0)
    for spine in ax.spines.values():
        spine.set(color=style.TEXT, linewidth=0.6)

    values = np.unique(used.compressed().round(6))
    keys = [("not used (zero)", "white")] * bool(used.mask.any())
    if largest is None and len(values) == 1:
        # A bar would have one colour, at its end.
        keys.append((f"weight {values[0]:.2g}", mesh.cmap(1.0)))
    else:
        bar = figure.colorbar(mesh, ax=ax, fraction=0.05, pad=0.03, aspect=25)
        bar.set_label("expert weight", fontsize=style.FONT)
        bar.ax.tick_params(labelsize=style.SMALL_FONT, length=2)
        bar.outline.set_linewidth(0.6)
    if keys:
        _write_keys(ax, keys)
    if title is not None:
        # Above the legend, so that a long title does not overlap it.
        pad = 16 if keys else 5
        ax.set_title(title, fontsize=style.FONT + 1, loc="left", pad=pad)
    return figure


def _write_keys(ax, keys):
    """Explain colours above the axes: texts, and white hatched or another colour."""
    from matplotlib.patches import Patch

    hatched: Any = {"edgecolor": style.GREY, "hatch": "/////"}
    ax.legend(
        handles=[
            Patch(facecolor=color, label=text, **hatched if color == "white" else {})
            for text, color in keys
        ],
        loc="lower right",
        bbox_to_anchor=(1, 1),
        borderaxespad=0.2,
        frameon=False,
        fontsize=style.SMALL_FONT,
        handlelength=1.2,
        columnspacing=1.2,
        ncols=2,
    )


def _color_map():
    """Light to dark colours that work in grey and for colour-blind readers."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    # Without the palest ones, so that a small weight does not look like zero.
    return ListedColormap(colormaps["YlGnBu"](np.linspace(0.2, 1, 256)))


def _group_rows(groups, num_tasks):
    """The order of the rows, and the bounds and labels of the groups."""
    if groups is None:
        return np.arange(num_tasks), np.array([0, num_tasks]), []
    groups = np.asarray(groups)
    if groups.shape != (num_tasks,):
        raise ValueError(
            f"`groups` must hold one label for each of the {num_tasks} tasks. "
            f"Received shape: {groups.shape}. Give one label per row of `weights`."
        )
    order = np.argsort(groups, kind="stable")
    labels, sizes = np.unique(groups, return_counts=True)
    return order, np.concatenate([[0], np.cumsum(sizes)]), [str(x) for x in labels]


def _set_ticks(axis, names, numbers, named, most=16, **text):
    """Show the given names if they fit, else every number or every few numbers."""
    shown = [names[number] if named else str(number) for number in numbers]
    count = len(shown)
    if named and count <= _MAX_NAMED:
        axis.set_ticks(np.arange(count) + 0.5, shown, **text)
        return
    stride = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128, count) if count / s <= most)
    axis.set_ticks(np.arange(0, count, stride) + 0.5, shown[::stride])
