"""Labels at the ends of lines."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dselectk_keras.plots import style

_TIE = {"arrowstyle": "-", "lw": 0.8, "shrinkA": 2, "shrinkB": 0, "relpos": (0, 0.5)}


def label_ends(ax: Any, ends: Sequence[tuple], x: float = 1.05) -> None:
    """Write labels `(x, y, name, colour)` to the right of axes that were drawn."""
    to_axes = ax.transData + ax.transAxes.inverted()
    heights = [to_axes.transform((x, y))[1] for x, y, _, _ in ends]
    points = ax.get_window_extent().height / ax.figure.dpi * 72
    places = spread_positions(heights, gap=1.25 * style.SMALL_FONT / points)
    for (*end, name, color), place in zip(ends, places, strict=True):
        ax.annotate(
            name,
            xy=end,
            xytext=(x, place),
            textcoords="axes fraction",
            fontsize=style.SMALL_FONT,
            color=style.TEXT,
            va="center",
            annotation_clip=False,
            arrowprops={**_TIE, "color": color},
        )


def spread_positions(positions, gap):
    """The positions in [0, 1], at least `gap` apart, that are nearest to those given.

    Least squares by pooling adjacent violators, after subtracting the gaps. If the
    positions do not fit, the gap shrinks.
    """
    positions = np.asarray(positions, dtype=float)
    if positions.size == 0:
        return positions
    order = np.argsort(positions, kind="stable")
    if len(order) > 1:
        gap = min(gap, 1 / (len(order) - 1))
    steps = gap * np.arange(len(order))

    blocks = []
    for value in positions[order] - steps:
        total, count = value, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            total, count = total + blocks[-1][0], count + blocks[-1][1]
            blocks.pop()
        blocks.append((total, count))
    ascending = np.repeat([t / c for t, c in blocks], [c for _, c in blocks])

    placed = np.empty_like(positions)
    placed[order] = np.clip(ascending, 0, 1 - steps[-1]) + steps
    return placed
