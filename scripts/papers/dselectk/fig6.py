"""Figure 6: expert weights during training on MovieLens."""

import dataclasses
import functools

import numpy as np

from dselectk_keras.plots import plot_gate_weights
from experiments import (
    Claim,
    Fact,
    Picture,
    Report,
    Table,
    difference,
    is_positive,
)
from papers import citations
from papers.dselectk._gates import JUMP, if_within_rules, within_rules
from papers.dselectk._movielens_runs import RecordedExperiment, name_arm

TASKS = ("watched", "rating")
LATE = 0.9  # A jump after this fraction of a run is at its end.


@dataclasses.dataclass(frozen=True)
class Fig6(RecordedExperiment):
    """Static gates of DSelect-k and Top-k, looked at after every training step."""

    name = "dselectk-fig6"
    title = "expert weights during training on MovieLens"
    paper = citations.DSELECT_K
    where = "Figure 6"
    about = (
        "The model and the data of Table 1, with static gates, tuned. The weights of "
        "each task's gate over the 8 experts are recorded after every step. A step in "
        f"which a weight changes by more than {JUMP} counts as a *jump*."
    )

    @property
    def alpha(self):
        """The weight of the task `watched` that is drawn: the one in the middle."""
        return self.alphas[len(self.alphas) // 2]

    def report(self, results):
        cpu = self.presets()["cpu"]
        return Report(
            self._claims(results),
            [self._table(results)],
            [
                Picture(
                    gate.lower(),
                    f"{gate}, static gates, alpha {self.alpha}: expert weights of the "
                    "two tasks during training, seed 0. Grey are experts that have no "
                    "weight, or little, at the end.",
                    functools.partial(_draw, results, name_arm(gate, self.alpha)),
                )
                for gate in ("DSelect-k", "Top-k")
            ],
            protocol=[
                *self.movielens_protocol(),
                Fact(
                    "Gates shown",
                    "the best after tuning; alpha and gating are not stated",
                    f"the best of the settings tried; static; alpha {self.alpha}",
                    "DSelect-k: none of them kept the rule, see below"
                    if not (
                        results.values(name_arm("DSelect-k", self.alpha), "admissible")
                        == 1
                    ).any()
                    else "",
                ),
                Fact(
                    "Steps",
                    "around 100,000",
                    f"{cpu.epochs[0] * -(-cpu.num_train // cpu.batch_size):,} (`cpu`) "
                    "or 12,500 in each epoch (`paper`)",
                    "to run on two cores",
                ),
            ],
            notes=[
                (
                    "Seed 0 is drawn because it is the first; the table is over all "
                    f"seeds. The pictures have {self.points} of all steps; jumps are "
                    "counted on every step."
                ),
                self.remark(results),
            ],
        )

    def _claims(self, results):
        ours, theirs = (name_arm(gate, self.alpha) for gate in ("DSelect-k", "Top-k"))
        last = results.values(theirs, "last_jump")
        kept = within_rules(results, ours).sum()
        smoother = is_positive(*difference(results, "largest", theirs, ours))
        return [
            Claim(
                "Top-k has frequent jumps: in one step a weight changes abruptly from "
                "a nonzero value to zero.",
                f"Steps with a jump: {results.text(theirs, 'jumps')} with Top-k, "
                f"{results.text(ours, 'jumps')} with DSelect-k.",
                is_positive(*difference(results, "jumps", theirs, ours)),
                "Appendix C.2.1; Figure 6",
            ),
            Claim(
                "Top-k's jumps go on to the end of training.",
                f"The last jump is at {results.text(theirs, 'last_jump')} of the run; "
                f"after {LATE} of it in {int((last > LATE).sum())} of {len(last)}.",
                bool(len(last)) and bool(np.median(last) > LATE),
                "Appendix C.2.1; Figure 6",
                "to around step 100,000",
            ),
            Claim(
                "DSelect-k's weights have smooth transitions.",
                "The largest change of a weight in one step: "
                f"{results.text(ours, 'largest')} with DSelect-k, "
                f"{results.text(theirs, 'largest')} with Top-k. Within the rule that "
                f"S(Z) is binary: {kept} of {len(last)} runs of DSelect-k.",
                if_within_rules(results, ours, smoother),
                "Appendix C.2.1; Figure 6",
            ),
        ]

    def _table(self, results):
        names = ("largest", "jumps", "last_jump", "experts")
        rows = [
            [
                arm,
                *(results.text(arm, name) for name in names),
                results.text(arm, "loss", 4),
            ]
            for arm in self.arms
        ]
        columns = [
            "gate",
            "largest change",
            "steps with a jump",
            "last jump",
            "experts at the end",
            "test loss",
        ]
        return Table(
            "How the weights move",
            columns,
            rows,
            "Means over the two tasks, except for the largest change. The last jump is "
            "a fraction of the run.",
        )


def _draw(results, arm):
    numbers = results.of(arm)[0].numbers
    return plot_gate_weights(
        np.array(numbers["steps"]), np.array(numbers["weights"]), task_names=TASKS
    )
