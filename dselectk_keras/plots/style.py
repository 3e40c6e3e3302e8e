"""Colours, sizes and names that all figures share, and the import of matplotlib."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from dselectk_keras.utils import (
    check_type,
    convert,
    optional_import,
)

# Okabe and Ito's colours, which colour-blind readers can distinguish, without the
# yellow, which is too pale on white. The darkest come first.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
LINE_STYLES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
GREY = "#BDBDBD"
TEXT = "#333333"

COLUMN_WIDTH = 3.3  # inches, one column of a two-column paper
PAGE_WIDTH = 5.5  # the text of a one-column paper; on the site, text of 12 points
FONT = 9
SMALL_FONT = 8


def import_pyplot() -> Any:
    """`matplotlib.pyplot`, or an error that says how to install it."""
    return optional_import("matplotlib.pyplot", extra="plots", purpose="Plotting")


def check_names(
    argument: str, given: Sequence[Any] | None, count: int, default: str
) -> list[str]:
    """The given names, or numbered default names, with a check of their number."""
    if given is None:
        return [f"{default} {i}" for i in range(count)]
    check_type(argument, given, Collection, "a list of names")
    if len(given) != count:
        raise ValueError(
            f"`{argument}` must hold one name for each of the {count} {default}s. "
            f"Received {len(given)}: {list(given)!r}. "
            "Give one name each, or None for numbers."
        )
    return [str(name) for name in given]


def list_events(events: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    """The pairs of an x and a text, or an error."""
    return convert("events", events, lambda pairs: [(float(x), s) for x, s in pairs])


def open_axes(ax: Any, width: float, height: float) -> Any:
    """The figure of some axes and the axes; `None` makes new ones, sized in inches."""
    plt = import_pyplot()
    if ax is None:
        return plt.subplots(figsize=(width, height), layout="constrained")
    return ax.figure, ax


def label(ax: Any, x: str = "", y: str = "", title: str | None = None) -> None:
    """Name the axes of a panel, and the panel; an empty text is left out."""
    for text, write in ((x, ax.set_xlabel), (y, ax.set_ylabel)):
        if text:
            write(text, fontsize=FONT)
    if title:
        write_title(ax, title, fontsize=FONT, loc="left")


def write_title(ax: Any, title: str, **options: Any) -> None:
    """Write a title, above the texts of events if there are any."""
    ax.set_title(title, pad=6 + 1.5 * SMALL_FONT * bool(ax.texts), **options)


def mark_events(ax: Any, events: Iterable[tuple[float, str]]) -> None:
    """Draw a vertical line for each pair of an x and a text, with the text above it."""
    for x, text in list_events(events):
        ax.axvline(x, color=TEXT, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
        ax.annotate(
            text,
            # Inside of the axes it would run over the lines.
            xy=(x, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            fontsize=SMALL_FONT,
            color=TEXT,
            ha="center",
            va="bottom",
        )


def save_figure(figure: Any, path: Any, dpi: int, **options: Any) -> None:
    """Write a figure to a file, without margins, and close it."""
    figure.savefig(path, dpi=dpi, bbox_inches="tight", **options)
    import_pyplot().close(figure)


def tidy_axes(ax: Any, grid: str | None = None) -> None:
    """Use small text and thin lines, remove the box, and mark ticks of one axis."""
    if grid is not None:
        ax.grid(axis=grid, color="#EBEBEB", linewidth=0.5)
        ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set(color=TEXT, linewidth=0.6)
    ax.tick_params(labelsize=SMALL_FONT, length=2.5, width=0.6, color=TEXT)
