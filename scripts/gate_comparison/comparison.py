"""Run the arms on a problem, and choose settings and epochs by the validation loss."""

import sys

import keras
import numpy as np

from gate_comparison.arms import ARMS, GATES, NUM_CHOICES
from gate_comparison.training import Trainer


def compare(problem, draws, folder, arms=tuple(ARMS)):
    """Train all arms on some draws of a problem.

    Args:
        problem: A `Problem`.
        draws: The seeds of the draws.
        folder: The folder of the real data.
        arms: Names in `ARMS`.

    Returns:
        A list of dicts, one for each draw and arm.
    """
    tables = [problem.load(draw, folder) for draw in draws]
    runs = {program: [] for program in GATES}
    for name in arms:
        if name != "known groups" or tables[0].groups is not None:
            runs[ARMS[name].program] += [
                (name, run)
                for draw in range(len(tables))
                for run in ARMS[name].runs(draw)
            ]
    total = sum(map(len, runs.values())) + len(tables) * NUM_CHOICES * (
        "random" in arms
    )
    bar = keras.utils.Progbar(
        total, unit_name="training", verbose=int(sys.stdout.isatty())
    )
    rows = []
    for program, own in runs.items():
        if own:
            trainer = Trainer(problem, tables, draws, GATES[program], bar.add)
            found = trainer.train([run for _, run in own])
            rows += best_rows(trainer, own, found)
            if any(name == "random" for name, _ in own):
                rows += compare_choices(trainer, rows)
    for row in rows:
        row["draw"] = draws[row["draw"]]
    return rows


def compare_choices(trainer, rows):
    """Train with several random choices, with the best settings of one."""
    arm, runs = ARMS["random"], []
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
        found.append({**best, "arm": "best of 16 random", "choices": tests})
    return found


def best_rows(trainer, runs, histories):
    """For each arm and draw, the setting with the lowest validation loss."""
    rows = {}
    for (name, run), history in zip(runs, histories, strict=True):
        row = summarize(trainer, name, run, history)
        rows.setdefault((name, run.draw), []).append(row)
    found = []
    for same in rows.values():
        best = min(same, key=lambda row: row["validation"])
        without = [row for row in same if row["setting"][1] == 0.0]
        plain = min(without or same, key=lambda row: row["validation"])
        found.append({**best, "test_without_decay": plain["test"]})
    return found


def summarize(trainer, name, run, history):
    """The best epoch of a run, among those in which a sparse gate is sparse."""
    admissible = np.isfinite(history.validation)
    if not ARMS[name].dense:
        admissible &= history.experts <= trainer.k
    losses = np.where(admissible, history.validation, np.inf)
    best = int(losses.argmin())
    row = {
        "arm": name,
        "draw": run.draw,
        "setting": list(run.given),
        "epoch": best,
        "validation": float(losses[best]),
        "test": float(history.test[best]) if admissible.any() else np.inf,
    }
    decided = min(trainer.events(run), default=0)
    if decided:
        before, after = history.validation[decided - 1 : decided + 1]
        mass = float(history.mass[decided - 1])
        row |= {"kept": mass, "before": float(before), "after": float(after)}
    return row
