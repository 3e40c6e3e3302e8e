"""The page of the comparison of routers, and its picture."""

import pathlib
from typing import Any

import numpy as np
from gate_comparison.statistics import errors, mean_ratio, only, ratio

from dselectk_keras.plots import style
from experiments import Results
from experiments.files import write_whole
from experiments.pages import MARK, table
from experiments.search import best_settings
from router_comparison.arms import ARMS, DECAYS, KNOWN, ONE, RATES, SMEAR, SWITCH, WIDE
from router_comparison.bench import Routers, multiplications
from router_comparison.problems import PROBLEMS
from router_comparison.training import BATCH_SIZE, STEPS, UNITS

COMMITTED = pathlib.Path(__file__).parents[2] / "docs" / "gatebench" / "routers"
TEMPLATE = pathlib.Path(__file__).with_suffix(".md")
KINDS = {
    "regions": "generated, with regions",
    "no regions": "generated, without",
    "images": "images with domains",
    "real": "real tables",
}
SHOWN = {kind: KINDS[kind] for kind in ("regions", "real")}
FEWEST_DRAWS = 3  # For a verdict.
# Learned routers that serve one or two experts.
ROUTED = [name for name, arm in ARMS.items() if arm.k and not arm.tag]
# By the number of experts at serving: those that cost as much or less.
OURS = {1: "by losses, 1", 2: "by losses, 2"}
RIVALS = {
    k: [
        name
        for name, arm in ARMS.items()
        if arm.training != "losses" and name not in (KNOWN, WIDE) and (arm.k or 9) <= k
    ]
    for k in OURS
}


def write(folder):
    """Write the page beside the folder of the results, and its picture."""
    folder = pathlib.Path(folder)
    every = read(folder)
    if not every:
        raise SystemExit(f"{folder} has no results of all routers on a problem.")
    (folder.parent / "images").mkdir(parents=True, exist_ok=True)
    picture = folder.parent / "images" / "routers.png"
    style.save_figure(draw(rows_of(every)), picture, dpi=200)
    path = folder.with_suffix(".md")
    write_whole(path, text(every))
    return path


def read(folder):
    """The `Results` of the problems on which all arms have been run, by name."""
    benches = [Routers(problem=name) for name in PROBLEMS]
    every = {each.problem: Results(each, each.preset, folder) for each in benches}
    return {name: results for name, results in every.items() if results.complete}


def rows_of(every):
    """The reported runs, as dicts with the errors on validation and test."""
    return [
        {"problem": name, "arm": run.arm, "draw": run.seed, **run.numbers}
        for name, results in every.items()
        for run in results.runs
        if not run.tuning and run.numbers["test"] is not None
    ]


def best_of(rows, arms):
    """The test errors of the arm with the lowest validation error, for each draw."""
    best: dict[tuple, Any] = {}
    for row in rows:
        key = row["problem"], row["draw"]
        known = row["arm"] in arms and row["objective"] is not None
        if known and (key not in best or row["objective"] < best[key]["objective"]):
            best[key] = row
    return {key: row["test"] for key, row in best.items()}


def of_kind(errors, kind):
    """The errors on problems of a kind."""
    return {k: value for k, value in errors.items() if PROBLEMS[k[0]].kind == kind}


def enters(rows, k):
    """The rule for the package: two ratios of our router, and whether it holds.

    On generated problems with regions, the error over that of the best rival that costs
    as much or less must be below 0.9, with its interval. On real ones, the error over
    that of the better of Switch and SMEAR must be 1.02 at most.
    """
    ours = errors(rows, OURS[k])
    regions = ratio(of_kind(ours, "regions"), best_of(rows, RIVALS[k]))
    real = ratio(of_kind(ours, "real"), best_of(rows, (SWITCH, SMEAR)))
    holds = None
    if regions and real:
        holds = regions.high < 0.9 and real.mean <= 1.02
    return regions, real, holds


def is_one_enough(rows, problem):
    """Whether one expert is as good as routers that run one or two: a word."""
    found = only(best_of(rows, ROUTED), [problem])
    alone = ratio(found, errors(rows, ONE))
    if alone is None or len(found) < FEWEST_DRAWS:
        return "undecided"
    if alone.high < 0.98:
        return "no"
    return "yes" if alone.low > 0.98 else "undecided"


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
    rules = [rule(rows, k) for k in OURS]
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
        by_problem=problems_table(rows),
        enough=enough(rows),
        rules="\n".join(rules),
        trainings=len(runs),
        machine=machines[-1],
    )
    return f"{MARK}\n{page}"


