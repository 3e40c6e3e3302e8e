"""One expert with the compute, or the parameters, of a whole bank."""

from functools import partial

import keras
import pytest
from helpers import numbers, refusals
from keras import layers

from dselectk_keras import DenseExperts, Experts
from dselectk_keras.baselines import single_expert


def num_params(bank, input_dim):
    bank.build((None, input_dim))
    return bank.count_params()


@pytest.mark.backend_independent
def test_matched_compute_is_one_expert_of_the_same_form():
    bank = DenseExperts(8, [16, 4], ["tanh", None], dropout=0.1)
    single = single_expert(bank)
    assert single.num_experts == 1
    assert (single.units, single.dropout) == (bank.units, 0.1)
    assert single.activation == bank.activation
    assert num_params(single, 5) == num_params(bank, 5) / 8
    copies = single_expert(Experts(layers.Conv1D(2, 3), 4))
    assert copies(numbers((2, 5, 1))).shape == (2, 1, 3, 2)


@pytest.mark.backend_independent
@pytest.mark.parametrize("units", [[16, 4], [32, 16, 8], [5, 40, 3]])
def test_matched_parameters_are_as_close_as_widths_allow(units):
    bank = DenseExperts(6, units)
    single = single_expert(bank, "parameters", input_dim=10)
    assert single.units[-1] == units[-1]
    target, found = num_params(bank, 10), num_params(single, 10)
    for step in (-1, 1):
        wider = [width + step for width in single.units[:-1]]
        other = DenseExperts(1, [*wider, units[-1]])
        assert abs(num_params(other, 10) - target) >= abs(found - target)


@pytest.mark.backend_independent
def test_a_bank_that_is_built_knows_its_inputs():
    bank = DenseExperts(4, [8, 2])
    bank(numbers((2, 3)))
    single = single_expert(bank, "parameters")
    assert single.units == single_expert(bank, "parameters", input_dim=3).units
    assert not single.built
    assert single(keras.ops.ones((2, 3))).shape == (2, 1, 2)


MATCH = partial(single_expert, match="parameters")
test_what_cannot_be_matched_is_refused = refusals(
    (
        partial(MATCH, input_dim=3),
        "no hidden width .* two layers or",
        DenseExperts(4, [8]),
    ),
    (MATCH, "input_dim=None. Pass the number of features", DenseExperts(4, [8, 2])),
    (
        partial(MATCH, input_dim=3),
        "needs `DenseExperts`",
        Experts(layers.Dense(2), 2),
    ),
    (single_expert, "Received: match='flops'", (DenseExperts(4, [8, 2]), "flops")),
)
