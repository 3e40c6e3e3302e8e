"""The page of the comparison of routers, and its picture."""

import pathlib
from typing import Any

import numpy as np

from dselectk_keras.plots import style
from research.benches.gate_comparison.statistics import (
    FEWEST_DRAWS,
    errors,
    mean_ratio,
    only,
    ratio,
)
from research.benches.router_comparison import bench
from research.benches.router_comparison.arms import (
    DECAYS,
    DENSE,
    KNOWN,
    ONE,
    RATES,
    ROUTERS,
    SMEAR,
    SWITCH,
    UNITS,
    VARIANTS,
    WIDE,
)
from research.benches.router_comparison.bench import Routers, multiplications
from research.benches.router_comparison.problems import PROBLEMS
from research.benches.router_comparison.training import BATCH_SIZE, STEPS
from research.engine.pages import MARK, table
from research.engine.pages import write as write_markdown
from research.engine.search import best_settings

TEMPLATE = pathlib.Path(__file__).with_suffix(".md")
KINDS = {
    "regions": "generated, with regions",
    "no regions": "generated, without",
    "images": "images with domains",
    "real": "real tables",
}
SHOWN = {kind: KINDS[kind] for kind in ("regions", "real")}
# Learned routers that serve one or two experts.
ROUTED = [
    name
    for name, arm in ROUTERS.items()
    if arm.more["k"] and not arm.more["tag"] and name not in VARIANTS
]
# By the number of experts at serving: ours, and those that cost as much or less.
OURS = {1: "by losses, 1", 2: "by losses, 2"}
NOT_PACKAGED = *OURS.values(), "softmax, annealed", "ReMoE"
IN_PACKAGE = [name for name in ROUTED if name not in NOT_PACKAGED]
SIZES = 16, 8, 1  # Inputs, experts and outputs, for the costs.


def cost(arm, sizes=SIZES, training=False):
    """The multiplications of an arm over those of one expert."""
    own, one = (multiplications(each, *sizes, training=training) for each in (arm, ONE))
    return own / one


OTHERS = {
    k: [
        name
        for name, arm in ROUTERS.items()
        if arm.architecture != "losses" and name != KNOWN and cost(name) <= cost(ours)
    ]
    for k, ours in OURS.items()
}

# By the number of experts at serving.
RUN = {1: "runs one expert, 95 %", 2: "two", 0: "all"}
TICKS = 0.1, 0.2, 0.5, 1, 2, 5, 10  # Of a long axis.

WHICH = """\
- **Which router?** Of the package's that run one or two experts, {regions} has the
  lowest error where generated inputs have regions, and {real} on real tables. Not
  clearly worse than the first: {near_regions}; than the second: {near_real}."""
WORTH = """\
- **What is it worth?** With regions, {arm} has {regions} times the test error of one
  expert, and on real tables {real}, at {serving:.1f} times its cost at serving and
  {training:.1f} in training; one wide expert has {wide_regions} and {wide_real}, at
  {wide:.1f} times both costs."""
ENOUGH = """\
- **When is one expert enough?** On {enough} of {problems} problems{names}; on {better},
  the best router that runs one or two experts is better. A wide expert is as good as
  it on {wider} of these{wider_names}."""

SHORT = """\
A router of the package is better than one expert on {better} of {problems} problems;
a wide expert is as good on {wider} of these. On {enough}, one expert is enough."""
IN_BLOCK = {"Top-2": "`TopKGate(2)`", SWITCH: "`SwitchGate`", WIDE: WIDE}


def write(folder, _=None):
    """Write the page beside the folder of the results, and its picture."""
    folder = pathlib.Path(folder)
    every = read(folder)
    if not every:
        raise SystemExit(f"{folder} has no results of all routers on a problem.")
    rows = rows_of(every)
    figure = draw({title: in_kind(rows, kind) for kind, title in SHOWN.items()})
    figures = {"images/routers.png": figure}
    return write_markdown(folder, text(every), figures=figures, dpi=200)


def read(folder):
    """The `Results` of the problems on which all arms have been run, by name."""
    return {
        name: results
        for name, results in bench.read(folder).items()
        if results.complete
    }


def rows_of(every):
    """The reported runs, as dicts with the errors on validation and test."""
    return [
        {"problem": name, "arm": run.arm, "draw": run.seed, **run.numbers}
        for name, results in every.items()
        for run in results.runs
        if not run.tuning and run.numbers["test"] is not None
    ]


