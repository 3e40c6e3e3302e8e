"""Pictures of the same ten classes in six styles, made from Fashion-MNIST."""

import numpy as np

from research.engine import stand_in
from research.papers.data.mnist import fashion_mnist, mnist

IMAGE_SHAPE = (28, 28, 1)
NUM_CLASSES = 10


def plain(images, _=None):
    """As they are: light on black."""
    return images


def blurred(images, _=None):
    """Without detail: a box of 3 x 3 pixels, twice."""
    return _box(_box(images))


def edges(images, _=None):
    """The lines of a sketch: how fast the brightness changes."""
    down, right = np.gradient(images, axis=(1, 2))
    return np.clip(2 * np.hypot(down, right), 0, 1)


def outlines(images, _=None):
    """The same lines, black or white."""
    return (edges(images) > 0.35).astype("float32")


def inverted(images, _=None):
    """Dark on white."""
    return 1 - images


def cluttered(images, rng):
    """Dark on white, over stripes of random direction, width and place."""
    size = len(images), 1, 1
    angle, phase = (rng.uniform(0, 2 * np.pi, size) for _ in "ab")
    frequency = rng.uniform(0.6, 1.2, size)
    rows, columns = np.mgrid[: images.shape[1], : images.shape[2]]
    along = np.cos(angle) * rows + np.sin(angle) * columns
    stripes = 0.5 * (np.sin(frequency * along + phase) > 0)
    return (1 - np.maximum(images, stripes)).astype("float32")


# Two by two they are alike, as sketches and doodles are, or photographs and paintings.
STYLES = {
    style.__name__: style
    for style in (plain, blurred, edges, outlines, inverted, cluttered)
}
DOMAINS = tuple(STYLES)
PAIRS = tuple(zip(DOMAINS[::2], DOMAINS[1::2], strict=True))


def in_styles(images, seed):
    """Images in the six styles, in turn."""
    rng = np.random.default_rng(seed)
    domains = np.arange(len(images)) % len(DOMAINS)
    styled = np.empty_like(images)
    for number, style in enumerate(STYLES.values()):
        chosen = domains == number
        styled[chosen, ..., 0] = style(images[chosen, ..., 0], rng)
    return styled, domains[:, None].astype("int32")


def load_domains(num_train, num_test, data_dir=None, noise=False):
    """Training and test images of all domains; no garment is in two of them."""
    sizes = [len(DOMAINS) * size for size in (num_train, num_test)]
    if noise:
        data = stand_in(IMAGE_SHAPE, {"garment": NUM_CLASSES}, max(sizes))
    else:
        data = fashion_mnist(
            num_train=sizes[0],
            num_validation=len(DOMAINS),
            num_test=sizes[1],
            data_dir=data_dir,
        )
    parts = []
    for number, split in enumerate((data.train, data.test)):
        size = sizes[number]
        images, domains = in_styles(np.asarray(split.x)[:size], seed=number)
        ids = np.arange(size)[:, None] + number * sizes[0]
        inputs = {"image": images, "domain": domains, "id": ids.astype("int32")}
        parts.append((inputs, np.asarray(split.y)[:size].astype("int32")))
    return parts


def load_digits(num_train, data_dir=None, noise=False):
    """Images and labels of MNIST, on which the backbone is trained."""
    if noise:
        data = stand_in(IMAGE_SHAPE, {"digit": 10}, num_train)
    else:
        data = mnist(num_train, data_dir=data_dir)
    return data.train.x, np.asarray(data.train.y, "int32")


def _box(images):
    """The mean of 3 x 3 pixels, with black around the image."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    height, width = images.shape[1:]
    shifted = [
        padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)
    ]
    return np.mean(shifted, axis=0, dtype="float32")
