"""Table 4: when S(Z) becomes binary, and what training costs, on MovieLens."""

import dataclasses
import functools
import itertools
from typing import Any

import numpy as np

from research.engine import UNTESTABLE, Claim, Judged, WithinRules, all_positive, gap_of
from research.engine.compare import mean_and_error
from research.engine.results import format_mean, how_many
from research.papers.dselectk._gates import STARTS, TOP_K, is_binary_by
from research.papers.dselectk._movielens import MovieLensExperiment

STEPS = {0.1: 11.37, 0.5: 9.39, 0.9: 0.04}  # The paper's % of steps until binary.
FLOPS = {0.1: 1.5, 0.5: 1.2, 0.9: 0.6}  # The paper's, relative to Top-k.


@dataclasses.dataclass(frozen=True)
class Table4(MovieLensExperiment):
    """The runs of Figure 6, looked at for when they decide and what they cost."""

    name = "dselectk-table4"
    title = "steps until S(Z) is binary, and FLOPS of training relative to Top-k"
    where = "Table 4"

    def is_as_early(self, results, alpha):
        """Judge whether S(Z) is binary as early as in the paper, in every run."""
        share = STEPS[alpha]
        if share / 100 * self.num_steps < 1:
            why = f"{share} % of our {self.num_steps} steps are less than one."
            return Judged(UNTESTABLE, why=why)
        return is_binary_by(results, self.followed(alpha)[0], share)

    def ratios(self, results, alpha, start):
        """FLOPS of training relative to Top-k, seed by seed."""
        pairs = results.pairs(*self.followed(alpha, start), "evaluated")
        ours, theirs = map(self._flops, pairs)
        return ours / theirs

    def ratio(self, results, alpha, start):
        """Their mean, as text."""
        return format_mean(*mean_and_error(self.ratios(results, alpha, start)))

    def more_flops(self, results, alpha, start):
        """Judge whether training takes more, or fewer, FLOPS than Top-k, by `FLOPS`."""
        sign = 1 if FLOPS[alpha] > 1 else -1
        gap = gap_of(sign * (self.ratios(results, alpha, start) - 1))
        return all_positive([gap], sign * (FLOPS[alpha] - 1))

    def _flops(self, num_experts):
        """Operations of a training step, for an example."""
        expert = 2 * self.embedding * self.units
        tower = self.units * self.tower + self.tower
        return 6 * (num_experts * expert + 2 * tower)

    @property
    def claims(self):
        for alpha, (start, begins) in itertools.product(self.alphas, STARTS.items()):
            ours, _ = self.followed(alpha)
            names = {"alpha": alpha, "steps": STEPS[alpha], "flops": FLOPS[alpha]}
            names |= {"ours": ours, "start": start, "begins": begins}
            names["more"] = "less" if FLOPS[alpha] < 1 else "more"
            if start == TOP_K:
                test = functools.partial(self.is_as_early, alpha=alpha)
                yield Claim(f"binary {alpha}", WithinRules(test), names)
            test = functools.partial(self.more_flops, alpha=alpha, start=start)
            yield Claim("flops", WithinRules(test), names)

    def table_cost(self, results):
        yield (
            "alpha | start of Top-k | seeds with binary S(Z) | paper: % of steps until "
            "binary | here, % | paper: FLOPS relative to Top-k | here | experts "
            "evaluated, DSelect-k | Top-k"
        )
        for alpha, (start, begins) in itertools.product(self.alphas, STARTS.items()):
            ours, theirs = self.followed(alpha, start)
            yield [
                f"{alpha}",
                begins.split(" ", 2)[2],
                how_many(is_decided(results, ours)),
                f"{STEPS[alpha]}",
                results.text(ours, "decided", scale=100),
                f"{FLOPS[alpha]}",
                self.ratio(results, alpha, start),
                *(results.text(arm, "evaluated") for arm in (ours, theirs)),
            ]

    @property
    def fields(self) -> dict[str, Any]:
        return super().fields | {"fewest": min(STEPS.values())}


def is_decided(results, arm):
    """Flags of the runs in which S(Z) is binary at the end."""
    return np.isfinite(results.values(arm, "decided"))
