"""Figure 6: what the gates of two tasks of a recommender do."""

import dataclasses
import functools
import math
from typing import Any

import keras
import numpy as np

from dselectk_keras import DenseExperts, Task, build_multitask_model, datasets
from research.engine import (
    Claim,
    Experiment,
    Higher,
    all_hold,
    all_positive,
    drawing,
    gap_of,
    preset,
    train_jobs,
)
from research.papers import citations
from research.papers.data.changes import only_tasks
from research.papers.mmoe._census import areas

TASKS = ("engagement", "satisfaction")
PAPERS, FREQUENT, TWINS = "click and like", "click and satisfied", "click twice"
SHOWN = (10, 90)  # Percentiles over the examples.
_load = functools.lru_cache(maxsize=1)(datasets.recommender_sim)


@dataclasses.dataclass(frozen=True)
class Fig6(Experiment):
    """Weights of the softmax gates of two tasks over the experts."""

    name = "mmoe-fig6"
    title = "the softmax gates of an engagement and of a satisfaction task"
    paper = citations.MMOE
    where = "Figure 6"
    looks = 2
    stands_in_for = citations.LOGS

    seeds: int = preset(40, smoke=1)
    num_train: int = preset(90_000, paper=9_000_000, smoke=64)
    num_test: int = preset(10_000, paper=1_000_000, smoke=64)  # And for validation.
    num_experts: int = preset(8, smoke=3)
    units: int = preset(16, paper=64, smoke=2)  # Of an expert.
    bottom: int = preset(32, paper=256)  # Units below the experts and the gates.
    epochs: int = preset(10, paper=20, smoke=1)
    batch_size: int = preset(1024, smoke=32)
    learning_rate: float = 3e-3

    @property
    def arms(self):
        return {
            PAPERS: ("click", "like"),
            FREQUENT: ("click", "satisfied"),
            TWINS: ("click", "click"),
        }

    def run(self, arm, jobs):
        data = _load(self.num_train, self.num_test, self.num_test)
        data = only_tasks(data, dict(zip(TASKS, self.arms[arm], strict=True)))
        length: dict[str, Any] = {"epochs": self.epochs, "batch_size": self.batch_size}
        best = {"monitor": "val_task_loss"}
        runs = train_jobs(self._build, data, jobs, best=best, **length)
        return [self._numbers(copy.model, data.test) for copy in runs.copies]

    def _build(self, seed):
        inputs = keras.Input((20,), name="features")
        bottom = keras.layers.Dense(self.bottom, "relu")(inputs)
        model = build_multitask_model(
            keras.Model(inputs, bottom, name="bottom"),
            [Task(name, "binary") for name in TASKS],
            experts=DenseExperts(self.num_experts, [self.units]),
            per_example=True,
        )
        model.compile(keras.optimizers.Adam(self.learning_rate))
        return model

    def _numbers(self, model, split):
        bottom = model.get_layer("bottom")
        seen = bottom.predict(split.x, batch_size=8192, verbose=0)
        layer = model.get_layer("mmoe")
        weights = keras.ops.convert_to_numpy(layer.expert_weights(seen))
        found = {f"{task}_auc": area for task, area in areas(model, split).items()}
        return {**gate_numbers(weights), **found}

    @property
    def claims(self):
        differ = Higher(PAPERS, TWINS, by="distance")
        yield Claim("differ", differ)
        yield Claim("balances", lambda r: all_hold([differ(r).holds, shared(r) > 0]))
        yield Claim("focused", lambda r: all_positive([focus(r)]))
        yield Claim("sparser", Higher(PAPERS, FREQUENT, by="more_focus"))

    @property
    def least_focus(self):
        """The focus of a gate with equal weights."""
        return 1 / self.num_experts

    def draw_gates(self, results):
        """A panel for each of ten runs: two bars for each expert, one for each task."""
        runs = [run.numbers for run in results.of(PAPERS)[:10]]
        columns = min(5, len(runs))
        rows = math.ceil(len(runs) / columns)
        size = 0.6 + 1.35 * rows, max(columns, 2) / 5
        figure, axes = drawing.panels(rows, columns, *size, sharex=True, sharey=True)
        for seed, (ax, run) in enumerate(zip(axes.flat, runs, strict=False)):
            order = np.argsort(run["engagement_mean"])[::-1]
            pairs = zip((-0.2, 0.2), TASKS, drawing.COLORS, strict=False)
            for shift, task, color in pairs:
                parts = (run[f"{task}_{what}"] for what in ("mean", "low", "high"))
                mean, low, high = (np.asarray(part)[order] for part in parts)
                x = np.arange(len(mean)) + shift
                ax.bar(x, mean, 0.4, color=color, label=task)
                ax.vlines(x, low, high, color=drawing.TEXT, linewidth=0.6)
            label = f"{SHOWN[1] - SHOWN[0]} % of the examples"
            ax.plot([], [], color=drawing.TEXT, linewidth=0.6, label=label)
            drawing.tidy_axes(ax)
            ax.set_xticks(range(len(order)), [""] * len(order))
            ax.set_title(f"seed {seed}", fontsize=drawing.SMALL_FONT, loc="left")
        for ax in axes.flat[len(runs) :]:
            ax.set_visible(False)
        order = "experts, by their weight in the gate of engagement"
        figure.supxlabel(order, fontsize=drawing.FONT)
        figure.supylabel("mean weight in the gate", fontsize=drawing.FONT)
        handles = axes.flat[0].get_legend_handles_labels()
        look = {"loc": "outside upper right", "ncols": 3, "frameon": False}
        figure.legend(*handles, **look, fontsize=drawing.SMALL_FONT)
        return figure


def gate_numbers(weights):
    """Statistics of the gates of two tasks, of their weights (examples, 2, n)."""
    means = weights.mean(axis=0)
    low, high = np.percentile(weights, SHOWN, axis=0)
    entropy = -(weights * np.log(np.maximum(weights, 1e-30))).sum(axis=-1)
    focus = means.max(axis=-1)
    numbers = {
        "distance": np.abs(means[0] - means[1]).sum() / 2,
        "more_focus": focus[1] - focus[0],
    }
    for row, task in enumerate(TASKS):
        numbers[f"{task}_focus"] = focus[row]
        numbers[f"{task}_experts"] = np.exp(entropy[:, row]).mean()
        numbers[f"{task}_mean"] = means[row].round(4)
        numbers[f"{task}_low"] = low[row].round(4)
        numbers[f"{task}_high"] = high[row].round(4)
    return numbers


def shared(results):
    """The part of their weight that the gates have on the same experts."""
    return 1 - results.mean(PAPERS, "distance")


def focus(results):
    """The difference of the focus of the two gates of a model: a `Gap`."""
    return gap_of(results.values(PAPERS, "more_focus"))
