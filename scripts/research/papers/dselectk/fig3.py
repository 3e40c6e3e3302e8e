"""Figure 3 and Table 3: which tasks of a recommender share experts."""

import dataclasses
import functools

import keras
import numpy as np

import dselectk_keras as dk
from common.scores import rmse
from common.training_run import make_tasks
from dselectk_keras.tables.scores import area_under_curve
from research.engine import (
    Claim,
    Experiment,
    Untestable,
    all_positive,
    compare,
    drawing,
    gap_of,
    preset,
)
from research.engine.results import how_many
from research.engine.train_jobs import train_jobs
from research.papers import citations
from research.papers.dselectk._gates import within_rules

TOP_K, DSELECT_K = "Top-k", "DSelect-k"
GROUPS = ("engagement", "satisfaction")
PRIVATE = "It is about the paper's own tasks, whose data are private."
PAPER = {
    # task of the paper's Table 3: measure; DSelect-k and its error; Top-k and its error
    "E. Task 1": ("AUC", 0.8103, 0.0002, 0.7481, 0.0198),
    "E. Task 2": ("AUC", 0.8161, 0.0002, 0.7624, 0.0169),
    "E. Task 3": ("RMSE", 0.2874, 0.0002, 0.3406, 0.0180),
    "E. Task 4": ("RMSE", 0.8781, 0.0014, 1.1213, 0.0842),
    "E. Task 5": ("AUC", 0.7524, 0.0003, 0.5966, 0.0529),
    "S. Task 1": ("AUC", 0.6133, 0.0066, 0.5080, 0.0047),
    "S. Task 2": ("AUC", 0.8468, 0.0289, 0.5981, 0.0616),
    "S. Task 3": ("AUC", 0.9259, 0.0008, 0.6665, 0.0091),
}


