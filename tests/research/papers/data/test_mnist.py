"""MNIST and Fashion-MNIST come out of the idx files as they went in."""

import numpy as np
import pytest

from research.papers import data as data_sets

SIZES = {"train": 160, "validation": 40, "test": 50}
NAMES = pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])


@pytest.fixture
def load(idx_dir):
    def load(name, **options):
        return data_sets.load(name, num_validation=40, data_dir=idx_dir, **options)

    return load


def numbers(split):
    """Find the images of the files that are in a split."""
    return np.round(split.x[:, 27, 27, 0] * 255).astype(int) - 1


@NAMES
def test_shapes_types_and_values(load, name):
    data = load(name)
    for split, size in SIZES.items():
        x, y = getattr(data, split)
        assert x.shape == (size, 28, 28, 1)
        assert y.shape == (size, 1)
        assert (x.dtype, y.dtype) == (np.float32, np.int32)
        assert x.min() == 0
        assert x.max() <= 1
        first = {"mnist": 1, "fashion_mnist": 2}[name]
        np.testing.assert_allclose(x[:, 0, 0, 0] * 255, first, rtol=1e-6)
        np.testing.assert_array_equal(y[:, 0], numbers(getattr(data, split)) % 10)
    assert data.num_classes == (10,)
    assert data.task_kinds == ("multiclass",)
    (names,) = data.info["class_names"].values()
    assert len(names) == 10


@NAMES
def test_every_image_is_in_one_split(load, name):
    data = load(name)
    found = [*numbers(data.train), *numbers(data.validation), *numbers(data.test)]
    assert sorted(found) == list(range(250))
    assert max(numbers(data.validation)) < 200 <= min(numbers(data.test))


def test_the_seed_and_sizes_decide_which_images_are_in_a_split(load):
    first, again, other = (numbers(load("mnist", seed=s).validation) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert set(first) != set(other)
    data = load("mnist", num_train=10, num_test=20)
    assert data.train.num_samples == 10
    assert data.test.num_samples == 20
    with pytest.raises(
        ValueError, match=r"There are 200 examples to split. Received: num_train=161"
    ):
        load("mnist", num_train=161)
    with pytest.raises(ValueError, match=r"`num_train` must be a positive integer"):
        load("mnist", num_train=0)


def test_one_is_not_taken_for_the_other(idx_dir):
    with pytest.raises(ValueError, match=r"mnist/train-images.*Received"):
        data_sets.mnist(data_dir=idx_dir / "fashion_mnist")
    with pytest.raises(FileNotFoundError, match="'mnist' needs the file train-images"):
        data_sets.mnist(data_dir=idx_dir / "nowhere")
