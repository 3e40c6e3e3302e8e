"""Figure 4: the smooth step beside the logistic function."""

import dataclasses

import keras
import numpy as np

from dselectk_keras.experiments import Claim, Experiment, Picture, Report
from dselectk_keras.ops import smooth_step
from dselectk_keras.plots import plot_curves
from papers import citations

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
        "`ops.smooth_step` and `keras.ops.sigmoid` are evaluated."
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
            "logistic": keras.ops.sigmoid,
        }

    def run(self, arm, jobs):
        x = np.linspace(-REACH, REACH, self.points).astype("float32")
        y = keras.ops.convert_to_numpy(self.arms[arm](keras.ops.convert_to_tensor(x)))
        exact = float(np.mean((y == 0) | (y == 1)))
        return [{"x": x, "y": y, "exact": exact}] * len(jobs)

    def report(self, results):
        exact = {arm: results.mean(arm, "exact") for arm in self.arms}
        claim = Claim(
            "The smooth step is exactly 0 or 1 outside of an interval of width gamma; "
            "the logistic function is nowhere.",
            f"Of the points drawn, {exact['smooth-step']:.0%} and "
            f"{exact['logistic']:.0%} are exactly 0 or 1.",
            exact["logistic"] == 0 and exact["smooth-step"] > 0,
        )

        def draw():
            curves = {arm: results.of(arm)[0].numbers for arm in self.arms}
            return plot_curves(
                {arm: (found["x"], found["y"]) for arm, found in curves.items()},
                x_label="logit",
                y_label="value",
            )

        caption = "The smooth step and the logistic function."
        return Report([claim], pictures=[Picture("functions", caption, draw)])
