"""Every gate trains in every architecture, as `scripts/train.py` puts them together."""

import itertools

import keras
import numpy as np
import pytest
from helpers import numpy

from common.training_run import TrainingRun
from dselectk_keras import datasets
from dselectk_keras.gates import GATES
from dselectk_keras.models import ARCHITECTURES

SIZES = {"num_tasks": 16, "num_train": 32, "num_validation": 1, "num_test": 1}
GATED = sorted(
    name for name in ARCHITECTURES if TrainingRun(architecture=name).has_gate
)
REFUSED = {
    ("attentive", name): "Use the layer `AttentiveMoE`"
    for name in GATED
    if name != "attentive"
}
# A run's model knows no reward.
REFUSED |= {("reinforce", name): "learns from the losses" for name in GATED}
PAIRS = list(itertools.product(GATES, GATED))


def test_some_architectures_have_gates():
    assert {*GATED} == {"omoe", "mmoe", "attentive", "cgc", "ple", "smear"}


@pytest.fixture(scope="module")
def data():
    return datasets.load("synthetic_moe", seed=0, **SIZES)


def train(data, **settings):
    """One epoch of one batch: the loss, and the variables that have changed."""
    run = TrainingRun(epochs=1, batch_size=32, num_nonzeros=2, **settings)
    model = run.build(data)
    model.compile(keras.optimizers.Adam(0.01), run_eagerly=True)
    before = {v.path: numpy(v) for v in model.trainable_variables}
    log = model.train_on_batch(data.train.x, data.train.y, return_dict=True)
    changed = {
        v.path for v in model.trainable_variables if (numpy(v) != before[v.path]).any()
    }
    return model, log["loss"], changed


@pytest.mark.parametrize(("gate", "architecture"), PAIRS)
def test_every_gate_trains_in_every_architecture(data, gate, architecture):
    settings = {"gate": gate, "architecture": architecture}
    if (gate, architecture) in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[gate, architecture]):
            train(data, **settings)
        return
    model, loss, changed = train(data, **settings)
    assert np.isfinite(loss)
    learned = [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, GATES[gate]) and layer.trainable_variables
    ]
    assert bool(learned) == (gate not in {"hash", "tag", "random"})
    for layer in learned:
        assert changed & {variable.path for variable in layer.trainable_variables}


@pytest.mark.parametrize("architecture", sorted({*ARCHITECTURES} - {*GATED}))
def test_every_architecture_without_gates_trains(data, architecture):
    model, loss, changed = train(data, architecture=architecture)
    assert np.isfinite(loss)
    assert changed == {variable.path for variable in model.trainable_variables}
