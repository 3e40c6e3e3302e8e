"""A saved model gives the same outputs wherever it is loaded."""

import copy
import os
import zipfile
from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_equal
from helpers import cloned, model_of, numbers, reloaded, spread
from jobs import run_python

import dselectk_keras as dk

GATES = {
    "softmax": partial(
        dk.SoftmaxGate, weights_regularizer=dk.ImportanceRegularizer(0.1)
    ),
    "top_k": partial(dk.TopKGate, 2, noise=True, load_reg=0.1, seed=1),
    "dselect_k": partial(
        dk.DSelectKGate, 2, dk.Ramp(1.0, 0.5, end=9), dk.Ramp(0.1, 1.0, end=9)
    ),
}
BANKS = {
    "dense": lambda: dk.DenseExperts(3, [2, 2], "tanh"),
    "copies": lambda: dk.Experts(
        keras.Sequential([keras.layers.Dense(2), keras.layers.BatchNormalization()]), 3
    ),
}
# Every pair of a gate, a bank and a mode, if not every three.
COMBINATIONS = [
    ("softmax", "dense", "static"),
    ("softmax", "copies", "routed"),
    ("top_k", "dense", "routed"),
    ("top_k", "copies", "static"),
    ("dselect_k", "dense", "static"),
    ("dselect_k", "copies", "routed"),
]
PROGRAM = """
import os, sys
if os.environ["KERAS_BACKEND"] != "tensorflow":
    sys.modules["tensorflow"] = None  # Keras would import it, for nothing.
import numpy as np, keras
import dselectk_keras

model, inputs, outputs = sys.argv[1:]
loaded = keras.saving.load_model(model)
np.savez(outputs, **loaded.predict(dict(np.load(inputs)), verbose=0))
"""
INPUTS = {"x": numbers((4, 3)), "v": numbers((4, 5), seed=1)}


