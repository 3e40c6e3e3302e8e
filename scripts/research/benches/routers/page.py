"""The page of the comparison of routers, and its picture."""

import numpy as np

from research.benches import page
from research.benches.bench import rows_of
from research.benches.page import cells
from research.benches.routers.arms import (
    BATCH_SIZE,
    DECAYS,
    DENSE,
    KNOWN,
    ONE,
    RATES,
    ROUTERS,
    SMEAR,
    STEPS,
    SWITCH,
    UNITS,
    VARIANTS,
    WIDE,
)
from research.benches.routers.bench import Routers, multiplications
from research.benches.routers.problems import PROBLEMS
from research.benches.statistics import errors, grouped, ratio, verdict
from research.engine.pages import table
from research.engine.search import best_settings

NAME = "routers"
KINDS = {
    "regions": "generated, with regions",
    "no regions": "generated, without",
    "images": "images with domains",
    "real": "real tables",
}
SHOWN = {kind: KINDS[kind] for kind in ("regions", "real")}
PARTS = {
    KINDS[kind]: [name for name, each in PROBLEMS.items() if each.kind == kind]
    for kind in SHOWN
}
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
# How much lower the errors of routers are, as the answer if one expert is enough.
IS_ENOUGH = {"yes": "no", "no": "yes", "undecided": "undecided"}

SHORT = """\
A router of the package is better than one expert on {better} of {problems} problems;
a wide expert is as good on {wider} of these. On {enough}, one expert is enough."""
IN_BLOCK = {"Top-2": "`TopKGate(2)`", SWITCH: "`SwitchGate`", WIDE: WIDE}


def complete(every):
    """The `Results` of the problems on which all arms have been run."""
    return {name: results for name, results in every.items() if results.complete}


def best_rows(rows, arms):
    """The row of the arm with the lowest validation error, for each draw."""
    found = {}
    for row in sorted(rows, key=lambda row: row["objective"]):
        if row["arm"] in arms:
            found.setdefault((row["family"], row["problem"], row["draw"]), row)
    return found


def best_of(rows, arms):
    """The test errors of the arm with the lowest validation error, for each draw."""
    return {key: row["test"] for key, row in best_rows(rows, arms).items()}


def of_kind(rows, kind):
    """The rows of problems of a kind."""
    return [row for row in rows if row["kind"] == kind]


def enters(rows, k):
    """The rule for the package: two ratios of our router, and whether it holds.

    On generated problems with regions, the error over that of the best other router
    that costs as much or less must be below 0.9, with its interval. On real ones, the
    error over that of the better of Switch and SMEAR must be 1.02 at most.
    """
    regions, real = (of_kind(rows, kind) for kind in SHOWN)
    first = ratio(errors(regions, OURS[k]), best_of(regions, OTHERS[k]))
    second = ratio(errors(real, OURS[k]), best_of(real, (SWITCH, SMEAR)))
    holds = None
    if first.size and second.size:
        holds = first.high < 0.9 and second.mean <= 1.02
    return first, second, holds


def is_one_enough(rows):
    """A word that says if one expert is as good as routers that run one or two.

    It is the expert that costs as much.
    """
    return _is_as_good(rows, rivals(rows))


def _is_as_good(rows, others):
    overlap = rows[0]["overlap"]
    return IS_ENOUGH[verdict((best_of(rows, ROUTED), others), overlap=overlap)]


def rivals(rows):
    """The errors of the largest dense expert that costs no more than the best router.

    It is the router of `best_of`, on the same draw.
    """
    dense, found = {cost(arm): errors(rows, arm) for arm in (ONE, *DENSE)}, {}
    for key, row in best_rows(rows, ROUTED).items():
        most = cost(row["arm"])
        if known := [each for each in dense if each <= most and key in dense[each]]:
            found[key] = dense[max(known)][key]
    return found


def does_width_do(rows):
    """A word that says if one wide expert is as good as routers of one or two."""
    return _is_as_good(rows, errors(rows, WIDE))


def text(every):
    """The text of the page, of `Results` by the name of their problem."""
    every = complete(every)
    rows = rows_of(every.values())
    tuning = [
        best_settings(results.of(arm, tuning=True))[0]
        for results in every.values()
        for arm in results.experiment.arms
    ]
    taken = [settings for settings in tuning if settings]
    kinds, found = [PROBLEMS[name].kind for name in every], verdicts(rows)
    return page.fill(
        __file__,
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
        **answers(rows, found),
        rules="\n".join(rule(rows, k) for k in OURS),
        variants=variants_table(rows),
        trainings=sum(len(results.runs) for results in every.values()),
        machine=page.machine_of(every.values()),
    )


def answers(rows, found):
    """Fields of the page: which router, what it is worth, when one expert is enough.

    Args:
        rows: Rows of the bench.
        found: Their `verdicts`.
    """
    best = {kind: lowest(of_kind(rows, kind)) for kind in SHOWN}
    arm = next((each[0] for each in best.values() if each), SWITCH)
    fields = {"arm": listed([arm]), "serving": cost(arm), "wide": cost(WIDE)}
    fields["training"] = cost(arm, training=True)
    for kind, each in best.items():
        fields |= {f"best_{kind}": listed(each[:1]), f"near_{kind}": listed(each[1:])}
        for name, other in (("error", arm), ("wide", WIDE)):
            own = of_kind(rows, kind)
            known = str(ratio(errors(own, other), errors(own, ONE)))
            fields[f"{name}_{kind}"] = known or "an unknown number of"
    for name, own in named(found).items():
        fields |= {f"num_{name}": len(own) or "none", name: ", ".join(own) or "none"}
    return fields


