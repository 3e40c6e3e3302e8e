"""Single runs of several methods, side by side."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dselectk_keras.plots import style
from dselectk_keras.utils import check_choice, check_type


def plot_runs(
    values: Mapping[str, Any],
    *,
    label: str = "",
    highlight: str | None = None,
    title: str | None = None,
    ax: Any = None,
) -> Any:
    """A row per method, with a dot per run, and a line and a number for their mean.

    The grey bar is the standard error of the mean. Failed runs, which are NaN, are
    omitted.

    Args:
        values: Dict from names of methods to arrays (runs,).
        label: Label of the values.
        highlight: Name of the method to colour. `None` is none.
        title: Title of the axes.
        ax: Matplotlib axes to draw on. `None` is a new figure.

    Returns:
        The matplotlib figure. It is not shown and not saved.

    Example:
        >>> figure = plot_runs({"a": [0.91, 0.93], "b": [0.92, 0.94]}, highlight="b")
    """
    check_type("values", values, Mapping, "a dict by the name of each method")
    if not values:
        raise ValueError("`values` must hold at least one method. Received: none.")
    if highlight is not None:
        check_choice("highlight", highlight, values)
    height = 0.9 + 0.26 * len(values)
    figure, ax = style.open_axes(ax, style.PAGE_WIDTH * 0.8, height)
    arrays = [np.asarray(given, dtype=float) for given in values.values()]
    finite = [array[np.isfinite(array)] for array in arrays]
    for row, (name, runs) in enumerate(zip(values, finite, strict=True)):
        color = style.COLORS[0 if name == highlight else -1]
        if len(runs) > 1:
            error = runs.std(ddof=1) / np.sqrt(len(runs))
            ax.barh(row, 2 * error, 0.6, left=runs.mean() - error, color="#E3E3E3")
        if len(runs):
            ax.vlines(runs.mean(), row - 0.3, row + 0.3, color=color, linewidth=1.6)
        dots = {"markersize": 4, "markeredgewidth": 0, "alpha": 0.55}
        ax.plot(runs, np.full(len(runs), row), "o", color=color, **dots)
    _write_means(ax, finite)
    style.tidy_axes(ax, "x")
    ax.locator_params(axis="x", nbins=4)
    ax.set_yticks(range(len(values)), list(values))
    ax.set_ylim(len(values) - 0.4, -0.6)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    style.label(ax, label, title=title)
    return figure


def _write_means(ax, runs):
    """Write the mean to the right of each row, to two digits of a usual error."""
    errors = [each.std(ddof=1) / np.sqrt(len(each)) for each in runs if len(each) > 1]
    error = np.median(errors) if errors else 0.0
    decimals = max(0, 1 - math.floor(math.log10(error))) if error > 0 else 3
    for row, each in enumerate(runs):
        ax.annotate(
            f"{each.mean():.{decimals}f}" if len(each) else "",
            xy=(1.02, row),
            xycoords=("axes fraction", "data"),
            fontsize=style.SMALL_FONT,
            color=style.TEXT,
            va="center",
            annotation_clip=False,
        )
