"""No two variables of a model have the same path, and so torch clears all gradients.

Keras registers the parameters of a model by path on torch. Gradients of a parameter
that is not registered add up over all steps.
"""

import copy

import keras
import numpy as np
import pytest
from checks import assert_close
from helpers import numbers, numpy, reloaded
from keras import layers

import dselectk_keras as dk

pytestmark = pytest.mark.backends("torch", reason="Only torch needs paths to differ.")
X, Y = numbers((8, 3)), numbers((8, 2), seed=1)


def functional(name=None):
    inputs = keras.Input((3,))
    hidden = layers.Dense(4, "tanh", name="hidden")(inputs)
    return keras.Model(inputs, layers.Dense(2, name="top")(hidden), name=name)


def sequential():
    return keras.Sequential([layers.Dense(4, "tanh"), layers.Dense(2)])


BANKS = {
    "dense": lambda: dk.DenseExperts(3, [4, 2]),
    "tucker": lambda: dk.baselines.TuckerExperts(3, [2]),
    "layer": lambda: dk.Experts(layers.Dense(2), 3),
    "built model": lambda: dk.Experts(functional(), 3),
    "unbuilt model": lambda: dk.Experts(sequential(), 3),
    "list": lambda: dk.Experts([functional(f"own_{i}") for i in range(3)]),
}
WAYS = {
    "fresh": lambda model, _: model,
    "loaded": reloaded,
    "deepcopy": lambda model, _: copy.deepcopy(model),
    "from_config": lambda model, _: type(model).from_config(model.get_config()),
    "clone": lambda model, _: keras.models.clone_model(model),
}


def multitask(bank, gate=None, **settings):
    gate = gate or dk.DSelectKGate(2)
    model = dk.build_multitask_model(3, 2, experts=bank, gate=gate, **settings)
    model.compile(keras.optimizers.SGD(0.1))
    return model


def two_layers(bank):
    """A plain model of two layers, with banks that are built before the layers."""
    inputs, other = keras.Input((3,)), copy.deepcopy(bank)
    mixtures = []
    for each in (bank, other):
        each.build((None, 3))
        mixtures.append(dk.MoE(each, dk.DSelectKGate(2, name="gate"))(inputs))
    return keras.Model(inputs, layers.add(mixtures))


def assert_apart(model):
    paths = [variable.path for variable in model.variables]
    assert len(set(paths)) == len(paths)
    registered = {id(parameter) for parameter in model.parameters()}
    assert {id(each.value) for each in model.trainable_variables} <= registered


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bank", BANKS)
def test_every_variable_has_a_path_of_its_own(bank, way, tmp_path):
    models = [multitask(BANKS[bank]()), two_layers(BANKS[bank]())]
    if bank != "tucker":
        models.append(multitask(BANKS[bank](), architecture="cgc"))
    for model in models:
        assert_apart(WAYS[way](model, tmp_path))


@pytest.mark.parametrize("bank", ["dense", "layer", "built model", "unbuilt model"])
def test_condensed_models_and_models_of_one_task_keep_paths_apart(bank):
    model = multitask(BANKS[bank](), dk.TopKGate(2))
    condensed = dk.condense(model)
    alone = dk.per_task(model, "task_0"), dk.per_task(condensed, "task_1")
    for each in (condensed, *alone):
        assert_apart(each)


@pytest.mark.parametrize("bank", ["layer", "built model", "unbuilt model"])
def test_later_steps_equal_first_steps_of_a_new_model(bank):
    # Without momentum, a step depends on the weights and on nothing else.
    model = multitask(BANKS[bank]())
    for _ in range(3):
        other = multitask(BANKS[bank]())
        other.set_weights(model.get_weights())
        for each in (model, other):
            each.train_on_batch(X, Y)
        assert_close(model.get_weights(), other.get_weights(), rtol=1e-5, atol=1e-7)
    assert np.isfinite(numpy(model(X)["task_0"])).all()