def best_rows(rows, arms):
    """The row of the arm with the lowest validation error, for each draw."""
    best: dict[tuple, Any] = {}
    for row in rows:
        key = row["problem"], row["draw"]
        known = row["arm"] in arms and row["objective"] is not None
        if known and (key not in best or row["objective"] < best[key]["objective"]):
            best[key] = row
    return best


def best_of(rows, arms):
    """The test errors of the arm with the lowest validation error, for each draw."""
    return {key: row["test"] for key, row in best_rows(rows, arms).items()}


def in_kind(rows, kind):
    """The rows of problems of a kind."""
    return [row for row in rows if PROBLEMS[row["problem"]].kind == kind]


def of_kind(errors, kind):
    """The errors on problems of a kind."""
    return {k: value for k, value in errors.items() if PROBLEMS[k[0]].kind == kind}


def enters(rows, k):
    """The rule for the package: two ratios of our router, and whether it holds.

    On generated problems with regions, the error over that of the best other router
    that costs as much or less must be below 0.9, with its interval. On real ones, the
    error over that of the better of Switch and SMEAR must be 1.02 at most.
    """
    ours = errors(rows, OURS[k])
    regions = ratio(of_kind(ours, "regions"), best_of(rows, OTHERS[k]))
    real = ratio(of_kind(ours, "real"), best_of(rows, (SWITCH, SMEAR)))
    holds = None
    if regions and real:
        holds = regions.high < 0.9 and real.mean <= 1.02
    return regions, real, holds


def is_one_enough(rows, problem):
    """A word that says if one expert is as good as routers that run one or two.

    It is the expert that costs as much.
    """
    best = best_rows([row for row in rows if row["problem"] == problem], ROUTED)
    others = {key: row["test"] for key, row in best.items()}
    return is_as_good(rivals(rows, best), others)


def rivals(rows, best):
    """The errors of the largest dense expert that costs no more than each of some rows.

    Args:
        rows: The rows of `rows_of`.
        best: A dict of rows by problem and draw.
    """
    dense, found = {cost(arm): errors(rows, arm) for arm in (ONE, *DENSE)}, {}
    for key, row in best.items():
        most = cost(row["arm"])
        if known := [each for each in dense if each <= most and key in dense[each]]:
            found[key] = dense[max(known)][key]
    return found


def does_width_do(rows, problem):
    """A word that says if one wide expert is as good as routers of one or two."""
    return is_as_good(errors(rows, WIDE), only(best_of(rows, ROUTED), [problem]))


def is_as_good(own, others):
    """Judge if errors are as low as others, by the interval over the draws.

    It is `"yes"` if the interval of the others over them is above 0.98, `"no"`
    if it is below, else `"undecided"`, as with fewer than `FEWEST_DRAWS` draws.
    """
    found = ratio(others, own)
    if found is None or len(own.keys() & others.keys()) < FEWEST_DRAWS:
        return "undecided"
    if found.high < 0.98:
        return "no"
    return "yes" if found.low > 0.98 else "undecided"


def text(every):
    """The text of the page."""
    rows = rows_of(every)
    runs = [run for results in every.values() for run in results.runs]
    taken = [
        best_settings(results.of(arm, tuning=True))[0]
        for results in every.values()
        for arm in results.experiment.arms
        if results.of(arm, tuning=True)
    ]
    machines = [each for results in every.values() for each in results.environments]
    kinds = [PROBLEMS[name].kind for name in every]
    rules, found = [rule(rows, k) for k in OURS], verdicts(rows)
    page = TEMPLATE.read_text(encoding="utf-8").format(
        problems=len(every),
        all_problems=len(PROBLEMS),
        counts="; ".join(f"{kinds.count(k)} {KINDS[k]}" for k in KINDS if k in kinds),
        draws=draws_of(rows),
        units=UNITS,
        batch=BATCH_SIZE,
        stages=Routers.stages,
        steps=Routers.stages * STEPS,
        rates=", ".join(f"{rate:g}" for rate in RATES),
        decays=", ".join(f"{decay:g}" for decay in DECAYS),
        rate_edge=np.mean([each["rate"] in (RATES[0], RATES[-1]) for each in taken]),
        decay_edge=np.mean([each["decay"] == DECAYS[-1] for each in taken]),
        routers=routers_table(rows),
        by_problem=problems_table(rows, found),
        answers=answers(rows, found),
        enough=enough(found),
        rules="\n".join(rules),
        variants=variants_table(rows),
        trainings=len(runs),
        machine=machines[-1],
    )
    return f"{MARK}\n{page}"


