"""The page of the comparison, its pictures, and its lines in docs/choosing.md."""

import pathlib

import numpy as np

from dselectk_keras.plots import style
from research.benches.gate_comparison import no_network
from research.benches.gate_comparison import own as own_gates
from research.benches.gate_comparison.arms import (
    BEST,
    CONTROL,
    FEW_ARMS,
    GATES,
    NORMALIZED,
    NUM_CHOICES,
    OTHER_GATES,
    RECIPE,
)
from research.benches.gate_comparison.bench import (
    ONE_SETTING,
    Gates,
    committed,
    read,
    rows_of,
)
from research.benches.gate_comparison.problems import DECAYS, PROBLEMS, RATES
from research.benches.gate_comparison.statistics import (
    FEWEST_DRAWS,
    errors,
    luck,
    mean_ratio,
    only,
    random_errors,
    ratio,
)
from research.engine.pages import MARK, table
from research.engine.pages import write as write_markdown

SHOWN = [arm for arm in GATES if arm not in NORMALIZED]
FIT, SIDE_BY_SIDE = "chosen by fit", "chosen, side by side"
FEW = """ Some
problems have fewer arms, and mostly fewer settings: {names}. There the best rate is at
an edge in {edge:.0%}. The long ones have no weight decay."""
EARLIER = """ These
results of {} are of earlier rows, which other problems have too."""
# Arms that docs/choosing.md leaves to the page.
NOT_IN_BLOCK = (
    "shared bottom",
    "Top-k",
    "Top-k, wide start",
    "Top-k, side by side",
    "random, side by side",
    "known groups",
    *OTHER_GATES,
)
# Names in docs/choosing.md that differ from those of the page.
IN_BLOCK = {
    RECIPE: "DSelect-k, DecideGates",
    "DSelect-k, entropy": "DSelect-k, entropy penalty",
    "Top-k, dense first": "Top-k, `dense_steps`",
}
TEMPLATE = pathlib.Path(__file__).with_suffix(".md")


def write(folder, names=None):
    """Write the page and its pictures beside the folder `gates` of the results.

    With names, they are of a user's gates on these problems alone: others may have a
    gate from before it was changed. The other arms are those that are committed.
    """
    folder = pathlib.Path(folder)
    every = read(folder / Gates.name)
    if names is not None:
        own = [each for each in every if each.experiment.problem.name in names]
        every = [*map(committed, names), *own]
    if not any(results.runs for results in every):
        raise SystemExit(f"{folder / Gates.name} has no results.")
    rows = rows_of(every)
    figures = {"gatebench": draw(rows), "costs": draw_costs(rows)}
    figures = {f"images/{name}.png": figure for name, figure in figures.items()}
    return write_markdown(
        folder / "gatebench", text_of(every), figures=figures, dpi=250
    )


def text_of(every):
    """The text of the page, of some `Results`."""
    problems = [results.experiment.problem for results in every]
    earlier = [p.name for p in problems if p.first_seed != PROBLEMS[p.name].first_seed]
    return text(rows_of(every), every[-1].environments[-1], earlier)


def text(rows, machine, earlier=()):
    """The text of the page, of the rows and of the environment of a run.

    Args:
        rows: See `rows_of`.
        machine: The environment of a run.
        earlier: The names of problems whose results are of rows that others have.
    """
    by_family = families(rows)
    draws = 1 + max(row["draw"] for row in rows)
    names = [name for found in by_family.values() for name in found]
    few = [name for name in names if PROBLEMS[name].few]
    tuned = [
        row["settings"]
        for row in rows
        if "choices" not in row and row["problem"] not in few
    ]
    page = TEMPLATE.read_text(encoding="utf-8").format(
        machine=machine,
        earlier=EARLIER.format("; ".join(earlier)) if earlier else "",
        problems=len(names),
        real=sum(PROBLEMS[name].real for name in names),
        later=sum(PROBLEMS[name].later for name in names),
        few=FEW.format(names="; ".join(few), edge=rate_edge(rows, few)) if few else "",
        families=len(by_family),
        draws=draws,
        last=draws - 1,
        choices=NUM_CHOICES,
        rates=len(RATES),
        decays=len(DECAYS),
        setting=ONE_SETTING,
        rate_edge=np.mean([each["rate"] in (RATES[0], RATES[-1]) for each in tuned]),
        decay_edge=np.mean([is_largest(each["rate"], each["decay"]) for each in tuned]),
        gates=headline_table(rows),
        by_family=family_table(rows),
        untuned=headline_table(rows, "untuned"),
        untuned_by_family=family_table(rows, "untuned"),
        normalized=normalized_table(rows),
        matters=choices_table(rows),
        fewer=fewer_table(rows, few),
    )
    title, *others = page.split("\n\n")
    against = no_network.paragraphs(rows, SHOWN, (FIT, "softmax"))
    return "\n\n".join([MARK, title, *own_gates.sentences(rows), *against, *others])


