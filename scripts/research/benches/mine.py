"""A page that says if the choice of experts matters on a user's table."""

import functools
import math
import pathlib
import runpy

import keras
import numpy as np
import pandas as pd

from common.rivals import best, error, rivals
from dselectk_keras.gates import Gate
from dselectk_keras.gates.selector_gate import SelectorGate
from dselectk_keras.tables import (
    column_kinds,
    convert_columns,
    describe_columns,
    find_targets,
    read_table,
)
from research.benches.bench import rows_of
from research.benches.data import as_numbers, split_rows
from research.benches.gates.arms import (
    BEST,
    BY_FIT,
    CHOICES,
    CONTROL,
    FIT,
    GATES,
    NUM_CHOICES,
    RECIPE,
    SIDE_BY_SIDE,
    decide,
    selectors,
    static,
)
from research.benches.gates.bench import ARMS, Gates
from research.benches.gates.page import draw, luck, matters, random_errors
from research.benches.gates.problems import Problem
from research.benches.statistics import FEWEST_DRAWS, errors, ratio
from research.engine import pages, reproduce
from research.engine.pages import table

CHOSEN = FIT, SIDE_BY_SIDE, RECIPE, "Top-k, noisy", "shared bottom, pruned"
DENSE = "softmax", "shared bottom, wide"
GRID = {"rates": (0.01, 0.03, 0.1), "decays": (0.0, 0.3, 1.0)}
MOST_CLASSES = 12
SETTINGS = 12  # Of each model without a network; about as many as an arm tries.
# Tasks are in one group if the experts that they share are this part of all their own.
OVERLAP = 0.5

ANSWER = """\
**The choice of experts {words} here.** The best of {choices} random choices has
{best:.2f} times the error of their mean. The best of {choices} trainings with one
choice, which differ by luck alone, has {one:.2f} times theirs."""

NO_NETWORK = """\
**Models without a network are better here.** The best by validation of boosted trees,
extra trees and a linear model per task has {fit:.2f} times the test error of experts
chosen by fit, and {every:.2f} times that of the best gate below."""

TABLE = """\
Test error over the mean of random choices, and multiplications for one task over those
of a softmax gate, which needs all experts:"""

HOW = """\
Draws: {draws}, each of {parts[0]:,} rows for training, {parts[1]:,} for validation and
{parts[2]:,} for test, of the {rows:,} rows of the table. Two draws share {overlap:.0%}
of their rows for test: intervals are wider by that."""

SAVED = """\
**Saved by choosing by fit:** {saved:.0%} of the multiplications for a task, with
{error:.2f} times the error of softmax."""

NO_GATES = """\
{file} must have a dict of functions of the number of experts and of steps that return
static gates, with new names: GATES = {{"mine": lambda num_nonzeros, steps: MyGate()}}.
Received: {got}."""


