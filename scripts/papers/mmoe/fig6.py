"""Figure 6: what the gates of two tasks of a recommender do."""

import dataclasses
import functools
import math

import keras
import numpy as np

from dselectk_keras import datasets
from dselectk_keras.experts import DenseExperts
from dselectk_keras.models import Task, build_multitask_model
from experiments.area_under_curve import area_under_curve
from experiments.compare import (
    all_hold,
    difference,
    format_gap,
    is_positive,
)
from experiments.experiment import Experiment
from experiments.report import Claim, Fact, Picture, Report, Table
from experiments.train_jobs import train_jobs
from papers import citations, drawing
from papers.mmoe._protocol import by_preset
from papers.mmoe._tasks import only_tasks

TASKS = ("engagement", "satisfaction")
PAPERS = "click and like"
FREQUENT = "click and satisfied"
TWINS = "click twice"
SHOWN = (10, 90)  # Percentiles over the examples.


@dataclasses.dataclass(frozen=True)
class Fig6(Experiment):
    """How the softmax gates of two tasks spread their weight over the experts.

    Args:
        num_train: Training examples.
        num_test: Validation examples, and test examples.
        num_experts: The number of experts.
        units: Width of an expert.
        bottom: Width of the layer below the experts and the gates.
        epochs: Passes over the data.
        batch_size: Examples in a step.
        learning_rate: Of Adam.
    """

    name = "mmoe-fig6"
    title = "the softmax gates of an engagement and of a satisfaction task"
    paper = citations.MMOE
    where = "Figure 6"
    about = (
        "An MMoE with a softmax gate for each of two binary tasks: engagement, whose "
        "positive labels are frequent, and satisfaction, where they are rare. The "
        "paper's data are private. `datasets.recommender_sim` takes their place: its "
        "task `click` is positive in 30% of the examples and `like` in 5%. The figure "
        "shows the weights of the experts in both gates on test examples. There are "
        "two controls: the task `satisfied` (60%) in place of `like`, and `click` in "
        "both places."
    )

    num_train: int = 90_000
    num_test: int = 10_000
    num_experts: int = 8
    units: int = 16
    bottom: int = 32
    epochs: int = 10
    batch_size: int = 1024
    learning_rate: float = 3e-3

    @classmethod
    def presets(cls):
        return {
            "smoke": cls(
                num_train=64,
                num_test=64,
                num_experts=3,
                units=2,
                epochs=1,
                batch_size=32,
            ),
            "cpu": cls(seeds=10),
            "paper": cls(
                seeds=10,
                num_train=9_000_000,
                num_test=1_000_000,
                units=64,
                bottom=256,
                epochs=20,
            ),
        }

    @property
    def arms(self):
        return {
            PAPERS: ("click", "like"),
            FREQUENT: ("click", "satisfied"),
            TWINS: ("click", "click"),
        }

    def run(self, arm, jobs):
        data = _load(self.num_train, self.num_test)
        data = only_tasks(data, dict(zip(TASKS, self.arms[arm], strict=True)))
        runs = train_jobs(
            self._build,
            data,
            jobs,
            epochs=self.epochs,
            batch_size=self.batch_size,
            monitor="val_task_loss",
        )
        return [
            self._numbers(runs.model(number), data.test) for number in range(len(jobs))
        ]

    def report(self, results):
        caption = (
            "Mean weight of each expert in the gates of the two tasks, over test "
            f"examples; the thin lines reach from percentile {SHOWN[0]} to "
            f"{SHOWN[1]} of the examples. One panel for each seed; experts are in "
            "the order of the engagement gate's weights."
        )

        def draw():
            return draw_gates([run.numbers for run in results.of(PAPERS)])

        return Report(
            self._claims(results),
            [self._table(results)],
            [Picture("gates", caption, draw)],
            self._notes(),
            protocol=self._protocol(),
        )

    def _notes(self):
        return [
            (
                "Distance is half of the sum of absolute differences between the mean "
                "gates of the two tasks: 0 if they are the same, 1 if they share no "
                "expert. Two gates for the same task differ as well, because their "
                "initial weights differ. The distance is compared with theirs. "
                "Focus is the largest mean weight: of "
                f"{self.num_experts} experts at least {1 / self.num_experts:.3g}. "
                "A difference within two standard errors is not judged. The paper's "
                "figure prints no numbers."
            ),
        ]

    def _protocol(self):
        def of(write):
            return by_preset(self, write)

        private = "The paper's data are private."
        return [
            Fact(
                "Data",
                "feedback of a live recommender (Section 6.4)",
                "`datasets.recommender_sim`",
                private,
            ),
            Fact(
                "Features",
                "embeddings of sparse ones; dense ones in [0, 1] (Section 6.4.1)",
                "20 numbers, standard normal",
                "The simulation has no sparse features.",
            ),
            Fact(
                "Training examples",
                "30 billion",
                of(lambda e: f"{e.num_train:,}, {e.epochs} epochs"),
                private,
            ),
            Fact(
                "Examples held out",
                "1 million",
                of(lambda e: f"{e.num_test:,} for validation, {e.num_test:,} for test"),
                private,
            ),
            Fact(
                "Layers below the experts",
                "all but the top layer of the shared bottom; no sizes",
                of(lambda e: f"one layer of {e.bottom}"),
            ),
            Fact(
                "Experts",
                "number and units are tuned (Section 6.2); no values in the text",
                of(lambda e: f"{e.num_experts}, each one layer of {e.units}"),
                "Fewer runs.",
            ),
            Fact("Towers", "one fully connected layer", "one fully connected layer"),
            Fact("Gates", "softmax, one per task", "softmax, one per task"),
            Fact(
                "Optimizer",
                "SGD, batches of 1024; the learning rate is tuned (Section 6.2)",
                of(lambda e: f"Adam, {e.learning_rate:g}, batches of {e.batch_size}"),
                "Adam needs fewer steps. Our runs of Table 3 are with SGD.",
            ),
            Fact(
                "Weights that are shown",
                "no step is named",
                "of the epoch with the lowest validation loss",
            ),
            Fact("Runs", "not stated", of(lambda e: e.seeds)),
        ]

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
        found = model.predict(split.x, batch_size=8192, verbose=0)
        areas = {
            f"{task}_auc": area_under_curve(split.y[:, column], found[task][:, 0])
            for column, task in enumerate(TASKS)
        }
        return {**gate_numbers(weights), **areas}

    def _claims(self, results):
        apart = {arm: results.mean(arm, "distance") for arm in self.arms}
        apart_more = difference(results, "distance", PAPERS, TWINS)
        more = results.mean(PAPERS, "more_focus"), results.error(PAPERS, "more_focus")
        for_rarity = difference(results, "more_focus", PAPERS, FREQUENT)
        focus = {
            task: results.text(PAPERS, f"{task}_focus", digits=2) for task in TASKS
        }
        return [
            Claim(
                "MMoE learns the difference between the tasks: their gates differ.",
                f"The distance of the mean gates is {apart[PAPERS]:.2f}, and that of "
                f"two gates for the same task {apart[TWINS]:.2f}. Difference: "
                f"{format_gap(*apart_more, 2)}.",
                is_positive(*apart_more),
                "Section 6.4.2, on Figure 6",
            ),
            Claim(
                "It balances shared and non-shared parameters by itself. (It holds "
                "here if the gates share weight and differ in weight, and by more than "
                "two gates for the same task.)",
                f"The gates have {1 - apart[PAPERS]:.0%} of their weight on the same "
                "experts.",
                all_hold([is_positive(*apart_more), bool(apart[PAPERS] < 1)]),
                "Section 6.4.2, on Figure 6",
            ),
            Claim(
                "The gate of the satisfaction task is more focused on a single expert.",
                f"The largest mean weight is {focus['satisfaction']} for satisfaction "
                f"and {focus['engagement']} for engagement. Difference within a model: "
                f"{format_gap(*more, 2)}.",
                is_positive(*more),
                "Section 6.4.2, on Figure 6",
            ),
            Claim(
                "That is because its labels are sparser.",
                "With a satisfaction task that is frequent, the difference in focus is "
                f"{results.text(FREQUENT, 'more_focus', digits=2)}. With the rare one "
                f"it is higher by {format_gap(*for_rarity, 2)}.",
                is_positive(*for_rarity),
                "Section 6.4.2, on Figure 6",
            ),
        ]

    def _table(self, results):
        rows = []
        for arm in self.arms:
            values = [results.text(arm, "distance", digits=2)]
            for what in ("focus", "experts", "auc"):
                values += [results.text(arm, f"{task}_{what}") for task in TASKS]
            rows.append([arm, *values])
        columns = ["tasks", "distance of the gates"]
        for what in ("focus", "experts in effect", "test AUC"):
            columns += [f"{what}: {task}" for task in TASKS]
        return Table(
            "The gates in numbers",
            columns,
            rows,
            "Experts in effect: the exponential of the entropy of an example's "
            "weights, on average.",
        )


