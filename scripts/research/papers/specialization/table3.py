"""Table 3: nine methods of training, on a hundred classes."""

import dataclasses
from typing import ClassVar

from research.engine import preset
from research.papers.specialization._images import METHODS
from research.papers.specialization._methods import TENTHS, TrainingMethods


@dataclasses.dataclass(frozen=True)
class Table3(TrainingMethods):
    """Error and specialization of mixtures of twenty experts on a hundred classes."""

    name = "specialization-table3"
    title = "attentive gates, L_importance and L_s on a stand-in for CIFAR-100"
    where = "Table 3"
    looks = 2
    appendix = "B.3"
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

    seeds: int = preset(20, paper=5, smoke=1)
    trial_runs: int = preset(1, paper=5)
    num_train: int = preset(10_000, paper=50_000)
    num_test: int = 10_000
    epochs: int = preset(10, paper=40, smoke=1)
    batch_size: int = preset(64, paper=256, smoke=8)
    importance: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)
    # Distances are sums over pixels, of which the stand-in has a tenth.
    beta_s: tuple[float, ...] = preset((1e-4,), paper=(1e-5, 1e-4, 1e-3), smoke=(1e-5,))
    beta_d: tuple[float, ...] = preset(
        (1.0, *TENTHS[:4]), paper=(*TENTHS, 1e-7), smoke=(1e-2,)
    )
    ways: tuple[str, ...] = preset(tuple(METHODS), smoke=("original",))
    num_experts: int = preset(20, smoke=2)
    data_set: str = preset("multi_mnist", paper="cifar100", smoke="cifar100")

    @property
    def stands_in_for(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        """The paper's images, if others are read."""
        return "CIFAR-100" if self.data_set != "cifar100" else ""
