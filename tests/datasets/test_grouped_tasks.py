"""Tasks are mixtures of the features of their group."""

import numpy as np
import pytest

from dselectk_keras.datasets import grouped_tasks

SMALL = {"num_train": 3_000, "num_validation": 20, "num_test": 10}


def test_labels_are_the_equation_in_the_docstring():
    data = grouped_tasks(num_tasks=6, num_groups=3, **SMALL)
    info, groups = data.info, np.array(data.groups)
    for x, y in (data.train, data.validation, data.test):
        angles = np.einsum("bd,udj->buj", x, info["directions"])
        features = np.sin(1.5 * angles + info["phases"])
        wanted = np.einsum("btj,tj->bt", features[:, groups], info["mixtures"])
        # The difference is the mean, a constant for each task.
        np.testing.assert_allclose((wanted - y).std(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(data.train.y.mean(axis=0), 0, atol=0.1)
    np.testing.assert_allclose(data.train.y.std(axis=0), 1, atol=0.1)


def test_noise_is_added_to_all_splits_and_groups_have_equal_sizes():
    clean, noisy = (grouped_tasks(noise=noise, **SMALL) for noise in (0.0, 0.5))
    errors = noisy.train.y - clean.train.y
    np.testing.assert_allclose(errors.std(), 0.5, rtol=0.01)
    assert (noisy.test.y != clean.test.y).all()
    np.testing.assert_array_equal(noisy.train.x, clean.train.x)
    assert grouped_tasks(**SMALL).groups == tuple(np.repeat(range(8), 8))
    with pytest.raises(ValueError, match="multiple of `num_groups`"):
        grouped_tasks(num_tasks=7, num_groups=3)
