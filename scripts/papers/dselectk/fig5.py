"""Figure 5: error and shared experts against the number of tasks."""

import dataclasses
import itertools
import math
from typing import Any

import keras

from dselectk_keras import datasets
from dselectk_keras.experts import DenseExperts
from dselectk_keras.models import Task, build_multitask_model
from dselectk_keras.plots import plot_curves
from experiments import (
    Experiment,
    Gap,
    all_hold,
    format_mean,
    gap_of,
    gate_history,
    preset,
    train_jobs,
)
from papers import citations, drawing
from papers.dselectk._gates import if_within_rules
from papers.dselectk._synthetic import (
    METHODS,
    UNITS,
    K,
    Method,
    error,
    follow,
    look,
)

GROUP = 16  # Related tasks; with no more there are none that are unrelated.
OURS, TOP_K = "DSelect-k", "Top-k"
ABLATIONS = ("Ablation (annealing)", "Ablation (entropy)")
PAPER = (OURS, TOP_K, *ABLATIONS)
PANELS = {
    "mse": "test MSE",
    "related": "Jaccard index, related tasks",
    "unrelated": "Jaccard index, unrelated tasks",
}


@dataclasses.dataclass(frozen=True)
class Fig5(Experiment):
    """Methods compared on 16 to 128 tasks, each tuned for each number of tasks."""

    name = "dselectk-fig5"
    title = "error and shared experts against the number of tasks"
    paper = citations.DSELECT_K
    where = "Figure 5"

    seeds: int = preset(5, paper=100, smoke=1)
    trials: int = preset(12, paper=36, smoke=1)
    tasks: tuple[int, ...] = preset((16, 32, 64, 128), smoke=(32,))
    methods: tuple[str, ...] = preset(
        tuple(METHODS),
        paper=tuple(name for name in METHODS if "restarts" not in name),
        smoke=(OURS, TOP_K, "DSelect-k, recipe"),
    )
    num_train: int = preset(100_000, smoke=256)
    num_evaluated: int = preset(20_000, smoke=128)  # To tune on, and to report on.
    epochs: int = preset(25, paper=100, smoke=2)
    batch_size: int = 256

    @property
    def arms(self):
        return {
            name_arm(name, count): (name, count)
            for name, method in self.compared.items()
            for count in (self.tasks if method.paper else [self.most])
        }

    @property
    def compared(self):
        """The methods that are compared, by name."""
        own = {
            name: Method(lambda steps, _, make=make: make(K, steps), paper=False)
            for name, make in self.gates.items()
        }
        return {name: METHODS[name] for name in self.methods} | own

    @property
    def steps_per_epoch(self):
        """The steps of an epoch."""
        return -(-self.num_train // self.batch_size)

    @property
    def most(self):
        """The largest number of tasks."""
        return max(self.tasks)

    def space(self, arm):
        method, _ = self.arms[arm]
        return self.compared[method].settings

    def run(self, arm, jobs):
        name, num_tasks = self.arms[arm]
        method, data = self.compared[name], self._data(num_tasks)
        length: dict[str, Any] = {"epochs": self.epochs, "batch_size": self.batch_size}
        options = {"record": True, "decide": method.decides}
        runs = train_jobs(self._build(method, data), data, jobs, **options, **length)
        return [
            self._judge(method, data, copy.model, gate_history(copy)["mmoe"])
            for copy in runs.copies
        ]

    def _judge(self, method, data, model, history):
        seen = {
            **look(history["weights"][-1], data.groups, method.zero),
            **follow(history.get("binary"), self.steps_per_epoch),
        }
        # The paper's rules: S(Z) is binary, and at most k experts are used.
        decided = method.zero > 0.0 or seen.get("binary", 1.0) == 1.0
        return {
            "objective": error(model, data.validation),
            "mse": error(model, data.test),
            "admissible": decided and seen["most_experts"] <= K,
            **seen,
        }

    def _build(self, method, data):
        """What builds the model of a job: a function of a seed and the settings."""
        tasks = [Task(name, tower="sum", metrics=()) for name in data.task_names]
        steps, inputs = self.epochs * self.steps_per_epoch, data.train.x.shape[1]

        def build(seed, learning_rate, **settings):
            gate = method.make(steps, seed, **settings)
            experts = DenseExperts(len(tasks) // 4, [UNITS])
            model = build_multitask_model(
                inputs, tasks, experts=experts, gate=gate, stacked=True
            )
            model.compile(keras.optimizers.Adam(learning_rate))
            return model

        return build

    def _data(self, num_tasks):
        """The data, the same for every run."""
        return datasets.load(
            "synthetic_moe",
            num_tasks=num_tasks,
            num_train=self.num_train,
            num_validation=self.num_evaluated,
            num_test=self.num_evaluated,
            seed=0,
        )

    def counts(self, number):
        """The numbers of tasks for which there is such a number."""
        return [n for n in self.tasks if number != "unrelated" or n > GROUP]

    def at_most(self, results, method, number):
        """A number of a method at the largest number of tasks, as text."""
        results.ran(name_arm(method, self.most))
        return results.text(name_arm(method, self.most), number)

    def of(self, results, method, number, count=None):
        """The mean of a number of a method, by default for most tasks."""
        results.ran(name_arm(method, count or self.most))
        return results.mean(name_arm(method, count or self.most), number)

    def against(self, results, number, *others):
        """A number of DSelect-k and of others for each number of tasks, as text."""
        return "; ".join(
            f"{count} tasks: "
            + " against ".join(
                results.text(name_arm(name, count), number) for name in (OURS, *others)
            )
            for count in self.counts(number)
        )

    def is_better(self, results, number, *others):
        """Whether DSelect-k is better in a number than others, for every `tasks`."""
        sign, judged = -1 if number == "related" else 1, []
        for count, other in itertools.product(self.counts(number), others):
            ours = name_arm(OURS, count)
            gap = results.gap(name_arm(other, count), ours, number, scale=sign)
            better = gap.is_positive()
            if number == "related" and count <= GROUP and not (gap.mean or gap.error):
                better = True  # All of the four experts: nothing is above 1.
            judged.append(if_within_rules(results, ours, better))
        return all_hold(judged)

    def advantages(self, results, number):
        """How much better than Top-k DSelect-k is, for each number of tasks."""
        gaps = [
            self.of(results, TOP_K, number, count)
            - self.of(results, OURS, number, count)
            for count in self.counts(number)
        ]
        return [-gap if number == "related" else gap for gap in gaps]

    def grows(self, results, number):
        """Whether the advantage is larger for more tasks."""
        sign, gaps = -1 if number == "related" else 1, []
        for count in self.counts(number):
            arms = name_arm(TOP_K, count), name_arm(OURS, count)
            gaps.append(results.gap(*arms, number, scale=sign))
        grows = [gaps[-1].is_positive(), *map(_below, gaps, gaps[1:])]
        return self._if_all_within(results, all_hold(grows), self.counts(number))

    def _if_all_within(self, results, holds, counts):
        """What a claim on DSelect-k at some numbers of tasks says, as a whole."""
        arms = [name_arm(OURS, count) for count in counts]
        return all_hold([if_within_rules(results, arm, holds) for arm in arms])

    def falling(self, results):
        """The means of both Jaccard indices for each number of tasks, by method."""
        return {
            f"{name}, {number}": [
                self.of(results, name, number, count) for count in self.counts(number)
            ]
            for name in PAPER
            for number in ("related", "unrelated")
        }

    def falls(self, results):
        """Whether all of them fall with the number of tasks."""
        falls = []
        for name, number in itertools.product(PAPER, ("related", "unrelated")):
            arms = [name_arm(name, count) for count in self.counts(number)]
            means = [gap_of(results.values(arm, number)) for arm in arms]
            falls += map(_below, means[1:], means)
        return self._if_all_within(results, all_hold(falls), self.tasks)

    def as_many(self, results):
        """Whether the ablation selects fewer than three experts, and others four."""
        few = self.of(results, ABLATIONS[1], "experts")
        four = [self.of(results, name, "experts") for name in (OURS, TOP_K)]
        holds = few < 3 and all(abs(count - K) < 0.5 for count in four)
        return if_within_rules(results, name_arm(OURS, self.most), bool(holds))

    def asked(self, results, name):
        """The numbers of a method of ours, and of the paper's that it is like."""
        rivals = [name, TOP_K if TOP_K in name else OURS]
        return "; ".join(
            f"{rival}: error {self.at_most(results, rival, 'mse')}, Jaccard index of "
            f"related tasks {self.at_most(results, rival, 'related')}, of unrelated "
            f"{self.at_most(results, rival, 'unrelated')}"
            for rival in rivals
        )

    def tried(self, results):
        """Every trial for most tasks, with its method."""
        for method in self.compared:
            for run in results.of(name_arm(method, self.most), tuning=True):
                yield method, run.settings, run.numbers

    def draw_tasks(self, results):
        figure, axes = drawing.import_pyplot().subplot_mosaic(
            [["mse", "related"], ["mse", "unrelated"]],
            figsize=(drawing.PAGE_WIDTH, 4.2),
            layout="constrained",
        )
        shown = [name for name, each in self.compared.items() if each.paper]
        for number, label in PANELS.items():
            ax, counts = axes[number], self.counts(number)
            curves, bands = {}, {}
            for method in shown:
                arms = [name_arm(method, count) for count in counts]
                curves[method] = counts, [results.mean(arm, number) for arm in arms]
                bands[method] = [results.error(arm, number) for arm in arms]
            if number != "mse":
                curves["random"] = counts, [random_jaccard(n // 4) for n in counts]
                bands["random"] = [0.0] * len(counts)
            log = ("x", "y") if number == "mse" else ("x",)
            labels = {"x_label": "tasks", "y_label": label, "log": log}
            plot_curves(curves, errors=bands, markers=True, ax=ax, **labels)
            ax.set_xticks(counts, [str(count) for count in counts])
            ax.xaxis.minorticks_off()
            ax.tick_params(which="minor", labelsize=drawing.SMALL_FONT)
        return figure

    def draw_frontier(self, results):
        figure, [[ax]] = drawing.panels(1, 1, 3.2)
        looks = itertools.product("o^", drawing.COLORS)
        for method, (marker, color) in zip(self.compared, looks, strict=False):
            runs = [r for name, _, r in self.tried(results) if name == method]
            filled = [color if run["admissible"] else "none" for run in runs]
            x, y = ([run[n] for run in runs] for n in ("experts", "objective"))
            look = {"s": 20, "marker": marker, "edgecolors": color}
            ax.scatter(x, y, facecolors=filled, label=method, **look)
        drawing.tidy_axes(ax)
        ax.set_yscale("log")
        drawing.label(ax, x="experts per task", y="validation MSE")
        ax.tick_params(which="minor", labelsize=drawing.SMALL_FONT)
        place = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
        ax.legend(fontsize=drawing.SMALL_FONT, frameon=False, **place)
        return figure


def kept_trials(results):
    """How many trials of DSelect-k keep the paper's rules, and how many there are."""
    arms = (name_arm(OURS, count) for count in results.experiment.tasks)
    kept = [r.numbers["admissible"] for a in arms for r in results.of(a, tuning=True)]
    return sum(kept), len(kept)


def name_arm(method, num_tasks):
    """The name of an arm."""
    return f"{method}, {num_tasks} tasks"


def _below(gap, other):
    """Whether a mean is below another one, of other runs."""
    error = math.hypot(gap.error, other.error)
    return Gap(other.mean - gap.mean, error, gap.size).is_positive()


def words(value):
    """A mean, as text."""
    return format_mean(value, math.nan)


def settings_of(method, name):
    """The values of a setting that are tried for a method, as text."""
    return ", ".join(f"{value:g}" for value in METHODS[method].settings[name])


def random_jaccard(num_experts):
    """The expected Jaccard index of two sets of `K` experts, drawn uniformly."""
    ways = math.comb(num_experts, K)
    return sum(
        math.comb(K, both)
        * math.comb(num_experts - K, K - both)
        / ways
        * (both / (2 * K - both))
        for both in range(K + 1)
    )