def block(every):
    """A table of few routers, and how often one expert is enough, for another page."""
    rows = rows_of(complete(every).values())
    lines = ratio_lines(rows, IN_BLOCK, ONE)
    lines = [[IN_BLOCK[arm], *line] for arm, *line in lines]
    found = verdicts(rows)
    counts = {name: len(own) or "none" for name, own in named(found).items()}
    said = SHORT.format(problems=len(found), **counts)
    return f"{table(['error / one expert', *PARTS], lines)}\n\n{said}"


def ratio_lines(rows, arms, other):
    """Lines of a table: the errors of arms over those of another one, by kind."""
    own, one = {arm: errors(rows, arm) for arm in arms}, errors(rows, other)
    found = {arm: cells(each, one, PARTS.values()) for arm, each in own.items() if each}
    return [[arm, *shown] for arm, shown in found.items()]


def lowest(rows):
    """The package's router with the lowest error, and those not told from it."""
    one = errors(rows, ONE)
    found = {arm: own for arm in IN_PACKAGE if (own := errors(rows, arm))}
    order = sorted(found, key=lambda arm: ratio(found[arm], one).mean)
    return [arm for arm in order if ratio(found[arm], found[order[0]]).low <= 1]


def listed(arms):
    """The names of arms, which have commas."""
    return ", ".join(f"*{arm}*" for arm in arms) or "none"


def draws_of(rows):
    """The number of draws of a problem, as text: the fewest and the most."""
    every = grouped(rows, "problem").values()
    numbers = [len(grouped(own, "draw")) for own in every]
    return " to ".join(map(str, sorted({min(numbers), max(numbers)})))


def rule(rows, k):
    """The verdict of the rule for the package, for a number of experts at serving."""
    *ratios, holds = enters(rows, k)
    words = {True: "holds", False: "does not hold", None: "cannot be decided"}
    said = words[holds] + " so far" * (len(grouped(rows, "problem")) < len(PROBLEMS))
    first, second = (str(each) or "not known" for each in ratios)
    return (
        f"- **{k} at serving**: {first} of the best other router with regions, "
        f"{second} of the better of Switch and SMEAR on real tables. The rule {said}."
    )


def verdicts(rows):
    """For each problem, whether one expert is enough, and whether a wide one is."""
    every = grouped(rows, "problem").items()
    return {name: (is_one_enough(own), does_width_do(own)) for name, own in every}


def named(found):
    """The problems on which one expert is enough or not, and of these a wide one."""
    words = {"enough": "yes", "better": "no", "undecided": "undecided"}
    named = {
        name: [problem for problem in found if found[problem][0] == word]
        for name, word in words.items()
    }
    wider = [problem for problem in named["better"] if found[problem][1] == "yes"]
    return {**named, "wider": wider}


def routers_table(rows):
    """Cost and error of each arm, over those of one expert."""
    lines = [
        [arm, *(f"{cost(arm, training=each):.1f}" for each in (False, True)), *found]
        for arm, *found in ratio_lines(rows, ROUTERS, ONE)
    ]
    return table(["router", "cost at serving", "in training", *PARTS], lines)


def variants_table(rows):
    """The errors of the variants of our router with one expert over its own."""
    lines = ratio_lines(rows, VARIANTS, OURS[1])
    return table([f"variant / {OURS[1]}", *PARTS], lines)


def problems_table(rows, found):
    """The worth of routing and of each number of experts, on each problem."""
    lines = []
    for name, own in grouped(rows, "problem").items():
        given = [errors(own, arm) for arm in (WIDE, KNOWN, "softmax", SWITCH)]
        given.append(best_of(own, ROUTED))
        shown = [f"{ratio(each, errors(own, ONE)):.2f}" for each in given]
        for k, others in OTHERS.items():
            pair = errors(own, OURS[k]), best_of(own, others)
            shown.append(str(ratio(*pair, overlap=own[0]["overlap"])))
        lines.append([name, *shown, *found[name]])
    head = ["problem", "wide", "known", "softmax", "Switch", "best router"]
    return table([*head, *OURS.values(), "is one enough?", "is a wide one?"], lines)


def draw(rows):
    """Draw errors over those of one expert, with a panel for each kind of problem."""
    panels = {}
    for kind, title in SHOWN.items():
        if own := of_kind(rows, kind):
            found = {arm: errors(own, arm) for arm in ROUTERS}
            panels[title, "test error / one expert"] = found, errors(own, ONE)
    colors = {
        text: [arm for arm in ROUTERS if experts_of(arm) == number]
        for number, text in RUN.items()
    }
    return page.draw(panels, colors)


def experts_of(arm):
    """The number of experts that an arm runs at serving; 0 if it uses all."""
    router = ROUTERS[arm]
    if router.architecture == "wide" or not router.more["k"]:
        return 0
    return router.more["k"] + (router.more["shared"] == "expert")
