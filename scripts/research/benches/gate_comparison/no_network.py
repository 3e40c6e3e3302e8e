"""The errors of models without a network, one per task, on the data of a problem."""

import dataclasses
import pathlib
from typing import ClassVar

import numpy as np
import pandas as pd

from common.rivals import best, error, rivals
from research.benches.gate_comparison.problems import PROBLEMS
from research.benches.gate_comparison.statistics import errors, mean_ratio, only
from research.engine import Experiment, Results, preset
from research.engine.pages import table

SETTINGS = 12  # About as many as an arm tries.
COMMITTED = pathlib.Path(__file__).parents[4] / "docs" / "results"
FIRST = """\
**Models without a network**, the best by validation of boosted trees, extra trees and a
linear model per task, have a lower test error than every gate on {wins} of {count} real
tables. Errors over theirs, means of {draws} draws:"""
# Real data with inputs that are columns of a table.
SHOWN = (
    "energy",
    "concrete",
    "adult",
    "solar flares",
    "films",
    "census",
    "molecules",
)


def error_of(data, seed, frame=None, settings=SETTINGS):
    """The mean over tasks of the test losses of the best model by validation.

    The losses are those of GateBench: the log loss of binary tasks, and the squared
    error of standardized labels.

    Args:
        data: A `Table`.
        seed: The seed of the settings and the models.
        frame: The columns of a table as they are; inputs of `data` are then the
            numbers of its rows.
        settings: The number of settings that are tried for each kind of model.

    Returns:
        The error, and a dict from the names of models to the tasks that they win.
    """
    names, parts = [str(task) for task in range(len(data.binary))], []
    for x, y in data.splits:
        if frame is None:
            inputs = pd.DataFrame(x).rename(columns=lambda place: f"x{place}")
        else:
            inputs = frame.iloc[x[:, 0].astype(int)].reset_index(drop=True)
        labels = pd.DataFrame(y, columns=names).astype("float64")
        parts.append(pd.concat([inputs, labels], axis=1))
    train, validation, test = parts
    models = rivals(train, validation, names, settings, seed)
    losses, wins = [], {}
    for name, is_binary in zip(names, data.binary, strict=True):
        kind = best(models[name])
        wins[kind] = wins.get(kind, 0) + 1
        model, rows = models[name][kind], test[test[name].notna()]
        labels, predicted, classes = rows[name], model.predict(rows), model.classes
        if is_binary:
            losses.append(error(labels, predicted, classes))
        else:  # Numbers that have two values here are their mean.
            numbers = predicted if classes is None else predicted @ classes
            losses.append(error(labels, numbers) ** 2)
    return float(np.mean(losses)), wins


@dataclasses.dataclass(frozen=True)
class NoNetwork(Experiment):
    """Models without a network on the real tables of GateBench, with its draws.

    Args:
        settings: The number of settings that are tried for each kind of model.
        num_problems: The number of problems, the first ones.
    """

    name: ClassVar[str] = "gatebench-no-network"
    title: ClassVar[str] = "boosted trees and others on GateBench's real tables"
    page: ClassVar[str] = "{table_errors}"
    scales: ClassVar[tuple[str, ...]] = ()

    seeds: int = preset(3, smoke=1)
    settings: int = preset(SETTINGS, smoke=1)
    num_problems: int = preset(len(SHOWN), smoke=1)

    @property
    def arms(self):
        """The problems."""
        return {name: PROBLEMS[name] for name in SHOWN[: self.num_problems]}

    def run(self, arm, jobs):
        """Fit the models on each draw."""
        found = []
        for job in jobs:
            data = PROBLEMS[arm].load(job.seed, self.data_dir or ".")
            test, wins = error_of(data, job.seed, settings=self.settings)
            found.append({"test": test, "wins": wins})
        return found

    def table_errors(self, results):
        """The error on each problem."""
        yield "table | test error:"
        for problem in self.arms:
            yield [problem, results.text(problem, "test")]

    def errors(self, results):
        """The errors: a dict from (problem, draw)."""
        return {
            (problem, run.seed): run.numbers["test"]
            for problem in self.arms
            for run in results.of(problem)
        }


def paragraphs(rows, arms, shown, results=None):
    """A sentence and a table about the rows of GateBench, if there are results.

    Args:
        rows: See `rows_of`.
        arms: The names of all arms.
        shown: Those that have a column.
        results: The `Results` of `NoNetwork`; those that are committed if left out.
    """
    results = results or Results(NoNetwork(), "cpu", COMMITTED)
    others, lines, wins = results.experiment.errors(results), [], 0
    for problem in SHOWN:
        theirs = only(others, [problem])
        found = {arm: mean_ratio(errors(rows, arm), theirs) for arm in arms}
        found = {arm: ratio for arm, ratio in found.items() if ratio}
        if not found:
            continue
        best_arm = min(found, key=lambda arm: found[arm])
        wins += found[best_arm] > 1
        cells = [f"{found[arm]:.2f}" if arm in found else "" for arm in shown]
        lines.append([problem, f"{best_arm} {found[best_arm]:.2f}", *cells])
    if not lines:
        return []
    draws = results.experiment.seeds
    first = FIRST.format(wins=wins, count=len(lines), draws=draws)
    return [first, table(["table", "the best gate", *shown], lines)]