def answer(path, targets, folder, draws, epochs=30, gates=None, encoding="utf-8"):
    """Compare gates on a table, and write a page about it.

    Args:
        path: A file as for `read_table`.
        targets: Names of the columns that are the labels, which may be missing. Those
            with two values are binary. A text with more is one task for each value.
        folder: The folder of the page.
        draws: The number of splits. With fewer than three, nothing is decided.
        epochs: The number of epochs.
        gates: A .py file with the user's gates; see `read_gates`.
        encoding: The encoding of the file.

    Returns:
        The path of the page, and its text.
    """
    frame = read_table(path, encoding)
    y = as_labels(frame, targets)
    binary = [set(column.dropna()) == {0, 1} for _, column in y.items()]
    columns = as_columns(frame.drop(columns=targets))
    x, places = as_numbers(columns), np.arange(len(frame))[:, None]
    tables, places = (
        [split_rows(inputs, y.to_numpy(), binary, seed) for seed in range(draws)]
        for inputs in (x, places)
    )
    check_labels(tables, list(y))
    without = {
        ("mine", "mine", seed): error_without_network(data, seed, columns)
        for seed, data in enumerate(places)
    }
    about = {"epochs": epochs, "real": True, "family": "mine", "name": "mine", **GRID}
    about["overlap"] = len(tables[0].splits[2].x) / len(frame)
    problem = Problem("mine", lambda seed, _: tables[seed], **about)
    own = read_gates(gates) if gates else {}
    known = {name: GATES[name] for name in (*CHOSEN, *DENSE, "random")}
    arms, seen = {**own, **known, **CHOICES}, {}

    def note(trainer, job):
        weights = keras.ops.convert_to_numpy(trainer.gate.expert_weights())
        seen[job.seed, *job.settings.values()] = weights > 0

    # Before the last epoch, when the choice is final.
    arms[FIT] = static(selectors, events=BY_FIT | {1.0: note})
    results = reproduce(Gates(problem=problem, compared=arms, seeds=draws))
    rows = rows_of([results])
    chosen = [seen[run.seed, *run.settings.values()] for run in results.of(FIT)]
    first, *others = sentences(rows, list(y), chosen, without, list(own))
    sizes = [len(x) for x, _ in tables[0].splits]
    parts = [
        f"# {pathlib.Path(path).name}",
        first,
        "![Test error of each gate over that of experts chosen by fit.](mine.png)",
        *others,
        HOW.format(draws=draws, parts=sizes, rows=len(frame), overlap=problem.overlap),
    ]
    page, figures = pathlib.Path(folder) / "mine", {"mine.png": draw(rows, list(own))}
    return pages.write(page, *parts, figures=figures, dpi=150), "\n\n".join(parts)


def read_gates(file):
    """The gates of a .py file as arms, by name: those of its dict `GATES`."""
    made = runpy.run_path(file, run_name="gates").get("GATES")
    if not isinstance(made, dict):
        raise ValueError(NO_GATES.format(file=file, got=f"GATES is {made!r}"))
    arms = {}
    for name, make in made.items():
        gate = make(2, 1)
        if not isinstance(gate, Gate) or gate.per_example_only or name in ARMS:
            raise ValueError(NO_GATES.format(file=file, got=f"{name!r}: {gate!r}"))
        gate.build((None, 4))
        most = gate.max_experts(once_decided=True)
        is_dense = most is None or most > 2
        arms[name] = static(
            lambda k, _, settings, make=make: make(k, settings.num_steps),
            events={0.5: decide} if isinstance(gate, SelectorGate) else {},
            dense=is_dense,
        )
    return arms


def error_without_network(data, seed, frame):
    """The mean over tasks of the test losses of the best rival by validation.

    The losses are those of GateBench: the log loss of binary tasks, and the squared
    error of standardized labels.

    Args:
        data: A `Table`, whose inputs are numbers of rows.
        seed: The seed of the settings and the models.
        frame: The columns of the rows.
    """
    names, parts, losses = [str(task) for task in range(len(data.binary))], [], []
    for x, y in data.splits:
        inputs = frame.iloc[x[:, 0].astype(int)].reset_index(drop=True)
        labels = pd.DataFrame(y, columns=names).astype("float64")
        parts.append(pd.concat([inputs, labels], axis=1))
    train, validation, test = parts
    # The gates are not trained on the rows for validation, either.
    models = rivals(train, validation, names, SETTINGS, seed, again=False)
    for name, is_binary in zip(names, data.binary, strict=True):
        model = models[name][best(models[name])]
        rows = test[test[name].notna()]
        predicted = model.predict(rows)
        if is_binary:
            losses.append(error(rows[name], predicted, model.classes))
        else:  # Numbers that have two values here are their mean.
            numbers = predicted if model.classes is None else predicted @ model.classes
            losses.append(error(rows[name], numbers) ** 2)
    return float(np.mean(losses))


def check_labels(tables, names):
    """Refuse tables in which a part has no labels of a target."""
    for _, y in (split for each in tables for split in each.splits):
        known = np.isfinite(y).any(axis=0)
        if not known.all():
            raise ValueError(
                "Each target must have labels in the rows for training, for validation "
                f"and for test. Received: none of {names[known.argmin()]!r} in a part "
                f"of {len(y)} rows."
            )


