"""The data and the numbers that all experiments of the paper share."""

import keras
import numpy as np
import pytest

from dselectk_keras.datasets import Dataset, Split
from papers.specialization import _images
from papers.specialization._tables import in_order
from papers.specialization.fig2_3 import Fig2And3


def test_pixels_are_standardized_by_those_of_training():
    experiment = Fig2And3.presets()["smoke"]
    data = experiment.data("fmnist_mnist")
    assert data.train.x.mean() == pytest.approx(0, abs=1e-4)
    assert data.train.x.std() == pytest.approx(1, abs=1e-4)
    assert 0 < abs(data.test.x.mean()) < 0.1
    assert data.num_classes == (12,)


def test_no_image_is_held_out(monkeypatch):
    read = {}

    def load(name, **options):
        read.update(options, name=name)
        parts = [
            Split(np.full((size, 2, 2, 1), size, "float32"), np.zeros((size, 1)))
            for size in (7, 1, 3)
        ]
        return Dataset(*parts, ("class",), ("multiclass",), num_classes=(2,))

    monkeypatch.setattr(_images, "load", load)
    data = _images._load("mnist", 8, 3, "somewhere")
    assert read["num_train"] + read["num_validation"] == 8
    assert read["data_dir"] == "somewhere"
    assert len(data.train.x) == len(data.train.y) == 8
    _images._load.cache_clear()


def test_photographs_have_their_fine_labels():
    y = np.array([[1, 10], [2, 20]])
    split = Split(np.zeros((2, 4, 4, 3), "float32"), y)
    names, kinds = ("coarse", "fine"), ("multiclass",) * 2
    data = Dataset(split, split, split, names, kinds, num_classes=(20, 100))
    fine = _images._only_task(data, "fine")
    assert fine.train.y.tolist() == [[10], [20]]
    assert (fine.task_names, fine.num_classes) == (("fine",), (100,))


def test_a_pair_of_digits_is_a_class():
    x = np.arange(32, dtype="float32").reshape(2, 4, 4, 1)
    split = Split(x, np.array([[3, 7], [0, 1]], "int32"))
    kinds = ("multiclass",) * 2
    data = Dataset(split, split, split, ("a", "b"), kinds, num_classes=(10, 10))
    pairs = _images._pairs(data)
    assert pairs.train.y.tolist() == [[37], [1]]
    assert pairs.num_classes == (100,)
    # A pixel is the mean of four: of 0, 1, 4 and 5, for instance.
    expected = [[[2.5, 4.5], [10.5, 12.5]], [[18.5, 20.5], [26.5, 28.5]]]
    assert pairs.test.x[..., 0].tolist() == expected


def test_numbers_by_hand(monkeypatch):
    weights = np.array([[1, 0], [1, 0], [0, 1], [0.5, 0.5]], "float32")
    labels = np.array([[0.0], [0.0], [1.0], [0.0]])
    predicted = np.array([[0.8, 0.2], [0.4, 0.6], [0.5, 0.5], [0.9, 0.1]], "float32")
    split = Split(np.arange(4, dtype="float32").reshape(4, 1, 1, 1), labels)
    data = Dataset(split, split, split, ("class",), ("multiclass",), num_classes=(2,))

    def rows(values):
        return lambda x: keras.ops.convert_to_tensor(values[x[:, 0, 0, 0].astype(int)])

    monkeypatch.setattr(
        _images._mixture, "weights_of_experts", lambda _, x: rows(weights)(x)
    )
    monkeypatch.setattr(_images, "CHUNK", 3)
    found = _images.measured(rows(predicted), data, 2)
    # The second image is wrong, and so is the tie of the third.
    assert found["error"] == found["train_error"] == found["objective"] == 0.5
    expected = -np.log([0.8, 0.4, 0.5, 0.9]).mean()
    assert found["train_loss"] == pytest.approx(expected, rel=1e-5)
    assert found["table"].tolist() == [[3, 0], [0, 1]]
    assert found["sample_entropy"] == pytest.approx(0.25)
    shares = np.array([0.625, 0.375])
    assert found["utilization_entropy"] == pytest.approx(
        -(shares * np.log2(shares)).sum(), rel=1e-5
    )
    # The chosen expert tells the class: the information is the entropy of 3 : 1.
    assert found["mutual_information"] == pytest.approx(0.811278, rel=1e-5)


def test_experts_are_put_in_the_order_of_their_classes():
    table = np.array([[0, 0, 4], [1, 0, 3], [5, 0, 0]])
    assert in_order(table).tolist() == [[4, 0, 0], [3, 1, 0], [0, 5, 0]]
