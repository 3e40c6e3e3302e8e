"""Table 3: nine ways to train, on a hundred classes."""

import dataclasses
from typing import Any, ClassVar

from experiments import Fact
from papers import citations
from papers.specialization._tuned import BETA_S
from papers.specialization._ways import Ways, claims_of_section_7


@dataclasses.dataclass(frozen=True)
class Table3(Ways):
    """Error and specialization of mixtures of twenty experts on a hundred classes.

    Args:
        data_set: `"cifar100"`, or `"multi_mnist"`, which stands in for it.
    """

    name = "specialization-table3"
    title = "attentive gates, L_importance and L_s on a stand-in for CIFAR-100"
    paper = citations.SPECIALIZATION
    where = "Table 3"
    about = (
        "The ways to train of [Table 2](specialization-table2.md), for mixtures of "
        "twenty convolutional networks that tell a hundred classes apart. The paper's "
        "images are photographs (CIFAR-100), which the preset `paper` reads. In the "
        "preset `cpu` Multi-MNIST stands in for them: images of two overlapping "
        "digits, with each ordered pair of digits as a class. **Only the order of the "
        "ways to train can be compared with the paper.** $H_u$ is at most log2(20) = "
        "4.32 bits."
    )
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

    data_set: str = "cifar100"
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
        # Distances are sums over pixels, of which there are a tenth of the paper's.
        pairs: dict[str, Any] = {
            "data_set": "multi_mnist",
            "num_train": 10_000,
            "epochs": 10,
            "batch_size": 64,
            "beta_s": (1e-4,),
            "beta_d": (1.0, 1e-1, 1e-2, 1e-3, 1e-4),
        }
        return {
            "smoke": cls(**smoke),
            "cpu": cls(seeds=5, **pairs),
            "paper": cls(seeds=5, num_train=50_000),
        }

    def claims(self, results):
        return claims_of_section_7(self, results)

    def protocol(self):
        """The facts of the paper's protocol, and what stands in for the photographs."""
        facts = super().protocol()
        own = [dataclasses.replace(fact, **OURS.get(fact.what, {})) for fact in facts]
        return [IMAGES, *own]


IMAGES = Fact(
    "Images",
    "CIFAR-100: photographs of 100 classes, in 20 groups of 5",
    "cpu: Multi-MNIST at half its size, 18 x 18 pixels: 100 pairs of overlapping "
    "digits, in groups of 10 that share a digit; paper: CIFAR-100",
    "One run of the paper's takes a processor days. The stand-in has as many classes, "
    "in groups too, and as many experts.",
)
TENTH = (
    "Distances are sums over pixels, of which the stand-in has a tenth: `cpu` has ten "
    "times the weights."
)
# Facts that the stand-in changes.
OURS = {
    "Networks": {
        "here": "cpu: experts of Appendix B.4, gate of B.1; paper: the same but for "
        "the last layer",
        "why": "Images of one channel, and time.",
    },
    "beta_s tried": {"why": f"{TENTH} {BETA_S}"},
    "beta_d tried": {"why": f"{TENTH} Smaller ones count for nothing beside beta_s."},
}
