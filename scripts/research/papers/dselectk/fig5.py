"""Figure 5: error and shared experts against the number of tasks."""

import copy
import dataclasses
import functools
import itertools
import math
from typing import Any

import keras
import numpy as np

import dselectk_keras as dk
from research.engine import (
    INADMISSIBLE,
    NIL,
    Arm,
    Claim,
    Experiment,
    WithinRules,
    all_hold,
    all_positive,
    compare,
    drawing,
    gap_of,
    preset,
    train_jobs,
)
from research.engine.claims import HOLDS, judge
from research.engine.results import NotRunError, format_mean, how_many
from research.engine.train_jobs import gate_history
from research.papers import citations
from research.papers.dselectk._gates import KERAS_START, within_rules, words

K = 4  # The experts that made the labels of a task, and as many may a gate use.
UNITS = 4  # The ReLU units whose sum is an expert.
# A softmax never gives an exact zero: smaller weights count as none. The other gates
# have exact zeros, and any weight counts.
SOFTMAX_ZERO = 1e-3
GROUP = 16  # Related tasks; with no more there are none that are unrelated.
OURS, TOP_K, KERAS = "DSelect-k", "Top-k", "Top-k, Keras' start"
# The paper does not say how Top-k starts.
STARTS = {TOP_K: "Top-k starts in ±0.05", KERAS: "Top-k has Keras' start"}
ABLATIONS = ("Ablation (annealing)", "Ablation (entropy)")
PAPER = (OURS, *STARTS, *ABLATIONS)
# The paper does not say whether the losses of the tasks are added up, as in the other
# arms, or averaged, in which case the same lambda weighs more.
MEAN = "DSelect-k, mean of losses"
READINGS = {OURS: "Sum of the losses", MEAN: "Mean of the losses"}
# Verdicts, from the worst. Only readings under which the rules are kept decide.
FAVORS = INADMISSIBLE, False, NIL, None, True
# Others are for the largest number of tasks only.
FOR_ALL_TASKS = (*PAPER, MEAN)
ASKED = {
    # field of the page: method of ours
    "larger_lambda": "DSelect-k, larger lambda",
    "noisy": "noisy Top-k",
    "dense_first": "Top-k, dense first",
    "recipe": "DSelect-k, recipe",
    "recipe_gamma": "DSelect-k, recipe, gamma 1",
    "softmax_selectors": "softmax selectors, recipe",
    "by_fit": "chosen by fit",
    "by_fit_untuned": "chosen by fit, untuned",
}
WORDS = {
    # number: place in the figure; how DSelect-k's is, and what
    "mse": {"place": "left", "better": "lower", "what": "test error"},
    "related": {
        "place": "middle",
        "better": "higher",
        "what": "Jaccard index of related tasks",
    },
    "unrelated": {
        "place": "right",
        "better": "lower",
        "what": "Jaccard index of unrelated tasks",
    },
}


RATES = 0.001, 0.01, 0.1  # Learning rates.


def _arm(gate, space=None, rates=RATES, zero=0.0, mean=False, **callbacks):
    """A method: a function of steps, a seed and settings that makes its gate.

    What is `zero` or less counts as no weight. `mean` says whether the loss is the mean
    of the tasks' losses.
    """
    space = {"learning_rate": rates, **(space or {})}
    return Arm(gate, space=space, more={"zero": zero, "mean": mean}, **callbacks)


def _dselect_k(*_, gamma, entropy):
    return dk.DSelectKGate(K, gamma=gamma, entropy_reg=entropy)


def _annealing(steps, _, temperature):
    falling = dk.Ramp(temperature, 1e-16, end=1.0, num_steps=steps)
    return dk.baselines.SoftmaxSelectorGate(K, temperature=falling)


