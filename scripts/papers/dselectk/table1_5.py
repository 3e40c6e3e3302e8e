"""Tables 1 and 5: gates on MovieLens."""

import dataclasses

import numpy as np

from dselectk_keras.experiments.compare import (
    all_hold,
    count_lower,
    difference,
    is_positive,
)
from dselectk_keras.experiments.experiment import Job
from dselectk_keras.experiments.report import Claim, Report, Table
from dselectk_keras.experiments.train_jobs import train_jobs
from papers import citations
from papers.dselectk._gates import METHODS, is_admissible, own_methods, search_space
from papers.dselectk._movielens import CPU, SMOKE, MovieLensExperiment, measure

GATING = ("static", "per-example")
DENSE = ("softmax, per-example", "shared bottom")
METRICS = {
    "watched_loss": "watched: cross-entropy",
    "watched_auc": "AUC",
    "watched_accuracy": "accuracy",
    "rating_mse": "rating: squared error",
}
NO_NUMBERS = (
    "The paper's own numbers stand nowhere here: they could not be had when this was "
    "written, and none is guessed."
)


@dataclasses.dataclass(frozen=True)
class Table1And5(MovieLensExperiment):
    """The gates and baselines of the paper, for three weights of the two tasks.

    Each method is tuned on the same number of settings, by the loss on the validation
    examples, which is the mean over the weights of the tasks. The variables after the
    last epoch count, so that a gate has the whole of its schedule to decide.

    Args:
        methods: Names from `METHODS`.
        alphas: The weights of the task `watched`.
        learning_rates: Of Adam, to choose from.
        entropies: Final entropy weights of DSelect-k, to choose from.
        gammas: Widths of DSelect-k's smooth step, to choose from.
        sparsities: Penalties of the Gumbel-softmax gate, to choose from.
    """

    name = "dselectk-table1-5"
    title = "gates on MovieLens, for three weights of the two tasks"
    paper = citations.DSELECT_K
    where = "Tables 1 and 5"
    about = (
        "Two tasks about a user and a film: is it watched (cross-entropy $L_1$; there "
        "are as many sampled pairs as ratings), and with how many stars (squared error "
        "$L_2$, over the films watched)? The loss is "
        r"$\alpha L_1 + (1 - \alpha) L_2$, in training, tuning and test. "
        "Embeddings of user and film go into 8 experts, dense layers of ReLU units; a "
        "gate of each task's own mixes them, and a tower of its own makes the "
        "prediction. Sparse gates may choose k = 2 experts."
    )

    methods: tuple[str, ...] = tuple(METHODS)
    alphas: tuple[float, ...] = (0.1, 0.5, 0.9)
    learning_rates: tuple[float, ...] = (0.001, 0.002, 0.005, 0.01)
    entropies: tuple[float, ...] = (0.01, 0.1, 1.0)
    gammas: tuple[float, ...] = (1.0,)
    sparsities: tuple[float, ...] = (0.001, 0.003, 0.01)

    @classmethod
    def presets(cls):
        return {
            "smoke": cls(
                trials=1,
                methods=("DSelect-k, per-example", "shared bottom"),
                alphas=(0.5,),
                **SMOKE,
            ),
            "cpu": cls(
                seeds=5,
                trials=4,
                **CPU,
            ),
            "paper": cls(
                seeds=100,
                trials=100,
                sampler="gp",
                learning_rates=(0.0001, 0.001, 0.01, 0.1),
                entropies=(0.001, 0.01, 0.1, 1.0, 10.0),
                gammas=(0.1, 1.0, 10.0),
                sparsities=(0.0001, 0.001, 0.01, 0.1, 1.0),
            ),
        }

    @property
    def arms(self):
        own = own_methods(self.gates, self.num_nonzeros)
        return {name: METHODS[name] for name in self.methods} | own

    def space(self, arm):
        return search_space(self, self.arms[arm])

    def run(self, arm, jobs):
        method, data = self.arms[arm], self.data()

        def build(_, **settings):
            return self.model(data, method, **settings)

        # All weights of the tasks in one program: a copy for each, of each job.
        each = [
            Job(job.seed, {**job.settings, "alpha": alpha})
            for job in jobs
            for alpha in self.alphas
        ]
        runs = train_jobs(
            build, data, each, epochs=self.epochs, batch_size=self.batch_size
        )
        found = [{"objective": 0.0, "admissible": True} for _ in jobs]
        for number in range(len(runs)):
            together, alpha = (
                found[number // len(self.alphas)],
                each[number][1]["alpha"],
            )
            model = runs.model(number)
            loss = measure(model, data.validation, alpha)["loss"]
            numbers = measure(model, data.test, alpha)
            admissible = is_admissible(numbers, method, self.num_nonzeros)
            together["objective"] += loss / len(self.alphas)
            together["admissible"] &= admissible
            numbers["admissible"] = admissible
            together |= {named(name, alpha): v for name, v in numbers.items()}
        return found

    def report(self, results):
        claims = [self._beats_top_k(results, kind) for kind in GATING]
        claims += [self._beats_dense(results), self._keeps_to_rules(results)]
        tables = [self._losses(results), self._metrics(results)]
        return Report(claims, tables, notes=self._notes())

    def _beats_top_k(self, results, kind):
        pairs = [(f"DSelect-k, {kind}", f"Top-k, {kind}")]
        return self._claim(
            results,
            pairs,
            f"With {kind} gates DSelect-k has a lower test loss than Top-k, for each "
            "weight of the tasks.",
        )

    def _beats_dense(self, results):
        return self._claim(
            results,
            [("DSelect-k, static", dense) for dense in DENSE],
            "With a quarter of the experts, DSelect-k (static) has a lower test loss "
            "than MMoE's softmax gate and than a shared bottom.",
        )

    def _claim(self, results, pairs, says):
        """That the first of each pair has the lower loss, for each weight."""
        lower, texts = [], []
        for alpha in self.alphas:
            for mine, other in pairs:
                loss = named("loss", alpha)
                lower.append(is_positive(*difference(results, loss, other, mine)))
                losses = [results.text(arm, loss, digits=4) for arm in (mine, other)]
                texts.append(
                    f"alpha {alpha}: {losses[0]} against {losses[1]} ({other})"
                )
        ours = f"{'; '.join(texts)}. {count_lower(lower)}"
        return Claim(says, ours, all_hold(lower))

    def _keeps_to_rules(self, results):
        kept = self._kept(results, [f"DSelect-k, {kind}" for kind in GATING])
        return Claim(
            "DSelect-k ends with binary selectors (static), or with at most k experts "
            "for an example on average (per-example).",
            f"{int(kept.sum())} of {len(kept)} runs do.",
            bool(kept.all()) if len(kept) else None,
        )

    def _kept(self, results, methods):
        """Which runs keep to the paper's rules, at each weight of the tasks."""
        return np.concatenate(
            [
                results.values(method, named("admissible", alpha))
                for method in methods
                for alpha in self.alphas
            ]
        )

    def _losses(self, results):
        columns = ["gate"]
        for alpha in self.alphas:
            columns += [f"loss, alpha {alpha}", "experts"]
        columns.append("runs within the rules")
        rows = []
        for method in self.arms:
            row = [method]
            for alpha in self.alphas:
                row += [results.text(method, named("loss", alpha), digits=4)]
                experts = results.text(method, named("experts", alpha))
                row += [experts or "one network"]
            kept = self._kept(results, [method])
            rows.append([*row, f"{int(kept.sum())} of {len(kept)}"])
        note = (
            "Experts: how many have a weight that is not zero, for a task and an "
            f"example, on average. {NO_NUMBERS}"
        )
        return Table("Table 1: test loss and experts used", columns, rows, note)

    def _metrics(self, results):
        rows = [
            [method, str(alpha)]
            + [results.text(method, named(name, alpha), 4) for name in METRICS]
            for alpha in self.alphas
            for method in self.arms
        ]
        columns = ["gate", "alpha", *METRICS.values()]
        return Table("Table 5: each task by itself", columns, rows, NO_NUMBERS)

    def _notes(self):
        thinned = f", of which {self.num_train:,} pairs train" if self.num_train else ""
        smaller = (
            "**Smaller than the paper.** The paper has MovieLens 1M with 1.6 million "
            "training pairs, many repetitions and a long search. These runs have the "
            f"version `{self.version}`{thinned}, {self.epochs} epochs, {self.seeds} "
            f"seeds, {self.trials} settings for each gate and experts of {self.units} "
            "units (paper: 256). Losses here do not compare with the paper's, only "
            "with each other."
        )
        ours = (
            "**Ours, where we do not know what the paper did:** embeddings of "
            f"{self.embedding} numbers with a dropout of {self.dropout}, which the "
            f"per-example gates see too; towers of {self.tower} units; a shared bottom "
            "as wide as k experts; Top-k without noise; an entropy weight that grows "
            "by a factor of a thousand over four fifths of the run; weights of the "
            "last epoch. The training mean is taken off the ratings, which the "
            "squared error does not notice. A gate has the same settings for all "
            "weights of the tasks, chosen by the mean of its validation losses."
        )
        rules = (
            "**The paper's rules.** Tuning disregards settings with which a static "
            "DSelect-k gate does not end with binary selectors, and those with which a "
            "sparse gate uses more than k experts on average. All seeds that are run "
            "are reported, whether they keep to the rules or not."
        )
        return [smaller, ours, rules]


def named(number, alpha):
    """The name of a number at a weight of the tasks."""
    return f"{number} at {alpha}"