def rate_edge(rows, names):
    """The share of the rows of some problems whose rate is at an edge of their own."""
    own = [(r["settings"]["rate"], r["problem"]) for r in rows if r["problem"] in names]
    edges = [(rate, PROBLEMS[name].rates) for rate, name in own]
    return np.mean([rate in (rates[0], rates[-1]) for rate, rates in edges])


def is_largest(rate, decay):
    """True if the grid has no larger weight decay for this learning rate."""
    return not any(decay < other and rate * other < 1 for other in DECAYS)


def families(rows):
    """The names of the problems of each family that have been run."""
    found = {}
    for name in PROBLEMS:
        if any(row["problem"] == name for row in rows):
            found.setdefault(PROBLEMS[name].family, []).append(name)
    return found


def _means(own, others, by_family):
    pairs = [[only(each, n) for each in (own, others)] for n in by_family.values()]
    return [_marked(f"{mean_ratio(*p):.2f}", *p) if p[0] else "" for p in pairs]


# Problems of which the headline is given, too.
PARTS = {
    "all problems": lambda problem: True,  # noqa: ARG005
    "real data": lambda problem: problem.real,
    "made here": lambda problem: not problem.real,
    "added later": lambda problem: problem.later,
}


def part_of(found, part):
    """The errors on the problems of a part; the user's table is in all of them."""
    names = [name for name, problem in PROBLEMS.items() if not PARTS[part](problem)]
    return {key: error for key, error in found.items() if key[0] not in names}


def compared(rows, number):
    """The arms that are shown, with their errors."""
    more = [BEST] if number == "test" else []
    arms = [*own_gates.names_of(rows), *SHOWN, *more]
    found = {arm: errors(rows, arm, number) for arm in arms}
    return {arm: own for arm, own in found.items() if own}


def headline_table(rows, number="test"):
    """The errors of all arms over those of the fit, of all problems and of some."""
    fit, lines = errors(rows, FIT, number), []
    yours, tuned = own_gates.names_of(rows), errors(rows, FIT)
    for arm, own in compared(rows, number).items():
        if arm == FIT and number == "test":
            continue
        kind = "yours" if arm in yours else ("sparse", "dense")[is_dense(arm)]
        parts = [[part_of(each, part) for each in (own, fit)] for part in PARTS]
        cells = [counted(*part) for part in parts]
        if number != "test":
            cells.insert(1, str(ratio(own, tuned)))
        lines.append([arm, kind, *cells])
    titles = list(PARTS)
    if number != "test":
        titles.insert(1, "over the tuned")
    return table(["gate", "", *titles], lines)


def family_table(rows, number="test"):
    """The errors of all arms over those of the fit, in the mean of each family."""
    by_family, fit = families(rows), errors(rows, FIT, number)
    lines = [
        [arm, *_means(own, fit, by_family)]
        for arm, own in compared(rows, number).items()
        if arm != FIT
    ]
    return table(["gate", *by_family], lines)


def counted(own, others):
    """A ratio, and on how many problems it is, if another arm has been run on more."""
    found = ratio(own, others)
    return _marked(found, own, others) if found else ""


def _marked(found, own, others):
    """A ratio, as text, and on how many problems it is, if another has more."""
    numbers = [len({problem for problem, _ in each}) for each in (own, others)]
    plural = "s" if numbers[0] > 1 else ""
    text = "" if numbers[0] >= numbers[1] else f", {numbers[0]} problem{plural}"
    return f"{found}{text}"


def normalized_table(rows):
    """The errors with normalized experts over those without."""
    by_family, lines = families(rows), []
    for arm, plain in NORMALIZED.items():
        if own := errors(rows, arm):
            others = errors(rows, plain)
            means = _means(own, others, by_family)
            lines.append([plain, counted(own, others), *means])
    return table(["gate", "all", *by_family], lines)


