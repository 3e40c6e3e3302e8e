"""Expert selection tables: what they say, and how they are drawn."""

import numpy as np

from research.engine import drawing

SHARE = "share of the images of a class"
USED = 0.01  # An expert is used if it is chosen for this share of the images.


def are_used(tables):
    """A mask of the experts in use, of counts (..., classes, experts)."""
    totals = np.sum(tables, axis=-2)
    return totals >= USED * totals.sum(axis=-1, keepdims=True)


def draw_table(ax, table):
    """Draw the share of each class that chooses each expert, as shades."""
    table = in_order(np.asarray(table, dtype=float))
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    count, width = shares.shape
    edges = {"edgecolors": "white", "linewidth": 0.5}
    ax.pcolormesh(shares, cmap="Blues", vmin=0, vmax=1, **edges)
    ax.set_ylim(count, 0)
    ax.set_xticks(np.arange(width) + 0.5, np.arange(1, width + 1))
    ax.set_yticks(np.arange(count) + 0.5, range(count))
    ax.tick_params(labelsize=drawing.SMALL_FONT, length=0)
    ax.spines[:].set(color=drawing.GREY, linewidth=0.6)


def in_order(table):
    """The table with its experts in the order of their classes, unused ones last."""
    places = np.arange(len(table)) @ table / np.maximum(table.sum(axis=0), 1)
    places = np.where(are_used(table), places, np.inf)
    return table[:, np.argsort(places, kind="stable")]