def answers(rows, found):
    """Three sentences: which router, what it is worth, when one expert is enough.

    Args:
        rows: The rows of `rows_of`.
        found: Their `verdicts`.
    """
    one, wide = errors(rows, ONE), errors(rows, WIDE)
    best = {kind: lowest(in_kind(rows, kind)) for kind in SHOWN}
    arm = next((each[0] for each in best.values() if each), SWITCH)
    which = {kind: listed(each[:1]) for kind, each in best.items()}
    which |= {f"near_{kind}": listed(each[1:]) for kind, each in best.items()}
    worth = {
        name: ratio(of_kind(each, kind), one) or "an unknown number of"
        for kind in SHOWN
        for name, each in ((kind, errors(rows, arm)), (f"wide_{kind}", wide))
    }
    costs = {"serving": cost(arm), "training": cost(arm, training=True)}
    alone, better, wider = named(found)
    said = ENOUGH.format(
        enough=len(alone),
        problems=len(found),
        names=f" ({', '.join(alone)})" if alone else "",
        better=len(better),
        wider=len(wider) or "none",
        wider_names=f" ({', '.join(wider)})" if wider else "",
    )
    worth = WORTH.format(arm=listed([arm]), **worth, **costs, wide=cost(WIDE))
    return "\n".join([WHICH.format(**which), worth, said])


def block(rows):
    """A table of few routers, and how often one expert is enough, for another page."""
    one, lines = errors(rows, ONE), []
    for arm, name in IN_BLOCK.items():
        own = errors(rows, arm)
        lines.append([name, *(str(ratio(of_kind(own, kind), one)) for kind in SHOWN)])
    found = verdicts(rows)
    enough, better, wider = map(len, named(found))
    counts = {"enough": enough, "better": better, "wider": wider or "none"}
    said = SHORT.format(problems=len(found), **counts)
    return f"{table(['error / one expert', *SHOWN.values()], lines)}\n\n{said}"


def lowest(rows):
    """The package's router with the lowest error, and those not told from it."""
    one = errors(rows, ONE)
    found = {arm: own for arm in IN_PACKAGE if (own := errors(rows, arm))}
    order = sorted(found, key=lambda arm: mean_ratio(found[arm], one))
    return [arm for arm in order if ratio(found[arm], found[order[0]]).low <= 1]


def listed(arms):
    """The names of arms, which have commas."""
    return ", ".join(f"*{arm}*" for arm in arms) or "none"


def draws_of(rows):
    """The number of draws of a problem, as text: the fewest and the most."""
    names = {row["problem"] for row in rows}
    numbers = [len({r["draw"] for r in rows if r["problem"] == n}) for n in names]
    return " to ".join(map(str, sorted({min(numbers), max(numbers)})))


def rule(rows, k):
    """The verdict of the rule for the package, for a number of experts at serving."""
    regions, real, holds = enters(rows, k)
    words = {True: "holds", False: "does not hold", None: "cannot be decided"}
    done = {row["problem"] for row in rows}
    said = words[holds] + (" so far" if len(done) < len(PROBLEMS) else "")
    first, second = (each or "not known" for each in (regions, real))
    return (
        f"- **{k} at serving**: {first} of the best other router with regions, "
        f"{second} of the better of Switch and SMEAR on real tables. The rule {said}."
    )


def verdicts(rows):
    """For each problem, whether one expert is enough, and whether a wide one is."""
    names = dict.fromkeys(row["problem"] for row in rows)
    return {
        name: (is_one_enough(rows, name), does_width_do(rows, name)) for name in names
    }


def named(found):
    """The problems on which one is enough, is not, and of these, a wide one is."""
    alone, better = (
        [name for name in found if found[name][0] == word] for word in ("yes", "no")
    )
    return alone, better, [name for name in better if found[name][1] == "yes"]


def enough(found):
    """For which problems one expert is enough, as text."""
    parts = []
    for word, said in (("yes", "enough"), ("no", "not enough"), ("undecided",) * 2):
        if names := [name for name in found if found[name][0] == word]:
            parts.append(f"**{said}**: {', '.join(names)}")
    return f"It is {'; '.join(parts)}."


