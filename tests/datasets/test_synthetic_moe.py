"""The synthetic multi-task problems are what their docstring says."""

from functools import partial

import numpy as np
import pytest
from helpers import refusals

from dselectk_keras.datasets import synthetic_moe

SMALL = {"num_train": 400, "num_validation": 30, "num_test": 20}


@pytest.fixture(scope="module")
def large():
    return synthetic_moe(num_tasks=128, **SMALL)


def test_tasks_have_true_weights_on_the_simplex_of_their_groups_own_experts(large):
    assert large.num_tasks == 128
    assert set(large.task_kinds) == {"regression"}
    assert large.groups == tuple(np.repeat(range(8), 16))
    weights = large.info["expert_weights"]
    assert weights.shape == (128, 32)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)
    task_group, expert_group = np.arange(128) // 16, np.arange(32) // 4
    own = task_group[:, None] == expert_group[None, :]
    assert (weights[own] > 0).all()
    assert (weights[~own] == 0).all()
    assert len(np.unique(weights, axis=0)) == 128


@pytest.mark.parametrize("num_tasks", [16, 32, 64])
def test_smaller_problems_are_the_first_tasks_of_larger_ones(large, num_tasks):
    small = synthetic_moe(num_tasks=num_tasks, **SMALL)
    for name in ("train", "validation", "test"):
        ours, theirs = getattr(small, name), getattr(large, name)
        np.testing.assert_array_equal(ours.x, theirs.x)
        np.testing.assert_array_equal(ours.y, theirs.y[:, :num_tasks])
    assert small.task_names == large.task_names[:num_tasks]
    assert small.groups == large.groups[:num_tasks]
    num_experts = num_tasks // 4
    wanted = large.info["expert_weights"][:num_tasks, :num_experts]
    np.testing.assert_array_equal(small.info["expert_weights"], wanted)
    wanted = large.info["kernels"][:num_experts]
    np.testing.assert_array_equal(small.info["kernels"], wanted)


def test_the_truth_in_info_makes_the_labels():
    data = synthetic_moe(num_tasks=32, noise=0.0, **SMALL)
    info = data.info
    for x, y in (data.train, data.validation, data.test):
        units = np.maximum(
            np.einsum("sd,edu->seu", x, info["kernels"]) + info["biases"], 0
        )
        mixtures = units.sum(axis=-1) @ info["expert_weights"].T
        np.testing.assert_allclose(mixtures, y, rtol=0, atol=1e-4)


def test_labels_and_weights_of_experts_have_the_scales_of_the_docstring(large):
    y = synthetic_moe(128, num_train=5_000, num_validation=1, num_test=1).train.y
    np.testing.assert_allclose(y.mean(), 5, atol=1)
    np.testing.assert_allclose(y.std(axis=0).mean(), 3, atol=1)
    info = large.info
    for name, atol in (("kernels", 0.1), ("biases", 0.25)):
        np.testing.assert_allclose(info[name].std(), 1.0, atol=atol)
        np.testing.assert_allclose(info[name].mean(), 0.0, atol=atol)


def test_the_papers_sizes_are_the_defaults():
    data = synthetic_moe(16)
    sizes = [len(part.x) for part in (data.train, data.validation, data.test)]
    assert sizes == [100_000, 20_000, 20_000]


def test_mixture_logits_of_related_tasks_correlate_by_08():
    """Over many groups: the softmax drops what its four logits have in common."""
    pairs = []
    for seed in range(60):
        data = synthetic_moe(128, seed=seed, num_train=1, num_validation=1, num_test=1)
        for group in range(8):
            rows, columns = slice(16 * group, 16 * group + 2), slice(4 * group, None)
            weights = data.info["expert_weights"][rows, columns][:, :4]
            logits = np.log(weights)
            pairs.append(logits - logits.mean(axis=1, keepdims=True))
    first, second = np.stack(pairs, axis=1).reshape(2, -1)
    np.testing.assert_allclose(np.corrcoef(first, second)[0, 1], 0.8, atol=0.04)
    # The mean of four that is taken off leaves 3/4 of a unit variance.
    np.testing.assert_allclose(first.var(), 0.75, atol=0.08)


def test_noise_of_different_tasks_groups_and_splits_is_independent():
    options = {"num_tasks": 32, "num_train": 500, "num_validation": 500, "num_test": 1}
    clean, noisy = (synthetic_moe(noise=noise, **options) for noise in (0.0, 0.25))
    np.testing.assert_array_equal(clean.train.x, noisy.train.x)
    errors = np.concatenate(
        [noisy.train.y - clean.train.y, noisy.validation.y - clean.validation.y],
        axis=1,
    )
    np.testing.assert_allclose(errors.std(), 0.25, rtol=0.02)
    np.testing.assert_allclose(errors.mean(), 0, atol=0.005)
    correlations = np.corrcoef(errors.T)[~np.eye(64, dtype=bool)]
    assert np.abs(correlations).max() < 0.25


NOISE = "`noise` .* at least 0"
test_settings_that_cannot_be_are_refused = refusals(
    (synthetic_moe, "one of 16, 32, 64, 128. Received", 0, 48, 256, None),
    (partial(synthetic_moe, 16), NOISE, {"noise": -0.1}, {"noise": float("nan")}),
)
