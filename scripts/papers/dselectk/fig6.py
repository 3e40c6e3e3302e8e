"""Figure 6: expert weights during training on MovieLens."""

import dataclasses

from dselectk_keras.plots import plot_gate_weights
from papers.dselectk._movielens import MovieLensExperiment

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

    def draw_dselect_k(self, results):
        return _draw(results, self.followed(self.alpha)[0])

    def draw_top_k(self, results):
        return _draw(results, self.followed(self.alpha)[1])


def _draw(results, arm):
    numbers, tasks = results.of(arm)[0].numbers, ("watched", "rating")
    return plot_gate_weights(numbers["steps"], numbers["weights"], task_names=tasks)