def as_columns(frame):
    """The columns of a table that are inputs; say what is left out."""
    kinds = column_kinds(frame)
    for line in describe_columns(frame, kinds):
        print(line)
    columns = convert_columns(frame, kinds)
    if columns.empty:
        raise ValueError("A table must have columns beside the targets that differ.")
    return columns


def as_labels(frame, targets):
    """The labels as numbers, NaN where they are missing; each class is a question."""
    columns = {}
    for target in find_targets(frame, targets):
        name, labels = target.name, target.encode(frame[target.name])
        if target.kind != "classes":
            columns[name] = labels
            continue
        if len(target.classes) > MOST_CLASSES:
            raise ValueError(
                f"A target must have numbers that differ, or 2 to {MOST_CLASSES} "
                f"texts. Received: {name!r}, with {len(target.classes)} values."
            )
        for number, value in enumerate(target.classes):
            is_it = np.where(np.isnan(labels), np.nan, labels == number)
            columns[f"{name} = {value}"] = is_it
    return pd.DataFrame(columns, index=frame.index).astype("float32")


def sentences(rows, names, chosen, without, own=()):
    """Parts of a page about the rows. The first says if models without a network win.

    Args:
        rows: See `rows_of`.
        names: The names of the tasks.
        chosen: The experts that were chosen by fit, for each draw booleans (tasks, n).
        without: The errors of models without a network.
        own: The names of the user's gates.
    """
    arms = *own, *CHOSEN, *DENSE
    found = {arm: errors(rows, arm) for arm in arms}
    costs = {arm: errors(rows, arm, "multiplications") for arm in arms}
    costs = {arm: ratio(cost, costs[DENSE[0]]) for arm, cost in costs.items()}
    chance, judged = random_errors(rows), matters(rows)
    compare = functools.partial(ratio, overlap=rows[0]["overlap"])
    words = {"yes": "matters", "no": "hardly matters"}.get(
        judged, f"may matter (more `--draws` than {len(chance)} may say it)"
    )
    lines = [[arm, compare(found[arm], chance), f"{costs[arm]:.0%}"] for arm in arms]
    lines.append(["no network", compare(without, chance), ""])
    ratios = {arm: compare(without, found[arm], among=len(arms)) for arm in arms}
    known = [each for each in ratios.values() if math.isfinite(each.mean)]
    is_sure = len(chance) >= FEWEST_DRAWS and all(each.high < 1 for each in known)
    highest = max((each.mean for each in known), default=math.inf)
    wins = NO_NETWORK.format(every=highest, fit=ratios[FIT].mean)
    gains = {"best": compare(luck(rows, BEST)), "one": compare(luck(rows, CONTROL))}
    groups = "; ".join(", ".join(group) for group in groups_of(chosen, names))
    return [
        *[wins] * is_sure,
        ANSWER.format(words=words, choices=NUM_CHOICES, **gains),
        TABLE,
        table(["gate", "error", "cost"], [map(str, line) for line in lines]),
        SAVED.format(
            saved=max(0.0, 1 - costs[FIT].mean),
            error=compare(found[FIT], found[DENSE[0]]),
        ),
        f"**Groups of tasks** that share most of their experts: {groups or 'none'}.",
    ]


def groups_of(chosen, names):
    """Groups of two tasks or more that share most of their experts, in the mean."""
    chosen = np.asarray(chosen, float)
    both = np.einsum("dtn,dun->tu", chosen, chosen)
    used = chosen.sum(axis=(0, 2))
    linked = both >= OVERLAP * (used[:, None] + used - both)
    for _ in names:  # Tasks that are linked by others are in one group.
        linked = linked @ linked
    groups = dict.fromkeys(tuple(np.flatnonzero(row)) for row in linked)
    return [[names[i] for i in group] for group in groups if len(group) > 1]
