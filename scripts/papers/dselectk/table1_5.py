"""Tables 1 and 5: gates on MovieLens."""

import dataclasses
import itertools
from typing import Any

from experiments import all_hold
from papers import citations
from papers.dselectk._gates import METHODS, SPARSE, within_rules
from papers.dselectk._movielens import MovieLensExperiment, name_arm

OURS = ("DSelect-k, static", "DSelect-k, per-example")
STATIC = ("DSelect-k, static", "Top-k, static", "Gumbel-softmax, static")
SOFTMAX = "softmax, per-example"
RIVALS = [name for name in METHODS if name not in OURS]
SPARSE_METHODS = [name for name, each in METHODS.items() if each.gate in SPARSE]


@dataclasses.dataclass(frozen=True)
class Table1And5(MovieLensExperiment):
    """The gates and baselines of the paper, tuned for each weight of the two tasks."""

    name = "dselectk-table1-5"
    title = "gates on MovieLens, for three weights of the two tasks"
    paper = citations.DSELECT_K
    where = "Tables 1 and 5"

    # Whether a method is lower than another, by the paper's rules.

    def counts(self, results, name, alpha):
        """Whether a method was run and keeps the paper's rules in some run."""
        results.ran(name_arm(name, alpha))
        return bool(within_rules(results, name_arm(name, alpha)).any())

    def lower(self, results, mine, other, alpha, number="loss"):
        """Whether a number of a method is lower than that of another.

        `None` is not known, also where all runs of a method break the paper's rules.
        """
        arms = (name_arm(name, alpha) for name in (other, mine))
        lower = results.gap(*arms, number).is_positive()
        counted = (self.counts(results, name, alpha) for name in (mine, other))
        return lower if all(counted) else None

    def better(self, results, alpha):
        """The DSelect-k gate of the lower mean loss, of those that count."""
        mine = [name for name in OURS if self.counts(results, name, alpha)]
        return self._lowest(results, mine or OURS, alpha)

    def lowest(self, results, names, alpha):
        """The method of the lowest mean loss, of those that count, or "none"."""
        names = [name for name in names if self.counts(results, name, alpha)]
        return self._lowest(results, names, alpha) if names else "none"

    def _lowest(self, results, names, alpha):
        return min(names, key=lambda n: results.mean(name_arm(n, alpha), "loss"))

    def better_against(self, results, others, number):
        """Whether the better gate is lower than others, for each alpha and other."""
        return [
            self.lower(results, self.better(results, alpha), other, alpha, number)
            for alpha in self.alphas
            for other in others
        ]

    def of_better(self, results, number, digits=3):
        """A number of the better gate for each alpha, as text."""
        better = ((alpha, self.better(results, alpha)) for alpha in self.alphas)
        return "; ".join(
            f"alpha {alpha}: {name} "
            f"{results.text(name_arm(name, alpha), number, digits)}"
            for alpha, name in better
        )

    def no_winner(self, results):
        """Whether each static gate is beaten by another one for some alpha."""
        lower: dict[Any, Any] = {
            pair: [self.lower(results, *pair, alpha) for alpha in self.alphas]
            for pair in itertools.permutations(STATIC, 2)
        }
        others = {name: [o for o in STATIC if o != name] for name in STATIC}
        # A gate that is not clearly beaten by another one may be the winner.
        if all(any(any(lower[o, n]) for o in others[n]) for n in STATIC):
            return True
        wins = (
            all_hold(itertools.chain(*(lower[n, o] for o in others[n]))) for n in STATIC
        )
        return False if True in wins else None

    def static_wins(self, results):
        """For each alpha, whether static DSelect-k is lower than the other two."""
        return [
            all_hold(self.lower(results, OURS[0], other, a) for other in STATIC[1:])
            for a in self.alphas
        ]

    def sparse_below_softmax(self, results):
        """Whether each sparse gate is lower than the softmax gate, for each alpha."""
        return [
            self.lower(results, name, SOFTMAX, alpha)
            for alpha in self.alphas
            for name in SPARSE_METHODS
        ]

    def per_example_gains(self, results):
        """For each alpha, whether per-example DSelect-k is lower than static."""
        return [self.lower(results, OURS[1], OURS[0], a) for a in self.alphas]

    def losses(self, results, name):
        """Loss, experts and runs within the rules of a method, for each alpha."""
        texts = []
        for arm in (name_arm(name, alpha) for alpha in self.alphas):
            kept = within_rules(results, arm)
            experts = results.text(arm, "experts") or "one network"
            rules = f"{kept.sum()} of {len(kept)}"
            texts += [results.text(arm, "loss", 4), experts, rules]
        return texts

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
