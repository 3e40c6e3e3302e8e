"""Figure 6: expert weights during training on MovieLens."""

import dataclasses

import numpy as np

from dselectk_keras.plots import plot_gate_weights
from papers.dselectk._movielens import MovieLensExperiment, name_arm

LATE = 0.9  # A jump after this fraction of a run is at its end.


@dataclasses.dataclass(frozen=True)
class Fig6(MovieLensExperiment):
    """Static gates of DSelect-k and Top-k, looked at after every training step."""

    name = "dselectk-fig6"
    title = "expert weights during training on MovieLens"
    where = "Figure 6"

    @property
    def alpha(self):
        """The weight of the task `watched` that is drawn: the one in the middle."""
        return self.alphas[len(self.alphas) // 2]

    @property
    def ours(self):
        return name_arm("DSelect-k, static", self.alpha)

    @property
    def theirs(self):
        return name_arm("Top-k, static", self.alpha)

    def draw_dselect_k(self, results):
        return _draw(results, self.ours)

    def draw_top_k(self, results):
        return _draw(results, self.theirs)


def _draw(results, arm):
    numbers = results.of(arm)[0].numbers
    steps, weights = (np.array(numbers[name]) for name in ("steps", "weights"))
    return plot_gate_weights(steps, weights, task_names=("watched", "rating"))
