"""Run the arms on a problem, and choose settings and epochs by the validation loss."""

import dataclasses
import sys

import keras
import numpy as np

from gate_comparison.arms import (
    ARMS,
    CHOICES,
    FEW_ARMS,
    FORMS,
    KNOWN,
    NORMALIZED,
    NUM_CHOICES,
    ONE_SETTING,
)
from gate_comparison.training import Trainer


def compare(problem, draws, folder, arms, **grid):
    """Train arms on some draws of a problem.

    Args:
        problem: A `Problem`.
        draws: The seeds of the draws.
        folder: The folder of the real data.
        arms: A dict of `Arm`, by name.
        **grid: `rates` and `decays`; those of the problem if left out.

    Returns:
        A list of dicts, one for each draw and arm.
    """
    tables = [problem.load(draw, folder) for draw in draws]
    grid = grid or problem.few or {}
    runs = {form: [] for form in FORMS}
    for name, arm in arms.items():
        if suits(name, problem, tables[0].groups is not None):
            runs[arm.form] += [
                (name, run)
                for draw in range(len(tables))
                for run in arm.runs(draw, **grid)
            ]
    total = sum(map(len, runs.values()))
    with_choices = "random" in arms and problem.few is None
    if with_choices:
        total += len(tables) * len(CHOICES) * NUM_CHOICES
    bar = keras.utils.Progbar(
        total, unit_name="training", verbose=int(sys.stdout.isatty())
    )
    rows = []
    for form, own in runs.items():
        if own:
            trainer = Trainer(problem, tables, draws, FORMS[form], bar.add)
            found = trainer.train([run for _, run in own])
            rows += best_rows(trainer, own, found, arms)
            if with_choices and any(name == "random" for name, _ in own):
                for name, event in CHOICES.items():
                    rows += compare_choices(trainer, rows, name, event)
    for row in rows:
        row["draw"] = draws[row["draw"]]
    return rows


def suits(arm, problem, has_groups):
    """Whether an arm can be trained on a problem."""
    if problem.few is not None and arm in ARMS and arm not in FEW_ARMS:
        return False
    return (has_groups or not arm.startswith(KNOWN)) and not (
        arm in NORMALIZED and problem.expert
    )


def compare_choices(trainer, rows, name, event):
    """Train several times with the best settings of one random choice."""
    arm, runs = dataclasses.replace(ARMS["random"], events=lambda _: {0: event}), []
    for row in rows:
        if row["arm"] == "random":
            runs += [
                arm.run(row["draw"], tuple(row["setting"]), choice)
                for choice in range(NUM_CHOICES)
            ]
    histories = trainer.train(runs)
    found = []
    for first in range(0, len(runs), NUM_CHOICES):
        those = range(first, first + NUM_CHOICES)
        each = [summarize(trainer, "random", runs[i], histories[i]) for i in those]
        best = dict(min(each, key=lambda row: row["validation"]))
        tests = [round(row["test"], 5) for row in each]
        found.append({**best, "arm": f"best {name}", "choices": tests})
    return found


def best_rows(trainer, runs, histories, arms):
    """For each arm and draw, the setting with the lowest validation loss."""
    rows = {}
    for (name, run), history in zip(runs, histories, strict=True):
        row = summarize(trainer, name, run, history, arms[name].dense)
        rows.setdefault((name, run.draw), []).append(row)
    found = []
    for (name, _), same in rows.items():
        best = min(same, key=lambda row: row["validation"])
        one = [*ONE_SETTING, arms[name].own[-1]]
        # A small grid may not have the setting.
        untuned = [row["test"] for row in same if row["setting"] == one]
        found.append(best | ({"untuned": untuned[0]} if untuned else {}))
    return found


def summarize(trainer, name, run, history, dense=False):
    """The best epoch of a run, among those in which a task reads k experts at most."""
    admissible = np.isfinite(history.validation)
    if not dense:
        admissible &= history.most <= trainer.k * trainer.problem.units
    losses = np.where(admissible, history.validation, np.inf)
    best = int(losses.argmin())
    return {
        "arm": name,
        "draw": run.draw,
        "setting": list(run.given),
        "epoch": best,
        "validation": float(losses[best]),
        "test": float(history.test[best]) if admissible.any() else np.inf,
        "multiplications": trainer.multiplications(float(history.units[best])),
    }
