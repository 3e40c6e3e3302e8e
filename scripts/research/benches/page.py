"""The pages of the benches: their template, tables of ratios, and pictures of them."""

import collections
import json
import pathlib

import numpy as np

from dselectk_keras.plots import style
from research.benches.bench import rows_of
from research.benches.statistics import by_problem, log_ratios, only, ratio
from research.engine import pages

SMALL = {"linestyle": "", "color": style.GREY, "markersize": 4}
TICKS = 0.1, 0.2, 0.5, 1, 2, 5, 10  # Of a long axis.


def write(folder, bench, page):
    """Write the page of a bench, and its picture, beside the folder of its results.

    Args:
        folder: The folder of the page.
        bench: The class of the bench.
        page: The module of its page, with functions `text` and `draw`.
    """
    every, folder = bench.read(folder), pathlib.Path(folder)
    if not any(results.runs for results in every.values()):
        raise SystemExit(f"{folder / bench.name} has no results.")
    figures = {f"images/{page.NAME}.png": page.draw(rows_of(every.values()))}
    return pages.write(folder / page.NAME, page.text(every), figures=figures, dpi=200)


def fill(module, **names):
    """The text of a page, by the template beside the file of a module."""
    template = pathlib.Path(module).with_suffix(".md").read_text(encoding="utf-8")
    return f"{pages.MARK}\n{template.format(**names)}"


def machine_of(every):
    """The environment of most runs of some `Results`."""
    found = collections.Counter(
        json.dumps(results.environments[run.environment])
        for results in every
        for run in results.runs
    )
    return json.loads(found.most_common(1)[0][0])


def cells(own, others, parts, form=""):
    """Ratios of errors to others, on parts of the problems, as text.

    Where others have been run on more problems, a cell says on how many.

    Args:
        own: Errors.
        others: Errors.
        parts: Lists of the names of problems.
        form: The format of a `Ratio`.
    """
    found = []
    for names in parts:
        pair = only(own, names), only(others, names)
        counts = [len({problem for _, problem, _ in each}) for each in pair]
        text = format(ratio(*pair), form)
        if text and counts[0] < counts[1]:
            text += f", {counts[0]} problem{'s' * (counts[0] > 1)}"
        found.append(text)
    return found


def draw(panels, colors, overlap=0.0):
    """Draw errors over others, an arm per row: mean, interval and a point per problem.

    The points of a single problem are its draws. Points far away are at the edge.

    Args:
        panels: A dict from a title and a label to a dict of errors by arm, and those
            with which they are compared. The arms are in the order of their means in
            the first panel.
        colors: A dict from entries of the legend to the arms of a color.
        overlap: Of the draws of a single problem; see `Problem`.
    """
    every = [
        {
            arm: (ratio(each, others, overlap=overlap), log_ratios(each, others))
            for arm, each in own.items()
        }
        for own, others in panels.values()
    ]
    every = [{a: f for a, f in own.items() if np.isfinite(f[0].mean)} for own in every]
    arms = sorted(every[0], key=lambda arm: every[0][arm][0].mean)
    size = {"figsize": (style.PAGE_WIDTH, 1.2 + 0.23 * len(arms)), "sharey": True}
    shape = {"squeeze": False, "layout": "constrained"}
    figure, axes = style.import_pyplot().subplots(1, len(panels), **shape, **size)
    shown = zip(axes[0], panels, every, strict=True)
    beyond = [_panel(ax, arms, own, colors, *title) for ax, title, own in shown]
    ax, logs = axes[0, 0], next(iter(every[0].values()))[1]
    ax.set_yticks(range(len(arms)), arms)
    for number, (text, own) in enumerate(colors.items()):
        if any(arm in own for arm in arms):
            color = style.COLORS[number]
            ax.plot([], [], "-o", color=color, linewidth=2, label=text)
    is_one = len({problem for _, problem, _ in logs}) == 1
    ax.plot([], [], "o", label="one draw" if is_one else "one problem", **SMALL)
    if any(beyond):
        ax.plot([], [], ">", label="beyond the axis", **SMALL)
    ncols = 3 if len(ax.get_legend_handles_labels()[0]) > 4 else 4
    look = {"ncols": ncols, "frameon": False, "fontsize": style.SMALL_FONT}
    figure.legend(loc="outside upper center", columnspacing=1.0, **look)
    return figure


def _panel(ax, arms, found, colors, title, label):
    """Draw a panel; return whether a point is beyond its axis."""
    points = {
        arm: np.exp([*by_problem(logs).values()]) for arm, (_, logs) in found.items()
    }
    ends = np.quantile(np.concatenate([*points.values()]), (0.02, 0.98))
    low = min(1, ends[0], *(mean.low for mean, _ in found.values())) / 1.05
    high = max(1, ends[1], *(mean.high for mean, _ in found.values())) * 1.05
    for arm, own in points.items():
        place, (mean, _) = arms.index(arm), found[arm]
        for marker, shown in (
            ("o", own[(own >= low) & (own <= high)]),
            ("<", own[own < low]),
            (">", own[own > high]),
        ):
            if len(shown):
                x, y = np.clip(shown, low, high), [place] * len(shown)
                ax.plot(x, y, marker, clip_on=marker == "o", **SMALL)
        number = next(i for i, names in enumerate(colors.values()) if arm in names)
        look = {"color": style.COLORS[number], "linewidth": 2}
        ax.plot([mean.low, mean.high], [place, place], **look)
        ax.plot([mean.mean], [place], "o", **look)
    ax.axvline(1, color=style.TEXT, linewidth=0.6)
    ax.set(xscale="log", xlim=(low, high), ylim=(len(arms) - 0.5, -0.5))
    # 1, which all is compared with, is a tick.
    near = style.import_pyplot().MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
    ticks = TICKS if high > 3 * low else sorted({1.0, *near.tick_values(low, high)})
    ax.set_xticks([tick for tick in ticks if low <= tick <= high])
    ax.xaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
    style.label(ax, label, title=title)
    style.tidy_axes(ax, "x")
    return any(((own < low) | (own > high)).any() for own in points.values())
