"""A check of what a router is worth on the data of a user's table."""

import itertools
import math
import pathlib
import sys

import keras
import numpy as np

from dselectk_keras.tables import read_table
from research.benches.gate_comparison.mine import (
    as_inputs,
    as_labels,
    check_labels,
    write_answer,
)
from research.benches.gate_comparison.statistics import errors, ratio
from research.benches.gate_comparison.tables import split_rows
from research.benches.router_comparison import page
from research.benches.router_comparison.arms import (
    DENSE,
    ONE,
    ROUTERS,
    SMEAR,
    SWITCH,
    UNITS,
    WIDE,
)
from research.benches.router_comparison.problems import SIZES, Problem
from research.benches.router_comparison.training import BATCH_SIZE, STEPS, train
from research.engine.pages import table
from research.engine.search import try_grids

# One or two of each kind.
ASKED = (
    ONE,
    *DENSE,
    WIDE,
    "softmax",
    SMEAR,
    "softmax, annealed",
    SWITCH,
    "Top-2",
    page.OURS[1],
)
# Of the grid of the bench, those that lost least on its trials.
RATES, DECAYS = (0.01, 0.03, 0.1), (0.0, 0.1, 1.0)
FEWEST_LABELS = 10  # Of each target, in each part of the rows.
STAGES = 12
NAME = "mine"

ENOUGH = """\
**One expert is enough here:** the best router by validation, {names}, has {error}
times the test error of one expert that costs as much at serving, {costs} times the
smallest."""

WORTH_IT = """\
**A router is worth it here: {names}** has {error} times the test error of one expert
that costs as much at serving, {costs} times the smallest."""

WIDER = """\
**Width helps here, and not routing:** one expert as wide as all {count} has {wide}
times the test error of one, at {width:.1f} times its cost. The best router by
validation, {names}, has {error} times the error of one expert of its own cost, which is
{costs} times that of the smallest."""

UNDECIDED = """\
**Undecided:** the best router by validation, {names}, has {error} times the test error
of one expert that costs as much at serving, {costs} times the smallest. More `--draws`
than {draws} may say whether it is worth it."""

NOT_PACKAGED = """\
The package does not have {names}. Of its own routers, the best by validation,
{packaged}, has {error} times the error of one expert of its cost."""

TABLE = """\
Test error, and multiplications for an example, over those of one expert. The wide one
has the units of all {count}. Training counts forward and backward passes; experts
without weight do not run."""

HOW = """\
Draws: {draws}, of {train:,} rows for training and {test:,} each for validation and
test. Each has {count} experts of {units} units, and {steps:,} steps of {batch}
examples. On each draw, the setting, of {settings} pairs of a learning rate and a weight
decay, and the stage of the training, of {stages}, are those with the lowest validation
error. `docs/gatebench/routers.md` says what the routers are."""


def answer(path, targets, draws, folder, encoding="utf-8"):
    """Compare routers on a table, and write a page about it.

    Args:
        path: A file as for `read_table`.
        targets: The names of the columns that are the labels, as for GateBench: see
            `research.benches.gate_comparison.mine`. Rows without a label are left out.
        draws: The number of splits. With fewer than three, nothing is decided.
        folder: The folder of the page.
        encoding: The encoding of the file.

    Returns:
        The path of the page, and its text.
    """
    frame = read_table(path, encoding)
    y = as_labels(frame, targets)
    is_labeled = y.notna().any(axis=1).to_numpy()
    x = as_inputs(frame.drop(columns=targets))[is_labeled]
    names, y = list(y), y.to_numpy()[is_labeled]
    binary = [set(column[~np.isnan(column)]) == {0, 1} for column in y.T]
    tables = {
        seed: split_rows(x, y, binary, seed, sizes=SIZES) for seed in range(draws)
    }
    check_labels(tables.values(), names, FEWEST_LABELS)
    problem = Problem("real", lambda seed, _: tables[seed])
    rows = compare(problem, tables)
    sizes = x.shape[1], problem.num_experts, len(names)
    first, *others = sentences(rows, sizes)
    parts = [first], [*others, how(tables[0], draws, problem)]
    figure = page.draw({pathlib.Path(path).name: rows})
    return write_answer(path, pathlib.Path(folder) / "routers", figure, *parts)


