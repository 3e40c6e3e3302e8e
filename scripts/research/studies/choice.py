"""Other ways of choosing experts by fit, on halves of GateBench's problems."""

import dataclasses
import functools
import math
from typing import Any

import keras
import numpy as np

from common.files import numbers
from dselectk_keras import ChooseExperts
from dselectk_keras.gates.record import recording
from research.engine import Experiment, preset

GRID = {"rates": (0.01, 0.03, 0.1), "decays": (0.3, 1.0)}
AS_IT_IS = "as it is"
HALVES = "develop", "confirm"
SEEMED_TO_PAY = AS_IT_IS, "gain on held-out fifths", "ridge 0.01"
RIDGE, SAMPLE = 0.1, 4096  # As by default.


@dataclasses.dataclass(frozen=True)
class Choice(Experiment):
    """Ways are tried on every second problem, with GateBench's way of training.

    Those that seem to pay are then tried on the other problems.
    """

    name = "choice"
    title = "other ways to choose experts by fit"
    together = 3  # Draws of a problem.
    page = "{table_ratios}"

    seeds: int = preset(3, smoke=1)
    num_problems: int = preset(22, smoke=1)  # The first ones of GateBench.

    @property
    def arms(self):
        """A half, a problem and a way."""
        from research.benches.gate_comparison.problems import PROBLEMS

        return {
            f"{problem}: {way}": (half, problem, way)
            for first, half in enumerate(HALVES)
            for problem in [*PROBLEMS][: self.num_problems][first::2]
            for way in (ways() if half == "develop" else SEEMED_TO_PAY)
        }

    def run(self, arm, jobs):
        """Train on all draws, with each setting of the grid."""
        from research.benches.gate_comparison.arms import selectors, static
        from research.benches.gate_comparison.bench import Gates
        from research.benches.gate_comparison.problems import PROBLEMS

        _, name, way = self.arms[arm]
        problem = dataclasses.replace(PROBLEMS[name], **GRID)
        compared = {way: static(selectors, events=ways()[way])}
        bench = Gates(problem=problem, compared=compared, data_dir=self.data_dir)
        kept = "settings", "test", "untuned"
        return [{key: row[key] for key in kept} for row in bench.run(way, jobs)]

    def table_ratios(self, results):
        """The errors of each way over those of the default."""
        from research.benches.gate_comparison.statistics import ratio

        by_way: dict[Any, Any] = {}
        for arm, (half, problem, way) in self.arms.items():
            for run in results.ran(arm):
                errors = by_way.setdefault((half, way), ({}, {}))
                for number, own in zip(("test", "untuned"), errors, strict=True):
                    own[problem, run.seed] = numbers(run.numbers[number], math.inf)
        rows: list[Any] = ["way | problems: | tuned: | one setting:"]
        for (half, way), errors in by_way.items():
            # What was tried on the first half chose what is shown of the other.
            if way != AS_IT_IS and half == "confirm":
                pairs = zip(errors, by_way[half, AS_IT_IS], strict=True)
                count = len({problem for problem, _ in errors[0]})
                rows.append([way, count, *(str(ratio(*pair)) for pair in pairs)])
        return rows


def ways():
    """The events of each way to choose, by its name."""
    return {
        AS_IT_IS: choosing(),
        "ridge 0.01": choosing(ridge=0.01),
        "ridge 0.3": choosing(ridge=0.3),
        "ridge 1": choosing(ridge=1.0),
        "until 0.3 of the training": choosing(until=0.3),
        "until 0.8": choosing(until=0.8),
        "every 0.025": choosing(every=0.025),
        "every 0.1": choosing(every=0.1),
        "dense until 0.05": choosing(first=0.05),
        "dense until 0.1": choosing(first=0.1),
        "dense until 0.2": choosing(first=0.2),
        "shares stay": choosing(keep_shares=True),
        "gain on held-out halves": choosing(held_out),
        "gain on held-out fifths": choosing(functools.partial(held_out, parts=5)),
    }


def choosing(
    function=None, first=0.0, until=0.5, every=0.05, keep_shares=False, ridge=RIDGE
):
    """Events that choose experts, from a part of the training on."""

    def event(trainer, job):
        split, shares = trainer.tables[job.seed].splits[0], trainer.gate.shares
        before = np.array(shares.static)
        if function:
            choose_by(function, trainer.model, *split)
        else:
            ChooseExperts(*split, ridge=ridge).choose(trainer.model)
        if keep_shares:
            shares.assign(before)

    return dict.fromkeys(first + np.arange(0, until - first + 1e-9, every), event)


def choose_by(function, model, x, y):
    """Choose the experts of a model as `ChooseExperts` does, by another function.

    Args:
        function: A function of the arguments of `ops.choose_by_fit`.
        model: A model with one gate per task, in a layer `"mmoe"`.
        x: Inputs of the model.
        y: Its labels, an array with one column per task.
    """
    rows = np.sort(np.random.default_rng(0).permutation(len(x))[:SAMPLE])
    calls: list[Any] = []
    # In a stateless scope, the call changes no variable.
    with recording(calls.append), keras.StatelessScope():
        model(x[rows], training=False)
    gate, labels = model.get_layer("mmoe").gate, y[rows]
    before = keras.ops.convert_to_numpy(gate.choices)
    units = keras.ops.convert_to_numpy(calls[0].experts)
    weights, tasks = np.ones(labels.shape), np.arange(labels.shape[1])
    chosen = function(units, labels, before.shape[-1], RIDGE, weights, tasks)
    # The shares of the same experts stay.
    same = (np.sort(before) == np.sort(chosen)).all(axis=-1, keepdims=True)
    gate.choose(np.where(same, before, chosen), optimizer=model.optimizer)


def held_out(outputs, labels, k, ridge, weights, tasks, parts=2):
    """Choose experts one after another, by the variance explained on held-out parts."""
    units, y = np.asarray(outputs, "float64"), np.asarray(labels, "float64")
    n, size = units.shape[1:]
    weights = np.where(np.isnan(y), 0.0, weights)
    fold = np.random.default_rng(0).permutation(len(y)) % parts
    chosen = []
    for task in range(max(tasks) + 1):
        own, part = tasks == task, weights[:, tasks == task].mean(axis=1)
        rows = [np.flatnonzero((fold == f) & (part > 0)) for f in range(parts)]
        found = [_moments(units[r], np.nan_to_num(y[r][:, own]), part[r]) for r in rows]
        grams, targets = (np.stack(each) for each in zip(*found, strict=True))
        least = ridge * np.trace(grams.mean(axis=0)) / (n * size) * np.eye(n * size)
        experts: list[int] = []
        for _ in range(k):
            free = np.setdiff1d(np.arange(n), experts)
            sets = np.array([[*experts, expert] for expert in free])[..., None] * size
            sets = (sets + np.arange(size)).reshape(len(free), -1)
            square, gain = (sets[:, :, None], sets[:, None, :]), 0.0
            for f in range(parts):
                others = np.arange(parts) != f
                known = (grams[others].mean(axis=0) + least)[square]
                slopes = np.linalg.solve(known, targets[others].mean(axis=0)[sets])
                left = 2 * targets[f][sets] - grams[f][square] @ slopes
                gain = gain + (slopes * left).sum(axis=(1, 2))
            experts.append(int(free[np.argmax(gain)]))
        chosen.append(experts)
    return np.array(chosen)


def _moments(units, labels, part):
    """The covariances of units, and those with labels, of some weighted examples."""
    part, units = part / part.sum(), units.reshape(len(units), -1)
    centered = (units - part @ units).T * part
    return centered @ units, centered @ (labels - part @ labels)