def routers_table(rows):
    """Cost and error of each arm, over those of one expert."""
    one, lines = errors(rows, ONE), []
    for arm in ROUTERS:
        if not (own := errors(rows, arm)):
            continue
        costs = [f"{cost(arm, training=each):.1f}" for each in (False, True)]
        cells = [str(ratio(of_kind(own, kind), one) or "") for kind in SHOWN]
        lines.append([arm, *costs, *cells])
    heads = ["router", "cost at serving", "in training", *SHOWN.values()]
    return table(heads, lines)


def variants_table(rows):
    """The errors of the variants of our router with one expert over its own."""
    own, lines = errors(rows, OURS[1]), []
    for arm in VARIANTS:
        found = errors(rows, arm)
        cells = [str(ratio(of_kind(found, kind), own) or "") for kind in SHOWN]
        lines.append([arm, *cells])
    return table([f"variant / {OURS[1]}", *SHOWN.values()], lines)


def problems_table(rows, found):
    """The worth of routing and of each number of experts, on each problem."""
    one, lines, routed = errors(rows, ONE), [], best_of(rows, ROUTED)
    others = {k: best_of(rows, names) for k, names in OTHERS.items()}
    for name, words in found.items():
        given = [errors(rows, arm) for arm in (WIDE, KNOWN, "softmax", SWITCH)]
        cells = [mean_ratio(only(own, [name]), one) for own in [*given, routed]]
        ours = [ratio(only(errors(rows, OURS[k]), [name]), others[k]) for k in OURS]
        shown = [f"{each:.2f}" if each else "" for each in cells]
        lines.append([name, *shown, *map(str, ours), *words])
    head = ["problem", "wide", "known", "softmax", "Switch", "best router"]
    return table([*head, *OURS.values(), "is one enough?", "is a wide one?"], lines)


def draw(panels):
    """Draw errors over those of one expert, with a point for each problem.

    Args:
        panels: A dict from titles to rows. The points of a single problem are its
            draws.
    """
    rows = [row for own in panels.values() for row in own]
    arms = [arm for arm in ROUTERS if arm != ONE and errors(rows, arm)]
    part = int(len({row["problem"] for row in rows}) == 1)
    pyplot = style.import_pyplot()
    size = {"figsize": (style.PAGE_WIDTH, 1.2 + 0.22 * len(arms))}
    shared = {"sharey": True, "squeeze": False, "layout": "constrained"}
    figure, axes = pyplot.subplots(1, len(panels), **shared, **size)
    small = {"linestyle": "", "color": style.GREY, "markersize": 4}
    for ax, (title, own) in zip(axes[0], panels.items(), strict=True):
        one = errors(own, ONE)
        for place, arm in enumerate(arms):
            found = errors(own, arm)
            if not (mean := ratio(found, one)):
                continue
            color = style.COLORS[list(RUN).index(experts_of(arm))]
            points = [
                mean_ratio({key: found[key] for key in found if key[part] == each}, one)
                for each in dict.fromkeys(key[part] for key in found)
            ]
            ax.plot(points, [place] * len(points), "o", **small)
            ax.plot([mean.low, mean.high], [place] * 2, color=color, linewidth=2)
            ax.plot([mean.mean], [place], "o", color=color)
        ax.axvline(1, color=style.TEXT, linewidth=0.6)
        ax.set(xscale="log", ylim=(len(arms) - 0.5, -0.5))
        low, high = ax.get_xlim()
        few = pyplot.MaxNLocator(5), pyplot.FixedLocator(TICKS)
        ax.xaxis.set_major_locator(few[int(high > 5 * low)])
        ax.xaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        style.label(ax, "test error / one expert", title=title)
        style.tidy_axes(ax, "x")
    first = axes[0, 0]
    first.set_yticks(range(len(arms)), arms)
    for color, text in zip(style.COLORS, RUN.values(), strict=False):
        first.plot([], [], "-o", color=color, linewidth=2, label=text)
    first.plot([], [], "o", label=("one problem", "one draw")[part], **small)
    look = {"ncols": 4, "frameon": False, "fontsize": style.SMALL_FONT}
    figure.legend(loc="outside upper center", columnspacing=1.0, **look)
    return figure


def experts_of(arm):
    """The number of experts that an arm runs at serving; 0 if it uses all."""
    router = ROUTERS[arm]
    if router.architecture == "wide" or not router.more["k"]:
        return 0
    return router.more["k"] + (router.more["shared"] == "expert")