@functools.lru_cache(maxsize=1)
def _load(num_train, num_test):
    return datasets.recommender_sim(num_train, num_test, num_test)


def gate_numbers(weights):
    """What the gates of two tasks do over examples.

    Args:
        weights: An array (examples, 2, experts).

    Returns:
        A dict of numbers and lists.
    """
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


def draw_gates(runs):
    """A panel for each run: two bars for each expert, one for each task.

    Args:
        runs: A list of what `gate_numbers` gives.

    Returns:
        The matplotlib figure.
    """
    columns = min(5, len(runs))
    rows = math.ceil(len(runs) / columns)
    figure, axes = drawing.panels(
        rows,
        columns,
        0.6 + 1.35 * rows,
        width=max(columns, 2) / 5,
        sharex=True,
        sharey=True,
    )
    for seed, (ax, run) in enumerate(zip(axes.flat, runs, strict=False)):
        order = np.argsort(run["engagement_mean"])[::-1]
        for shift, task, color in zip((-0.2, 0.2), TASKS, drawing.COLORS, strict=False):
            mean, low, high = (
                np.asarray(run[f"{task}_{what}"])[order]
                for what in ("mean", "low", "high")
            )
            x = np.arange(len(mean)) + shift
            ax.bar(x, mean, 0.4, color=color, label=task)
            ax.vlines(x, low, high, color=drawing.TEXT, linewidth=0.6)
        drawing.tidy_axes(ax)
        ax.set_xticks([])
        ax.set_title(f"seed {seed}", fontsize=drawing.SMALL_FONT, loc="left")
    for ax in axes.flat[len(runs) :]:
        ax.set_visible(False)
    figure.supxlabel("experts", fontsize=drawing.FONT)
    figure.supylabel("weight in the gate", fontsize=drawing.FONT)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside upper right",
        ncols=2,
        frameon=False,
        fontsize=drawing.SMALL_FONT,
    )
    return figure
