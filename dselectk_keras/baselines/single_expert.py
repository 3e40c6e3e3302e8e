"""A baseline with one expert instead of a bank."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dselectk_keras.experts import DenseExperts, ExpertBank
from dselectk_keras.utils import check_choice, check_type


def single_expert(
    bank: ExpertBank, match: str = "compute", input_dim: int | None = None
) -> ExpertBank:
    """A bank of one expert: the baseline that a mixture of experts must beat.

    Args:
        bank: The bank to compare with.
        match: `"compute"` gives one expert of the same widths. `"parameters"` scales
            the widths of its hidden layers, so that it has as nearly as possible as
            many parameters as all experts of the bank together.
        input_dim: The number of features of the input; needed for `"parameters"`
            unless the bank is built.

    Returns:
        An unbuilt bank with `num_experts=1`.

    Example:
        >>> bank = DenseExperts(num_experts=8, units=[16, 4])
        >>> single_expert(bank, "parameters", input_dim=10).units
        [130, 4]

    Reference:
        Muqeeth et al., "SMEAR" (2023), Section 2.
    """
    check_choice("match", match, ("compute", "parameters"))
    check_type("bank", bank, ExpertBank, "a bank, such as `DenseExperts(8, [64])`")
    if match == "compute":
        return bank.resized(1)
    check_dense(bank, 'match="parameters"')
    if len(bank.units) == 1:
        raise ValueError(
            "An expert of one layer has no hidden width to scale. Received: "
            f"units={bank.units}. Give the experts two layers or more, or pass "
            'match="compute".'
        )
    if input_dim is None and not bank.built:
        raise ValueError(
            "The number of parameters depends on the inputs, and the bank is not "
            "built. Received: input_dim=None. Pass the number of features."
        )
    features: Any = bank.kernel(0).shape[1] if input_dim is None else input_dim
    *hidden, out = bank.units

    def count(widths):
        pairs = zip([features, *widths], [*widths, out], strict=True)
        return sum((fan_in + 1) * width for fan_in, width in pairs)

    widths = closest_widths(hidden, bank.num_experts * count(hidden), count)
    return bank.resized(1, units=[*widths, out])


def closest_widths(
    widths: Sequence[int], target: int, count: Callable[[list[int]], int]
) -> list[int]:
    """Widths scaled by one factor so that their `count` is a target, up to rounding.

    The count is a quadratic function of the factor, because each weight has two axes
    at most that are scaled. It is fitted to the factors 1, 2 and 3.
    """
    factors = (1, 2, 3)
    counts = [count([factor * width for width in widths]) for factor in factors]
    quadratic = np.polyfit(factors, counts, 2)
    roots = np.roots(quadratic - [0, 0, target]).real
    factor = min(roots[roots > 0], default=0)
    return [max(1, round(width * factor)) for width in widths]


def check_dense(bank: Any, what: str) -> None:
    """Raise an error for another bank, which says what needs `DenseExperts`."""
    if type(bank) is not DenseExperts or bank.gated:
        raise ValueError(
            f"{what} needs `DenseExperts` without gates, whose layers are known. "
            f"Received: {bank!r}."
        )
