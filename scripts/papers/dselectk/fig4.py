"""Figure 4: the smooth step beside the logistic function."""

import dataclasses

import keras
import numpy as np

from dselectk_keras.ops import smooth_step
from dselectk_keras.plots import plot_curves
from experiments import Claim, Experiment, Fact, Picture, Report
from papers import citations

SCALE = 6.0  # Of the logistic function's input.
REACH = 2.0  # The functions are drawn from minus this to this.


@dataclasses.dataclass(frozen=True)
class Fig4(Experiment):
    """The functions that turn a selector's logits into binary variables.

    Args:
        gamma: Width of the smooth step.
        points: At how many points each function is evaluated.
    """

    name = "dselectk-fig4"
    title = "the smooth step and the logistic function"
    paper = citations.DSELECT_K
    where = "Figure 4"
    about = (
        "A selector's binary variables come from a function that must be able to reach "
        "exactly 0 and 1 at finite logits, and be differentiable there. The smooth "
        "step does; the logistic function only comes close. Nothing is trained here: "
        "`ops.smooth_step` and the logistic function $1 / (1 + e^{-6x})$, which the "
        "paper rescales to the scale of the smooth step, are evaluated."
    )

    gamma: float = 1.0
    points: int = 401

    @classmethod
    def presets(cls):
        return {"smoke": cls(points=41), "cpu": cls(), "paper": cls()}

    @property
    def arms(self):
        return {
            "smooth-step": lambda x: smooth_step(x, self.gamma),
            "logistic": lambda x: keras.ops.sigmoid(SCALE * x),
        }

    def run(self, arm, jobs):
        x = np.linspace(-REACH, REACH, self.points).astype("float32")
        y = keras.ops.convert_to_numpy(self.arms[arm](keras.ops.convert_to_tensor(x)))
        exact = float(np.mean((y == 0) | (y == 1)))
        return [{"x": x, "y": y, "exact": exact}] * len(jobs)

    def report(self, results):
        exact = {arm: results.mean(arm, "exact") for arm in self.arms}
        curves = {arm: results.of(arm)[0].numbers for arm in self.arms}
        x, smooth = (np.array(curves["smooth-step"][name]) for name in "xy")
        logistic = np.array(curves["logistic"]["y"])
        gap = float(np.abs(smooth - logistic).max())
        outside = np.abs(x) >= self.gamma / 2
        exactly = bool(np.isin(smooth[outside], (0, 1)).all())
        claims = [
            Claim(
                "The smooth step is 0 or 1 exactly for inputs of a large enough size, "
                "from gamma / 2 on; the logistic function is not.",
                f"Of the points drawn, {exact['smooth-step']:.0%} and "
                f"{exact['logistic']:.0%} are exactly 0 or 1.",
                exactly and exact["logistic"] == 0,
                "Section 3.1.3; Figure 4",
            ),
            Claim(
                "Both are S-shaped and similar.",
                f"The largest difference is {gap:.3f}, and both rise everywhere or "
                "are flat.",
                gap < 0.1
                and bool(
                    (np.diff(smooth) >= 0).all() and (np.diff(logistic) >= 0).all()
                ),
                "Section 3.1.3; Figure 4",
            ),
            Claim(
                "The smooth step is continuously differentiable: its slope is 0 at "
                "both ends of the fractional region.",
                f"The largest slope between points outside of it is "
                f"{_slope(x, smooth, outside):.3g}; it is {_slope(x, smooth):.3g} at "
                "the centre.",
                _slope(x, smooth, outside) == 0 and _slope(x, smooth) > 1,
                "Section 3.1.3",
            ),
        ]

        def draw():
            return plot_curves(
                {arm: (found["x"], found["y"]) for arm, found in curves.items()},
                x_label="logit",
                y_label="value",
            )

        caption = "The smooth step (gamma = 1) and the rescaled logistic function."
        return Report(
            claims,
            pictures=[Picture("functions", caption, draw)],
            protocol=[
                Fact("gamma", "1 (caption)", f"{self.gamma:g}"),
                Fact(
                    "Logistic function",
                    "1 / (1 + exp(-6 x)) (Appendix B.3)",
                    f"1 / (1 + exp(-{SCALE:g} x))",
                ),
            ],
        )


def _slope(x, y, where=None):
    """The largest slope between neighbouring points, of those in a region."""
    slopes = np.abs(np.diff(y) / np.diff(x))
    if where is not None:
        slopes = slopes[where[1:] & where[:-1]]
    return float(slopes.max(initial=0.0))
