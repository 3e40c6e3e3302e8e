"""Cases of the gate contract, which each gate's own test module hands in."""

import dataclasses
import importlib
from collections.abc import Callable

from dselectk_keras.baselines.attentive import AttentiveInputs
from dselectk_keras.gates import GATES, RouterInputs


@dataclasses.dataclass(frozen=True)
class Case:
    """A gate with settings, and what it promises beyond the contract.

    Args:
        name: What the case is called.
        make: Makes the gate from the arguments of `Gate`, such as `num_gates`.
        looks: What it may look at: `None` for a static gate, `"x"` for features,
            `"ids"` for integers, `"hidden"` for features and hidden outputs.
        penalties: What a training call adds to the loss with five experts, by name.
        sums_to_one: Whether the weights always sum to one, with five experts as well.
        dense: Whether all weights are positive, but for rounding.
        learns: Whether the gate has anything to learn.
        sparse_gradient: Whether only the logits that are kept get a gradient, but for
            that of the penalties.
        sum_varies: Whether the weights sum to another number in each call.
        training_only: Prefixes of variables that no gradient reaches at inference.
    """

    name: str
    make: Callable
    looks: tuple = (None, "x")
    penalties: tuple = ()
    sums_to_one: bool = True
    dense: bool = False
    learns: bool = True
    sparse_gradient: bool = False
    sum_varies: bool = False
    training_only: tuple = ()


def all_cases():
    """The cases of all gates; a gate without cases is an error."""
    cases = []
    for name, cls in GATES.items():
        *_, folder, file = cls.__module__.split(".")
        own = getattr(importlib.import_module(f"{folder}.test_{file}"), "CASES", ())
        if not own:
            message = (
                f"The gate {name!r} has no CASES in tests/{folder}/test_{file}.py."
            )
            raise AssertionError(message)
        cases.extend(own)
    return cases


def case_named(name):
    """The case of a name."""
    return next(case for case in all_cases() if case.name == name)


def router_inputs(**given):
    """The inputs of a gate in one value, by name."""
    return (AttentiveInputs if "hidden" in given else RouterInputs)(**given)
