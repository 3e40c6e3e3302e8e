"""Figure 4: the smooth step beside the logistic function."""

import dataclasses
from typing import Any

import keras
import numpy as np

import dselectk_keras as dk
from research.engine import Claim, Experiment, preset
from research.papers import citations

SCALE = 6.0  # Of the logistic function's input.
REACH = 2.0  # The functions are drawn from minus this to this.
SMOOTH, LOGISTIC = "smooth-step", "logistic"


@dataclasses.dataclass(frozen=True)
class Fig4(Experiment):
    """The functions that turn a selector's logits into binary variables."""

    name = "dselectk-fig4"
    title = "the smooth step and the logistic function"
    paper = citations.DSELECT_K
    where = "Figure 4"
    trains = False

    gamma: float = 1.0  # Width of the smooth step.
    points: int = preset(401, smoke=41)

    @property
    def arms(self):
        return {
            SMOOTH: lambda x: dk.ops.smooth_step(x, self.gamma),
            LOGISTIC: lambda x: keras.ops.sigmoid(SCALE * x),
        }

    def run(self, arm, jobs):
        x = np.linspace(-REACH, REACH, self.points).astype("float32")
        y = keras.ops.convert_to_numpy(self.arms[arm](keras.ops.convert_to_tensor(x)))
        exact = float(np.mean((y == 0) | (y == 1)))
        return [{"x": x, "y": y, "exact": exact}] * len(jobs)

    def outside(self, results):
        """A mask of the points that are outside of the fractional region."""
        return np.abs(curve(results, SMOOTH)[0]) >= self.gamma / 2

    @property
    def claims(self):
        yield Claim("exact", self.is_exact)
        yield Claim("similar", self.is_similar)
        yield Claim(
            "differentiable", lambda r: slope(r, self.outside) == 0 and slope(r) > 1
        )

    def is_exact(self, results):
        """Check whether only the smooth step is 0 or 1 outside of its region."""
        outer = curve(results, SMOOTH)[1][self.outside(results)]
        return np.isin(outer, (0, 1)).all() and results.mean(LOGISTIC, "exact") == 0

    def is_similar(self, results):
        """Check whether both functions rise everywhere, and are near to each other."""
        rises = ((np.diff(curve(results, arm)[1]) >= 0).all() for arm in self.arms)
        return apart(results) < 0.1 and all(rises)

    def draw_functions(self, results):
        curves = {arm: curve(results, arm) for arm in self.arms}
        return dk.plots.plot_curves(curves, x_label="logit", y_label="value")


def curve(results, arm):
    """The points of a function, x and y."""
    numbers = results.ran(arm)[0].numbers
    return np.array(numbers["x"]), np.array(numbers["y"])


def slope(results, where: Any = lambda _: True):
    """The largest slope of the smooth step between neighbouring points in a region."""
    x, y = curve(results, SMOOTH)
    there = np.broadcast_to(where(results), x.shape)
    slopes = np.abs(np.diff(y) / np.diff(x))[there[1:] & there[:-1]]
    return float(slopes.max(initial=0.0))


def apart(results):
    """The largest difference of the two functions."""
    return np.abs(curve(results, SMOOTH)[1] - curve(results, LOGISTIC)[1]).max()
