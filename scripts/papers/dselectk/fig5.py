"""Figure 5: error and shared experts against the number of tasks."""

import dataclasses
import itertools
import math
from typing import Any

import keras

from dselectk_keras import datasets
from dselectk_keras.experts import DenseExperts
from dselectk_keras.metrics import active_experts, jaccard_index
from dselectk_keras.models import Task, build_multitask_model
from dselectk_keras.plots import plot_curves
from experiments import (
    Experiment,
    Gap,
    all_hold,
    drawing,
    gap_of,
    gate_history,
    preset,
    train_jobs,
)
from papers import citations
from papers.dselectk._gates import if_within_rules
from papers.dselectk._synthetic import METHODS, UNITS, K, Method, error

GROUP = 16  # Related tasks; with no more there are none that are unrelated.
OURS, TOP_K = "DSelect-k", "Top-k"
ABLATIONS = ("Ablation (annealing)", "Ablation (entropy)")
PAPER = (OURS, TOP_K, *ABLATIONS)
PANELS = {
    "mse": "test MSE",
    "related": "Jaccard index, related tasks",
    "unrelated": "Jaccard index, unrelated tasks",
}

WORDS = {
    # number: place in the figure; how DSelect-k's is, and what
    "mse": ("left", "lower", "test error"),
    "related": ("middle", "higher", "Jaccard index of related tasks"),
    "unrelated": ("right", "lower", "Jaccard index of unrelated tasks"),
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
        own = {
            name: Method(lambda steps, _, make=make: make(K, steps), paper=False)
            for name, make in self.gates.items()
        }
        return {name: METHODS[name] for name in self.methods} | own

    @property
    def most(self):
        """The largest number of tasks."""
        return max(self.tasks)

    def space(self, arm):
        method, _ = self.arms[arm]
        return self.compared[method].settings

    def run(self, arm, jobs):
        name, num_tasks = self.arms[arm]
        method = self.compared[name]
        data = datasets.load(  # The same for every run.
            "synthetic_moe",
            num_tasks=num_tasks,
            num_train=self.num_train,
            num_validation=self.num_evaluated,
            num_test=self.num_evaluated,
            seed=0,
        )
        tasks = [Task(name, tower="sum", metrics=()) for name in data.task_names]
        steps = self.epochs * -(-self.num_train // self.batch_size)

        def build(seed, learning_rate, **settings):
            model = build_multitask_model(
                data.train.x.shape[1],
                tasks,
                experts=DenseExperts(num_tasks // 4, [UNITS]),
                gate=method.make(steps, seed, **settings),
                stacked=True,
            )
            model.compile(keras.optimizers.Adam(learning_rate))
            return model

        length: dict[str, Any] = {"epochs": self.epochs, "batch_size": self.batch_size}
        options = {"record": True, "decide": method.decides}
        runs = train_jobs(build, data, jobs, **options, **length)
        return [
            self._judge(method, data, copy.model, gate_history(copy)["mmoe"])
            for copy in runs.copies
        ]

    def _judge(self, method, data, model, history):
        weights, binary = history["weights"][-1], history.get("binary")
        experts = active_experts(weights, method.zero)
        seen = {} if binary is None else {"binary": float(binary[-1].mean())}
        # The paper's rules: S(Z) is binary, and at most k experts are used.
        decided = method.zero > 0.0 or seen.get("binary", 1.0) == 1.0
        return {
            "objective": error(model, data.validation),
            "mse": error(model, data.test),
            "admissible": bool(decided and experts.max() <= K),
            "experts": float(experts.mean()),
            "most_experts": int(experts.max()),
            **jaccard_index(weights, data.groups, method.zero)._asdict(),
            **seen,
        }

    def counts(self, number):
        """The numbers of tasks for which there is such a number."""
        return [n for n in self.tasks if number != "unrelated" or n > GROUP]

    def at_most(self, results, method, number):
        """A number of a method at the largest number of tasks, as text."""
        results.ran(name_arm(method, self.most))
        return results.text(name_arm(method, self.most), number)

    def of(self, results, method, number):
        """The mean of a number of a method at the largest number of tasks."""
        results.ran(name_arm(method, self.most))
        return results.mean(name_arm(method, self.most), number)

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
        judged = []
        for other in others:
            for count, gap in self.advantages(results, number, other).items():
                better = gap.is_positive()
                if number == "related" and count <= GROUP and gap[:2] == (0, 0):
                    better = True  # All of the four experts: nothing is above 1.
                ours = name_arm(OURS, count)
                judged.append(if_within_rules(results, ours, better))
        return all_hold(judged)

    def advantages(self, results, number, other=TOP_K):
        """How much better than another method DSelect-k is, by the number of tasks."""
        gaps = {}
        for count in self.counts(number):
            arms = (name_arm(name, count) for name in (other, OURS))
            gap = results.gap(*arms, number)
            gaps[count] = gap._replace(mean=-gap.mean) if number == "related" else gap
        return gaps

    def grows(self, results, number):
        """Whether the advantage over Top-k is larger for more tasks."""
        gaps = list(self.advantages(results, number).values())
        grows = [gaps[-1].is_positive(), *map(_below, gaps, gaps[1:])]
        return self._if_all_within(results, all_hold(grows), self.counts(number))

    def _if_all_within(self, results, holds, counts):
        """What a claim on DSelect-k at some numbers of tasks says, as a whole."""
        arms = [name_arm(OURS, count) for count in counts]
        return all_hold([if_within_rules(results, arm, holds) for arm in arms])

    def falling(self, results):
        """The means of both Jaccard indices for each number of tasks, by method."""
        found = {}
        for name, number in itertools.product(PAPER, ("related", "unrelated")):
            runs = [results.ran(name_arm(name, count)) for count in self.counts(number)]
            values = ([run.numbers[number] for run in each] for each in runs)
            found[f"{name}, {number}"] = list(map(gap_of, values))
        return found

    def falls(self, results):
        """Whether all of them fall with the number of tasks."""
        pairs = itertools.chain(
            *map(itertools.pairwise, self.falling(results).values())
        )
        falls = all_hold(_below(after, before) for before, after in pairs)
        return self._if_all_within(results, falls, self.tasks)

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


def random_jaccard(num_experts):
    """The expected Jaccard index of two sets of `K` experts, drawn uniformly."""
    ways = [math.comb(K, n) * math.comb(num_experts - K, K - n) for n in range(K + 1)]
    return sum(way * n / (2 * K - n) for n, way in enumerate(ways)) / sum(ways)
