"""The page of the comparison, its picture, and its lines in docs/choosing.md."""

import pathlib

import numpy as np

from dselectk_keras.plots import style
from experiments.pages import MARK, table
from gate_comparison import results
from gate_comparison.arms import ARMS, NUM_CHOICES, ONE_SETTING, RECIPE, ROUNDS
from gate_comparison.problems import PROBLEMS
from gate_comparison.statistics import errors, only, random_errors, ratio

BEST = f"best of {NUM_CHOICES} random"
REMEDIES = [name for name, arm in ARMS.items() if arm.family == "remedies"]
DENSE = [name for name, arm in ARMS.items() if arm.dense and arm.family == "gates"]
UNTUNED = [name for name, arm in ARMS.items() if arm.family == "untuned"]
SPARSE = [name for name in ARMS if name not in [*DENSE, *REMEDIES, *UNTUNED]]

INTRODUCTION = """\
Results of {problems} of {known} problems, in {families} families, with {draws} draws or
splits each and at most 1,000 training examples. All arms have the same model (8 or 16
experts, 2 or 4 per task, static gates), the same initial weights and the same number of
steps. Each is tuned on a grid of twelve settings, in which weight decay is one: three
learning rates, and four decays, or two decays and two values of an own setting (when
to decide, or the weight of the entropy). Setting and epoch are those with the lowest
validation loss. For a sparse gate, only epochs count in which each task uses at most k
experts.

- **DSelect-k, recipe**: `gamma=3`, and `DecideGates` with `by=0.2` or `by=0.5`.
- **DSelect-k, entropy**: `gamma=1` and entropy regularization; a gate that is not
  sparse before the last epoch keeps its largest weights.
- **random**: experts that are drawn before the training. **{best}**: of {choices}
  draws, that with the lowest validation loss. **soft, then random**: as the recipe, but
  the decision is for random experts.
- **chosen by fit**: `ChooseExperts` with its default settings
  ([our own method](../choose_by_fit.md)). It has no own setting, so that it tries four
  decays, as softmax and random do; the recipe tries two.
- **known groups**: the tasks of a group have experts of their own.
- **shared bottom**: one expert as wide as the k experts of a task."""

GATES = """\
Test error over that of the recipe: the mean over problems and draws of the log ratio,
with an interval of 95 % by bootstrap over both. Then the means of each family."""

CHOICES = """\
Test error over the mean of {choices} random choices. The choice matters if the best of
them, or the known groups, are lower by 5 % or more."""

DECISION = """\
At the decision, the gates of the recipe keep {kept:.0%} of their weight (in the mean),
and the validation loss is {jump:.2f} times that of the epoch before. Four remedies,
each tuned on the recipe's grid:

- multiply the kernels of the towers' first layers by the kept mass;
- let the gates keep their mass, so that their weights no longer sum to one;
- fit an affine map of each unit of a mixture to what it was before, without labels, and
  put it into the towers;
- after the decision, {rounds} times: put noise on the bits, so that the gates are soft
  again, train them, and decide again.

One half of the problems was looked at first, the other half once. Test error over that
of the recipe, both with tuned weight decay, and both without weight decay:"""

WITHOUT = """\
One setting for all problems, near the middle of the grid: a learning rate of {rate} and
a weight decay of {decay}; the recipe decides after half of the training. Test error
over that of the recipe, tuned:"""

HOW = """\
```bash
{command}
```

Seeds 0 to {last}; {machine}, {date}. The command goes on with what is missing. With
`--mine TABLE.csv --targets NAME ...` it asks the second question about your data."""


def write(folder):
    """Write the page and its picture into the folder of the results."""
    folder = pathlib.Path(folder)
    found = results.read(folder)
    (folder / "images").mkdir(exist_ok=True)
    style.save_figure(draw(found["rows"]), folder / "images" / "gatebench.png", dpi=150)
    path = folder / "gatebench.md"
    path.write_text(text(found), encoding="utf-8")
    return path


def text(found):
    """The text of the page."""
    rows = found["rows"]
    draws = 1 + max(row["draw"] for row in rows)
    machine, by_family = found["environment"], families(rows)
    introduction = INTRODUCTION.format(
        problems=sum(map(len, by_family.values())),
        known=len(PROBLEMS),
        families=len(by_family),
        draws=draws,
        best=BEST,
        choices=NUM_CHOICES,
    )
    how = HOW.format(
        command=found["command"],
        last=draws - 1,
        machine=f"JAX {machine['backend_version']} on {machine['device']}",
        date=machine["date"],
    )
    parts = [
        MARK,
        "# What is a learned choice of experts worth?",
        introduction,
        "![Test errors over that of the recipe.](images/gatebench.png)",
        "## Which gate has the lowest error?",
        GATES,
        gates_table(rows),
        "## And without tuning?",
        WITHOUT.format(rate=ONE_SETTING[0], decay=ONE_SETTING[1]),
        untuned_table(rows),
        "## Does the choice of experts matter?",
        CHOICES.format(choices=NUM_CHOICES),
        choices_table(rows),
        "## What to do at the decision?",
        DECISION.format(**jump(rows), rounds=ROUNDS),
        decision_table(rows),
        "## How to run it",
        how,
    ]
    return "\n\n".join(parts) + "\n"


def families(rows):
    """The names of the problems of each family that have been run."""
    found = {}
    for name in PROBLEMS:
        if any(row["problem"] == name for row in rows):
            found.setdefault(PROBLEMS[name].family, []).append(name)
    return found