def every_combination():
    """One model with a branch for each combination, and for other layers."""
    x, v = (keras.Input(INPUTS[name].shape[1:], name=name) for name in INPUTS)
    outputs = {}
    for gate, bank, mode in COMBINATIONS:
        name, routed = f"{gate}_{bank}_{mode}", mode == "routed"
        parts = BANKS[bank](), GATES[gate](), ["a", "b"], routed
        layer = dk.MMoE(*parts, stacked=True, name=name)
        outputs[name] = layer((x, v) if routed else x)
    gates = GATES["dselect_k"](), dk.SoftmaxGate()
    below = dk.CGC(BANKS["dense"](), gates[0], 2, 1, True, shared_gate=gates[1])
    above = dk.DenseExperts(3, [2], shared_input=False)
    levels = dk.CGC(above, dk.SoftmaxGate(), ["a", "b"], 2, "by_gate", name="levels")
    outputs["levels"] = levels(below((x, v)))
    apart = dk.baselines.L2Constrained(
        dk.baselines.TuckerExperts(2, [3, 2], (2, 2, 1)), dk.Ramp(0.1, 1.0, end=9)
    )
    outputs["stitched"] = dk.baselines.CrossStitch(name="stitched")(apart(x))
    for make, gate in (
        (dk.baselines.AttentiveMoE, dk.baselines.AttentiveGate(4, num_gates=2)),
        (dk.MoE, dk.baselines.ReinforceGate(seed=1, num_gates=2)),
    ):
        name, network = type(gate).__name__, keras.layers.Dense(4, "tanh")
        settings = {"routing_network": network, "name": name}
        outputs[name] = make(BANKS["dense"](), gate, True, **settings)((x, v))
    router = dk.SoftmaxGate(normalize=True, num_gates=2, expert_dropout=0.1, seed=1)
    outputs["smear"] = dk.SmearExperts(BANKS["dense"](), router, name="smear")((x, v))
    tokens = keras.layers.RepeatVector(2)(v)
    outputs["soft"] = dk.baselines.SoftMoE(BANKS["dense"](), num_slots=2, name="soft")(
        tokens
    )
    return dk.baselines.RoutedModel({"x": x, "v": v}, outputs)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a trained model, what it predicts, and its counters."""
    folder = tmp_path_factory.mktemp("reload")
    model = every_combination()
    # Eagerly, in other processes too: the graph would take TensorFlow half a minute.
    eagerly = keras.backend.backend() == "tensorflow"
    model.compile("sgd", dict.fromkeys(model.output, "mse"), run_eagerly=eagerly)
    labels = {name: np.ones((4, 2, 2)) for name in model.output}
    model.fit(INPUTS, labels, verbose=0)
    model.save(folder / "model.keras")
    np.savez(folder / "inputs.npz", **INPUTS)
    counter = model.get_layer("dselect_k_dense_static").gate.step
    outputs = model.predict(INPUTS, verbose=0)
    assert all(np.isfinite(output).all() for output in outputs.values())
    return folder, outputs, int(counter)


def test_in_the_same_process_with_the_counts_of_calls(saved):
    folder, expected, calls = saved
    loaded = keras.saving.load_model(folder / "model.keras")
    assert_equal(loaded.predict(INPUTS, verbose=0), expected)
    assert calls == int(loaded.get_layer("dselect_k_dense_static").gate.step) == 1


@pytest.mark.backend_independent
def test_a_file_with_too_many_experts_is_refused_before_memory_is_taken(tmp_path):
    whole, altered = tmp_path / "whole.keras", tmp_path / "altered.keras"
    model_of(dk.DenseExperts(3, [2]), 3).save(whole)
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(altered, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            number = b'"num_experts": %d'
            assert name != "config.json" or number % 3 in content
            new.writestr(name, content.replace(number % 3, number % 10**9))
    refused = (ValueError, TypeError)  # Keras makes it a TypeError.
    with pytest.raises(refused, match="`num_experts` must be at most 65,536"):
        keras.saving.load_model(altered)


@pytest.mark.backends("torch", reason="What is registered is the same on all.")
def test_in_another_process(saved):
    folder, expected, _ = saved
    paths = [folder / name for name in ("model.keras", "inputs.npz", "outputs.npz")]
    env = os.environ | {"KERAS_BACKEND": keras.backend.backend()}
    run_python("-c", PROGRAM, *paths, env=env)
    assert_equal(np.load(paths[-1]), expected)


@pytest.mark.backend_independent
@pytest.mark.parametrize("part", ["experts", "gate", "routing_network"])
def test_what_layers_share_is_shared_in_the_loaded_model(part, tmp_path):
    parts = {
        "experts": lambda: dk.DenseExperts(3, [4]),
        "gate": lambda: dk.DSelectKGate(2),
        "routing_network": lambda: keras.layers.Dense(2),
    }
    one = parts[part]()

    def layer(name):
        own = {key: one if key == part else make() for key, make in parts.items()}
        return dk.MoE(**own, per_example=True, name=name)

    model = model_of(lambda x: layer("second")(layer("first")(x)), 4)
    loaded = reloaded(model, tmp_path)
    first, second = (loaded.get_layer(name) for name in ("first", "second"))
    assert getattr(first, part) is getattr(second, part)
    assert len(loaded.weights) == len(model.weights)
    x = numbers((5, 4))
    assert_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))


COPIES = {
    "file": reloaded,
    "deepcopy": lambda model, _: copy.deepcopy(model),
    "clone": lambda model, _: cloned(model),
}


@pytest.mark.backend_independent
@pytest.mark.parametrize("how", COPIES)
def test_experts_that_are_copies_of_a_model_share_nothing_in_a_copy(how, tmp_path):
    inner = dk.MoE(dk.DenseExperts(2, [3]), dk.SoftmaxGate())
    init = keras.initializers.GlorotUniform(seed=1)
    expert = keras.Sequential([keras.layers.Dense(4, kernel_initializer=init), inner])
    layer = dk.CGC(dk.Experts(expert, 2), dk.SoftmaxGate(), 3, 2, name="cgc")
    model = spread(model_of(layer, 5))
    copied = COPIES[how](model, tmp_path)
    bank = copied.get_layer("cgc").task_experts
    parts = [part for each in bank.experts for part in each.layers]
    assert len({id(part) for part in parts}) == 12
    assert len({part.kernel_initializer.seed for part in parts[::2]}) == 6
    assert len(copied.weights) == len(model.weights)
    x = numbers((4, 5))
    assert_equal(copied.predict(x, verbose=0), model.predict(x, verbose=0))
