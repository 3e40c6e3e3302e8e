"""The picture of the mean ranks."""

import numpy as np

from dselectk_keras.plots.style import COLORS, import_pyplot, tidy_axes


def draw_ranks(methods, ranks, distance):
    """Draw mean ranks as points, and the critical difference from the best as a bar.

    Args:
        methods: Names of the methods.
        ranks: Their mean ranks.
        distance: The critical difference.

    Returns:
        A matplotlib figure.
    """
    plt = import_pyplot()
    order = np.argsort(ranks)[::-1]
    figure, axes = plt.subplots(figsize=(7.0, 0.6 + 0.3 * len(order)))
    best = ranks.min()
    axes.axvspan(best, best + distance, color=COLORS[0], alpha=0.15, linewidth=0)
    axes.plot(ranks[order], range(len(order)), "o", color=COLORS[0])
    axes.set_yticks(range(len(order)), [methods[i] for i in order])
    axes.set_xlabel("mean rank; shaded: not significantly worse than the best")
    tidy_axes(axes)
    figure.tight_layout()
    return figure
