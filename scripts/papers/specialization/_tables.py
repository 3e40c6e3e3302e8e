"""Expert selection tables, drawn."""

import numpy as np

from papers import drawing

SHARE = "share of the images of a class"
USED = 0.01  # An expert is used if it is chosen for this share of the images.


def draw_table(ax, table, class_names=None):
    """What share of each class chooses each expert, as shades.

    Experts are put in the order of the classes that they get, unused ones last.

    Args:
        ax: Matplotlib axes.
        table: An array (classes, experts) of counts.
        class_names: A name for each class. Defaults to `None`: numbers.
    """
    table = in_order(np.asarray(table, dtype=float))
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    count, width = shares.shape
    ax.pcolormesh(
        shares,
        cmap="Blues",
        vmin=0,
        vmax=1,
        edgecolors="white",
        linewidth=0.5,
    )
    ax.set_ylim(count, 0)
    ax.set_xticks(np.arange(width) + 0.5, np.arange(1, width + 1))
    names = range(count) if class_names is None else class_names
    ax.set_yticks(np.arange(count) + 0.5, names)
    ax.tick_params(labelsize=drawing.SMALL_FONT, length=0)
    for spine in ax.spines.values():
        spine.set(color=drawing.GREY, linewidth=0.6)


def in_order(table):
    """The table with its experts in the order of the classes that they get.

    Args:
        table: An array (classes, experts) of counts.

    Returns:
        An array of the same shape.

    Example:
        >>> in_order(np.array([[0, 0, 4], [1, 0, 3], [5, 0, 0]])).tolist()
        [[4, 0, 0], [3, 1, 0], [0, 5, 0]]
    """
    table = np.asarray(table)
    totals = table.sum(axis=0)
    places = np.arange(len(table)) @ table / np.maximum(totals, 1)
    there = totals >= USED * totals.sum()
    return table[:, np.argsort(np.where(there, places, np.inf), kind="stable")]
