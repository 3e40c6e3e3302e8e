"""Table 2: nine methods of training, on MNIST."""

import dataclasses
from typing import Any, ClassVar

from research.engine import preset
from research.papers.specialization._images import METHODS
from research.papers.specialization._methods import STUDENTS, TrainingMethods, values_of


@dataclasses.dataclass(frozen=True)
class Table2(TrainingMethods):
    """Error and specialization of mixtures of five experts on digits."""

    name = "specialization-table2"
    title = "attentive gates, L_importance and L_s on digits"
    where = "Table 2"
    looks = 3
    appendix = "B.1"
    data_set = "mnist"
    theirs: ClassVar[dict[str, tuple]] = {
        "single": (0.096, 0.071, None, None, None),
        "original": (0.038, 0.009, 2.022, 0.092, 2.172),
        "original, importance": (0.032, 0.008, 2.262, 0.061, 2.32),
        "original, L_s": (0.029, 0.009, 2.244, 0.051, 2.246),
        "attentive": (0.033, 0.006, 1.797, 0.071, 2.055),
        "attentive, importance": (0.035, 0.005, 2.26, 0.055, 2.266),
        "attentive, L_s": (0.032, 0.006, 2.275, 0.039, 2.321),
        "distilled, importance": (0.030, 0.007, 2.301, 0.036, 2.32),
        "distilled, L_s": (0.028, 0.007, 2.191, 0.056, 2.319),
    }

    seeds: int = preset(20, paper=10, smoke=1)
    trial_runs: int = preset(5, smoke=1)
    ways: tuple[str, ...] = preset(
        tuple(METHODS), smoke=("original", "original, L_s", "attentive, importance")
    )

    @property
    def fields(self) -> dict[str, Any]:
        return super().fields | {
            "in_use": lambda r: ", ".join(
                f"{2 ** values_of(r, method, 'sample_entropy').mean():.2f}"
                for method in self.shown
                if method in STUDENTS
            ),
        }
