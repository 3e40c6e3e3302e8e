"""The speed of a chosen expert whose parameters are copied for each example.

    python scripts/reproduce.py --module papers.smear._copied --backend jax \
        --out docs/results --pages build/copied

The page of Figure 2 shows the results. Run it on a machine without other work; with
`--set batch_size=128` it has batches of the paper's training, and other files.
"""

import dataclasses

from papers.smear.fig2 import CHOOSING, RESNET, T5, Fig2


@dataclasses.dataclass(frozen=True)
class Copied(Fig2):
    """Routers that choose one expert, in the form of Appendix B."""

    name = "smear-copied"
    title = "speed of inference where parameters are copied for each example"
    page = "{table_times}"

    @property
    def arms(self):
        return {
            f"{setting}, {router}": (setting, router)
            for setting in (T5, RESNET)
            for router in CHOOSING
        }

    def table_times(self, results):
        return ["router | time", *([a, results.text(a, "ratio")] for a in self.arms)]

    def shared(self, setting, router=""):
        # The base of the ratios, SMEAR, merges experts, and has no other form.
        copied = router in CHOOSING
        return dataclasses.replace(super().shared(setting), copied=copied)
