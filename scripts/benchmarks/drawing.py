"""The picture of the benchmark: the package against a plain model."""

from dselectk_keras.plots.style import (
    COLORS,
    FONT,
    PAGE_WIDTH,
    SMALL_FONT,
    TEXT,
    import_pyplot,
    tidy_axes,
)

MARKERS = "o", "s", "D"


def draw_ratios(ratios, goal):
    """A panel per measurement, a row per workload, and a mark per backend.

    Args:
        ratios: A dict of dicts: workload, then (measurement, backend).
        goal: Where the line is drawn.

    Returns:
        A matplotlib figure.
    """
    plt = import_pyplot()
    pairs = {pair for found in ratios.values() for pair in found}
    panels = [what for what in ("fit", "predict", "call") if what in dict(pairs)]
    backends = sorted({backend for _, backend in pairs})
    figure, axes = plt.subplots(
        1,
        len(panels),
        figsize=(PAGE_WIDTH, 0.9 + 0.24 * len(ratios)),
        layout="constrained",
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for ax, what in zip(axes[0], panels, strict=True):
        ax.axvline(goal, color=TEXT, linewidth=0.8)
        for backend, color, marker in zip(backends, COLORS, MARKERS, strict=False):
            rows = [
                (found[what, backend], row)
                for row, found in enumerate(ratios.values())
                if (what, backend) in found
            ]
            if rows:
                ax.plot(*zip(*rows, strict=True), marker, color=color, label=backend)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter(plt.ScalarFormatter())
        ax.set_title(what, fontsize=FONT, loc="left")
        tidy_axes(ax, grid="y")
    axes[0, 0].set_yticks(range(len(ratios)), ratios)
    axes[0, 0].set_ylim(len(ratios) - 0.5, -0.5)  # The first row on top.
    least, most = (
        f(v for d in ratios.values() for v in d.values()) for f in (min, max)
    )
    axes[0, 0].set_xlim(least / 1.15, most * 1.15)
    figure.supxlabel("time of the package / time of the plain model", fontsize=FONT)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside upper right",
        ncols=len(backends),
        frameon=False,
        fontsize=SMALL_FONT,
    )
    return figure
