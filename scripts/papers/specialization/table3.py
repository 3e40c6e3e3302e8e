"""Table 3: nine ways to train, on CIFAR-100."""

import dataclasses
from typing import Any, ClassVar

from papers import citations
from papers.specialization._ways import Ways, claims_of_section_7


@dataclasses.dataclass(frozen=True)
class Table3(Ways):
    """Error and specialization of mixtures of twenty experts on photographs."""

    name = "specialization-table3"
    title = "attentive gates, L_importance and L_s on photographs"
    paper = citations.SPECIALIZATION
    where = "Table 3"
    about = (
        "The ways to train of [Table 2](specialization-table2.md), for mixtures of "
        "twenty convolutional networks that tell the hundred classes of CIFAR-100 "
        "apart. $H_u$ is at most log2(20) = 4.32 bits."
    )
    data_set = "cifar100"
    training = 50_000
    epochs_and_runs = "40", "5"
    networks = "Appendix B.3"
    pixels = (
        "In the authors' code of each channel. It also flips and crops the training "
        "images, and has a weight decay of 0.001, which the paper does not name."
    )
    betas = "1e-5, 1e-4, 1e-3", "0.1, 0.01, ..., 1e-7"
    theirs: ClassVar[dict[str, tuple]] = {
        "single": (0.575, 0.006, None, None, None),
        "original": (0.460, 0.010, 0.967, 0.306, 1.023),
        "original, importance": (0.483, 0.007, 4.177, 1.135, 3.981),
        "original, L_s": (0.457, 0.012, 1.424, 0.381, 1.279),
        "attentive": (0.450, 0.006, 1.792, 0.463, 2.178),
        "attentive, importance": (0.447, 0.005, 3.684, 1.036, 4.141),
        "attentive, L_s": (0.451, 0.016, 3.117, 0.770, 3.357),
        "distilled, importance": (0.531, 0.131, 3.179, 1.75, 3.843),
        "distilled, L_s": (0.482, 0.065, 1.605, 0.718, 2.541),
    }

    epochs: int = 40
    batch_size: int = 256
    num_experts: int = 20
    beta_s: tuple[float, ...] = (1e-5, 1e-4, 1e-3)
    beta_d: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)

    @classmethod
    def presets(cls):
        smoke: dict[str, Any] = {
            "ways": ("original",),
            "beta_s": (1e-5,),
            "beta_d": (1e-2,),
            "num_experts": 2,
            "epochs": 1,
            "batch_size": 8,
            "stand_in": True,
        }
        # An image takes a processor about as long as 500 digits of Table 2.
        few: dict[str, Any] = {
            "num_train": 500,
            "num_test": 500,
            "epochs": 5,
            "batch_size": 50,
            "importance": (0.4,),
            "beta_s": (1e-5,),
            "beta_d": (1e-2,),
        }
        return {
            "smoke": cls(**smoke),
            "cpu": cls(seeds=5, **few),
            "paper": cls(seeds=5, num_train=50_000),
        }

    def claims(self, results):
        return claims_of_section_7(self, results)
