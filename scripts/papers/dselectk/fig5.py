"""Figure 5: error and shared experts against the number of tasks."""

import dataclasses
import itertools
import math

import numpy as np

from dselectk_keras.plots import plot_curves
from experiments import (
    Claim,
    Fact,
    Picture,
    Question,
    Report,
    Table,
    all_hold,
    difference,
    format_mean,
    is_positive,
)
from papers import citations, drawing
from papers.dselectk._gates import if_within_rules
from papers.dselectk._synthetic import SyntheticExperiment, name_arm
from papers.dselectk._synthetic_methods import METHODS, SOFTMAX_ZERO, K

GROUP = 16  # Related tasks; with no more there are none that are unrelated.
WHERE = "Appendix C.1, results"
ABLATIONS = ("Ablation (annealing)", "Ablation (entropy)")
PAPER = ("DSelect-k", "Top-k", *ABLATIONS)
MEASURES = (
    # number, what DSelect-k has, panel of the figure
    ("mse", "a lower test error", "left"),
    ("related", "a higher Jaccard index of related tasks", "middle"),
    ("unrelated", "a lower Jaccard index of unrelated tasks", "right"),
)
QUESTIONS = {
    "noisy Top-k": "Does trainable noise (footnote 4) help Top-k?",
    "Top-k, dense first": "Does Top-k find better experts if it is dense in the first "
    "fifth of the run?",
    "DSelect-k, recipe": "Is `DecideGates()` without tuning (a learning rate of 0.01, "
    "gamma = 3, no entropy term) as good as the tuned gate?",
    "DSelect-k, recipe, gamma 1": "Does it need a gamma above 1?",
    "DSelect-k, restarts": "Does DSelect-k find better experts if selectors that hold "
    "no expert start anew?",
    "softmax selectors, recipe": "Do softmax selectors do as well as binary ones?",
}
NOTES = [
    (
        "**Recipe and restarts** (our questions). `DecideGates()`: in the first half "
        "of a run the selectors are soft, and there is no entropy term; then each gate "
        f"keeps its {K} largest weights. With restarts, each gate keeps its largest "
        "weights three times before, and selectors with a share below 0.1 or with the "
        "expert of another one start anew."
    ),
    (
        "**The random gate** chooses 4 of the experts uniformly, as in the paper's "
        "figure. Its Jaccard index is the expected value, computed exactly."
    ),
    (
        "**Among 16 tasks** there are four experts, as many as a gate may use: the "
        "Jaccard index of Top-k is 1. Equal is enough there."
    ),
    (
        "**Verdicts.** A claim on DSelect-k that holds cannot be judged if some of its "
        "seeds are not within the rules (S(Z) is binary, and no task uses more than "
        f"{K} experts). The table has the number of seeds within the rules."
    ),
]


