"""A config has all arguments of an object, and makes it again."""

import keras
import pytest

from dselectk_keras import DenseExperts, Ramp
from dselectk_keras.baselines import CrossStitch, L2Constrained, TuckerExperts

SEEDED = {
    "kernel_initializer": keras.initializers.HeNormal(seed=1),
    "shared_input": False,
    "name": "towers",
}
MADE = [
    CrossStitch(0.3, name="mine"),
    DenseExperts(2, [4, 2], ["relu", None], 0.2, gated=True, **SEEDED),
    L2Constrained(DenseExperts(2, [3]), Ramp(0.1, 1.0, end=9), name="mine"),
    TuckerExperts(3, [4, 2], None, ["relu", None], 0.2, shared_input=False),
    TuckerExperts(3, [4, 2], (2, 2, 2)),
]


@pytest.mark.backend_independent
@pytest.mark.parametrize("made", MADE, ids=lambda made: type(made).__name__)
def test_the_config_rebuilds_it(made):
    config = made.get_config()
    assert type(made).from_config(config).get_config() == config
