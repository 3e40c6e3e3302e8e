"""The page of the comparison of gates, and its picture."""

import numpy as np

from research.benches import page
from research.benches.bench import rows_of
from research.benches.gates.arms import (
    BEST,
    CONTROL,
    FEW_ARMS,
    FIT,
    GATES,
    KNOWN,
    NORMALIZED,
    NUM_CHOICES,
    OTHER_GATES,
    RECIPE,
)
from research.benches.gates.bench import ONE_SETTING
from research.benches.gates.problems import DECAYS, PROBLEMS, RATES
from research.benches.page import cells
from research.benches.statistics import errors, grouped, only, ratio, verdict
from research.engine.pages import table

NAME = "gatebench"
SHOWN = [arm for arm in GATES if arm not in NORMALIZED]
DENSE = [name for name, arm in GATES.items() if arm.more["dense"]]
FEW = """ Some
problems have fewer arms, and mostly fewer settings: {names}. There the best rate is at
an edge in {edge:.0%}. The long ones have no weight decay."""
LACKING = """ Not run
yet, on rows that no other problem has: {}."""
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
# Problems of which the headline is given.
PARTS = {
    "all problems": list(PROBLEMS),
    "real data": [name for name, each in PROBLEMS.items() if each.real],
    "made here": [name for name, each in PROBLEMS.items() if not each.real],
    "added later": [name for name, each in PROBLEMS.items() if each.later],
}


def text(every):
    """The text of the page, of `Results` by the name of their problem."""
    rows = rows_of(every.values())
    lacking = [name for name in PROBLEMS if name not in every]
    few = [name for name in every if PROBLEMS[name].few]
    tuned = [row for row in rows if row["arm"] not in (BEST, CONTROL)]
    longest = [row for row in tuned if row["problem"] in few]
    tuned = [row for row in tuned if row["problem"] not in few]
    edge = rate_edge(longest) if few else 0.0
    draws = 1 + max(row["draw"] for row in rows)
    return page.fill(
        __file__,
        machine=page.machine_of(every.values()),
        lacking=LACKING.format("; ".join(lacking)) if lacking else "",
        problems=len(every),
        real=sum(PROBLEMS[name].real for name in every),
        later=sum(PROBLEMS[name].later for name in every),
        few=FEW.format(names="; ".join(few), edge=edge) if few else "",
        families=len(kinds(rows)),
        draws=draws,
        last=draws - 1,
        choices=NUM_CHOICES,
        rates=len(RATES),
        decays=len(DECAYS),
        setting=ONE_SETTING,
        rate_edge=rate_edge(tuned),
        decay_edge=np.mean([is_largest(**row["settings"]) for row in tuned]),
        gates=headline_table(rows),
        by_family=family_table(rows),
        untuned=headline_table(rows, "untuned"),
        untuned_by_family=family_table(rows, "untuned"),
        normalized=normalized_table(rows),
        matters=choices_table(rows),
        fewer=fewer_table(rows, few),
    )


def rate_edge(rows):
    """The share of rows whose rate is at an edge of the grid of the problem."""
    grids = [(PROBLEMS[row["problem"]].rates, row["settings"]["rate"]) for row in rows]
    return np.mean([rate in (rates[0], rates[-1]) for rates, rate in grids])


def is_largest(rate, decay, **_):
    """True if the grid has no larger weight decay for this learning rate."""
    return not any(decay < other and rate * other < 1 for other in DECAYS)


def kinds(rows):
    """The names of the problems of each kind that have been run."""
    every = grouped(rows, "kind").items()
    return {kind: list(grouped(own, "problem")) for kind, own in every}


def compared(rows, number):
    """The arms that are shown, with their errors."""
    found = {arm: errors(rows, arm, number) for arm in (*SHOWN, BEST)}
    return {arm: own for arm, own in found.items() if own}


def headline_table(rows, number="test"):
    """The errors of all arms over those of the fit, of all problems and of some.

    Beside them are the costs, or without tuning, errors over those of the tuned fit.
    """
    fit, titles, lines = errors(rows, FIT, number), list(PARTS), []
    tuned, soft = errors(rows, FIT), errors(rows, "softmax", "multiplications")
    titles.insert(1, "cost" if number == "test" else "over the tuned")
    for arm, own in compared(rows, number).items():
        line = cells(own, fit, PARTS.values())
        cost = f"{ratio(errors(rows, arm, 'multiplications'), soft):.2f}"
        line.insert(1, cost if number == "test" else str(ratio(own, tuned)))
        lines.append([arm, "dense" if arm in DENSE else "sparse", *line])
    return table(["gate", "", *titles], lines)