@dataclasses.dataclass(frozen=True)
class Fig5(SyntheticExperiment):
    """Methods compared on 16 to 128 tasks, each tuned for each number of tasks."""

    name = "dselectk-fig5"
    title = "error and shared experts against the number of tasks"
    paper = citations.DSELECT_K
    where = "Figure 5"
    about = (
        "Groups of 16 related tasks, whose labels are mixtures of four experts of the "
        "group; an MMoE with a quarter as many experts as there are tasks, each the "
        "sum of four ReLU units as the true ones are, and static gates that may use "
        f"{K} experts. Measured are the squared error on test data, on average over "
        "the tasks, and the Jaccard index of the expert sets of two tasks, on average "
        "over the pairs of one group (related) and of two groups (unrelated)."
    )

    def report(self, results):
        caption = (
            "Test error and Jaccard indices against the number of tasks; bands are "
            "standard errors over the seeds. Among 16 tasks none are unrelated."
        )
        tried = (
            f"Every setting that was tried for {self.most} tasks, one run each: error "
            "on validation data against experts used. Filled: it may be taken, since "
            f"no task uses more than {K} experts and S(Z) is binary."
        )
        return Report(
            self._claims(results),
            [self._numbers(results), self._tried(results)],
            [
                Picture("tasks", caption, lambda: self._draw(results)),
                Picture("frontier", tried, lambda: self._draw_tried(results)),
            ],
            NOTES,
            self._questions(results),
            self._protocol(),
        )

    def _claims(self, results):
        ours, theirs = (name_arm(name, self.most) for name in PAPER[:2])
        ratio = results.mean(ours, "mse") / results.mean(theirs, "mse")
        shared = results.mean(ours, "related") / results.mean(theirs, "related")
        experts = {name: self._most(results, name, "experts") for name in PAPER}
        few = results.mean(name_arm(ABLATIONS[1], self.most), "experts")
        four = [results.mean(arm, "experts") for arm in (ours, theirs)]
        as_many = few < 3 and all(abs(count - K) < 0.5 for count in four)
        return [
            *(
                self._against(results, number, f"{says} than Top-k", panel)
                for number, says, panel in MEASURES
            ),
            *(
                self._grows(results, number, text)
                for number, text in (
                    ("mse", "test error"),
                    ("related", "Jaccard index of related tasks"),
                    ("unrelated", "Jaccard index of unrelated tasks"),
                )
            ),
            Claim(
                f"At {self.most} tasks DSelect-k's error is more than 40 % below "
                "Top-k's.",
                f"{1 - ratio:.0%} below: {results.text(ours, 'mse')} against "
                f"{results.text(theirs, 'mse')}."
                if not math.isnan(ratio)
                else "not run",
                if_within_rules(results, ours, bool(ratio < 0.6)),
                WHERE,
                "over 40 %",
            ),
            Claim(
                f"At {self.most} tasks DSelect-k's Jaccard index of related tasks is "
                "76 % above Top-k's.",
                f"{shared - 1:+.0%}: {results.text(ours, 'related')} against "
                f"{results.text(theirs, 'related')}."
                if not math.isnan(shared)
                else "not run",
                if_within_rules(results, ours, bool(shared >= 1.76)),
                WHERE,
                "76 %",
            ),
            *(
                self._against(
                    results, number, f"{says} than both ablations", panel, ABLATIONS
                )
                for number, says, panel in MEASURES
            ),
            self._falls(results),
            Claim(
                "Ablation (entropy) often selects about two experts; DSelect-k and "
                "Top-k select four. (It holds here if the means are below 3, and "
                "within 0.5 of four.)",
                f"Experts per task at {self.most} tasks: "
                + "; ".join(f"{name} {text}" for name, text in experts.items())
                + ".",
                if_within_rules(results, ours, bool(as_many)),
                WHERE,
                "about 2; 4; 4",
            ),
        ]

    def _against(self, results, number, says, panel, others=PAPER[1:2]):
        """That DSelect-k is better in a number, for every number of tasks."""
        sign = -1 if number == "related" else 1
        judged, texts = [], []
        for count in self._counts(number):
            ours = name_arm("DSelect-k", count)
            each = [results.text(ours, number)]
            for other in others:
                arm = name_arm(other, count)
                gap, error = difference(results, number, arm, ours)
                better = is_positive(sign * gap, error) if results.of(arm) else False
                if number == "related" and count <= GROUP and not (gap or error):
                    better = True  # All of the four experts: nothing is above 1.
                judged.append(if_within_rules(results, ours, better))
                each.append(results.text(arm, number) or "not run")
            texts.append(f"{count} tasks: {' against '.join(each)}")
        return Claim(
            f"DSelect-k has {says}, for every number of tasks.",
            f"{'; '.join(texts)}.",
            all_hold(judged),
            f"{WHERE}; Figure 5, {panel}",
        )

    def _grows(self, results, number, text):
        """That the difference to Top-k is larger for more tasks."""
        counts = self._counts(number)
        gaps = []
        for count in counts:
            ours, theirs = (name_arm(name, count) for name in PAPER[:2])
            gap = results.mean(theirs, number) - results.mean(ours, number)
            gaps.append(-gap if number == "related" else gap)
        texts = [
            f"{count} tasks: {_words(gap)}"
            for count, gap in zip(counts, gaps, strict=True)
        ]
        grows = len(gaps) > 1 and gaps[-1] > 0 and bool(np.all(np.diff(gaps) > 0))
        return Claim(
            f"DSelect-k's advantage over Top-k in the {text} grows with the number of "
            "tasks.",
            f"Advantage: {', '.join(texts)}.",
            self._if_all_within(results, grows, counts),
            WHERE,
        )

    def _if_all_within(self, results, holds, counts):
        """What a claim on DSelect-k at some numbers of tasks says, as a whole."""
        arms = [name_arm("DSelect-k", count) for count in counts]
        return all_hold([if_within_rules(results, arm, holds) for arm in arms])

    def _falls(self, results):
        """That Jaccard indices fall with the number of tasks, for every method."""
        falls, texts = [], []
        for name in PAPER:
            for number in ("related", "unrelated"):
                means = [
                    results.mean(name_arm(name, count), number)
                    for count in self._counts(number)
                ]
                falls.append(len(means) > 1 and bool(np.all(np.diff(means) < 0)))
                shown = ", ".join(_words(mean) for mean in means)
                texts.append(f"{name}, {number}: {shown}")
        return Claim(
            "For every method, both Jaccard indices fall with the number of tasks.",
            f"{'; '.join(texts)}." if results.of(self._ours) else "not run",
            self._if_all_within(results, all(falls), self.tasks),
            f"{WHERE}; Figure 5, middle and right",
        )

    def _questions(self, results):
        found = []
        for name, asks in QUESTIONS.items():
            if name not in self.compared:
                continue
            rivals = [name, "Top-k" if "Top-k" in name else "DSelect-k"]
            texts = [
                f"{rival}: error {self._most(results, rival, 'mse')}, Jaccard index of "
                f"related tasks {self._most(results, rival, 'related')}, of unrelated "
                f"{self._most(results, rival, 'unrelated')}"
                for rival in rivals
            ]
            found.append(Question(f"At {self.most} tasks: {asks}", "; ".join(texts)))
        return found

    def _protocol(self):
        presets = self.presets()

        def values(get):
            cpu, paper = (get(presets[name]) for name in ("cpu", "paper"))
            return f"{cpu}" if cpu == paper else f"cpu: {cpu}; paper: {paper}"

        def tuned(method, name):
            return ", ".join(f"{v:g}" for v in METHODS[method].settings[name])

        return [
            Fact(
                "Tasks",
                "16, 32, 64, 128: one to four groups of 16 tasks",
                f"{', '.join(map(str, self.tasks))}: groups of 16 tasks",
                "four groups of 16 are 64 tasks; eight groups have the paper's T/4 "
                "experts",
            ),
            Fact(
                "True experts",
                "4 per group, the sum of 4 ReLU units, standard normal weights",
                "the same; biases are standard normal too",
            ),
            Fact(
                "Task weights",
                "softmax of normal vectors; correlation 0.8 between any two tasks",
                "the same; unit variance, entries of different experts independent",
            ),
            Fact(
                "Examples for training, validation, test",
                "100,000; 20,000; 20,000; 10 standard normal features",
                f"{self.num_train:,}; {self.num_evaluated:,}; {self.num_evaluated:,}",
            ),
            Fact(
                "Draws of the data",
                "one data matrix; the repetitions differ in their initial values",
                "one, for all runs",
            ),
            Fact(
                "Model",
                "T/4 experts as in the data; k = 4; static gates",
                f"the same; k = {K}",
            ),
            Fact(
                "Loss",
                "squared error, for training and tuning",
                "squared error: its sum over the tasks to train, its mean to tune",
                "the paper does not say how the tasks are added up, on which the "
                "strength of lambda depends",
            ),
            Fact(
                "Start of the gates",
                "DSelect-k: 0 < S(Z) < 1 (Section 3.1.3); the others: not stated",
                "z within ±gamma / 100, logits of the others within ±0.05, uniform",
            ),
            Fact(
                "Optimizer",
                "Adam, batches of 256",
                f"Adam, batches of {self.batch_size}",
            ),
            Fact(
                "Learning rate",
                "tuned over 0.001, 0.01, 0.1",
                f"tuned over {tuned('Top-k', 'learning_rate')}; the recipe's is 0.01",
            ),
            Fact(
                "Epochs",
                "tuned over 25, 50, 75, 100",
                values(lambda e: e.epochs) + ", not tuned",
                "fewer runs",
            ),
            Fact(
                "gamma of DSelect-k",
                "tuned over 5, 10, 15",
                f"tuned over {tuned('DSelect-k', 'gamma')}; the recipe's is 3",
            ),
            Fact(
                "lambda of DSelect-k",
                "tuned over 0.001, 0.005, 0.01, 0.1",
                f"tuned over {tuned('DSelect-k', 'entropy')}",
            ),
            Fact(
                "lambda of Ablation (entropy)",
                "tuned over 1e-6, 1e-5, ..., 1e-1, 1, 100",
                f"tuned over {tuned(ABLATIONS[1], 'entropy')}; weights below "
                f"{SOFTMAX_ZERO} count as none",
                "a softmax is never exactly zero",
            ),
            Fact(
                "Temperature of Ablation (annealing)",
                "from s, tuned over ten values from 1e-6 to 1e-2, to 1e-16, evenly on "
                "a logarithmic scale",
                f"from s, tuned over {tuned(ABLATIONS[0], 'temperature')}, to 1e-16, "
                "evenly on a logarithmic scale",
            ),
            Fact(
                "Tuning",
                "random grid search, 5 trials per grid point on average",
                f"random grid search: {values(lambda e: e.trials)} settings, or all if "
                "there are fewer, one run each, for each number of tasks",
                "fewer runs",
            ),
            Fact(
                "Admissible",
                "S(Z) is binary (Section 3.1.3)",
                f"S(Z) is binary, and no task uses more than {K} experts",
                "softmax selectors have no S(Z)",
            ),
            Fact("Repetitions", "100", values(lambda e: e.seeds), "fewer runs"),
        ]

    @property
    def _ours(self):
        """DSelect-k's arm at the largest number of tasks."""
        return name_arm("DSelect-k", self.most)

    def _counts(self, number):
        """The numbers of tasks for which there is such a number."""
        return [n for n in self.tasks if number != "unrelated" or n > GROUP]

    def _most(self, results, method, number):
        """A number of a method at the largest number of tasks, to be read."""
        return results.text(name_arm(method, self.most), number) or "not run"

    def _numbers(self, results):
        numbers = ("mse", "experts", "related", "unrelated", "binary")
        rows = []
        for arm, (method, count) in self.arms.items():
            counted = results.values(arm, "admissible")
            rows.append(
                [
                    method,
                    count,
                    *(results.text(arm, number) for number in numbers),
                    f"{counted.sum():.0f} of {len(counted)}",
                ]
            )
        for count in self.tasks:
            index = random_jaccard(count // 4)
            apart = index if count > GROUP else None
            rows.append(["random", count, "", float(K), index, apart, "", ""])
        columns = [
            "method",
            "tasks",
            "test MSE",
            "experts per task",
            "Jaccard, related",
            "Jaccard, unrelated",
            "share of binary selectors",
            "seeds within the rules",
        ]
        note = (
            f"The rules: no task uses more than {K} experts, and S(Z) is binary. The "
            "paper's numbers are in curves only: there are none to stand beside these."
        )
        return Table("All numbers", columns, rows, note)

    def _tried(self, results):
        rows = [
            [
                method,
                ", ".join(f"{k} {v:g}" for k, v in run.settings.items()),
                run.numbers["objective"],
                run.numbers["experts"],
                run.numbers.get("binary"),
                "yes" if run.numbers["admissible"] else "no",
            ]
            for method in self.compared
            for run in results.of(name_arm(method, self.most), tuning=True)
        ]
        columns = [
            "method",
            "settings",
            "validation MSE",
            "experts per task",
            "share of binary selectors",
            "within the rules",
        ]
        return Table(f"Every setting tried for {self.most} tasks", columns, rows)

    def _draw(self, results):
        figure, axes = drawing.import_pyplot().subplot_mosaic(
            [["mse", "related"], ["mse", "unrelated"]],
            figsize=(drawing.PAGE_WIDTH, 4.2),
            layout="constrained",
        )
        panels = {
            "mse": "test MSE",
            "related": "Jaccard index, related tasks",
            "unrelated": "Jaccard index, unrelated tasks",
        }
        shown = [name for name, each in self.compared.items() if each.paper]
        for number, label in panels.items():
            ax = axes[number]
            counts = self._counts(number)
            curves, bands = {}, {}
            for method in shown:
                arms = [name_arm(method, count) for count in counts]
                curves[method] = counts, [results.mean(arm, number) for arm in arms]
                bands[method] = [results.error(arm, number) for arm in arms]
            if number != "mse":
                curves["random"] = counts, [random_jaccard(n // 4) for n in counts]
                bands["random"] = [0.0] * len(counts)
            plot_curves(
                curves,
                x_label="tasks",
                y_label=label,
                errors=bands,
                log=("x", "y") if number == "mse" else ("x",),
                markers=True,
                ax=ax,
            )
            ax.set_xticks(counts, [str(count) for count in counts])
            ax.xaxis.minorticks_off()
            ax.tick_params(which="minor", labelsize=drawing.SMALL_FONT)
        return figure

    def _draw_tried(self, results):
        figure, [[ax]] = drawing.panels(1, 1, 3.2)
        looks = itertools.product("o^", drawing.COLORS)
        for method, (marker, color) in zip(self.compared, looks, strict=False):
            runs = [
                r.numbers for r in results.of(name_arm(method, self.most), tuning=True)
            ]
            ax.scatter(
                [run["experts"] for run in runs],
                [run["objective"] for run in runs],
                s=20,
                marker=marker,
                edgecolors=color,
                facecolors=[color if r["admissible"] else "none" for r in runs],
                label=method,
            )
        drawing.tidy_axes(ax)
        ax.set_yscale("log")
        drawing.label(ax, x="experts per task", y="validation MSE")
        ax.tick_params(which="minor", labelsize=drawing.SMALL_FONT)
        ax.legend(
            loc="center left",
            bbox_to_anchor=(1.02, 0.5),
            fontsize=drawing.SMALL_FONT,
            frameon=False,
        )
        return figure


def _words(number):
    """A mean to be read."""
    return format_mean(number, math.nan) or "not run"


def random_jaccard(num_experts):
    """The expected Jaccard index of two sets of `K` experts, drawn uniformly.

    Args:
        num_experts: The number of experts that they are drawn from.

    Returns:
        A number.
    """
    ways = math.comb(num_experts, K)
    return sum(
        math.comb(K, both)
        * math.comb(num_experts - K, K - both)
        / ways
        * (both / (2 * K - both))
        for both in range(K + 1)
    )
