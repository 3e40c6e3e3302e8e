"""Table 4: when S(Z) becomes binary, and what training costs."""

import dataclasses

import numpy as np

from dselectk_keras.experiments.compare import standard_error
from dselectk_keras.experiments.report import Claim, Picture, Report, Table
from dselectk_keras.experiments.results import format_mean
from dselectk_keras.plots import plot_curves
from papers import citations, drawing
from papers.dselectk._synthetic import SyntheticExperiment, name_arm
from papers.dselectk._synthetic_methods import UNITS, K

FEATURES = 10  # Of an example.
METHODS = ("DSelect-k, one stage", "DSelect-k")
NOTES = [
    (
        "The runs are those of [Figure 5](dselectk-fig5.md), where it is told what "
        "stages are. The paper's table is on its real data sets; we do not have its "
        "numbers, and none stand beside ours."
    ),
    (
        "Counted are products, an addition and a multiplication being two operations, "
        "and the way back twice the way forth, without the product towards the "
        "inputs: experts, and the mixtures of each task. What is done element by "
        "element, and static gates, which do not grow with the batch, are left out. "
        "Top-k counts as one that evaluates what its tasks use from the first step "
        "on. Conditional training evaluates all experts in the epochs that begin with "
        "a selector that is not binary, and in the others those that are in use."
    ),
    (
        "With a quarter as many experts as tasks there is hardly an expert that no "
        "task uses: in the whole model, what is saved is saved in the mixtures. A "
        "model of one task drops all but the experts of its own: that is the last "
        "pair of columns, averaged over the tasks, each from the epoch on in which "
        "its own selectors are binary."
    ),
]


@dataclasses.dataclass(frozen=True)
class Table4(SyntheticExperiment):
    """DSelect-k's runs of Figure 5, looked at for what they cost."""

    name = "dselectk-table4"
    title = "steps until S(Z) is binary, and FLOPs of training against Top-k's"
    paper = citations.DSELECT_K
    where = "Table 4"
    about = (
        "The tasks and the runs of [Figure 5](dselectk-fig5.md). Once S(Z) is binary, "
        "the experts that no task uses need not be evaluated any more. Recorded after "
        "each epoch: which selectors are binary. Counted: the operations of training, "
        "against those of Top-k."
    )

    def report(self, results):
        caption = (
            "The share of selectors that are binary over training, on average over the "
            "seeds; bands are standard errors. Between stages some start anew."
        )
        return Report(
            [self._claim_binary(results), self._claim_cost(results)],
            [self._table(results)],
            [Picture("binary", caption, lambda: self._draw(results))],
            NOTES,
        )

    def _costs(self, results, method, count):
        """The costs of all runs of an arm, by name: arrays."""
        runs = results.of(name_arm(method, count))
        each = [costs(run.numbers, count) for run in runs]
        return {name: np.array([one[name] for one in each]) for name in each[0]}

    def _claim_binary(self, results):
        texts, holds = [], True
        for method in METHODS:
            decided = np.concatenate(
                [results.values(name_arm(method, n), "decided") for n in self.tasks]
            )
            count = np.isfinite(decided).sum()
            texts.append(f"{method}: in {count} of {len(decided)} runs")
            holds = holds and count == len(decided)
        return Claim(
            "S(Z) becomes binary before training ends.",
            f"{'; '.join(texts)}.",
            bool(holds),
        )

    def _claim_cost(self, results):
        found = self._costs(results, METHODS[0], self.most)
        means = {name: values.mean() for name, values in found.items()}
        return Claim(
            "Training costs more than Top-k's, and less so if experts that are not in "
            "use are left out once S(Z) is binary.",
            f"{METHODS[0]}, {self.most} tasks: {means['dense']:.2f} times Top-k's "
            f"operations, and {means['conditional']:.2f} times if they are left out; "
            f"for one task alone {means['dense_task']:.2f} and "
            f"{means['conditional_task']:.2f} times.",
            bool(
                1 < means["conditional"] < means["dense"]
                and 1 < means["conditional_task"] < means["dense_task"]
            ),
        )

    def _table(self, results):
        rows = []
        for method in METHODS:
            for count in self.tasks:
                arm = name_arm(method, count)
                done = np.isfinite(results.values(arm, "decided"))
                rows.append(
                    [
                        method,
                        count,
                        count // 4,
                        f"{done.sum()} of {len(done)}",
                        results.text(arm, "decided"),
                        results.text(arm, "decided", scale=100 / self.num_steps),
                        *map(_text, self._costs(results, method, count).values()),
                    ]
                )
        columns = [
            "method",
            "tasks",
            "experts",
            "seeds with binary S(Z)",
            "steps until then",
            "in % of the run",
            "FLOPs against Top-k's, all experts evaluated",
            "conditional training",
            "one task alone, all experts evaluated",
            "one task alone, conditional training",
        ]
        note = "Steps are counted to the epoch, over the seeds that get there."
        return Table("Steps and cost", columns, rows, note)

    def _draw(self, results):
        figure, axes = drawing.panels(1, 2, 3, width=1.38)
        for ax, method in zip(axes.flat, METHODS, strict=True):
            curves, bands = {}, {}
            for count in self.tasks:
                runs = results.of(name_arm(method, count))
                share = np.array([run.numbers["share"] for run in runs])
                name = f"{count} tasks"
                curves[name] = runs[0].numbers["steps"], share.mean(axis=0)
                bands[name] = standard_error(share)
            plot_curves(
                curves,
                x_label="step",
                y_label="share of binary selectors",
                errors=bands,
                title=method,
                ax=ax,
            )
        return figure


def costs(numbers, num_tasks):
    """Operations of training, as multiples of Top-k's.

    Args:
        numbers: The numbers of a run.
        num_tasks: The number of tasks.

    Returns:
        A dict: of the whole model with all experts evaluated to the end (`"dense"`)
        and `"conditional"`; and of one task alone, on average (`"dense_task"`,
        `"conditional_task"`).
    """
    n = num_tasks // 4
    own = min(K, n)
    top_k = flops(n, own * num_tasks)
    dense = flops(n, n * num_tasks)
    sparse = flops(numbers["used"], numbers["experts"] * num_tasks)
    one, every = flops(own, own), flops(n, n)
    late, alone = numbers["open"], numbers["task_open"]
    return {
        "dense": dense / top_k,
        "conditional": (late * dense + (1 - late) * sparse) / top_k,
        "dense_task": every / one,
        "conditional_task": (alone * every + (1 - alone) * one) / one,
    }


def flops(num_experts, num_pairs):
    """Operations of a training step, for an example.

    Args:
        num_experts: The experts that are evaluated.
        num_pairs: The experts that each task mixes, over all tasks.

    Returns:
        A number.
    """
    experts = 2 * FEATURES * UNITS * num_experts
    mixtures = 2 * num_pairs
    return 2 * experts + 3 * mixtures


def _text(values):
    return format_mean(float(values.mean()), float(standard_error(values)))
