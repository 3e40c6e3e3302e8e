"""Tables 1 and 5: gates on MovieLens."""

import dataclasses
import itertools

from experiments import all_hold
from papers.dselectk._gates import METHODS, SPARSE, lower, within_rules
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
    where = "Tables 1 and 5"

    def counts(self, results, name, alpha):
        """Whether a method was run and keeps the paper's rules in some run."""
        results.ran(name_arm(name, alpha))
        return bool(within_rules(results, name_arm(name, alpha)).any())

    def lower(self, results, mine, other, alpha, number="loss"):
        """Whether a number of a method is lower than that of another (see `_gates`)."""
        return lower(results, name_arm(mine, alpha), name_arm(other, alpha), number)

    def better(self, results, alpha):
        """The DSelect-k gate of the lower mean loss, of those that count if some do."""
        counted = [name for name in OURS if self.counts(results, name, alpha)]
        return self.lowest(results, counted or OURS, alpha)

    def lowest(self, results, names, alpha):
        """The method of the lowest mean loss, or "none"."""
        means = {n: results.mean(name_arm(n, alpha), "loss") for n in names}
        return min(means, key=means.__getitem__, default="none")

    def better_against(self, results, others, number):
        """Whether the better gate is lower than others, for each alpha and other."""
        return [
            self.lower(results, self.better(results, alpha), other, alpha, number)
            for alpha in self.alphas
            for other in others
        ]

    def of_better(self, results, number, digits=3):
        """A number of the better gate for each alpha, as text."""
        texts = []
        for alpha in self.alphas:
            name = self.better(results, alpha)
            text = results.text(name_arm(name, alpha), number, digits)
            texts.append(f"alpha {alpha}: {name} {text}")
        return "; ".join(texts)

    def no_winner(self, results):
        """Whether each static gate is beaten by another one for some alpha."""
        wins = []
        for name in STATIC:
            others = [other for other in STATIC if other != name]
            against = [self.lowers(results, [name], other) for other in others]
            wins.append(all_hold(itertools.chain(*against)))
        return all_hold(None if won is None else not won for won in wins)

    def static_wins(self, results):
        """For each alpha, whether static DSelect-k is lower than the other two."""
        return [
            all_hold(self.lower(results, OURS[0], other, a) for other in STATIC[1:])
            for a in self.alphas
        ]

    def lowers(self, results, names, other):
        """Whether methods have a lower loss than another one, for each alpha."""
        return [self.lower(results, n, other, a) for a in self.alphas for n in names]

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
