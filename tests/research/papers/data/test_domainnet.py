"""DomainNet is read by its lists of images."""

import numpy as np
import pytest

from research.papers.data import domainnet

TRAIN, TEST = 30, 12


def name(domain, part, number):
    label = number % 3
    return f"{domain}/thing_{label}/{part}_{number}.png {label}"


@pytest.fixture
def data_dir(tmp_path, module, monkeypatch):
    """Two domains with images of one colour that says the number."""
    tf = pytest.importorskip("tensorflow")
    for domain in ("clipart", "sketch"):
        monkeypatch.setitem(module("domainnet").NUM_IMAGES, domain, (TRAIN, TEST))
        for part, size in {"train": TRAIN, "test": TEST}.items():
            lines = [name(domain, part, number) for number in range(size)]
            (tmp_path / f"{domain}_{part}.txt").write_text("\n".join(lines) + "\n")
            for number, line in enumerate(lines):
                path = tmp_path / line.split()[0]
                path.parent.mkdir(parents=True, exist_ok=True)
                image = np.full((6, 9, 3), (number, 0, 255), "uint8")
                path.write_bytes(tf.io.encode_png(image).numpy())
    return tmp_path


def load(data_dir, **options):
    options = {"domains": ("clipart", "sketch"), "num_validation": 10, **options}
    return domainnet(data_dir=data_dir, **options)


def test_paths_domains_and_labels(data_dir):
    data = load(data_dir)
    found = []
    for split, size in {"train": 50, "validation": 10, "test": 24}.items():
        x, y = getattr(data, split)
        assert len(x["path"]) == len(x["domain"]) == len(y) == size
        assert (x["domain"].dtype, y.dtype) == (np.int32, np.int32)
        for path, domain, (label,) in zip(x["path"], x["domain"], y, strict=True):
            folders = (data.info["domains"][domain], f"thing_{label}")
            part = "test" if split == "test" else "train"
            assert path.startswith(str(data_dir.joinpath(*folders, part)))
        found += x["path"].tolist()
    assert len(set(found)) == 2 * (TRAIN + TEST)
    assert data.num_classes == (345,)
    names = data.info["class_names"]["class"]
    assert names[:4] == ("thing_0", "thing_1", "thing_2", "")


def test_images_are_read_at_the_size_asked_for(data_dir):
    data = load(data_dir, image_size=4, num_train=20)
    image = data.train.x["image"]
    assert image.shape == (20, 4, 4, 3)
    assert image.dtype == np.float32
    # Resizing rounds.
    np.testing.assert_allclose(image[..., 1], 0, atol=1e-6)
    np.testing.assert_allclose(image[..., 2], 1, rtol=1e-6)
    numbers = np.round(image[..., 0] * 255)
    np.testing.assert_array_equal(numbers, numbers[:, :1, :1] * np.ones((4, 4)))
    np.testing.assert_array_equal(numbers[:, 0, 0] % 3, data.train.y[:, 0])


def test_the_seed_decides_the_splits(data_dir):
    first, again, other = (
        load(data_dir, seed=seed).validation.x["path"].tolist() for seed in (1, 1, 2)
    )
    assert first == again
    assert set(first) != set(other)


@pytest.mark.parametrize("cut", [5, 1])
def test_a_damaged_list_is_an_error(data_dir, cut):
    path = data_dir / "sketch_train.txt"
    lines = path.read_text().splitlines()
    lines[-1] = lines[-1][:-cut]
    path.write_text("\n".join(lines))
    text = r"sketch_train.txt must be .*\(30 lines.*{} lines, 29 of which are complet"
    with pytest.raises(ValueError, match=text.format(30)):
        load(data_dir)
    path.write_text("\n".join(lines[:-1]))
    with pytest.raises(ValueError, match=text.format(29)):
        load(data_dir)


def test_a_missing_image_is_an_error(data_dir):
    (data_dir / name("clipart", "test", 5).split()[0]).unlink()
    with pytest.raises(FileNotFoundError, match=r"lists an image that is not .*test_5"):
        load(data_dir)