@dataclasses.dataclass(frozen=True)
class Fig3(Experiment):
    """Eight tasks of a simulated recommender, with static gates."""

    name = "dselectk-fig3"
    title = "which of eight tasks share experts, and what each gains over Top-k"
    paper = citations.DSELECT_K
    where = "Figure 3 and Table 3"
    looks = 2
    stands_in_for = citations.LOGS

    seeds: int = preset(15, paper=5, smoke=1)
    trials: int = preset(40, paper=50, smoke=1)
    sampler: str = preset("random", paper="gp")
    num_train: int = preset(90_000, paper=9_000_000, smoke=600)
    num_test: int = preset(40_000, paper=1_000_000, smoke=600)  # And for validation.
    num_experts: int = 8
    units: tuple[int, ...] = preset((32, 16), paper=(256, 256), smoke=(8,))
    tower: tuple[int, ...] = (8,)
    num_nonzeros: int = 2
    epochs: int = preset(12, paper=1, smoke=1)
    batch_size: int = preset(512, smoke=200)

    @property
    def arms(self):
        return {TOP_K: self._top_k, DSELECT_K: self._dselect_k}

    @property
    def num_steps(self):
        return self.epochs * -(-self.num_train // self.batch_size)

    def space(self, arm):
        rates = 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05
        gamma, entropy = (0.2, 0.5, 1.0, 2.0, 5.0), (0.01, 0.1, 1.0, 10.0, 100.0)
        own = {
            TOP_K: {"scale": (0.01, 0.05, 0.2, 1.0, 5.0, 20.0)},
            DSELECT_K: {"gamma": gamma, "entropy": entropy},
        }
        return {"learning_rate": rates} | own[arm]

    def run(self, arm, jobs):
        data = load(self.num_train, self.num_test)

        def build(_, *, learning_rate, **settings):
            model = dk.build_multitask_model(
                data.train.x.shape[1],
                make_tasks(data, self.tower),
                experts=dk.DenseExperts(self.num_experts, self.units),
                gate=self.arms[arm](**settings),
            )
            model.compile(keras.optimizers.Adam(learning_rate))
            return model

        runs = train_jobs(
            build, data, jobs, epochs=self.epochs, batch_size=self.batch_size
        )
        return [
            self._judge(copy.model, data, copy.history["val_task_loss"][-1])
            for copy in runs.copies
        ]

    def _top_k(self, scale):
        start = keras.initializers.RandomUniform(-scale, scale)
        return dk.TopKGate(self.num_nonzeros, kernel_initializer=start)

    def _dselect_k(self, gamma, entropy):
        ramp = dk.Ramp(1e-5, entropy, end=0.8, num_steps=self.num_steps)
        return dk.DSelectKGate(self.num_nonzeros, gamma=gamma, entropy_reg=ramp)

    def _judge(self, model, data, loss):
        gate = model.get_layer("mmoe").gate
        weights = keras.ops.convert_to_numpy(gate.expert_weights())
        found = {
            "objective": float(loss),
            "admissible": bool((gate.chosen_experts().distance == 0).all()),
            "weights": np.round(weights, 4),
            "experts": float((weights > 0).sum(axis=1).mean()),
            **dk.metrics.jaccard_index(weights, data.groups)._asdict(),
        }
        predicted = model.predict(data.test.x, batch_size=10_000, verbose=0)
        for (name, _, measure), labels in zip(self.tasks, data.test.y.T, strict=True):
            score = area_under_curve if measure == "AUC" else rmse
            found[name] = score(labels, np.asarray(predicted[name])[:, 0])
        return found

    @property
    def known(self):
        """A `Dataset` with the facts about the tasks, and hardly any examples."""
        return load(1, 1)

    @property
    def tasks(self):
        """For each task its name, group and measure."""
        data = self.known
        groups = (GROUPS[group] for group in data.groups)
        measures = ("AUC" if kind == "binary" else "RMSE" for kind in data.task_kinds)
        return list(zip(data.task_names, groups, measures, strict=True))

    def gains(self, results):
        """By how much DSelect-k is better, relative to Top-k: (seeds, tasks)."""
        columns = [
            gain(measure, *results.pairs(DSELECT_K, TOP_K, task))
            for task, _, measure in self.tasks
        ]
        return np.stack(columns, axis=1)

    def num_tasks(self, _):
        """The number of tasks."""
        return len(self.tasks)

    def better_on(self, results):
        """The number of tasks on which the mean of DSelect-k is better."""
        return (self.gains(results).mean(axis=0) > 0).sum()

    def surely(self, results, holds):
        """The number of tasks on which DSelect-k is better, or worse, for sure."""
        gaps = map(gap_of, self.gains(results).T)
        return [gap.is_positive() for gap in gaps].count(holds)

    def mean_gain(self, results, *group):
        """The mean gain over all tasks, or those of a group, and all seeds."""
        values = [self.of_group(results, each) for each in group]
        return np.mean(values or self.gains(results))

    def of_group(self, results, group):
        """The mean gain over the tasks of a group, by seed."""
        return self.gains(results)[:, np.array(self.known.groups) == group].mean(axis=1)

    def sharing(self, results, group, count=None):
        """For each run, whether so many tasks of a group, or all, share an expert."""
        own = np.array(self.known.groups) == group
        runs = results.ran(DSELECT_K)
        used = (np.array(run.numbers["weights"])[own] > 0 for run in runs)
        return np.array([x.sum(axis=0).max() >= (count or own.sum()) for x in used])

    @property
    def claims(self):
        tests = {
            "all-tasks": lambda r: all_positive(map(gap_of, self.gains(r).T)),
            "satisfaction": lambda r: all_positive(
                [gap_of(self.of_group(r, 1) - self.of_group(r, 0))]
            ),
            "over-22": lambda r: all_positive(
                [gap_of(self.gains(r).mean(axis=1))], over=0.22
            ),
            "all-share": "",
            "two-share": "",
        }
        return (Claim(name, Untestable(PRIVATE, but)) for name, but in tests.items())

    def table_each_task(self, results):
        yield ["group", "task", "measure", "Top-k", "DSelect-k", "DSelect-k better by"]
        gains = self.gains(results)
        for i, (task, group, measure) in enumerate(self.tasks):
            better = "higher" if measure == "AUC" else "lower"
            both = [results.text(arm, task, 4) for arm in (TOP_K, DSELECT_K)]
            measured = f"{measure}, {better} is better"
            yield [group, f"`{task}`", measured, *both, percent(gains[:, i])]

    def table_of_the_paper(self, results):
        yield ["task", "measure", "Top-k", "DSelect-k", "DSelect-k better by"]
        for task, (measure, a, b, c, d) in PAPER.items():
            both = f"{c:.4f} ± {d:.4f}", f"{a:.4f} ± {b:.4f}"
            yield [task, measure, *both, f"{gain(measure, a, c):+.1%}"]

    def table_sharing(self, results):
        yield (
            "gate | experts a task uses | Jaccard index, same group | two groups | "
            "seeds with all selectors decided"
        )
        for arm in self.arms:
            texts = results.texts(arm, "experts", "related", "unrelated", digits=2)
            yield [arm, *texts, how_many(within_rules(results, arm))]

    def draw_heatmap(self, results):
        figure, axes = drawing.panels(1, len(self.arms), 2.7)
        all_weights = [np.array(results.of(a)[0].numbers["weights"]) for a in self.arms]
        for ax, arm, weights in zip(axes.flat, self.arms, all_weights, strict=True):
            dk.plots.plot_expert_heatmap(
                # Experts in the order in which the tasks use them, by their weights.
                weights[:, np.lexsort(-weights[::-1])],
                task_names=self.known.task_names,
                groups=self.known.groups,
                largest=np.max(all_weights),
                title=arm,
                ax=ax,
            )
            ax.label_outer()
        return figure

    def draw_gains(self, results):
        gains, data = 100 * self.gains(results), self.known
        figure, [[ax]] = drawing.panels(1, 1, 2.8, width=0.8)
        places, groups = np.arange(gains.shape[1])[::-1], np.array(data.groups)
        for group, name in enumerate(GROUPS):
            look = {"color": drawing.COLORS[group], "alpha": 0.85, "label": name}
            own = groups == group
            ax.barh(places[own], gains[:, own].mean(axis=0), height=0.6, **look)
        dots = {"color": drawing.TEXT, "markersize": 2.5}
        ax.plot(gains, np.tile(places, (len(gains), 1)), "o", **dots)
        ax.axvline(0, color=drawing.TEXT, linewidth=0.8)
        ax.set_yticks(places, data.task_names)
        drawing.tidy_axes(ax)
        ax.grid(axis="x", color="#EBEBEB", linewidth=0.5)
        ax.set_axisbelow(True)
        drawing.label(ax, x="DSelect-k better than Top-k by, in %")
        ax.legend(fontsize=drawing.SMALL_FONT, frameon=False)
        return figure


@functools.lru_cache(maxsize=2)
def load(num_train, num_test):
    """The simulated recommender, as large."""
    return dk.datasets.recommender_sim(num_train, num_test, num_test)


def gain(measure, ours, theirs):
    """By what share a number is better: a higher AUC, or a lower RMSE."""
    return (ours - theirs if measure == "AUC" else theirs - ours) / theirs


def papers(_, letter=""):
    """The mean gain in the paper's table, over the tasks of a group or all."""
    rows = [row for name, row in PAPER.items() if name.startswith(letter)]
    return np.mean([gain(row[0], row[1], row[3]) for row in rows])


def percent(values):
    """A mean and its error in percent, as text."""
    mean, error = compare.mean_and_error(100 * values)
    return f"{mean:+.2f}%" + ("" if np.isnan(error) else f" ± {error:.2f}%")