def compare(problem, tables):
    """Train all settings on each draw; return a row of the best for each arm and draw.

    Args:
        problem: A `Problem`.
        tables: A dict of its `Table` by seed.
    """
    pairs, rows = list(itertools.product(RATES, DECAYS)), []
    total = len(ASKED) * len(tables) * len(pairs)
    bar = keras.utils.Progbar(
        total, unit_name="training", verbose=int(sys.stdout.isatty())
    )
    for arm in ASKED:
        own, *_ = ROUTERS[arm].space["own"]
        grid = [{"rate": rate, "decay": decay, "own": own} for rate, decay in pairs]
        found = try_grids(
            lambda jobs, arm=arm: train(problem, arm, tables, jobs, STAGES),
            dict.fromkeys(tables, grid),
        )
        for seed, of_draw in found.items():
            best = min(of_draw, key=lambda each: each["objective"])
            if math.isfinite(best["test"]):
                rows.append({"problem": NAME, "arm": arm, "draw": seed, **best})
        bar.add(len(tables) * len(pairs))
    return rows


def sentences(rows, sizes):
    """The answer from the rows: parts of a page.

    Args:
        rows: The rows of `compare`.
        sizes: The numbers of inputs, experts and outputs.
    """
    one, wide = errors(rows, ONE), errors(rows, WIDE)
    names, error = best_by_validation(rows, page.ROUTED)
    answers = {"yes": ENOUGH, "no": WORTH_IT, "undecided": UNDECIDED}
    said = answers[page.is_one_enough(rows, NAME)]
    # It is better than one expert, and no router is better than it.
    if page.is_as_good(one, wide) == "no" and page.does_width_do(rows, NAME) == "yes":
        said = WIDER
    costs = [f"{page.cost(name, sizes):.1f}" for name in names]
    parts = [
        said.format(
            names=" or ".join(names),
            error=error,
            costs=" or ".join(dict.fromkeys(costs)),
            wide=ratio(wide, one),
            width=page.cost(WIDE, sizes),
            count=sizes[1],
            draws=len(one),
        )
    ]
    if lacking := [name for name in names if name in page.NOT_PACKAGED]:
        packaged, error = best_by_validation(rows, page.IN_PACKAGE)
        named = {"names": " and ".join(lacking), "packaged": " or ".join(packaged)}
        parts.append(NOT_PACKAGED.format(**named, error=error))
    lines = []
    for arm in ASKED:
        each = (page.cost(arm, sizes, training=training) for training in (False, True))
        error = str(ratio(errors(rows, arm), one) or "diverged")
        lines.append([arm, error, *(f"{number:.1f}" for number in each)])
    heads = ["router", "error", "cost at serving", "in training"]
    return [*parts, TABLE.format(count=sizes[1]), table(heads, lines)]


def best_by_validation(rows, arms):
    """The names of the best arms of the draws, and their error over one expert's."""
    best = page.best_rows(rows, arms)
    names = sorted({row["arm"] for row in best.values()})
    found = {key: row["test"] for key, row in best.items()}
    return names, ratio(found, page.rivals(rows, best))


def how(first, draws, problem):
    """The way in which the routers were trained, as text."""
    rows = [len(x) for x, _ in first.splits]
    return HOW.format(
        draws=draws,
        train=rows[0],
        test=min(rows[1:]),
        count=problem.num_experts,
        units=UNITS,
        steps=STAGES * STEPS,
        batch=BATCH_SIZE,
        settings=len(RATES) * len(DECAYS),
        stages=STAGES,
    )
