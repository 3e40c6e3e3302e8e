"""Table 7: nine methods of training, on Fashion-MNIST."""

import dataclasses
from typing import ClassVar

from research.engine import preset
from research.papers.specialization._images import METHODS
from research.papers.specialization._methods import (
    STUDENTS,
    TENTHS,
    WITH_BOTH,
    TrainingMethods,
    lower,
)

ATTENTIVE = ("attentive", *STUDENTS.values())
# The same penalty, or none, with both gates; the students, and their rivals.
GATES = [(method, method.replace("attentive", "original")) for method in ATTENTIVE]
BEST = [(student, method) for student in STUDENTS for method in METHODS]


@dataclasses.dataclass(frozen=True)
class Table7(TrainingMethods):
    """Error and specialization of mixtures of five experts on clothes."""

    name = "specialization-table7"
    title = "attentive gates, L_importance and L_s on clothes"
    where = "Table 7"
    appendix = "B.4"
    data_set = "fashion_mnist"
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

    ways: tuple[str, ...] = preset(tuple(METHODS), smoke=("original", "attentive, L_s"))
    seeds: int = preset(5, paper=10, smoke=1)
    beta_s: tuple[float, ...] = preset((1e-6,), paper=(1e-7, 1e-6))
    beta_d: tuple[float, ...] = preset((*TENTHS, 1e-7), smoke=(1e-2,))

    @property
    def claims(self):
        compared = {"attentive": GATES, "l-s-error": WITH_BOTH, "distilled": BEST}
        for name, pairs in compared.items():
            yield self.claim(name, lower("error", pairs))
