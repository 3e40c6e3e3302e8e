"""Labels at the ends of lines."""

from collections.abc import Sequence
from typing import Any

from dselectk_keras.plots import style
from dselectk_keras.plots._spread import spread_positions


def label_ends(ax: Any, ends: Sequence[tuple], x: float = 1.05) -> None:
    """Write labels to the right of the axes without overlap, tied to their lines.

    Each end has the x and y of a line's end, a name and a colour. The figure must have
    been drawn, so that the range of the axes is known.
    """
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
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "linewidth": 0.8,
                "shrinkA": 2,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )
