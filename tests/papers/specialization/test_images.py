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
    assert _images.num_classes(data) == 12


def test_numbers_by_hand(monkeypatch):
    weights = np.array([[1, 0], [1, 0], [0, 1], [0.5, 0.5]], "float32")
    labels = np.array([[0.0], [0.0], [1.0], [0.0]])
    predicted = np.eye(2, dtype="float32")[[0, 1, 1, 0]]
    split = Split(np.zeros((4, 28, 28, 1), "float32"), labels)
    data = Dataset(split, split, split, ("class",), ("multiclass",), num_classes=(2,))
    monkeypatch.setattr(
        _images._mixture,
        "weights_of_experts",
        lambda *_: keras.ops.convert_to_tensor(weights),
    )
    found = _images.measured(lambda _: keras.ops.convert_to_tensor(predicted), data, 2)
    assert found["error"] == 0.25
    assert found["table"].tolist() == [[3, 0], [0, 1]]
    assert found["usage"].tolist() == [0.625, 0.375]
    assert found["sure"].tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 3]
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
