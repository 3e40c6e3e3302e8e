"""Tables 1 and 5: gates on MovieLens."""

import dataclasses
import itertools

from experiments import INADMISSIBLE, NIL, Results, all_hold
from papers.dselectk import _gates
from papers.dselectk._gates import METHODS, STATIC, TOP_K, TOP_K_KERAS
from papers.dselectk._gumbel import GUMBEL, Gumbel
from papers.dselectk._movielens import MovieLensExperiment, name_arm

OURS = (STATIC, "DSelect-k, per-example")
STATIC_GATES = (STATIC, TOP_K, TOP_K_KERAS, "Gumbel-softmax, static")
SOFTMAX = "softmax, per-example"
RIVALS = [name for name in METHODS if name not in OURS]
SPARSE_GATES = [name for name, method in METHODS.items() if method.is_sparse]


@dataclasses.dataclass(frozen=True)
class Table1And5(MovieLensExperiment):
    """The gates and baselines of the paper, tuned for each weight of the two tasks."""

    name = "dselectk-table1-5"
    title = "gates on MovieLens, for three weights of the two tasks"
    where = "Tables 1 and 5"

    def counts(self, results, name, alpha):
        """Whether a method keeps the paper's rules in some run."""
        return _gates.within_rules(results, name_arm(name, alpha)).any()

    def lower(self, results, names, others, alphas=None, number="loss", among=1):
        """Whether a number of methods is lower than that of others (see `_gates`)."""
        return _gates.lower(
            results,
            [
                (name_arm(name, alpha), name_arm(other, alpha), number)
                for alpha in alphas or self.alphas
                for name, other in itertools.product(names, others)
            ],
            among=among,
        )

    def by_alpha(self, results, names, others, number="loss"):
        """The same, for each alpha, as one of so many chances."""
        several = {"number": number, "among": len(self.alphas)}
        judged = (
            self.lower(results, names, others, [a], **several) for a in self.alphas
        )
        return [all_hold([each]) for each in judged]

    def lowest(self, results, names, alpha):
        """The method of the lowest mean loss, or "none"."""
        means = {n: results.mean(name_arm(n, alpha), "loss") for n in names}
        return min(means, key=means.__getitem__, default="none")

    def better(self, results, alpha):
        """The DSelect-k gates of the lower loss, of those that count if some do.

        Both, if their difference may be chance.
        """
        counted = [name for name in OURS if self.counts(results, name, alpha)] or OURS
        best = self.lowest(results, counted, alpha)
        arms = {name: name_arm(name, alpha) for name in (best, *counted)}
        return [n for n in arms if not results.gap(arms[n], arms[best]).is_positive()]

    def of_better(self, results, number, digits=3):
        """A number of the better gates for each alpha, as text."""
        return "; ".join(
            f"alpha {a}: {name} {results.text(name_arm(name, a), number, digits)}"
            for a in self.alphas
            for name in self.better(results, a)
        )

    def better_against(self, results, others, number):
        """For each alpha and better gate, whether it is lower than others."""
        return [
            (alpha, name, self.lower(results, [name], others, [alpha], number))
            for alpha in self.alphas
            for name in self.better(results, alpha)
        ]

    def better_wins(self, results, others, number):
        """Whether a better gate is lower than others for each alpha.

        If two gates may be the better one, what is true of one only is undecided.
        """
        found = self.better_against(results, others, number)
        judged = []
        for alpha in self.alphas:
            own = {all_hold([holds]) for a, _, holds in found if a == alpha}
            judged.append(own.pop() if len(own) == 1 else None)
        return all_hold(judged)

    def no_winner(self, results, gates):
        """Whether no static gate is lower than the other two for every alpha."""
        wins = [all_hold([self.lower(results, [n], {*gates} - {n})]) for n in gates]
        # That a gate is not lower refutes that it wins.
        return all_hold({True: False, False: True, NIL: True}.get(w, w) for w in wins)

    def finer(self, results):
        """The Gumbel-softmax gate with this grid, and a finer one: rows of cells."""
        folder = results.path.parent if results.path else None
        other = Results(Gumbel(), "cpu", folder)
        if not (results.complete and other.complete):
            return []
        rows = []
        for alpha in self.alphas:
            arm, cells = name_arm(GUMBEL, alpha), []
            for each in (results, other):
                trials = each.of(arm, tuning=True)
                kept = [run for run in trials if run.numbers["admissible"]]
                used = sum(run.numbers["experts"] > 0 for run in kept)
                cells += [f"{len(kept)} of {len(trials)}", used]
                cells += [each.text(arm, "loss", 4), each.text(arm, "experts")]
            rows.append((alpha, cells))
        return rows

    def out_of_rules(self, results):
        """The methods that break the paper's rules in all runs."""
        return [
            name
            for name in self.compared
            if not any(self.counts(results, name, alpha) for alpha in self.alphas)
        ]


def counted(judged):
    """How many comparisons came out how, as text."""
    judged = [all_hold([each]) for each in judged]
    words = {True: "lower", False: "not lower", NIL: NIL, INADMISSIBLE: INADMISSIBLE}
    words[None] = "undecided"
    return ", ".join(f"{judged.count(each)} {word}" for each, word in words.items())


def at_least(count, judged):
    """Whether so many comparisons hold; `None` if the undecided ones matter."""
    held, rest = judged.count(True), [j for j in judged if j in (None, INADMISSIBLE)]
    if held >= count:
        return True
    if held + len(rest) < count:
        return NIL if NIL in judged else False
    return all_hold(rest)
