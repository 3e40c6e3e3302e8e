"""Schedules: numbers that change in training.

A schedule is any `keras.optimizers.schedules.LearningRateSchedule`, such as `Ramp`. It
is a function of the step without state. The gate that uses it counts the steps.
"""

from typing import Any

import keras
from keras import ops

from dselectk_keras.utils import (
    Configured,
    Tensor,
    check_choice,
    check_count,
    check_number,
)

# A ramp that ends after so many runs has steps in place of fractions.
MOST_RUNS = 10


@keras.saving.register_keras_serializable(package="dselectk_keras")
class Ramp(Configured, keras.optimizers.schedules.LearningRateSchedule):
    r"""A value that changes from one number to another between two steps.

    With $t = \mathrm{clip}\bigl((\mathrm{step} - a) / (b - a), 0, 1\bigr)$ the
    value is $v_0 + t (v_1 - v_0)$ for a linear ramp and $v_0 (v_1 / v_0)^t$ for an
    exponential one. A step is a training call of the gate: a batch, even if an
    optimizer accumulates gradients.

    Args:
        initial_value: The value $v_0$ up to step `begin`.
        final_value: The value $v_1$ from step `end` on.
        end: The step $b$ at which the ramp ends.
        begin: The step $a$ at which the ramp begins.
        kind: `"exponential"`, which needs two positive values, or `"linear"`.
        num_steps: The length of a run. If given, `begin` and `end` are fractions of it.

    Example:
        >>> entropy_weight = Ramp(1e-3, 1e-1, end=100)
        >>> round(float(entropy_weight(50)), 6)
        0.01
        >>> gamma = Ramp(1.0, 0.1, begin=0.5, end=0.9, kind="linear", num_steps=1000)
        >>> round(float(gamma(700)), 6)
        0.55
    """

    def __init__(
        self,
        initial_value: float,
        final_value: float,
        end: float,
        begin: float = 0,
        kind: str = "exponential",
        num_steps: int | None = None,
    ):
        super().__init__()
        check_choice("kind", kind, ("exponential", "linear"))
        initial_value = check_number("initial_value", initial_value)
        final_value = check_number("final_value", final_value)
        end, begin = check_number("end", end), check_number("begin", begin)
        if kind == "exponential" and not min(initial_value, final_value) > 0:
            raise ValueError(
                "An exponential ramp needs two positive values. Received: "
                f"initial_value={initial_value}, final_value={final_value}. "
                'For a ramp to 0, pass kind="linear".'
            )
        if not 0 <= begin < end:
            raise ValueError(
                "A ramp needs 0 <= begin < end, counted in steps. "
                f"Received: begin={begin}, end={end}."
            )
        if num_steps is not None:
            check_count("num_steps", num_steps)
        is_fraction = 0 < begin < 1 or (type(end) is float and end <= 1)
        are_steps = end > (1 if type(end) is int else MOST_RUNS)
        if are_steps if num_steps is not None else is_fraction:
            raise ValueError(
                "With the run's length `num_steps`, `begin` and `end` are fractions of "
                f"a run, and else steps. Received: begin={begin}, end={end}, "
                f"num_steps={num_steps}."
            )
        self.initial_value = initial_value
        self.final_value = final_value
        self.end = end
        self.begin = begin
        self.kind = kind
        self.num_steps = num_steps

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.cast(step, "float32") / (self.num_steps or 1)
        t = ops.clip((step - self.begin) / (self.end - self.begin), 0.0, 1.0)
        if self.kind == "linear":
            return self.initial_value + t * (self.final_value - self.initial_value)
        ratio = ops.cast(self.final_value / self.initial_value, "float32")
        return self.initial_value * ops.power(ratio, t)


def check_schedule(value: Any, name: str, positive: bool = False) -> Any:
    """Return a number or a callable of the step, or raise an error."""
    if callable(value):
        return value
    try:
        return check_number(name, value, **{"above": 0} if positive else {})
    except ValueError as error:
        raise ValueError(
            f"{error} If it changes, pass a "
            "`keras.optimizers.schedules.LearningRateSchedule`, such as "
            "`Ramp(1.0, 0.01, end=1000)`, or another callable of the step."
        ) from None


def value_at(schedule: Any, step: Any) -> Any:
    """Compute the value at a step, from 1, of what `check_schedule` returned."""
    if callable(schedule):
        # The callable may need a float, as in the original release.
        return schedule(ops.cast(step, "float32"))
    return schedule
