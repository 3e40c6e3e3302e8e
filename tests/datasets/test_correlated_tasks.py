"""Two tasks are as related as their weights."""

import numpy as np
import pytest
from helpers import refusals

from dselectk_keras.datasets import correlated_tasks

SMALL = {"num_train": 400, "num_validation": 30, "num_test": 20}


@pytest.mark.parametrize("p", [-1, -0.5, 0, 0.3, 1])
def test_p_is_the_cosine_of_the_weights_and_c_their_length(p):
    info = correlated_tasks(p=p, c=2.5, **SMALL).info
    for w in (info["w1"], info["w2"]):
        np.testing.assert_allclose(np.linalg.norm(w), 2.5, rtol=1e-5)
    np.testing.assert_allclose(info["w1"] @ info["w2"] / 2.5**2, p, atol=1e-6)


def test_labels_are_the_equation_in_the_docstring_with_its_default_sines():
    data = correlated_tasks(p=0.4, m=2, noise=0, input_dim=7, **SMALL)
    x, y = data.train
    assert x.shape[1] == 7
    for task, w in enumerate((data.info["w1"], data.info["w2"])):
        linear = x @ w
        expected = linear + np.sin(linear) + np.sin(2.0 * linear + 1.0)
        np.testing.assert_allclose(y[:, task], expected, atol=1e-4)
    info = correlated_tasks(m=4, **SMALL).info
    np.testing.assert_array_equal(info["alphas"], [1, 2, 3, 4])
    np.testing.assert_array_equal(info["betas"], [0, 1, 4, 9])
    assert correlated_tasks(**SMALL).task_kinds == ("regression", "regression")


def test_without_sines_the_labels_correlate_as_the_weights():
    data = correlated_tasks(p=0.6, m=0, **SMALL)
    np.testing.assert_allclose(data.info["label_correlation"], 0.6, atol=0.02)


def test_labels_correlate_the_more_the_larger_p():
    found = [correlated_tasks(p=p, **SMALL) for p in (0, 0.25, 0.5, 0.75, 1)]
    correlations = [data.info["label_correlation"] for data in found]
    assert (np.diff(correlations) > 0.05).all()
    np.testing.assert_allclose(correlations[0], 0, atol=0.05)
    np.testing.assert_allclose(correlations[-1], 1, rtol=1e-6)
    for data in found:
        measured = np.corrcoef(data.train.y.T)[0, 1]
        np.testing.assert_allclose(measured, data.info["label_correlation"], atol=0.15)


def test_noise_is_the_difference_to_the_noiseless_labels():
    options = {"num_train": 5_000, "num_validation": 1, "num_test": 1}
    clean, noisy = (correlated_tasks(noise=n, **options).train for n in (0.0, 0.25))
    errors = noisy.y - clean.y
    np.testing.assert_array_equal(clean.x, noisy.x)
    np.testing.assert_allclose(errors.std(axis=0), 0.25, rtol=0.05)
    np.testing.assert_allclose(np.corrcoef(errors.T)[0, 1], 0, atol=0.05)


test_settings_that_cannot_be_are_refused = refusals(
    (
        correlated_tasks,
        "`input_dim` must be an integer >= 2",
        {"input_dim": 1},
        {"input_dim": 2.5},
    ),
    (
        correlated_tasks,
        "`p` must be .* at least -1 and at most 1",
        *({"p": p} for p in (-1.1, 2, "high", float("nan"))),
    ),
)
