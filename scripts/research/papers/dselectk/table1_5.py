"""Tables 1 and 5: gates on MovieLens."""

import dataclasses
import itertools
from typing import Any

from research.engine import INADMISSIBLE, NIL, Claim, Results, all_hold
from research.engine.plan import price
from research.engine.results import how_many
from research.papers.dselectk import _gates
from research.papers.dselectk._gates import (
    METHODS,
    STARTS,
    STATIC,
    TOP_K,
    TOP_K_KERAS,
    is_sparse,
    listed,
    with_start,
    within_rules,
)
from research.papers.dselectk._gumbel import GUMBEL, Gumbel
from research.papers.dselectk._movielens import MovieLensExperiment, name_arm

OURS = (STATIC, "DSelect-k, per-example")
STATIC_GATES = (STATIC, TOP_K, TOP_K_KERAS, "Gumbel-softmax, static")
SOFTMAX = "softmax, per-example"
WITHIN = "runs within the rules"
RIVALS = [name for name in METHODS if name not in OURS]
GATES = RIVALS[:-1]  # Without the shared bottom.
SPARSE_GATES = [name for name, method in METHODS.items() if is_sparse(method)]


@dataclasses.dataclass(frozen=True)
class Table1And5(MovieLensExperiment):
    """The gates and baselines of the paper, tuned for each weight of the two tasks."""

    name = "dselectk-table1-5"
    title = "gates on MovieLens, for three weights of the two tasks"
    where = "Tables 1 and 5"
    looks = 2

    def keeps(self, results, name, alpha):
        """Check whether a method keeps the paper's rules in some run."""
        return _gates.within_rules(results, name_arm(name, alpha)).any()

    def lower(self, results, names, others, alphas=None, number="loss", among=1):
        """Judge whether methods have a lower number than others (see `_gates`)."""
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

    def static_wins(self, results, start):
        """The same, of DSelect-k and the other static sparse gates."""
        rivals = with_start(STATIC_GATES[1:], start)
        return self.by_alpha(results, [STATIC], rivals)

    def sparse_wins(self, results, start):
        """The same, of the sparse gates and softmax."""
        return self.by_alpha(results, with_start(SPARSE_GATES, start), [SOFTMAX])

    def example_wins(self, results):
        """The same, of DSelect-k per example and static."""
        return self.by_alpha(results, OURS[1:], [STATIC])

    def counts(self, results, wins, *start):
        """Number of such comparisons with each outcome, as text."""
        return counted(wins(results, *start))

    def lowest(self, results, names, alpha):
        """The method of the lowest mean loss, or "none"."""
        means = {n: results.mean(name_arm(n, alpha), "loss") for n in names}
        return min(means, key=means.__getitem__, default="none")

    def best(self, results, names):
        """The method of the lowest mean loss within the rules by alpha, as text."""
        own = ([n for n in names if self.keeps(results, n, a)] for a in self.alphas)
        return "; ".join(
            f"alpha {a}: {self.lowest(results, counted, a)}"
            for a, counted in zip(self.alphas, own, strict=True)
        )

    def better(self, results, alpha):
        """The DSelect-k gates of the lower loss, of those that count if some do.

        Both, if their difference may be chance.
        """
        counted = [name for name in OURS if self.keeps(results, name, alpha)] or OURS
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

    def counted_wins(self, results, others, number):
        """Number of these comparisons with each verdict, as text."""
        return counted(
            found[-1] for found in self.better_against(results, others, number)
        )

    def better_wins(self, results, others, number):
        """Judge whether a better gate is lower than others for each alpha.

        If two gates may be the better one, what is true of one only is undecided.
        """
        found = self.better_against(results, others, number)
        judged = []
        for alpha in self.alphas:
            own = {all_hold([holds]) for a, _, holds in found if a == alpha}
            judged.append(own.pop() if len(own) == 1 else None)
        return all_hold(judged)

    def no_winner(self, results, gates):
        """Judge whether no static gate is lower than the other two for every alpha."""
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
            if not any(self.keeps(results, name, alpha) for alpha in self.alphas)
        ]

    @property
    def claims(self):
        for start, begins in STARTS.items():
            every = {"rivals": RIVALS, "gates": GATES, "static": STATIC_GATES}
            own = {name: with_start(names, start) for name, names in every.items()}
            names = {**own, "start": start, "begins": begins}
            for claim, test in self._tests(start, **own).items():
                yield Claim(claim, test, names)
        yield Claim("per-example", lambda r: at_least(1, self.example_wins(r)))

    def _tests(self, start, rivals, gates, static):
        """The tests that are made with each start of Top-k, by claim."""
        sparse = with_start(SPARSE_GATES, start)
        return {
            "lower-loss": lambda r: self.better_wins(r, rivals, "loss"),
            "fewer-experts": lambda r: self.better_wins(r, gates, "experts"),
            "no-winner": lambda r: self.no_winner(r, static),
            "two-alphas": lambda r: at_least(2, self.static_wins(r, start)),
            "sparse": lambda r: self.lower(r, sparse, [SOFTMAX]),
        }

    def table_1(self, results):
        heads = ([f"loss, alpha {alpha}", "experts", WITHIN] for alpha in self.alphas)
        yield ["gate", *itertools.chain(*heads)]
        for name in self.compared:
            cells = []
            for arm in (name_arm(name, alpha) for alpha in self.alphas):
                experts = results.text(arm, "experts") or "one network"
                kept = how_many(within_rules(results, arm))
                cells += [results.text(arm, "loss", 4), experts, kept]
            yield [name, *cells]

    def table_5(self, results):
        yield (
            "gate | alpha | task 1: accuracy | task 1: cross-entropy | task 1: AUC | "
            "task 2: squared error"
        )
        numbers = "watched_accuracy", "watched_loss", "watched_auc", "rating_mse"
        for alpha, name in itertools.product(self.alphas, self.compared):
            texts = results.texts(name_arm(name, alpha), *numbers, digits=4)
            yield [name, f"{alpha}", *texts]

    def table_finer(self, results):
        epochs, more = map(listed, (self.presets()["cpu"].epochs, Gumbel.epochs))
        columns = "of these with an open expert", "test loss", "experts"
        yield [
            "alpha",
            f"the paper's grid, {epochs} epochs: settings within the rules",
            *columns,
            f"finer grid, {more} epochs: settings within the rules",
            *columns,
        ]
        for alpha, cells in self.finer(results):
            yield [f"{alpha}", *cells]

    @property
    def fields(self) -> dict[str, Any]:
        sizes = {name: e.embedding * e.units for name, e in self.presets().items()}
        return {
            "finer_lambdas": lambda r: Gumbel.sparsities if self.finer(r) else None,
            "finer_epochs": max(Gumbel.epochs),
            "price": lambda r: price(r, epochs=(20,)),
            "larger": sizes["paper"] / sizes["cpu"],
            "without_rules": lambda r: "; ".join(self.out_of_rules(r)) or None,
        }


def counted(judged):
    """The number of comparisons with each outcome, as text."""
    judged = [all_hold([each]) for each in judged]
    words = {True: "lower", False: "not lower", NIL: NIL, INADMISSIBLE: INADMISSIBLE}
    words[None] = "undecided"
    return ", ".join(f"{judged.count(each)} {word}" for each, word in words.items())


def at_least(count, judged):
    """Judge whether `count` comparisons hold; `None` if the undecided ones matter."""
    held, rest = judged.count(True), [j for j in judged if j in (None, INADMISSIBLE)]
    if held >= count:
        return True
    if held + len(rest) < count:
        return NIL if NIL in judged else False
    return all_hold(rest)
