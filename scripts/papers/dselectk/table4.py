"""Table 4: when S(Z) becomes binary, and what training costs, on MovieLens."""

import dataclasses
import math

from experiments import UNTESTABLE, Judged, all_positive, gap_of
from papers.dselectk._gates import is_binary_by
from papers.dselectk._movielens import MovieLensExperiment

STEPS = {0.1: 11.37, 0.5: 9.39, 0.9: 0.04}  # The paper's % of steps until binary.
FLOPS = {0.1: 1.5, 0.5: 1.2, 0.9: 0.6}  # The paper's, relative to Top-k.


@dataclasses.dataclass(frozen=True)
class Table4(MovieLensExperiment):
    """The runs of Figure 6, looked at for when they decide and what they cost."""

    name = "dselectk-table4"
    title = "steps until S(Z) is binary, and FLOPS of training relative to Top-k"
    where = "Table 4"

    @property
    def num_steps(self):
        """The training steps of a run."""
        examples = self.num_train or self.all_train
        return self.epochs[0] * math.ceil(examples / self.batch_size)

    def is_as_early(self, results, alpha):
        """Whether S(Z) is binary as early in every run, as a share of the steps."""
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

    def more_flops(self, results, alpha, start):
        """Whether training takes more FLOPS than Top-k, or less, as in the paper."""
        sign = 1 if FLOPS[alpha] > 1 else -1
        gap = gap_of(sign * (self.ratios(results, alpha, start) - 1))
        return all_positive([gap], sign * (FLOPS[alpha] - 1))

    def _flops(self, num_experts):
        """Operations of a training step, for an example."""
        expert = 2 * self.embedding * self.units
        tower = self.units * self.tower + self.tower
        return 6 * (num_experts * expert + 2 * tower)