def draws_of(rows):
    """The number of draws of a problem, as text: the fewest and the most."""
    names = {row["problem"] for row in rows}
    numbers = [len({r["draw"] for r in rows if r["problem"] == n}) for n in names]
    return " to ".join(map(str, sorted({min(numbers), max(numbers)})))


def rule(rows, k):
    """What the rule for the package says, of a number of experts at serving."""
    regions, real, holds = enters(rows, k)
    words = {True: "holds", False: "does not hold", None: "cannot be decided"}
    done = {row["problem"] for row in rows}
    said = words[holds] + (" so far" if len(done) < len(PROBLEMS) else "")
    first, second = (each or "not known" for each in (regions, real))
    return (
        f"- **{k} at serving**: {first} of the best rival with regions, {second} of "
        f"the better of Switch and SMEAR on real tables. The rule {said}."
    )


def enough(rows):
    """For which problems one expert is enough, as text."""
    found = {}
    for name in dict.fromkeys(row["problem"] for row in rows):
        found.setdefault(is_one_enough(rows, name), []).append(name)
    said = {"yes": "enough", "no": "not enough", "undecided": "undecided"}
    parts = (
        f"**{said[word]}**: {', '.join(found[word])}" for word in said if word in found
    )
    return f"It is {'; '.join(parts)}."


def routers_table(rows):
    """Cost and error of each arm, over those of one expert."""
    one, lines = errors(rows, ONE), []
    for arm in ARMS:
        if not (own := errors(rows, arm)):
            continue
        cells = [str(ratio(of_kind(own, kind), one) or "") for kind in SHOWN]
        lines.append([arm, f"{cost(arm):.1f}", *cells])
    return table(["router", "cost", *SHOWN.values()], lines)


def cost(arm):
    """The multiplications over those of one expert, with 16 inputs and one output."""
    sizes = 16, 8, 1
    return multiplications(arm, *sizes) / multiplications(ONE, *sizes)


def problems_table(rows):
    """What routing and each number of experts are worth, on each problem."""
    one, lines, routed = errors(rows, ONE), [], best_of(rows, ROUTED)
    others = {k: best_of(rows, names) for k, names in RIVALS.items()}
    for name in dict.fromkeys(row["problem"] for row in rows):
        given = [errors(rows, arm) for arm in (WIDE, KNOWN, "softmax", SWITCH)]
        cells = [mean_ratio(only(own, [name]), one) for own in [*given, routed]]
        ours = [ratio(only(errors(rows, OURS[k]), [name]), others[k]) for k in OURS]
        shown = [f"{each:.2f}" if each else "" for each in cells]
        lines.append([name, *shown, *map(str, ours), is_one_enough(rows, name)])
    head = ["problem", "wide", "known", "softmax", "Switch", "best router"]
    return table([*head, *OURS.values(), "is one enough?"], lines)


def draw(rows):
    """Draw the errors over those of one expert, with a point for each problem."""
    one, arms = errors(rows, ONE), [arm for arm in ARMS if arm != ONE]
    pyplot = style.import_pyplot()
    size = {"figsize": (style.PAGE_WIDTH, 1.0 + 0.22 * len(arms))}
    figure, axes = pyplot.subplots(1, 2, sharey=True, layout="constrained", **size)
    for ax, (kind, title) in zip(axes, SHOWN.items(), strict=True):
        for place, arm in enumerate(arms):
            own = of_kind(errors(rows, arm), kind)
            if not (mean := ratio(own, one)):
                continue
            color = style.COLORS[int(ARMS[arm].training == "losses")]
            points = [
                mean_ratio(only(own, [name]), one)
                for name in dict.fromkeys(key[0] for key in own)
            ]
            ax.plot(points, [place] * len(points), "o", color=style.GREY, markersize=4)
            ax.plot([mean.low, mean.high], [place] * 2, color=color, linewidth=2)
            ax.plot([mean.mean], [place], "o", color=color)
        ax.axvline(1, color=style.TEXT, linewidth=0.6)
        ax.set(xscale="log", ylim=(len(arms) - 0.5, -0.5))
        ax.xaxis.set_major_locator(pyplot.FixedLocator((0.1, 0.2, 0.5, 1, 2, 5, 10)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        style.label(ax, "error / one expert", title=title)
        style.tidy_axes(ax, "x")
    axes[0].set_yticks(range(len(arms)), arms)
    return figure
