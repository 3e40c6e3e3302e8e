"""Drawn combinations of features give what two ways of computing agree on.

`make test-differential` draws more of them.
"""

import itertools
import warnings

import keras
import pytest
from differential.cases import ARCHITECTURES, LAYERS, ORACLES, cases
from differential.oracles import Refused, as_lines, run_case
from hypothesis import HealthCheck, Phase, given, seed, settings

# As many as a backend runs in 25 seconds, and 10 seconds where all is compiled.
NUMBERS = {"torch": 60, "tensorflow": 3, "jax": 3}


@seed(27)
@settings(
    max_examples=NUMBERS[keras.backend.backend()],
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(cases())
def judge(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run_case(case)
        except Refused:
            pass
        except Exception as error:
            lines = as_lines(case)
            raise AssertionError(f"{error}\n\nTo run it again:\n{lines}") from error


@pytest.mark.traced
def test_drawn_combinations_are_right():
    judge()


BY_GATE = {"MMoE", "SmearExperts"}
# Features that meet in a base class: the oracle that judges them, what they are in a
# case, and of what there must be cases.
PAIRS = {
    "inputs by gate": (
        "apart",
        lambda case: case.routing == "per gate" and case.layer,
        BY_GATE,
    ),
    "labels of a task": (
        "apart",
        lambda case: case.layer in ARCHITECTURES and case.layer,
        {"mmoe", "cgc", "ple"},
    ),
    "masks": (
        "padding",
        lambda case: case.masked and (case.layer, case.mask_axes),
        {*itertools.product(LAYERS, (1, 2))},
    ),
    "masks by gate": (
        "padding",
        lambda case: case.routing == "per gate" and case.layer,
        BY_GATE,
    ),
}


@pytest.mark.backends("torch", reason="All backends draw the same cases.")
@pytest.mark.parametrize("name", PAIRS)
def test_features_that_meet_in_a_base_class_are_drawn_together(name):
    oracle, look, wanted = PAIRS[name]
    found = set()

    @seed(1)
    @settings(max_examples=100, deadline=None, database=None, phases=[Phase.generate])
    @given(cases([oracle]))
    def draw(case):
        found.add(look(case))

    draw()
    assert oracle in ORACLES
    assert found - {False} == wanted