def family_table(rows, number="test"):
    """The errors of all arms over those of the fit, in the mean of each kind."""
    parts, fit = kinds(rows), errors(rows, FIT, number)
    lines = [
        [arm, *cells(own, fit, parts.values(), ".2f")]
        for arm, own in compared(rows, number).items()
        if arm != FIT
    ]
    return table(["gate", *parts], lines)


def normalized_table(rows):
    """The errors with normalized experts over those without."""
    parts, lines = kinds(rows), []
    for arm, plain in NORMALIZED.items():
        pair = errors(rows, arm), errors(rows, plain)
        means = cells(*pair, parts.values(), ".2f")
        lines.append([plain, *cells(*pair, [PROBLEMS]), *means])
    return table(["gate", "all", *parts], lines)


def random_errors(rows, arm=BEST):
    """The mean error of some random choices, which is geometric."""
    every = errors(rows, arm, "choices").items()
    return {key: float(np.exp(np.log(each).mean())) for key, each in every}


def luck(rows, arm):
    """The error of the best of some trainings, over their mean."""
    means = random_errors(rows, arm)
    return {key: error / means[key] for key, error in errors(rows, arm).items()}


def matters(rows):
    """Judge by intervals if the choice matters: "yes", "no" or "undecided"."""
    chance = random_errors(rows)
    pairs = [(errors(rows, arm), chance) for arm in (KNOWN, FIT)]
    pairs.insert(0, (luck(rows, BEST), luck(rows, CONTROL)))
    return verdict(*pairs, no_below=0.95, overlap=rows[0]["overlap"])


def choices_table(rows):
    """For each problem, errors over those of random choices."""
    arms, lines = [BEST, KNOWN, FIT, RECIPE, "Top-k, noisy", "softmax"], []
    for name, own in grouped(rows, "problem").items():
        chance = random_errors(own)
        if chance:
            found = [f"{ratio(errors(own, arm), chance):.2f}" for arm in arms]
            found.insert(1, f"{ratio(luck(own, CONTROL)):.2f}")
            lines.append([name, PROBLEMS[name].kind, *found, matters(own)])
    arms.insert(1, "one choice")
    return table(["problem", "family", *arms, "does it matter?"], lines)


def fewer_table(rows, names):
    """Errors on problems with fewer arms: of the fit, and those of others over it.

    After the problems of a kind is the mean of the kind, with an interval.
    """
    rows = [row for row in rows if row["problem"] in names]
    every = {arm: errors(rows, arm) for arm in FEW_ARMS}
    fit = every.pop(FIT)
    title, lines = [""], [["draws"], [FIT], *([arm] for arm in every)]
    for kind, own in kinds(rows).items():
        title += [*own, kind]
        for name in own:
            known = only(fit, [name])
            ratios = [f"{ratio(each, known):.2f}" for each in every.values()]
            shown = [str(len(known)), f"{ratio(known):.3g}", *ratios]
            for line, cell in zip(lines, shown, strict=True):
                line.append(cell)
        means = [str(ratio(each, only(fit, own))) for each in every.values()]
        for line, cell in zip(lines, ["", "", *means], strict=True):
            line.append(cell)
    return table(title, lines)


def block(every):
    """The results in docs/choosing.md, as a table."""
    rows, parts, lines = rows_of(every.values()), list(PARTS)[:2], []
    fit = errors(rows, FIT)
    for arm in SHOWN:
        if arm not in (FIT, *NOT_IN_BLOCK):
            shown = cells(errors(rows, arm), fit, [PARTS[part] for part in parts])
            lines.append([IN_BLOCK.get(arm, arm), *shown])
    return table(["error / chosen by fit", *parts], lines)


def draw(rows, own=()):
    """Draw the errors and costs of all arms, and of a user's own."""
    arms = *own, *SHOWN, BEST
    panels = {}
    for label, other, number in (
        ("test error / chosen by fit", FIT, "test"),
        ("cost / softmax", "softmax", "multiplications"),
    ):
        found = {arm: errors(rows, arm, number) for arm in arms}
        panels["", label] = found, errors(rows, other, number)
    colors = {
        "sparse gate, 95 %": [arm for arm in (*SHOWN, BEST) if arm not in DENSE],
        "dense, 95 %": DENSE,
        "yours, 95 %": own,
    }
    return page.draw(panels, colors, rows[0]["overlap"])
