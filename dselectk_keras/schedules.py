"""Numbers that change over training.

A schedule is any `keras.optimizers.schedules.LearningRateSchedule`: Keras' own
decays, or `Ramp`, which moves between two values and stays there. It is a function of
the step and has no state: the gate that uses it counts the steps.
"""

import math
from typing import Any

import keras
from keras import ops

from dselectk_keras.utils import check_count, deserialize_if_config


@keras.saving.register_keras_serializable(package="dselectk_keras")
class Ramp(keras.optimizers.schedules.LearningRateSchedule):
    r"""A value that moves from one number to another between two steps.

    With $t = \mathrm{clip}\bigl((\mathrm{step} - a) / (b - a), 0, 1\bigr)$ the
    value is $v_0 + t (v_1 - v_0)$ for a linear ramp and $v_0 (v_1 / v_0)^t$ for an
    exponential one. Before $a$ it is $v_0$, after $b$ it stays at $v_1$.

    Args:
        initial_value: The value $v_0$ up to step `begin`.
        final_value: The value $v_1$ from step `end` on.
        end: The step $b$ at which the ramp ends.
        begin: The step $a$ at which the ramp begins.
        kind: `"exponential"`, for two positive values, or `"linear"`.
        num_steps: If given, `begin` and `end` are fractions of this many steps.

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
        initial_value,
        final_value,
        end,
        begin=0,
        kind="exponential",
        num_steps=None,
    ):
        super().__init__()
        if kind not in {"exponential", "linear"}:
            raise ValueError(
                f'`kind` must be "exponential" or "linear". Received: kind={kind!r}.'
            )
        if kind == "exponential" and not min(initial_value, final_value) > 0:
            raise ValueError(
                "An exponential ramp needs two positive values. Received: "
                f"initial_value={initial_value}, final_value={final_value}. "
                'Pass kind="linear" to reach 0.'
            )
        if not 0 <= begin < end:
            raise ValueError(
                "A ramp needs 0 <= begin < end, counted in steps. "
                f"Received: begin={begin}, end={end}."
            )
        if num_steps is None and isinstance(end, float) and end <= 1:
            raise ValueError(
                "A ramp that ends within one step is a fraction of a run: give the "
                f"run's length. Received: end={end}, num_steps=None."
            )
        if num_steps is not None:
            check_count("num_steps", num_steps)
        self.initial_value = initial_value
        self.final_value = final_value
        self.end = end
        self.begin = begin
        self.kind = kind
        self.num_steps = num_steps

    def __call__(self, step):
        """The value at `step`."""
        step = ops.cast(step, "float32") / (self.num_steps or 1)
        t = ops.clip((step - self.begin) / (self.end - self.begin), 0.0, 1.0)
        if self.kind == "linear":
            return self.initial_value + t * (self.final_value - self.initial_value)
        ratio = ops.cast(self.final_value / self.initial_value, "float32")
        return self.initial_value * ops.power(ratio, t)

    def get_config(self):
        """The arguments of `__init__`."""
        return {
            "initial_value": self.initial_value,
            "final_value": self.final_value,
            "end": self.end,
            "begin": self.begin,
            "kind": self.kind,
            "num_steps": self.num_steps,
        }


def check_schedule(value, name, positive=False):
    """The number or schedule of an argument, or an error that says what to pass.

    Args:
        value: A number, a `LearningRateSchedule`, the config of one, or a callable of
            the step.
        name: The argument's name, for errors.
        positive: Whether a number must be positive and finite.

    Returns:
        A number or a callable.
    """
    value = deserialize_if_config(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number and not callable(value):
        raise ValueError(
            f"`{name}` must be a number, a "
            "`keras.optimizers.schedules.LearningRateSchedule` (such as `Ramp`), "
            f"or a callable of the number of calls. Received: {name}={value!r}."
        )
    if is_number and not math.isfinite(value):
        raise ValueError(f"`{name}` must be finite. Received: {name}={value}.")
    if is_number and positive and value <= 0:
        raise ValueError(
            f"`{name}` must be positive. Received: {name}={value}. To end near 0, "
            "pass a schedule such as `Ramp(1.0, 0.01, end=1000)`."
        )
    return value


def value_at(schedule, step) -> Any:
    """The value of a number or a schedule at a step.

    Args:
        schedule: What `check_schedule` returned.
        step: The step: a number, a tensor or a variable. The first is 1.

    Returns:
        A number or a scalar tensor.
    """
    if callable(schedule):
        # The callable may be arithmetic on floats, as in the original release.
        return schedule(ops.cast(step, "float32"))
    return schedule


def serialize_schedule(schedule, name):
    """The number, or the config of the schedule.

    A bare function cannot be found again when a model is loaded, so it is refused
    here rather than lost.

    Args:
        schedule: What `check_schedule` returned.
        name: The argument's name, for errors.

    Returns:
        What `check_schedule` takes, ready for JSON.
    """
    if not callable(schedule):
        return schedule
    function = getattr(schedule, "__name__", type(schedule).__name__)
    savable = hasattr(schedule, "get_config") or (
        hasattr(schedule, "__name__")
        and keras.saving.get_registered_name(schedule) != function
    )
    if not savable:
        raise ValueError(
            f"`{name}` is a bare function ({function!r}), which cannot be "
            "saved. Pass a number, a "
            "`keras.optimizers.schedules.LearningRateSchedule` such as "
            "`dselectk_keras.Ramp`, or register the function with "
            "`keras.saving.register_keras_serializable`."
        )
    return keras.saving.serialize_keras_object(schedule)
