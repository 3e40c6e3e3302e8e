"""The grids of Table 6, over which the weights of the penalties are tuned."""

import dataclasses
from typing import Any

from experiments import Fact
from papers.specialization._images import LESS, WAYS, Images

IMPORTANCE = (0.2, 0.4, 0.6, 0.8, 1.0)


SMOKE: dict[str, Any] = {
    "importance": (0.4,),
    "beta_s": (1e-6,),
    "beta_d": (1e-2,),
    "epochs": 1,
    "batch_size": 48,
    "stand_in": True,
}


@dataclasses.dataclass(frozen=True)
class Tuned(Images):
    r"""Mixtures whose penalties are tuned by the training error (Appendix C).

    The weights of an example sum to one, so that of L_s's two weights only
    $\beta_s / M + \beta_d / (M^2 - M)$ matters, apart from a constant.

    Args:
        importance: Weights of L_importance to try.
        beta_s: Weights of pairs at the same expert to try.
        beta_d: Weights of pairs at different experts to try.
    """

    tuned_by = "the training error"

    sampler: str = "grid"
    importance: tuple[float, ...] = IMPORTANCE
    beta_s: tuple[float, ...] = (1e-6, 1e-5)
    beta_d: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)

    @classmethod
    def on_small_images(cls, **smoke):
        """The presets for digits and clothes, with some fields of the smoke preset."""
        return {
            "smoke": cls(**SMOKE, **smoke),
            "cpu": cls(seeds=5, num_train=5_000, num_test=4_000, beta_s=(1e-6,)),
            "paper": cls(seeds=10, num_train=60_000, batch_size=512),
        }

    def grid(self, way):
        """What is tuned for a way to train.

        Args:
            way: Name of a way.

        Returns:
            A dict from the names of settings to the values to try.
        """
        spaces: dict[str | None, dict] = {
            "importance": {"importance": self.importance},
            "similarity": {"beta_s": self.beta_s, "beta_d": self.beta_d},
        }
        return spaces.get(WAYS[way].penalty, {}) if way in WAYS else {}

    def tuning(self, betas):
        """The facts of tuning.

        Args:
            betas: The paper's values of beta_s and of beta_d.

        Returns:
            A list of `Fact`.
        """
        return [
            Fact(
                "L_importance",
                "the CV, not squared (Eq. 7)",
                "the same",
                "The authors' code squares it, and its standard deviation has M - 1 "
                "for M experts.",
            ),
            self.fact(
                "Weights of L_importance tried",
                "0.2, 0.4, 0.6, 0.8, 1.0 (App. C)",
                "importance",
            ),
            Fact(
                "L_s",
                "squared Euclidean distances of the images (Eq. 8 to 10)",
                "the same",
                "The authors' code has distances that are not squared, divided by the "
                "largest of the batch, and does not divide S by the number of pairs. "
                "The weights in Table 6 may belong to such distances.",
            ),
            Fact(
                "beta_s tried",
                f"{betas[0]} (Table 6)",
                self.both("beta_s"),
                f"{LESS} {BETA_S}",
            ),
            self.fact("beta_d tried", f"{betas[1]} (Table 6)", "beta_d"),
            Fact(
                "Settings are chosen by",
                "the lowest training error of all runs and settings (Section 7, App. "
                "C)",
                "the training error of one run for each setting; the runs on this page "
                "are further ones, with the best setting",
                "Less time.",
            ),
            Fact(
                "Reported run",
                "the one with the lowest training error; the error's standard "
                "deviation over the runs",
                "the same, in the first table",
                "Verdicts use the means over all runs: one run can be luck.",
            ),
        ]


BETA_S = (
    "The weights of an image sum to one, so that only beta_s / M + beta_d / (M^2 - M) "
    "matters: to change beta_d is enough."
)
