"""What the pictures share: colours, sizes, names and the import of matplotlib."""

from dselectk_keras.utils import optional_import

# Okabe and Ito's colours, told apart by colour-blind readers; without the yellow,
# which is lost on white paper. The darkest come first.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
LINE_STYLES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
GREY = "#BDBDBD"
TEXT = "#333333"

COLUMN_WIDTH = 3.3  # inches, one column of a two-column paper
PAGE_WIDTH = 6.9
FONT = 8
SMALL_FONT = 7


def import_pyplot():
    """`matplotlib.pyplot`, or an error that says how to get it."""
    return optional_import("matplotlib.pyplot", extra="plots", purpose="Plotting")


def check_names(argument, given, count, default):
    """The names given, or default names; an error if they do not fit."""
    if given is None:
        return [f"{default} {i}" for i in range(count)]
    if len(given) != count:
        raise ValueError(
            f"`{argument}` must hold one name for each of the {count} {default}s. "
            f"Received {len(given)}: {list(given)!r}. "
            "Give one name each, or None for numbers."
        )
    return [str(name) for name in given]


def tidy_axes(ax):
    """Small text, thin lines, no box."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set(color=TEXT, linewidth=0.6)
    ax.tick_params(labelsize=SMALL_FONT, length=2.5, width=0.6, color=TEXT)
