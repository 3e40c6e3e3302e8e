"""The data of the expert-recovery problem come from the experts they name."""

import numpy as np
import pytest
from helpers import refusals

from dselectk_keras.datasets import expert_recovery

SMALL = {"num_train": 300, "num_validation": 30, "num_test": 20}


def logits(x, info):
    units = np.maximum(np.einsum("sd,edu->seu", x, info["kernels"]) + info["biases"], 0)
    mixture = np.einsum("seu,e->su", units, info["expert_weights"])
    return mixture @ info["logistic_kernel"] + info["logistic_bias"]


@pytest.fixture(scope="module")
def data():
    return expert_recovery(num_train=20_000, num_validation=30, num_test=20)


def test_labels_are_the_sign_of_logits_with_mean_zero_and_the_asked_scale(data):
    assert set(np.unique(data.train.y)) == {0.0, 1.0}
    assert data.task_kinds == ("binary",)
    values = logits(data.train.x, data.info)
    np.testing.assert_allclose(values.mean(), 0, atol=0.2)
    np.testing.assert_allclose(values.std(), 5, rtol=0.05)
    np.testing.assert_array_equal(
        data.train.y[:, 0], logits(data.train.x, data.info)[:, 0] > 0
    )


def test_the_truth_has_the_scales_of_the_docstring(data):
    assert data.info["logistic_bias"].shape == (1,)
    info = expert_recovery(num_experts=500, num_train=10).info
    np.testing.assert_allclose(info["kernels"].std(), np.sqrt(1 / 10), rtol=0.05)
    np.testing.assert_allclose(info["biases"].std(), 1 / 2, rtol=0.05)


def test_true_experts_share_the_weight_equally(data):
    true, weights = data.info["true_experts"], data.info["expert_weights"]
    assert len(set(true)) == 4
    assert true == tuple(sorted(true))
    np.testing.assert_array_equal(np.flatnonzero(weights), true)
    np.testing.assert_array_equal(weights[list(true)], 0.25)


def test_sizes_and_numbers_of_experts_are_those_asked_for_or_of_the_paper():
    data = expert_recovery()
    assert len(data.train.x) == len(data.validation.x) == 10_000
    data = expert_recovery(num_experts=3, num_true_experts=3, **SMALL)
    assert data.info["true_experts"] == (0, 1, 2)


def test_no_single_swap_of_a_true_expert_explains_the_labels_better(data):
    def loss(experts):
        weights = np.zeros(16)
        weights[experts] = 1 / 4
        values = logits(x, {**data.info, "expert_weights": weights})
        return np.logaddexp(0, -sign * values).mean()

    x, sign = data.train.x[:4_000], 2 * data.train.y[:4_000] - 1
    true = list(data.info["true_experts"])
    best = loss(true)
    for i in range(4):
        for other in set(range(16)) - set(true):
            assert loss([*true[:i], other, *true[i + 1 :]]) > best


test_wrong_counts_are_refused = refusals(
    (expert_recovery, "`num_true_experts` must be at most 3", {"num_experts": 3}),
    (expert_recovery, "`num_experts` must be a positive", {"num_experts": 0}),
    (expert_recovery, "`num_true_experts` must be a pos", {"num_true_experts": 1.5}),
)