def verdict(rows, problem):
    """Judge by intervals if the choice matters: "yes", "no" or "undecided".

    Two draws say hardly anything. Yes is one of several tests, by Bonferroni's
    correction.
    """
    if len({row["draw"] for row in rows if row["problem"] == problem}) < FEWEST_DRAWS:
        return "undecided"
    pairs = [(luck(rows, BEST, problem), luck(rows, CONTROL, problem))]
    pairs += [
        (only(errors(rows, arm), [problem]), random_errors(rows, BEST))
        for arm in ("known groups", FIT)
    ]
    pairs = [pair for pair in pairs if pair[0].keys() & pair[1].keys()]
    # Any of them may say yes by chance; all must say no.
    if any(ratio(*pair, among=len(pairs)).high < 0.98 for pair in pairs):
        return "yes"
    lows = [ratio(*pair).low for pair in pairs]
    return "no" if min(lows, default=0) > 0.95 else "undecided"


def choices_table(rows):
    """For each problem, errors over those of random choices."""
    arms = [BEST, "known groups", FIT, RECIPE, "Top-k, noisy", "softmax"]
    others, lines = random_errors(rows, BEST), []
    for family, names in families(rows).items():
        for name in names:
            if not only(others, [name]):
                continue
            given = [only(errors(rows, arm), [name]) for arm in arms]
            ratios = [mean_ratio(each, others) for each in given]
            one = luck(rows, CONTROL, name)
            ratios.insert(1, mean_ratio(one, dict.fromkeys(one, 1.0)))
            cells = [f"{each:.2f}" if each else "" for each in ratios]
            lines.append([name, family, *cells, verdict(rows, name)])
    arms.insert(1, "one choice")
    return table(["problem", "family", *arms, "does it matter?"], lines)


def fewer_table(rows, names):
    """Errors on problems with fewer arms: of the fit, and those of others over it.

    After the problems of a family is the mean of the family, with an interval.
    """
    fit, columns = errors(rows, FIT), {}
    for name in names:
        columns.setdefault(PROBLEMS[name].family, []).append(name)
    title, draws, of_fit = [""], ["draws"], [FIT]
    lines = {arm: [arm] for arm in FEW_ARMS if arm != FIT}
    for family, own in columns.items():
        title += [*own, family]
        known = [only(fit, [name]) for name in own]
        means = [mean_ratio(each, dict.fromkeys(each, 1.0)) for each in known]
        draws += [*(str(len(each)) for each in known), ""]
        of_fit += [*(f"{mean:.3g}" for mean in means), ""]
        for arm, cells in lines.items():
            found = errors(rows, arm)
            ratios = [mean_ratio(found, each) for each in known]
            cells += [f"{each:.2f}" if each else "" for each in ratios]
            cells.append(str(ratio(found, only(fit, own)) or ""))
    return table(title, [draws, of_fit, *lines.values()])


def block(rows):
    """The results in docs/choosing.md, as a table."""
    fit, lines = errors(rows, FIT), []
    for arm in SHOWN:
        if arm not in (FIT, *NOT_IN_BLOCK):
            own, shown = errors(rows, arm), ("all problems", "real data")
            parts = [[part_of(each, part) for each in (own, fit)] for part in shown]
            cells = (counted(*part) for part in parts)
            lines.append([IN_BLOCK.get(arm, arm), *cells])
    return table(["error / chosen by fit", "all problems", "real data"], lines)


