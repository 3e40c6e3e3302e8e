"""The papers' pictures: the style of the package's plots, and panels."""

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
    """A figure with panels, and an array `(rows, columns)` of axes.

    The height is in inches, the width is a share of a page's. `sharex`, `sharey` and
    `width_ratios` are those of matplotlib.
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
    """Explain the colors of a mesh in panels by a bar beside them."""
    bar = figure.colorbar(mesh, ax=axes, fraction=0.03, **options)
    bar.set_label(text, fontsize=FONT)
    bar.ax.tick_params(labelsize=SMALL_FONT, length=2)
    bar.outline.set_visible(False)
