"""Table 4: when S(Z) becomes binary, and what training costs, on MovieLens."""

import dataclasses

import numpy as np

from papers.dselectk._movielens import MovieLensExperiment, name_arm

STEPS = {0.1: 11.37, 0.5: 9.39, 0.9: 0.04}  # The paper's % of steps until binary.
FLOPS = {0.1: 1.5, 0.5: 1.2, 0.9: 0.6}  # The paper's, relative to Top-k.


@dataclasses.dataclass(frozen=True)
class Table4(MovieLensExperiment):
    """The runs of Figure 6, looked at for when they decide and what they cost."""

    name = "dselectk-table4"
    title = "steps until S(Z) is binary, and FLOPS of training relative to Top-k"
    where = "Table 4"

    def ratios(self, results, alpha):
        """FLOPS of training relative to Top-k, seed by seed."""
        ours, theirs = (
            self._flops(results.values(name_arm(gate, alpha), "evaluated"))
            for gate in ("DSelect-k, static", "Top-k, static")
        )
        count = min(len(ours), len(theirs))
        return ours[:count] / theirs[:count]

    def _flops(self, num_experts):
        """Operations of a training step, for an example."""
        expert = 2 * self.embedding * self.units
        tower = self.units * self.tower + self.tower
        return 6 * (num_experts * expert + 2 * tower)


def shares(results, alpha):
    """The share of each run after which S(Z) is binary; NaN if it is not at the end."""
    return results.values(name_arm("DSelect-k, static", alpha), "decided")


def done(results, alpha):
    """How many runs end with a binary S(Z), as text."""
    found = shares(results, alpha)
    return f"{np.isfinite(found).sum()} of {len(found)}"


def after(results, alpha):
    """After what share of the steps S(Z) is binary, as text; nothing if it is not."""
    text = results.text(name_arm("DSelect-k, static", alpha), "decided", scale=100)
    return text and f", after {text} %"
