"""Figure 6: expert weights during training on MovieLens."""

import dataclasses
from typing import Any

from dselectk_keras.plots import plot_gate_weights
from research.engine import Claim, Higher, Untestable, most
from research.engine.claims import in_turns
from research.engine.results import how_many
from research.papers.dselectk._gates import JUMP, STARTS, is_followed, within_rules
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
        ours, theirs = self.followed(self.alpha)
        yield from in_turns(self._claims_of, STARTS)
        yield Claim(
            "Appendix C.2.1; Figure 6",
            "DSelect-k's weights have smooth transitions.",
            lambda r: (
                f"Steps with a jump: {r.text(ours, 'jumps')}, all of them in the first "
                f"{r.values(ours, 'last_jump').max():.1%} of the run. The largest "
                f"change of a weight in one step: {r.text(ours, 'largest')} with "
                f"DSelect-k, {r.text(theirs, 'largest')} with Top-k. Within the rule "
                f"that S(Z) is binary: {how_many(within_rules(r, ours))} runs of "
                "DSelect-k."
            ),
            Untestable(
                f"The paper gives no threshold of a jump; {JUMP} is ours. With a "
                "hundredth of the paper's steps, each step changes more.",
                lambda r: (r.values(ours, "jumps") == 0).all(),
            ),
        )

    def _claims_of(self, start):
        """The claims that are judged with each start of Top-k."""
        ours, theirs = self.followed(self.alpha, start)
        yield Claim(
            "Appendix C.2.1; Figure 6",
            "Top-k has frequent jumps: in one step a weight changes abruptly from a "
            "nonzero value to zero.",
            lambda r: (
                f"{STARTS[start]}. Steps with a jump: {r.text(theirs, 'jumps')} with "
                f"Top-k, {r.text(ours, 'jumps')} with DSelect-k."
            ),
            Higher(theirs, ours, by="jumps"),
        )
        yield Claim(
            "Appendix C.2.1; Figure 6",
            "Top-k's jumps go on to the end of training.",
            lambda r: (
                f"{STARTS[start]}. The last jump is at {r.text(theirs, 'last_jump')} "
                f"of the run; after {LATE} of it in "
                f"{how_many(r.values(theirs, 'last_jump') > LATE)} runs."
            ),
            lambda r: most(r.values(theirs, "last_jump") > LATE),
            number="to around step 100,000",
        )

    def table_moves(self, results):
        yield (
            "gate | largest change | steps with a jump | last jump | experts at the "
            "end | test loss"
        )
        for arm, (method, _) in self.arms.items():
            if is_followed(method):
                texts = results.texts(arm, "largest", "jumps", "last_jump", "experts")
                yield [arm, *texts, results.text(arm, "loss", 4)]

    @property
    def fields(self) -> dict[str, Any]:
        return super().fields | {"JUMP": JUMP}

    def draw_dselect_k(self, results):
        return _draw(results, self.followed(self.alpha)[0])

    def draw_top_k(self, results):
        return _draw(results, self.followed(self.alpha)[1])


def _draw(results, arm):
    numbers, tasks = results.of(arm)[0].numbers, ("watched", "rating")
    return plot_gate_weights(numbers["steps"], numbers["weights"], task_names=tasks)
