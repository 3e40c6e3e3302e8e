"""What a bank leaves undefined, it refuses with a text."""

import numpy as np
import pytest

from dselectk_keras.experts import ExpertBank


class Bank(ExpertBank):
    num_experts, shared_input = 2, True

    def call(self, inputs):
        return inputs


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda bank: bank.check_mergeable(), "experts of Bank cannot be merged"),
        (
            lambda bank: bank.call_merged(np.ones((1, 2)), np.ones(2)),
            "experts of Bank cannot be merged",
        ),
        (lambda bank: bank.parameters(), "experts of Bank cannot be merged"),
        (lambda bank: bank.sliced([0]), "experts of Bank cannot be sliced"),
    ],
)
def test_what_a_bank_does_not_define_is_refused(ask, text):
    with pytest.raises(ValueError, match=text):
        ask(Bank())
