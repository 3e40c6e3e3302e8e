"""Inputs of a model from the columns of a table."""

from typing import Any

import numpy as np


def as_inputs(model: Any, x: Any) -> Any:
    """Convert a data frame to the inputs of a model that has them by name.

    Columns that the model does not read are left out. Floating-point numbers are in
    float32, strings are objects. A missing number is NaN, and a missing string empty.
    Other data stay as they are.
    """
    wanted = getattr(model, "input", None)
    if not (hasattr(x, "iloc") and isinstance(wanted, dict)):
        return x
    if lacking := [name for name in wanted if name not in x.columns]:
        raise ValueError(
            f"The table must have a column for each input, {', '.join(wanted)}. "
            f"Received: no {', '.join(lacking)}."
        )
    return {name: _column(name, x[name]) for name in wanted}


def _column(name, column):
    """An array of the values of a column."""
    missing = column.isna().to_numpy()
    if getattr(column.dtype, "kind", "O") in "biuf":
        if missing.any() or column.dtype.kind == "f":
            return column.to_numpy("float32", na_value=np.nan)
        is_boolean = column.dtype.kind == "b"
        return column.to_numpy(bool if is_boolean else column.dtype.name.lower())
    values = column.to_numpy(object, na_value="")
    other = next((value for value in values if not isinstance(value, str)), None)
    if other is None:
        return values
    raise ValueError(
        f"The column {name!r} must have numbers, or strings alone. Received: {other!r} "
        f"of the type {type(other).__name__}. Convert it, for example with "
        f"`frame[{name!r}].astype(str)`."
    )