def gates_table(rows):
    """The errors of all gates over that of the recipe, in the mean and by family."""
    by_family, recipe = families(rows), errors(rows, RECIPE)
    lines = []
    for kind, same in (("dense", DENSE), ("sparse", [*SPARSE, BEST])):
        for arm in same:
            own = errors(rows, arm)
            if arm in {RECIPE, "known groups"} or not own:
                continue
            means = [ratio(only(own, names), recipe) for names in by_family.values()]
            means = [f"{each.mean:.2f}" if each else "" for each in means]
            lines.append([arm, kind, str(ratio(own, recipe)), *means])
    return table(["gate", "", "all problems", *by_family], lines)


def untuned_table(rows):
    """The errors of arms with one setting over that of the recipe, by family."""
    by_family, recipe = families(rows), errors(rows, RECIPE)
    lines = []
    for arm in UNTUNED:
        own = errors(rows, arm)
        if own:
            means = [ratio(only(own, names), recipe) for names in by_family.values()]
            means = [f"{each.mean:.2f}" if each else "" for each in means]
            lines.append([arm, str(ratio(own, recipe)), *means])
    return table(["gate", "all problems", *by_family], lines)


def choice_matters(rows, problem):
    """Whether the best of several random choices, or known groups, are 5 % lower."""
    ratios = [
        ratio(only(errors(rows, arm), [problem]), random_errors(rows))
        for arm in (BEST, "known groups")
    ]
    return any(each is not None and each.mean <= 0.95 for each in ratios)


def choices_table(rows):
    """For each problem, errors over those of random choices."""
    arms = [BEST, "known groups", "chosen by fit", RECIPE, "Top-k, noisy", "softmax"]
    others, lines = random_errors(rows), []
    for family, names in families(rows).items():
        for name in names:
            ratios = [ratio(only(errors(rows, arm), [name]), others) for arm in arms]
            answer = "yes" if choice_matters(rows, name) else "no"
            cells = [f"{each.mean:.2f}" if each else "" for each in ratios]
            lines.append([name, family, *cells, answer])
    return table(["problem", "family", *arms, "does it matter?"], lines)


def jump(rows):
    """What the recipe keeps at the decision, and by what the loss is multiplied."""
    recipe = [row for row in rows if row["arm"] == RECIPE]
    logs = [np.log(row["after"] / row["before"]) for row in recipe]
    kept = float(np.mean([row["kept"] for row in recipe]))
    return {"kept": kept, "jump": float(np.exp(np.mean(logs)))}


def halves(rows):
    """The problems of both halves that have been run."""
    run = {row["problem"] for row in rows}
    return [
        [name for name in run if PROBLEMS[name].confirms is confirms]
        for confirms in (False, True)
    ]


def decision_table(rows):
    """The errors of the remedies over that of the recipe, on both halves."""
    lines = []
    for arm in REMEDIES:
        cells = []
        for number in ("test", "test_without_decay"):
            own, recipe = errors(rows, arm, number), errors(rows, RECIPE, number)
            cells += [
                str(ratio(only(own, names), recipe) or "not run")
                for names in halves(rows)
            ]
        lines.append([arm, *cells])
    columns = ["developed on", "confirmed on", "developed on, no weight decay"]
    return table(["remedy", *columns, "confirmed on, no weight decay"], lines)


def block(rows):
    """What docs/choosing.md says about the results, as a table of two columns."""
    recipe, others = errors(rows, RECIPE), random_errors(rows)
    names = sorted({row["problem"] for row in rows})
    matters = [name for name in names if choice_matters(rows, name)]
    lines = [
        [f"{arm} / DSelect-k", ratio(errors(rows, arm), recipe)]
        for arm in ("softmax", *SPARSE)
        if arm not in {RECIPE, "random", "known groups"}
    ]
    lines += [
        ["DSelect-k / random experts", ratio(recipe, others)],
        [
            f"where the choice matters ({len(matters)} of {len(names)} problems)",
            ratio(only(recipe, matters), others),
        ],
    ]
    _, confirms = halves(rows)
    lines += [
        [f"{arm} / DSelect-k", ratio(only(errors(rows, arm), confirms), recipe)]
        for arm in REMEDIES
    ]
    rows = [[name, str(each)] for name, each in lines if each]
    return table(["ratio of test errors", "mean, interval of 95 %"], rows)


def draw(rows):
    """Draw the errors of all gates over that of the recipe, a point per problem."""
    recipe = errors(rows, RECIPE)
    arms = [arm for arm in [*DENSE, *SPARSE, BEST] if arm != RECIPE]
    figure, ax = style.open_axes(None, style.PAGE_WIDTH, 0.8 + 0.3 * len(arms))
    problems = sorted({row["problem"] for row in rows})
    for place, arm in enumerate(arms):
        own = errors(rows, arm)
        color = style.COLORS[1 if arm in DENSE else 0]
        each = [ratio(only(own, [name]), recipe) for name in problems]
        means = [value.mean for value in each if value]
        ax.plot(means, [place] * len(means), "o", color=style.GREY, markersize=4)
        mean = ratio(own, recipe)
        if mean:
            ax.plot([mean.low, mean.high], [place, place], color=color, linewidth=2)
            ax.plot([mean.mean], [place], "o", color=color)
    ax.axvline(1, color=style.TEXT, linewidth=0.6)
    ax.set(xscale="log", ylim=(len(arms) - 0.5, -0.5))
    ax.set_yticks(range(len(arms)), arms)
    ticks = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()
    style.label(ax, "test error over that of DSelect-k, recipe (grey: problems)")
    style.tidy_axes(ax, "x")
    return figure
