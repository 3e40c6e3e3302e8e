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
        yield Claim(
            "Section 3.1.3; Figure 4",
            "The smooth step is 0 or 1 exactly for inputs of a large enough size, from "
            "gamma / 2 on; the logistic function is not.",
            lambda r: (
                f"Of the points drawn, {r.mean(SMOOTH, 'exact'):.0%} and "
                f"{r.mean(LOGISTIC, 'exact'):.0%} are exactly 0 or 1."
            ),
            lambda r: (
                np.isin(curve(r, SMOOTH)[1][self.outside(r)], (0, 1)).all()
                and r.mean(LOGISTIC, "exact") == 0
            ),
        )
        yield Claim(
            "Section 3.1.3; Figure 4",
            "Both are S-shaped and similar.",
            lambda r: (
                f"The largest difference is {apart(r):.3f}, and both rise everywhere "
                "or are flat."
            ),
            lambda r: (
                apart(r) < 0.1
                and all((np.diff(curve(r, arm)[1]) >= 0).all() for arm in self.arms)
            ),
        )
        yield Claim(
            "Section 3.1.3",
            "The smooth step is continuously differentiable: its slope is 0 at both "
            "ends of the fractional region.",
            lambda r: (
                "The largest slope between points outside of it is "
                f"{slope(r, self.outside(r)):.3g}; it is {slope(r):.3g} at the centre."
            ),
            lambda r: slope(r, self.outside(r)) == 0 and slope(r) > 1,
        )

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "SCALE": SCALE,
        }

    def draw_functions(self, results):
        curves = {arm: curve(results, arm) for arm in self.arms}
        return dk.plots.plot_curves(curves, x_label="logit", y_label="value")


def curve(results, arm):
    """The points of a function, x and y."""
    numbers = results.ran(arm)[0].numbers
    return np.array(numbers["x"]), np.array(numbers["y"])


def slope(results, where: Any = True):
    """The largest slope of the smooth step between neighbouring points in a region."""
    x, y = curve(results, SMOOTH)
    there = np.broadcast_to(where, x.shape)
    slopes = np.abs(np.diff(y) / np.diff(x))[there[1:] & there[:-1]]
    return float(slopes.max(initial=0.0))


def apart(results):
    """The largest difference of the two functions."""
    return np.abs(curve(results, SMOOTH)[1] - curve(results, LOGISTIC)[1]).max()
