"""Figure 6: expert weights during training on MovieLens."""

import dataclasses

from dselectk_keras.plots import plot_gate_weights
from research.engine import Claim, Higher, Untestable, most
from research.papers.dselectk._gates import JUMP, STARTS, is_followed
from research.papers.dselectk._movielens import MovieLensExperiment

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
    def claims(self):
        for start, begins in STARTS.items():
            ours, theirs = self.followed(self.alpha, start)
            names = {"ours": ours, "theirs": theirs, "begins": begins}
            yield Claim("jumps", Higher(theirs, ours, by="jumps"), names)
            yield Claim("to-the-end", lambda r, arm=theirs: most(late(r, arm)), names)
        ours, theirs = self.followed(self.alpha)
        test = Untestable(
            f"The paper gives no threshold of a jump; {JUMP} is ours. With a "
            "hundredth of the paper's steps, each step changes more.",
            lambda r: (r.values(ours, "jumps") == 0).all(),
        )
        yield Claim("smooth", test, {"ours": ours, "theirs": theirs})

    def table_moves(self, results):
        yield (
            "gate | largest change | steps with a jump | last jump | experts at the "
            "end | test loss"
        )
        for arm, (method, _) in self.arms.items():
            if is_followed(method):
                texts = results.texts(arm, "largest", "jumps", "last_jump", "experts")
                yield [arm, *texts, results.text(arm, "loss", 4)]

    def draw_dselect_k(self, results):
        return _draw(results, self.followed(self.alpha)[0])

    def draw_top_k(self, results):
        return _draw(results, self.followed(self.alpha)[1])


def _draw(results, arm):
    numbers, tasks = results.of(arm)[0].numbers, ("watched", "rating")
    return plot_gate_weights(numbers["steps"], numbers["weights"], task_names=tasks)


def late(results, arm):
    """For each run, whether the last jump is at its end."""
    return results.values(arm, "last_jump") > LATE


def latest(results, arm):
    """The part of a run after which no run has a jump."""
    return results.values(arm, "last_jump").max()
