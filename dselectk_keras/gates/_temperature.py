"""The temperature of gates that cool down as they train."""

from dselectk_keras.schedules import ScheduledValue


def track_temperature(gate, temperature):
    """Check a temperature, and let the gate count the calls that drive it.

    Args:
        gate: The gate.
        temperature: A number or a schedule.

    Returns:
        A `ScheduledValue`.
    """
    scheduled = ScheduledValue(temperature, "temperature")
    value = scheduled.value
    if not callable(value) and not 0 < value < float("inf"):
        raise ValueError(
            "`temperature` must be positive and finite. "
            f"Received: temperature={value}. To end with hard choices, pass a "
            "schedule towards 0 such as `Ramp(1.0, 1e-16, end=1000)`."
        )
    gate.track_schedule(scheduled)
    return scheduled
