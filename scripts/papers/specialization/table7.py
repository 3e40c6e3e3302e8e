"""Table 7: nine ways to train, on Fashion-MNIST."""

import dataclasses
from typing import ClassVar

from experiments import Claim
from papers import citations
from papers.specialization._ways import STUDENTS, Ways, with_both

ATTENTIVE = ("attentive", *STUDENTS.values())


@dataclasses.dataclass(frozen=True)
class Table7(Ways):
    """Error and specialization of mixtures of five experts on clothes."""

    name = "specialization-table7"
    title = "attentive gates, L_importance and L_s on clothes"
    paper = citations.SPECIALIZATION
    where = "Table 7"
    about = (
        "The ways to train of [Table 2](specialization-table2.md), on clothes "
        "(Fashion-MNIST) and with wider networks. $H_u$ is at most log2(5) = 2.32 bits."
    )
    data_set = "fashion_mnist"
    training = 60_000
    epochs_and_runs = "not given (20 for MNIST)", "not given (10 for MNIST)"
    networks = "Appendix B.4"
    betas = "1e-7, 1e-6", "0.1, 0.01, ..., 1e-7"
    theirs: ClassVar[dict[str, tuple]] = {
        "single": (0.132, 0.011, None, None, None),
        "original": (0.104, 0.006, 2.034, 0.081, 2.048),
        "original, importance": (0.103, 0.006, 2.301, 0.172, 2.321),
        "original, L_s": (0.095, 0.007, 2.198, 0.11, 2.225),
        "attentive": (0.098, 0.013, 2.071, 0.114, 2.249),
        "attentive, importance": (0.098, 0.006, 2.233, 0.101, 2.319),
        "attentive, L_s": (0.096, 0.008, 2.296, 0.109, 2.321),
        "distilled, importance": (0.087, 0.007, 2.227, 0.101, 2.318),
        "distilled, L_s": (0.089, 0.008, 2.304, 0.076, 2.321),
    }

    beta_s: tuple[float, ...] = (1e-7, 1e-6)
    beta_d: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)

    @classmethod
    def presets(cls):
        ways = "original", "attentive, L_s"
        return cls.on_small_images(ways=ways, num_experts=2)

    def claims(self, results):
        source = "Table 7; Appendix D"
        # The same penalty, or none, with both gates.
        gates = [(way, way.replace("attentive", "original")) for way in ATTENTIVE]
        best = [
            (student, way)
            for student in STUDENTS
            for way in (*self.theirs, *STUDENTS)
            if way not in STUDENTS and way != "single"
        ]
        return [
            Claim(
                "With an attentive gate errors are lower than with an original one.",
                **self.compare(results, "error", gates, -1),
                source=source,
            ),
            Claim(
                "L_s has a lower error than L_importance.",
                **self.compare(results, "error", with_both(), -1),
                source=source,
            ),
            Claim(
                "The distilled gates have the lowest errors of all.",
                **self.compare(results, "error", best, -1),
                source=source,
            ),
        ]
