"""A page that says if the choice of experts matters on a user's table."""

import pathlib

import keras
import numpy as np
import pandas as pd

from dselectk_keras.tables import (
    column_kinds,
    convert_columns,
    describe_columns,
    find_targets,
    read_table,
)
from research.benches.gate_comparison import no_network
from research.benches.gate_comparison import own as own_gates
from research.benches.gate_comparison.arms import (
    BY_FIT,
    CHOICES,
    GATES,
    NUM_CHOICES,
    RECIPE,
    selectors,
    static,
)
from research.benches.gate_comparison.bench import Gates, rows_of
from research.benches.gate_comparison.page import (
    BEST,
    CONTROL,
    FIT,
    SIDE_BY_SIDE,
    draw,
    verdict,
)
from research.benches.gate_comparison.problems import Problem
from research.benches.gate_comparison.statistics import (
    errors,
    luck,
    mean_ratio,
    random_errors,
    ratio,
)
from research.benches.gate_comparison.tables import as_numbers, split_rows
from research.engine import pages, reproduce
from research.engine.pages import table

CHOSEN = FIT, SIDE_BY_SIDE, RECIPE, "Top-k, noisy", "shared bottom, pruned"
DENSE = "softmax", "shared bottom, wide"
GRID = {"rates": (0.01, 0.03, 0.1), "decays": (0.0, 0.3, 1.0)}
MOST_CLASSES = 12
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
{parts[2]:,} for test, of the {rows:,} rows of the table."""

SAVED = """\
**Saved by choosing by fit:** {saved:.0%} of the multiplications for a task, with
{error:.2f} times the error of softmax."""


def answer(path, targets, draws, folder, epochs=30, own=None, encoding="utf-8"):
    """Compare gates on a table, and write a page about it.

    Args:
        path: A file as for `read_table`.
        targets: Names of the columns that are the labels, which may be missing. Those
            with two values are binary. A text with more is one task for each value.
        draws: The number of splits. With fewer than three, nothing is decided.
        folder: The folder of the page.
        epochs: The number of epochs.
        own: A dict of more arms, the user's gates.
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
        ("mine", seed): no_network.error_of(data, seed, columns)[0]
        for seed, data in enumerate(places)
    }
    about = {"epochs": epochs, "real": True, "name": "mine", **GRID}
    problem = Problem("mine", lambda seed, _: tables[seed], **about)
    known = {name: GATES[name] for name in (*CHOSEN, *DENSE, "random")}
    arms, seen = {**(own or {}), **known, **CHOICES}, {}

    def note(trainer, job):
        weights = keras.ops.convert_to_numpy(trainer.gate.expert_weights())
        seen[job.seed, *job.settings.values()] = weights > 0

    # Before the last epoch, when the choice is final.
    arms[FIT] = static(selectors, events=BY_FIT | {1.0: note})
    results = reproduce(Gates(problem=problem, compared=arms, seeds=draws))
    rows = rows_of([results])
    best = [seen[run.seed, *run.settings.values()] for run in results.of(FIT)]
    first, *others = sentences(rows, list(y), best, without)
    sizes = [len(x) for x, _ in tables[0].splits]
    how = HOW.format(draws=draws, parts=sizes, rows=len(frame))
    parts = [
        f"# {pathlib.Path(path).name}",
        *own_gates.sentences(rows),
        first,
        "![Test error of each gate over that of experts chosen by fit.](mine.png)",
        *others,
        how,
    ]
    page, figures = pathlib.Path(folder) / "mine", {"mine.png": draw(rows)}
    return pages.write(page, *parts, figures=figures, dpi=150), "\n\n".join(parts)


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


def sentences(rows, names, chosen, without):
    """Parts of a page about the rows. The first says if models without a network win.

    Args:
        rows: See `rows_of`.
        names: The names of the tasks.
        chosen: The experts that were chosen by fit, for each draw booleans (tasks, n).
        without: The errors of models without a network, by problem and draw.
    """
    others, fit = random_errors(rows, BEST), errors(rows, FIT)
    best, one = luck(rows, BEST, "mine"), luck(rows, CONTROL, "mine")
    gains = [mean_ratio(each, dict.fromkeys(each, 1.0)) for each in (best, one)]
    words = {"yes": "matters", "no": "hardly matters"}.get(
        verdict(rows, "mine"),
        f"may matter (more `--draws` than {len(one)} may say it)",
    )
    lines, soft = [], errors(rows, DENSE[0], "multiplications")
    for arm in (*CHOSEN, *DENSE):
        cost = errors(rows, arm, "multiplications")
        error = str(ratio(errors(rows, arm), others))
        lines.append([arm, error, f"{mean_ratio(cost, soft):.0%}"])
    cheap = mean_ratio(errors(rows, FIT, "multiplications"), soft)
    groups = groups_of(chosen, names)
    found = "; ".join(", ".join(group) for group in groups) or "none"
    softer = mean_ratio(fit, errors(rows, DENSE[0]))
    lines.append(["no network", str(ratio(without, others)), ""])
    ratios = [mean_ratio(without, errors(rows, arm)) for arm in (*CHOSEN, *DENSE)]
    wins = NO_NETWORK.format(every=max(ratios), fit=mean_ratio(without, fit))
    return [
        *[wins] * (max(ratios) < 1),
        ANSWER.format(words=words, choices=NUM_CHOICES, best=gains[0], one=gains[1]),
        TABLE,
        table(["gate", "error", "cost"], lines),
        SAVED.format(saved=max(0.0, 1 - cheap), error=softer),
        f"**Groups of tasks** that share most of their experts: {found}.",
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
