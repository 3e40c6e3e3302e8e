"""Multi-MNIST and Multi-Fashion overlay two images that differ."""

import numpy as np
import pytest

from research.papers.data import multi_mnist
from research.papers.data.multi_mnist import overlay_images

SIZES = {"num_train": 3_000, "num_validation": 300, "num_test": 300}


@pytest.fixture
def load(idx_dir):
    return lambda images="mnist", **options: multi_mnist(
        images=images, num_held_out=40, data_dir=idx_dir, **{**SIZES, **options}
    )


def numbers(split):
    """Find the images of the files that are in the two corners."""
    x = split.x[..., 0]
    return np.round(np.stack([x[:, 27, 27], x[:, 35, 35]]) * 255).astype(int) - 1


def test_overlay_shifts_to_opposite_corners_and_shows_the_brighter():
    first = np.full((1, 28, 28), 3, "uint8")
    second = np.full((1, 28, 28), 7, "uint8")
    first[0, 10, 10] = 9
    (image,) = overlay_images(first, second)
    assert image.shape == (36, 36)
    assert (image[:8, :28] == 3).all()
    assert (image[:28, :8] == 3).all()
    assert (image[8:, 28:] == 7).all()
    assert (image[:8, 28:] == 0).all()
    assert image[10, 10] == 9
    assert (np.delete(image[8:28, 8:28].ravel(), 2 * 20 + 2) == 7).all()


@pytest.mark.parametrize(("images", "pixel"), [("mnist", 1), ("fashion_mnist", 2)])
def test_shapes_types_labels_and_pairs_of_images(load, images, pixel):
    data = load(images)
    for split in ("train", "validation", "test"):
        x, y = getattr(data, split)
        assert x.shape == (SIZES[f"num_{split}"], 36, 36, 1)
        assert (x.dtype, y.dtype) == (np.float32, np.int32)
        first, second = numbers(getattr(data, split))
        np.testing.assert_array_equal(y.T, np.stack([first, second]) % 10)
        assert (first != second).all()
        np.testing.assert_allclose(x[:, [0, 8], [0, 8], 0] * 255, pixel, rtol=1e-6)
    assert data.task_names == ("top_left", "bottom_right")
    assert data.num_classes == (10, 10)


def test_every_other_image_is_as_likely(load):
    # Images drawn with the first would be missing, or twice as frequent.
    first, second = numbers(load(num_train=40_000).train)
    assert len(set(zip(first, second, strict=True))) > 0.7 * 160 * 159
    counts = np.bincount(second, minlength=200)
    assert counts[counts > 0].min() > 180
    assert counts.max() < 330


def test_no_image_is_in_two_splits(load):
    data = load()
    splits = (data.train, data.validation, data.test)
    train, validation, test = (set(numbers(split).ravel()) for split in splits)
    assert not train & validation
    assert len(train) == 160
    assert len(validation) == 40
    assert max(train | validation) < 200 <= min(test)


def test_the_seed_decides_everything(load):
    first, again, other = (load(seed=seed).train for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.y, again.y)
    assert not np.array_equal(first.y, other.y)
