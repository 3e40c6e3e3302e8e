"""What the papers' pictures share: the style of the package's plots, and panels."""

from dselectk_keras.plots.style import (
    COLORS,
    FONT,
    GREY,
    PAGE_WIDTH,
    SMALL_FONT,
    TEXT,
    import_pyplot,
    label,
    tidy_axes,
)

__all__ = [
    "COLORS",
    "FONT",
    "GREY",
    "PAGE_WIDTH",
    "SMALL_FONT",
    "TEXT",
    "color_bar",
    "import_pyplot",
    "label",
    "panels",
    "tidy_axes",
]


def panels(rows, columns, height, width=1.0, **shared):
    """A figure with panels.

    Args:
        rows: How many rows of panels.
        columns: How many panels in a row.
        height: Of the figure, in inches.
        width: Of the figure, as a share of a page's.
        **shared: `sharex`, `sharey` and `width_ratios`, as matplotlib has them.

    Returns:
        A figure, and an array `(rows, columns)` of axes.
    """
    return import_pyplot().subplots(
        rows,
        columns,
        figsize=(width * PAGE_WIDTH, height),
        squeeze=False,
        layout="constrained",
        **shared,
    )


def color_bar(figure, mesh, axes, text, **options):
    """Explain the colors of panels by a bar beside them.

    Args:
        figure: The figure.
        mesh: What matplotlib has drawn in these colors.
        axes: The panels.
        text: What the colors mean.
        **options: Further arguments of `figure.colorbar`.
    """
    bar = figure.colorbar(mesh, ax=axes, fraction=0.03, **options)
    bar.set_label(text, fontsize=FONT)
    bar.ax.tick_params(labelsize=SMALL_FONT, length=2)
    bar.outline.set_visible(False)
