from functools import partial

import numpy as np
import pytest
from checks import assert_close
from helpers import built, numbers, numpy

from dselectk_keras import DSelectKGate, EntropyRegularizer, SoftmaxGate
from dselectk_keras.ops import entropy, selector_product


def test_sums_the_entropies_of_all_selectors_with_the_weight_of_the_release():
    found = float(EntropyRegularizer(0.5)(np.full((2, 3, 4), 0.25)))
    assert_close(found, 0.5 * 6 * np.log(4), rtol=1e-5)
    regularizer = EntropyRegularizer()
    assert regularizer.get_config() == {"weight": 1e-6, "target": "selectors"}
    assert_close(float(regularizer([[0.5, 0.5]])), 1e-6 * np.log(2), rtol=1e-5)


def test_an_unknown_target_is_refused():
    with pytest.raises(ValueError, match="`target` must be one of 'selectors', 'bits'"):
        EntropyRegularizer(target="experts")


def test_entropy_of_bits_is_that_of_all_codes():
    bits = np.array([0.2, 0.5, 0.9])
    both = np.stack([bits, 1.0 - bits], axis=-1)
    by_bit = float(EntropyRegularizer(1.0, target="bits")(both))
    codes = selector_product(bits, 8)
    assert_close(by_bit, float(EntropyRegularizer(1.0)(codes)), rtol=1e-4)
    # Five experts: the other codes are left out, and their entropy.
    assert float(EntropyRegularizer(1.0)(codes[:5])) < by_bit - 0.1


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (SoftmaxGate, 1),
        (partial(DSelectKGate, 2), 5),
        (partial(DSelectKGate, 2, reduction="mean"), 1),
    ],
)
def test_a_gate_sums_or_averages_the_entropy_of_its_weights(make, count):
    gate = built(make(weights_regularizer=EntropyRegularizer(0.5)), 4, 3)
    x = numbers((5, 3))
    mean = 0.5 * numpy(entropy(gate.expert_weights(x))).sum() / 5
    assert_close(gate.report(x)["penalties"]["weights"], count * mean, rtol=1e-5)