GAMMAS = 5.0, 10.0, 15.0
LAMBDAS = 0.001, 0.005, 0.01, 0.1
TEMPERATURES = 1e-6, 1e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 7.5e-4, 1e-3, 5e-3, 1e-2
# The ranges of Appendix D.4.
METHODS = {
    OURS: _arm(_dselect_k, {"gamma": GAMMAS, "entropy": LAMBDAS}),
    TOP_K: _arm(lambda *_: dk.TopKGate(K)),
    KERAS: _arm(lambda *_: dk.TopKGate(K, kernel_initializer=KERAS_START)),
    "Ablation (annealing)": _arm(_annealing, {"temperature": TEMPERATURES}),
    "Ablation (entropy)": _arm(
        lambda *_, entropy: dk.baselines.SoftmaxSelectorGate(K, entropy_reg=entropy),
        {"entropy": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 100.0)},
        zero=SOFTMAX_ZERO,
    ),
    MEAN: _arm(_dselect_k, {"gamma": GAMMAS, "entropy": LAMBDAS}, mean=True),
    # Our own.
    "DSelect-k, larger lambda": _arm(
        _dselect_k, {"gamma": GAMMAS, "entropy": (1.0, 10.0, 100.0)}
    ),
    "noisy Top-k": _arm(lambda _, seed: dk.TopKGate(K, noise=True, seed=seed)),
    "Top-k, dense first": _arm(lambda n, _: dk.TopKGate(K, dense_steps=n // 5)),
    "DSelect-k, recipe": _arm(
        lambda *_: dk.DSelectKGate(K, gamma=3.0), rates=(0.01,), decide=True
    ),
    "DSelect-k, recipe, gamma 1": _arm(
        lambda *_: dk.DSelectKGate(K), rates=(0.01,), decide=True
    ),
    "softmax selectors, recipe": _arm(
        lambda *_: dk.baselines.SoftmaxSelectorGate(K), decide=True
    ),
    "chosen by fit": _arm(lambda *_: dk.ChosenGate(K), choose=True),
    "chosen by fit, untuned": _arm(
        lambda *_: dk.ChosenGate(K), rates=(0.01,), choose=True
    ),
}


@dataclasses.dataclass(frozen=True)
class Fig5(Experiment):
    """Methods compared on 16 to 128 tasks, each tuned for each number of tasks."""

    name = "dselectk-fig5"
    title = "error and shared experts against the number of tasks"
    paper = citations.DSELECT_K
    where = "Figure 5"
    needs = ("data that are drawn", 10 + 128)

    seeds: int = preset(5, paper=100, smoke=1)
    trials: int = preset(36, smoke=1)
    tasks: tuple[int, ...] = preset((16, 32, 64, 128), smoke=(32,))
    methods: tuple[str, ...] = preset(
        tuple(METHODS), smoke=(OURS, *STARTS, "DSelect-k, recipe")
    )
    num_train: int = preset(100_000, smoke=256)
    num_evaluated: int = preset(20_000, smoke=128)  # To tune on, and to report on.
    epochs: int = preset(25, paper=100, smoke=2)
    batch_size: int = 256

    @property
    def arms(self):
        return {
            name_arm(name, count): (name, count)
            for name in self.compared
            for count in (self.tasks if name in FOR_ALL_TASKS else [self.most_tasks])
        }

    @property
    def compared(self):
        return {name: METHODS[name] for name in self.methods}

    @property
    def most_tasks(self):
        """The largest number of tasks."""
        return max(self.tasks)

    def space(self, arm):
        return dict(self.compared[self.arms[arm][0]].space)

    def run(self, arm, jobs):
        name, num_tasks = self.arms[arm]
        method = self.compared[name]
        data = dk.datasets.load(  # The same for every run.
            "synthetic_moe",
            num_tasks=num_tasks,
            num_train=self.num_train,
            num_validation=self.num_evaluated,
            num_test=self.num_evaluated,
            seed=0,
        )
        weight = 1 / num_tasks if method.more["mean"] else 1.0
        tasks = [
            dk.Task(name, tower="sum", metrics=(), weight=weight)
            for name in data.task_names
        ]
        steps = self.epochs * -(-self.num_train // self.batch_size)

        def build(seed, learning_rate, **settings):
            model = dk.build_multitask_model(
                data.train.x.shape[1],
                tasks,
                experts=dk.DenseExperts(num_tasks // 4, [UNITS]),
                gate=method.gate(steps, seed, **settings),
                stacked=True,
            )
            model.compile(keras.optimizers.Adam(learning_rate))
            return model

        length: dict[str, Any] = {"epochs": self.epochs, "batch_size": self.batch_size}
        options = {"record": True, "decide": method.decide, "choose": method.choose}
        runs = train_jobs(build, data, jobs, **options, **length)
        return [
            self._judge(method, data, copy.model, gate_history(copy)["mmoe"])
            for copy in runs.copies
        ]

    def _judge(self, method, data, model, history):
        weights, binary = history["weights"][-1], history.get("binary")
        zero = method.more["zero"]
        experts = dk.metrics.active_experts(weights, zero)
        seen = {} if binary is None else {"binary": float(binary[-1].mean())}
        # The paper's rules: S(Z) is binary, and at most k experts are used.
        decided = zero > 0.0 or seen.get("binary", 1.0) == 1.0
        return {
            "objective": error(model, data.validation),
            "mse": error(model, data.test),
            "admissible": bool(decided and experts.max() <= K),
            "experts": float(experts.mean()),
            "most_experts": int(experts.max()),
            **dk.metrics.jaccard_index(weights, data.groups, zero)._asdict(),
            **seen,
        }

    def arms_of(self, method, number="mse"):
        """The arms of a method by the number of tasks, where there is such a number."""
        counts = [n for n in self.tasks if number != "unrelated" or n > GROUP]
        return {count: name_arm(method, count) for count in counts}

    def at_most(self, method):
        """The arm of a method with the largest number of tasks."""
        return name_arm(method, self.most_tasks)

    def against(self, results, number, *others):
        """A number of DSelect-k and of others for each number of tasks, as text."""
        arms = [self.arms_of(name, number) for name in (OURS, *others)]
        return "; ".join(
            f"{count} tasks: "
            + " against ".join(results.text(each[count], number) for each in arms)
            for count in arms[0]
        )

    def recipe_against(self, results, number):
        """The change of a number from Top-k, of each start, to the recipe, as text."""
        mine = results.mean(self.at_most("DSelect-k, recipe"), number)
        theirs = (results.mean(self.at_most(start), number) for start in STARTS)
        return " and ".join(f"{mine / each - 1:+.0%}" for each in theirs)

    def advantage(self, results, number, other, count):
        """The `Gap` by which DSelect-k is better than another, for `count` tasks."""
        arms = name_arm(other, count), name_arm(OURS, count)
        for arm in arms:
            results.ran(arm)
        gap = results.gap(*arms, number)
        return -gap if number == "related" else gap

    def advantages(self, results, number, other):
        """The same by the number of tasks."""
        counts = self.arms_of(OURS, number)
        return {n: self.advantage(results, number, other, n) for n in counts}

    def gained(self, results, number, other):
        """The same, as text."""
        return ", ".join(
            f"{count} tasks: {format_mean(gap.mean, np.nan)}"
            for count, gap in self.advantages(results, number, other).items()
        )

    def is_better(self, results, number, others):
        """Judge whether DSelect-k is better in a number than others, for every `tasks`.

        By the runs within the rules: inadmissible if there are none for some number of
        tasks, or refuted if those for another say so.
        """
        kept, gaps, ruled = results.within_rules(), [], True
        for other, count in itertools.product(others, self.arms_of(OURS, number)):
            self.advantage(results, number, other, count)  # Not run is another word.
            try:
                gap = self.advantage(kept, number, other, count)
            except NotRunError:
                ruled = False
                continue
            # With all of the four experts: nothing is above 1.
            if not (number == "related" and count <= GROUP and gap[:2] == (0, 0)):
                gaps.append(gap)
        judged = all_positive(gaps)
        return judged if ruled or judged.holds is False else INADMISSIBLE

    def grows(self, results, number, other):
        """Judge whether the advantage over another method is larger for more tasks."""
        gaps = list(self.advantages(results, number, other).values())
        steps = [more.minus(less) for less, more in itertools.pairwise(gaps)]
        return all_positive([gaps[-1], *steps])

    def falling(self, results):
        """The means of both Jaccard indices for each number of tasks, by method."""
        found = {}
        for name, number in itertools.product(PAPER, ("related", "unrelated")):
            runs = map(results.ran, self.arms_of(name, number).values())
            values = ([run.numbers[number] for run in each] for each in runs)
            found[f"{name}, {number}"] = list(map(compare.gap_of, values))
        return found

    def fall(self, results):
        """The means of `falling`, as text."""
        return "; ".join(
            f"{name}: {', '.join(format_mean(gap.mean, np.nan) for gap in gaps)}"
            for name, gaps in self.falling(results).items()
        )

    def falls(self, results):
        """Judge whether all these means fall with the number of tasks."""
        return all_positive(
            fewer.minus(more)
            for means in self.falling(results).values()
            for fewer, more in itertools.pairwise(means)
        )

    def experts_used(self, results):
        """Number of experts that a task uses, by method, as text."""
        arms = {name: self.at_most(name) for name in PAPER}
        texts = (f"{name} {results.text(arms[name], 'experts')}" for name in arms)
        return "; ".join(texts)

    def uses_as_many(self, results):
        """Test that an ablation uses about two experts, and the others about four."""
        few, *four = (
            results.values(self.at_most(name), "experts")
            for name in (ABLATIONS[1], OURS, *STARTS)
        )
        near = (gap_of(values - K).is_zero(0.5) for values in four)
        return all_hold([all_positive([gap_of(3 - few)]), *near])

    def binary_trials(self, results, method):
        """The number of settings of a method that keep the rules, as text."""
        kept = within_rules(results, *self.arms_of(method).values(), tuning=True)
        return f"{kept.sum()} of the {len(kept)}"

    def asked(self, results, name):
        """The numbers of a method of ours, and of the paper's that it is like."""
        texts = []
        for rival in (name, TOP_K if TOP_K in name else OURS):
            results.ran(arm := self.at_most(rival))
            mse, related, unrelated = (results.text(arm, each) for each in WORDS)
            texts.append(
                f"{rival}: error {mse}, Jaccard index of related tasks {related}, of "
                f"unrelated {unrelated}"
            )
        return "; ".join(texts)

    def views(self, results):
        return read(self, results)

    @property
    def claims(self):
        """The claims, each judged by the reading of the loss that favors it."""
        for claim in self._claims:

            def test(results, claim=claim):
                views = read(self, results).values()
                found = [judge(claim.test, view) for view in views]
                return max(found, key=lambda judged: FAVORS.index(judged.holds))

            yield claim._replace(test=test)

    @property
    def _claims(self):
        for number, texts in WORDS.items():
            names = {"number": number, "one": ABLATIONS[0], "other": ABLATIONS[1]}
            test = functools.partial(self.is_better, number=number, others=ABLATIONS)
            yield Claim("ablations", test, names | texts)
        for (start, begins), number in itertools.product(STARTS.items(), WORDS):
            names = {"number": number, "start": start, "begins": begins}
            test = functools.partial(self.is_better, number=number, others=[start])
            yield Claim("better", test, names | WORDS[number])
            test = functools.partial(self.grows, number=number, other=start)
            yield Claim("grows", WithinRules(test), names | WORDS[number])
        for start, begins in STARTS.items():
            ours, theirs = map(self.at_most, (OURS, start))
            names = {"ours": ours, "theirs": theirs, "begins": begins}
            yield Claim("error", times(theirs, ours, "mse", 1 / 0.6), names)
            yield Claim("jaccard", times(ours, theirs, "related", 1.76), names)
        yield Claim("falls", WithinRules(self.falls))
        yield Claim("uses", self.uses_as_many)

    def table_all_numbers(self, results):
        yield (
            "method | tasks | test MSE | experts per task | Jaccard, related | "
            "Jaccard, unrelated | share of binary selectors | seeds within the rules"
        )
        for arm, (method, count) in self.arms.items():
            numbers = "mse", "experts", "related", "unrelated", "binary"
            kept = how_many(within_rules(results, arm))
            yield [method, count, *results.texts(arm, *numbers), kept]
        for count in self.tasks:
            index = random_jaccard(count // 4)
            unrelated = index if count > GROUP else None
            yield ["random", count, "", float(K), index, unrelated, "", ""]

    def table_every_setting_tried(self, results):
        yield (
            "method | settings | validation MSE | experts per task | share of binary "
            "selectors | within the rules"
        )
        for method in self.compared:
            for run in results.of(self.at_most(method), tuning=True):
                names = "objective", "experts", "binary"
                numbers = [run.numbers.get(name) for name in names]
                kept = HOLDS[run.numbers["admissible"]]
                yield [method, words(run.settings), *numbers, kept]

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "gammas": METHODS[OURS].space["gamma"],
            "entropies": METHODS[OURS].space["entropy"],
            "ablation_entropies": METHODS[ABLATIONS[1]].space["entropy"],
            **{
                name: functools.partial(self.asked, name=method)
                for name, method in ASKED.items()
            },
        }

    def draw_tasks(self, results):
        figure, axes = drawing.panels(3, 1, 6.4, sharex=True)
        shown = [name for name in self.compared if name in PAPER]
        for number, ax in zip(WORDS, axes.flat, strict=True):
            curves, bands = {}, {}
            counts = list(self.arms_of(OURS, number))
            for method in shown:
                arms = [*self.arms_of(method, number).values()]
                # An error is to be read with what it takes.
                used = f": {results.mean(arms[-1], 'experts'):.0f} experts per task"
                name = method + used * (number == "mse")
                curves[name] = counts, [results.mean(arm, number) for arm in arms]
                bands[name] = [results.error(arm, number) for arm in arms]
            label, log = "test MSE", ("x", "y")
            if number != "mse":
                curves["random"] = counts, [random_jaccard(n // 4) for n in counts]
                label, log = f"Jaccard index,\n{number} tasks", ("x",)
            look: dict[str, Any] = {"y_label": label, "log": log}
            dk.plots.plot_curves(curves, errors=bands, markers=True, ax=ax, **look)
            ax.tick_params(which="minor", labelsize=drawing.SMALL_FONT)
        ticks, ax = [*self.arms_of(OURS)], axes.flat[-1]
        ax.set_xticks(ticks, [str(count) for count in ticks])
        ax.xaxis.minorticks_off()
        drawing.label(ax, x="tasks")
        return figure

    def draw_frontier(self, results):
        """A panel for each method, with the settings of all others in grey behind."""

        def marks(runs):
            return zip(
                *((run["experts"], run["objective"]) for run in runs), strict=True
            )

        trials = [results.of(self.at_most(name), tuning=True) for name in self.compared]
        found = [[run.numbers for run in each] for each in trials]
        columns = min(3, len(found))
        rows = math.ceil((len(found) + 1) / columns)
        size = rows, columns, 0.5 + 1.15 * rows
        figure, axes = drawing.panels(*size, sharex=True, sharey=True)
        blue = drawing.COLORS[0]
        look: dict[str, Any] = {"s": 14, "edgecolors": blue, "linewidths": 0.8}
        for ax in axes.flat:
            ax.scatter(*marks(itertools.chain(*found)), s=3, color=drawing.GREY)
        for ax, name, own in zip(axes.flat, self.compared, found, strict=False):
            full = [blue if run["admissible"] else "white" for run in own]
            ax.scatter(*marks(own), facecolors=full, **look)
            drawing.tidy_axes(ax)
            ax.set_yscale("log")
            ax.set_title(name, fontsize=drawing.SMALL_FONT, loc="left")
            ax.tick_params(which="minor", labelsize=drawing.SMALL_FONT)
        for ax in axes.flat[len(found) :]:
            ax.set_axis_off()
            ax.collections[0].remove()
        ax = axes.flat[-1]  # It has the legend.
        for color, text in ((blue, "may be taken"), ("white", "may not be taken")):
            ax.scatter([], [], label=text, facecolors=color, **look)
        ax.scatter([], [], color=drawing.GREY, s=3, label="another method")
        ax.legend(fontsize=drawing.SMALL_FONT, frameon=False, loc="center")
        figure.supxlabel("experts per task", fontsize=drawing.FONT)
        figure.supylabel("validation MSE", fontsize=drawing.FONT)
        return figure


def name_arm(method, num_tasks):
    """The name of an arm."""
    return f"{method}, {num_tasks} tasks"


def read(experiment, results):
    """The results by how the losses of the tasks are added up in DSelect-k."""
    found = {}
    for method, name in READINGS.items():
        arms = experiment.arms_of(method)
        ours = {arms[count]: arm for count, arm in experiment.arms_of(OURS).items()}
        view = found[name] = copy.copy(results)
        view.runs = [
            dataclasses.replace(run, arm=ours.get(run.arm, run.arm))
            for run in results.runs
            if run.arm in ours or run.arm not in ours.values()
        ]
    return found


def lower(results, arm, other):
    """By what share the error of an arm is below another's."""
    return 1 - results.mean(arm, "mse") / results.mean(other, "mse")


def higher(results, arm, other):
    """By what share the Jaccard index of related tasks is above another's."""
    return results.mean(arm, "related") / results.mean(other, "related") - 1


def times(arm, other, number, factor):
    """The test that a number is more than so many times that of another arm."""

    def test(results):
        mine, theirs = results.pairs(arm, other, number)
        return all_positive([gap_of(mine - factor * theirs)])

    return WithinRules(test)


def random_jaccard(num_experts):
    """The expected Jaccard index of two sets of `K` experts, drawn uniformly."""
    ways = [math.comb(K, n) * math.comb(num_experts - K, K - n) for n in range(K + 1)]
    return sum(way * n / (2 * K - n) for n, way in enumerate(ways)) / sum(ways)


def error(model, split):
    """The mean squared error, over examples and tasks."""
    found = keras.ops.convert_to_numpy(model(keras.ops.convert_to_tensor(split.x)))
    return float(np.square(found - split.y).mean())