def draw(rows):
    """Draw the errors of all arms over those of the fit, with a point per problem.

    The points of a single problem are its draws. A user's gates are at the top.
    """
    fit, part = errors(rows, FIT), int(len({row["problem"] for row in rows}) == 1)
    yours = own_gates.names_of(rows)
    arms = [arm for arm in [*yours, *SHOWN, BEST] if arm != FIT and errors(rows, arm)]
    arms = [arm for arm in arms if np.isfinite([*errors(rows, arm).values()]).all()]
    arms.sort(key=lambda arm: (arm not in yours, mean_ratio(errors(rows, arm), fit)))
    means = [ratio(errors(rows, arm), fit) for arm in arms]
    points = [ratios_by_part(errors(rows, arm), fit, part) for arm in arms]
    # A few points far away would take most of the axis.
    ends = np.quantile(np.concatenate(points), (0.02, 0.98))
    low = min(1, ends[0], *(mean.low for mean in means)) / 1.02
    high = max(1, ends[1], *(mean.high for mean in means)) * 1.02
    figure, ax = style.open_axes(None, style.PAGE_WIDTH, 1.0 + 0.24 * len(arms))
    small, beyond = {"linestyle": "", "color": style.GREY, "markersize": 4}, False
    kinds = [2 if arm in yours else is_dense(arm) for arm in arms]
    for place, (kind, mean, found) in enumerate(zip(kinds, means, points, strict=True)):
        color = style.COLORS[kind]
        for marker, shown in (
            ("o", found[(found >= low) & (found <= high)]),
            ("<", found[found < low]),
            (">", found[found > high]),
        ):
            if len(shown):
                x, beyond = np.clip(shown, low, high), beyond or marker != "o"
                y = [place] * len(x)
                ax.plot(x, y, marker=marker, clip_on=marker == "o", **small)
        ax.plot([mean.low, mean.high], [place, place], color=color, linewidth=2)
        ax.plot([mean.mean], [place], "o", color=color)
    for kind, label in enumerate(("sparse gate, 95 %", "dense, 95 %", "yours, 95 %")):
        if kind in kinds:
            ax.plot([], [], "-o", color=style.COLORS[kind], linewidth=2, label=label)
    ax.plot([], [], marker="o", label=("one problem", "one draw")[part], **small)
    if beyond:
        ax.plot([], [], marker=">", label="beyond the axis", **small)
    ax.axvline(1, color=style.TEXT, linewidth=0.6)
    ax.set(xscale="log", xlim=(low, high), ylim=(len(arms) - 0.5, -0.5))
    ax.set_yticks(range(len(arms)), arms)
    pyplot = style.import_pyplot()
    # 1, which all is compared with, is a tick of both.
    near = pyplot.MaxNLocator(6, steps=[1, 2, 2.5, 5, 10])
    near = pyplot.FixedLocator(sorted({1.0, *near.tick_values(low, high)}))
    ax.xaxis.set_major_locator(pyplot.LogLocator(2) if high > 3 * low else near)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
    style.label(ax, "test error over that of experts chosen by fit")
    style.tidy_axes(ax, "x")
    look = {"ncols": 5, "frameon": False, "fontsize": style.SMALL_FONT}
    figure.legend(loc="outside upper center", columnspacing=1.0, **look)
    return figure


def is_dense(arm):
    """True if a task uses all experts of an arm."""
    return bool(arm in GATES and GATES[arm].more["dense"])


def ratios_by_part(own, others, part):
    """The mean ratios of errors to others, for each problem (0) or each draw (1)."""
    parts = sorted({key[part] for key in own})
    each = [{key: own[key] for key in own if key[part] == name} for name in parts]
    return np.array([mean for group in each if (mean := mean_ratio(group, others))])


# The arms of the second picture, two of each colour.
WITH_COSTS = {
    FIT: "chosen by fit",
    SIDE_BY_SIDE: "side by side",
    "softmax": "softmax",
    "shared bottom, wide": "wide shared bottom",
    "shared bottom": "shared bottom",
    "shared bottom, pruned": "pruned shared bottom",
    RECIPE: "DSelect-k, recipe",
    "Top-k, noisy": "noisy Top-k",
}


def draw_costs(rows):
    """Draw test errors over those of softmax, a row per family.

    The mean cost of an arm is behind its name.
    """
    by_family, soft = families(rows), errors(rows, "softmax")
    arms = [arm for arm in WITH_COSTS if arm != "softmax"]
    size = {"figsize": (style.PAGE_WIDTH, 1.4 + 0.32 * len(by_family))}
    figure, ax = style.import_pyplot().subplots(layout="constrained", **size)
    for number, arm in enumerate(arms):
        own, cost = errors(rows, arm), errors(rows, arm, "multiplications")
        full = mean_ratio(cost, errors(rows, "softmax", "multiplications"))
        found = [(y, only(own, names)) for y, names in enumerate(by_family.values())]
        pairs = [(mean_ratio(each, soft), y) for y, each in found if each]
        look = {"color": style.COLORS[number % 4], "markersize": 5, "alpha": 0.85}
        marker, label = "os"[number // 4], f"{WITH_COSTS[arm]}: {full:.2f}"
        ax.plot(*zip(*pairs, strict=True), marker, label=label, **look)
    ax.axvline(1, color=style.TEXT, linewidth=0.6)
    ax.set(xscale="log", ylim=(len(by_family) - 0.5, -0.5))
    ax.set_yticks(range(len(by_family)), list(by_family))
    ticks = (0.5, 0.6, 0.8, 1, 1.25, 1.5, 2)
    low, high = ax.get_xlim()
    ax.set_xticks([tick for tick in ticks if low < tick < high])
    ax.xaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
    style.label(ax, "test error / softmax (lower is better)")
    style.tidy_axes(ax, "both")
    look = {"fontsize": style.SMALL_FONT, "title_fontsize": style.SMALL_FONT}
    title = "method: its mean cost / softmax"
    place = {"loc": "outside lower center", "ncols": 2, "frameon": False}
    figure.legend(title=title, **place, **look)
    return figure
