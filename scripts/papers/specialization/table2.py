"""Table 2: nine ways to train, on MNIST."""

import dataclasses
from typing import ClassVar

from papers import citations
from papers.specialization._ways import Ways, claims_of_section_7


@dataclasses.dataclass(frozen=True)
class Table2(Ways):
    """Error and specialization of mixtures of five experts on digits."""

    name = "specialization-table2"
    title = "attentive gates, L_importance and L_s on digits"
    paper = citations.SPECIALIZATION
    where = "Table 2"
    about = (
        "Mixtures of five small convolutional networks classify digits. An original "
        "gate and an attentive one are trained without a penalty, with "
        "$L_{importance}$ and with $L_s$. The attentive ones with a penalty are "
        "distilled into original gates. A gate that decides has a low mean entropy for "
        "an image, $H_s$; one that uses all experts has a high entropy of the mean "
        "weights, $H_u$, at most log2(5) = 2.32 bits; $I(E; Y)$ is the mutual "
        "information of the chosen expert and the class."
    )
    data_set = "mnist"
    training = 60_000
    epochs_and_runs = "20", "10"
    networks = "Appendix B.1"
    betas = "1e-6, 1e-5", "0.1, 0.01, ..., 1e-6"
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

    @classmethod
    def presets(cls):
        ways = "original", "original, L_s", "attentive, importance"
        return cls.on_small_images(ways=ways, num_experts=2)

    def claims(self, results):
        return claims_of_section_7(self, results)
