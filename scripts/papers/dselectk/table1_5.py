"""Tables 1 and 5: gates on MovieLens."""

import dataclasses
import itertools

from experiments import all_hold
from papers.dselectk import _gates
from papers.dselectk._gates import METHODS, STATIC, TOP_K
from papers.dselectk._movielens import MovieLensExperiment, name_arm

OURS = (STATIC, "DSelect-k, per-example")
STATIC_GATES = (STATIC, TOP_K, "Gumbel-softmax, static")
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

    def lower(self, results, mine, other, alpha, number="loss"):
        """Whether a number of a method is lower than that of another (see `_gates`)."""
        arms = name_arm(mine, alpha), name_arm(other, alpha)
        return _gates.lower(results, *arms, number)

    def lowers(self, results, names, others):
        """Whether methods have a lower loss than others, for each alpha."""
        return [
            self.lower(results, name, other, alpha)
            for alpha, name, other in itertools.product(self.alphas, names, others)
        ]

    def lowest(self, results, names, alpha):
        """The method of the lowest mean loss, or "none"."""
        means = {n: results.mean(name_arm(n, alpha), "loss") for n in names}
        return min(means, key=means.__getitem__, default="none")

    def better(self, results, alpha):
        """The DSelect-k gate of the lower mean loss, of those that count if some do."""
        counted = [name for name in OURS if self.counts(results, name, alpha)]
        return self.lowest(results, counted or OURS, alpha)

    def of_better(self, results, number, digits=3):
        """A number of the better gate for each alpha, as text."""
        names = {alpha: self.better(results, alpha) for alpha in self.alphas}
        return "; ".join(
            f"alpha {a}: {name} {results.text(name_arm(name, a), number, digits)}"
            for a, name in names.items()
        )

    def better_against(self, results, others, number):
        """Whether the better gate is lower than others, for each alpha and other."""
        return [
            self.lower(results, self.better(results, alpha), other, alpha, number)
            for alpha in self.alphas
            for other in others
        ]

    def static_wins(self, results):
        """For each alpha, whether static DSelect-k is lower than the other two."""
        others = STATIC_GATES[1:]
        return [
            all_hold(self.lower(results, STATIC, other, alpha) for other in others)
            for alpha in self.alphas
        ]

    def no_winner(self, results):
        """Whether no static gate is lower than the other two for every alpha."""
        gates = set(STATIC_GATES)
        wins = [all_hold(self.lowers(results, [n], gates - {n})) for n in STATIC_GATES]
        return all_hold(None if won is None else not won for won in wins)

    def out_of_rules(self, results):
        """The methods that break the paper's rules in all runs."""
        return [
            name
            for name in self.compared
            if not any(self.counts(results, name, alpha) for alpha in self.alphas)
        ]


def counted(judged):
    """How many comparisons came out how, as text."""
    return (
        f"Lower in {judged.count(True)} of {len(judged)} comparisons, not lower in "
        f"{judged.count(False)}, undecided in {judged.count(None)}."
    )


def at_least(count, judged):
    """Whether so many comparisons hold; `None` if the undecided ones matter."""
    held, rest = judged.count(True), judged.count(None)
    return True if held >= count else False if held + rest < count else None
