"""The picture of the benchmark: the package against a plain model."""

import math

from dselectk_keras.plots.style import (
    COLORS,
    FONT,
    PAGE_WIDTH,
    SMALL_FONT,
    TEXT,
    import_pyplot,
    tidy_axes,
)


def draw_ratios(ratios, goal):
    """A panel per measurement, a row per workload, and a mark per backend.

    Args:
        ratios: A dict of dicts: workload, then (measurement, backend).
        goal: Where the line is drawn.

    Returns:
        A matplotlib figure.
    """
    plt = import_pyplot()
    size = PAGE_WIDTH, 0.9 + 0.24 * len(ratios)
    figure, axes = plt.subplots(
        1, 3, figsize=size, layout="constrained", sharex=True, sharey=True
    )
    backends = sorted({backend for found in ratios.values() for _, backend in found})
    for ax, what in zip(axes, ("fit", "predict", "call"), strict=True):
        ax.axvline(goal, color=TEXT, linewidth=0.8)
        for backend, color, marker in zip(backends, COLORS, "osD", strict=False):
            values = [each.get((what, backend), math.nan) for each in ratios.values()]
            ax.plot(values, range(len(values)), marker, color=color, label=backend)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter(plt.ScalarFormatter())
        ax.set_title(what, fontsize=FONT, loc="left")
        ax.margins(x=0.1)
        tidy_axes(ax, grid="y")
    axes[0].set_yticks(range(len(ratios)), ratios)
    axes[0].invert_yaxis()  # The first row on top.
    figure.supxlabel("time of the package / time of the plain model", fontsize=FONT)
    place = {"loc": "outside upper right", "ncols": len(backends), "frameon": False}
    labels = axes[0].get_legend_handles_labels()
    figure.legend(*labels, fontsize=SMALL_FONT, **place)
    return figure
