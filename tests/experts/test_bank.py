"""A bank refuses methods that it does not define, with a text."""

import numpy as np
from helpers import refusals

from dselectk_keras.experts import ExpertBank


class Bank(ExpertBank):
    num_experts, shared_input = 2, True

    def call(self, inputs):
        return inputs


test_what_a_bank_does_not_define_is_refused = refusals(
    (Bank().check_mergeable, "experts of Bank cannot be merged"),
    (Bank().call_merged, "experts of Bank cannot be me", (np.ones((1, 2)), np.ones(2))),
    (Bank().parameters, "experts of Bank cannot be merged"),
    (Bank().sliced, "experts of Bank cannot be sliced", [0]),
)
