"""Lines with labels and error bands."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np

from dselectk_keras.plots import style
from dselectk_keras.plots.label_ends import label_ends
from dselectk_keras.utils import check_choice, check_flags, check_type


def plot_curves(
    curves: Mapping[str, tuple[Any, Any]],
    *,
    x_label: str = "",
    y_label: str = "",
    errors: Mapping[str, Any] | None = None,
    log: Sequence[str] = (),
    markers: bool = False,
    events: Iterable[tuple[float, str]] = (),
    title: str | None = None,
    ax: Any = None,
) -> Any:
    """A line per name, labelled at its end, with a band for its standard error.

    Args:
        curves: Dict from names to pairs of arrays, x and y, of the same length.
        x_label: Label of the x axis.
        y_label: Label of the y axis.
        errors: Dict from names to arrays, the standard error of y at each x. `None` is
            no bands.
        log: The logarithmic axes, some of `"x"` and `"y"`.
        markers: Whether to mark the points.
        events: Pairs of an x and a text, each drawn as a vertical line.
        title: Title of the axes.
        ax: Matplotlib axes to draw on. `None` is a new figure.

    Returns:
        The matplotlib figure. It is not shown and not saved.

    Example:
        >>> figure = plot_curves({"a": ([0, 1], [0.5, 1.0]), "b": ([0, 1], [0.5, 0.0])})
    """
    by_name = "a dict by the name of each line"
    check_type("curves", curves, Mapping, by_name)
    check_type("errors", errors, (Mapping, NoneType), by_name)
    check_flags(markers=markers)
    check_type("log", log, Collection, "some of 'x' and 'y'")
    for axis in log:
        check_choice("log", axis, "xy")
    if not curves:
        raise ValueError("`curves` must hold at least one line. Received: none.")
    figure, ax = style.open_axes(ax, style.PAGE_WIDTH * 0.72, 2.9)
    for axis in log:
        ax.set(**{f"{axis}scale": "log"})
    ends = []
    for number, (name, curve) in enumerate(curves.items()):
        x, y = (np.asarray(values, dtype=float) for values in curve)
        if x.shape != y.shape or x.ndim != 1:
            raise ValueError(
                "Each curve must be a pair of arrays of the same length. Received "
                f"shapes {x.shape} and {y.shape} for {name!r}."
            )
        color = style.COLORS[number % len(style.COLORS)]
        line = style.LINE_STYLES[number % len(style.LINE_STYLES)]
        marker = "o" if markers or len(x) == 1 else None
        look = {"linewidth": 1.4, "marker": marker, "markersize": 3}
        ax.plot(x, y, color=color, linestyle=line, **look)
        if errors is not None and name in errors:
            error = np.nan_to_num(np.asarray(errors[name], dtype=float))
            ax.fill_between(x, y - error, y + error, color=color, alpha=0.18, lw=0)
        drawn = np.isfinite(x + y)
        # A logarithmic axis has no place for zero.
        for axis, values in (("x", x), ("y", y)):
            if axis in log:
                drawn &= values > 0
        if drawn.any():
            ends.append((x[drawn][-1], y[drawn][-1], name, color))
    style.mark_events(ax, events)
    style.tidy_axes(ax, "y")
    style.label(ax, x_label, y_label, title)
    figure.canvas.draw()
    label_ends(ax, ends)
    return figure
