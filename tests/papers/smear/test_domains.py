"""The six styles of the same images."""

import numpy as np

from papers.smear import _domains


def test_styles_by_hand():
    image = np.zeros((1, 5, 5), "float32")
    image[0, 2, 2] = 1
    rng = np.random.default_rng(0)
    assert (_domains.plain(image, rng) == image).all()
    blurred = _domains.blurred(image, rng)[0]
    # A box of 3 x 3, twice: a pyramid of 1, 2, 3, 2, 1 in both directions.
    pyramid = np.outer([1, 2, 3, 2, 1], [1, 2, 3, 2, 1])
    np.testing.assert_allclose(blurred, pyramid / 81, rtol=1e-6)
    edges = _domains.edges(image, rng)[0]
    # Half a step to each of the four neighbours, times two; none in the middle.
    assert edges[2, 2] == 0
    assert edges[1, 2] == edges[3, 2] == edges[2, 1] == edges[2, 3] == 1
    assert edges.sum() == 4
    assert (_domains.outlines(image, rng)[0] == (edges > 0)).all()
    assert (_domains.inverted(image, rng) == 1 - image).all()
    cluttered = _domains.cluttered(image, rng)[0]
    assert cluttered[2, 2] == 0
    assert set(np.unique(cluttered)) <= {0.0, 0.5, 1.0}


def test_images_take_turns():
    images = np.random.default_rng(0).uniform(size=(13, 28, 28, 1)).astype("float32")
    styled, domains = _domains.in_styles(images, seed=3)
    assert domains[:, 0].tolist() == [*range(6), *range(6), 0]
    np.testing.assert_array_equal(styled[[0, 6, 12]], images[[0, 6, 12]])
    np.testing.assert_allclose(styled[4], 1 - images[4])
    assert styled.dtype == "float32"
    assert styled.min() >= 0
    assert styled.max() <= 1
    again, _ = _domains.in_styles(images, seed=3)
    np.testing.assert_array_equal(styled, again)


def test_domains_of_noise():
    (train, labels), (test, _) = _domains.load_domains(4, 2, noise=True)
    assert train["image"].shape == (24, 28, 28, 1)
    assert test["image"].shape == (12, 28, 28, 1)
    assert labels.shape == (24, 1)
    assert np.bincount(train["domain"][:, 0]).tolist() == [4] * 6
    ids = np.concatenate([train["id"], test["id"]])[:, 0]
    assert ids.tolist() == list(range(36))
