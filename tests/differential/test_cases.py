"""Drawn combinations of features give what two ways of computing agree on.

`make test-differential` draws more of them.
"""

import warnings

import keras
import pytest
from differential.cases import cases
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
