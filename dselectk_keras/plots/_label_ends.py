"""The names of lines, at their ends."""

from dselectk_keras.plots import style
from dselectk_keras.plots._spread import spread


def label_ends(ax, ends, x=1.05):
    """Write names to the right of the axes, moved apart, each tied to its line.

    The figure has been drawn, so that the axes have their range and their place.

    Args:
        ax: matplotlib axes.
        ends: A list of the x and y of an end, a name and a colour.
        x: Where the names begin, in widths of the axes.
    """
    to_axes = ax.transData + ax.transAxes.inverted()
    heights = [to_axes.transform((x, y))[1] for x, y, _, _ in ends]
    points = ax.get_window_extent().height / ax.figure.dpi * 72
    places = spread(heights, gap=1.25 * style.SMALL_FONT / points)
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
