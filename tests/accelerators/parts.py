"""Models with gates, banks and layers, which one compilation covers."""

import math

import keras
import numpy as np
from gate_cases import all_cases
from helpers import numbers
from keras import layers, ops

import dselectk_keras as dk

NUM_EXPERTS, DIM, LENGTH = 5, 3, 4
BANKS = {
    "dense": lambda: dk.DenseExperts(NUM_EXPERTS, [4, 2]),
    "gated": lambda: dk.DenseExperts(NUM_EXPERTS, [4, 2], gated=True),
    "dropout": lambda: dk.DenseExperts(NUM_EXPERTS, [4, 2], dropout=0.5),
    "copies": lambda: dk.Experts(
        keras.Sequential([layers.Dense(2), layers.BatchNormalization()]), NUM_EXPERTS
    ),
    "layers": lambda: dk.Experts(layers.Dense(2), NUM_EXPERTS),
    "Tucker": lambda: dk.baselines.TuckerExperts(NUM_EXPERTS, [3, 2], (2, 2, 1)),
}
SPARSE = {
    "noisy top-k": lambda: dk.TopKGate(2, bias_rate=0.01, noise=True, seed=1),
    "top-k of three": lambda: dk.TopKGate(1, num_gates=3),
    "switch": dk.SwitchGate,
    "hash": lambda: dk.baselines.HashGate(salt=0),
    "decided": lambda: dk.DSelectKGate(1),
}


def data(batch):
    """Inputs of a batch, by name; the tokens end in padding."""
    tokens = numbers((batch, LENGTH, DIM), seed=1)
    tokens[:, 2:] *= np.arange(batch)[:, None, None] % 2
    ids = np.arange(batch, dtype="int32")[:, None] % 3
    return {"x": numbers((batch, DIM)), "ids": ids, "tokens": tokens}


def every_gate():
    """All gates, and what each looks at: names of inputs after the experts' outputs."""
    for case in all_cases():
        for look in case.looks:
            name = f"{case.name}, {look or 'static'}"
            if look == "hidden":
                bank = dk.DenseExperts(NUM_EXPERTS, [2, 2])
                yield name, dk.baselines.AttentiveMoE(bank, case.make(), True), ("x",)
            else:
                yield name, case.make(), ("experts", *([look] if look else ()))


def every_layer():
    """Other layers and banks, and the inputs of each."""
    for name, bank in BANKS.items():
        yield f"bank {name}", dk.MoE(bank(), dk.SoftmaxGate(), True), ("x",)
    for name, gate in SPARSE.items():
        for dispatch in (True, 1.25):
            if dispatch is True or name != "decided":
                bank = dk.DenseExperts(8, [4, 2])
                names = ("x", "ids") if name == "hash" else ("x",)
                layer = dk.MoE(bank, gate(), True, dispatch=dispatch)
                yield f"{name}, dispatch {dispatch}", layer, names
    masked = dk.MoE(dk.DenseExperts(8, [2]), dk.SwitchGate(), True, dispatch=1.5)
    yield "masked, dispatch 1.5", masked, ("tokens",)
    regularizer = dk.SampleSimilarityRegularizer(1.0, 1.0)
    similar = dk.SoftmaxGate(weights_regularizer=regularizer)
    yield "similarity", dk.MoE(BANKS["dense"](), similar, True), ("x",)
    yield "MMoE", dk.MMoE(BANKS["dense"](), dk.DSelectKGate(2), 2, stacked=True), ("x",)
    yield "CGC", dk.CGC(BANKS["dense"](), dk.TopKGate(2), 2, 1, True), ("x",)
    for name in ("dense", "layers"):
        router = dk.SoftmaxGate(normalize=True)
        yield f"SMEAR, {name}", dk.SmearExperts(BANKS[name](), router), ("x",)
    yield "soft", dk.baselines.SoftMoE(BANKS["dense"](), num_slots=2), ("tokens",)
    yield "L2", dk.baselines.L2Constrained(BANKS["dense"](), 0.1), ("x",)
    yield "cross-stitch", dk.baselines.CrossStitch(), ("stacked",)


def calls():
    """The names and layers of all parts, and arguments of a call."""
    values = data(8)
    values["experts"] = numbers((8, NUM_EXPERTS, 2), seed=2)
    values["stacked"] = numbers((8, 2, DIM), seed=3)
    for name, layer, names in [*every_gate(), *every_layer()]:
        yield name, layer, [ops.convert_to_tensor(values[each]) for each in names]


def every_part(share=slice(None)):
    """A model with a share of these, and the place of each in its outputs, by name."""
    shapes = {name: value.shape[1:] for name, value in data(2).items()}
    inputs = {
        name: keras.Input(shape, name=name, dtype="int32" if name == "ids" else None)
        for name, shape in shapes.items()
    }
    made = {**inputs, "tokens": layers.Masking()(inputs["tokens"])}
    made["experts"] = dk.DenseExperts(NUM_EXPERTS, [2])(inputs["x"])
    made["stacked"] = layers.RepeatVector(2)(inputs["x"])
    outputs, places, end = [], {}, 0
    for name, layer, names in [*every_gate(), *every_layer()][share]:
        found = keras.tree.flatten(layer(*[made[each] for each in names]))
        sizes = [math.prod(each.shape[1:]) for each in found]
        outputs += map(ops.reshape, found, [(-1, size) for size in sizes])
        places[name], end = slice(end, end + sum(sizes)), end + sum(sizes)
    return keras.Model(inputs, ops.concatenate(outputs, axis=-1)), places
