"""Each argument takes a value with which the object works, or refuses it by name."""

import functools
import inspect

import keras
import numpy as np
import pytest
from gate_cases import all_cases
from helpers import numbers, numpy

import dselectk_keras as dk
from dselectk_keras.gates import GATES, SelectedGate
from dselectk_keras.metrics import METRICS
from dselectk_keras.models.build import OF_MODEL
from dselectk_keras.regularizers import REGULARIZERS

pytestmark = pytest.mark.backend_independent

BATCH, DIM, UNITS, EXPERTS = 4, 3, 2, 4
NAN, INFINITY = float("nan"), float("inf")
VALUES = ("a", None, NAN, INFINITY, -1, 0, 1.5, 2**70, [], {}, True, object())
X = numbers((BATCH, DIM))
# The options of an architecture have a test of their own.
OF_KERAS = {"args", "kwargs", "name", "options"}
LOOKS = {type(case.make()): case.looks[-1] for case in all_cases()}


# Each function uses an object, and returns tensors that must be finite.


def use_gate(gate):
    look = LOOKS[type(gate)]
    inputs = {"routing_inputs": X} if look in {"x", "hidden"} else {}
    if look == "ids":
        inputs["routing_inputs"] = np.arange(BATCH) % 2
    if look == "hidden":
        inputs["hidden"] = numbers((BATCH, EXPERTS, DIM))
    mixed = gate(numbers((BATCH, EXPERTS, UNITS)), **inputs, training=True)
    revive(gate)
    return [mixed, gate.expert_weights(**inputs), *gate.losses]


def use_layer(layer):
    mixed = layer(X, training=True)
    revive(layer)
    return [*keras.tree.flatten(mixed), *layer.losses]


def use_layer_of_sequences(layer):
    mixed = layer(numbers((BATCH, 2, DIM)), training=True)
    revive(layer)
    return [mixed]


def use_regularizer(regularizer):
    revive(regularizer)
    weights = numbers((BATCH, EXPERTS)) ** 2
    inputs = {
        dk.SampleSimilarityRegularizer: (weights, X),
        dk.SwitchLoadRegularizer: (weights, weights),
    }
    return [regularizer(inputs.get(type(regularizer), weights))]


def use_metric(metric):
    revive(metric)
    return [metric.result()]


def use_callback(callback):
    callback.set_params({"epochs": 1, "steps": 1})
    callback.set_model(gated_model())
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    callback.on_epoch_end(0)
    return []


@functools.cache
def gated_model():
    model = dk.build_multitask_model(DIM, 2, experts=2, gate=dk.DSelectKGate(1))
    model.compile("sgd")
    return model


def use_task(task):
    return use_model(dk.build_multitask_model(DIM, [task], experts=2))


def use_model(model):
    inputs = np.zeros((2, *model.input_shape[1:]), "float32")
    return [*keras.tree.flatten(model(inputs, training=True)), *model.losses]


def revive(instance):
    keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(instance))


# Functions, arguments with which they work, and what uses the result.


def routed_model(consistency, outputs_are):
    inputs = keras.Input((DIM,))
    outputs = keras.layers.Dense(2)(inputs)
    settings = {"consistency": consistency, "outputs_are": outputs_are}
    return dk.RoutedModel(inputs, outputs, **settings)


def entries():
    bank = {"num_experts": EXPERTS, "units": [UNITS]}
    gated = {
        "experts": lambda: dk.DenseExperts(**bank),
        "gate": dk.SoftmaxGate,
        "per_example": True,
        "strength": 0.1,
        "tasks": 2,
    }
    template = {"template": keras.layers.Dense(UNITS), "num_experts": EXPERTS}
    ramp = {"initial_value": 1.0, "final_value": 2.0, "end": 10}
    routed = {"consistency": 0.0, "outputs_are": "values"}
    numbered = {"num_tasks": 3}
    found = [(cls, numbered, use_gate) for cls in GATES.values()]
    found.append((SelectedGate, {"choices": [0, 1]}, use_gate))
    weights = {"weight": 0.1, "beta_s": 1.0, "beta_d": 1.0}
    found += [(cls, weights, use_regularizer) for cls in REGULARIZERS.values()]
    sizes = {"num_experts": EXPERTS, "num_classes": 2}
    found += [(cls, sizes, use_metric) for cls in METRICS.values()]
    found += [
        (dk.DenseExperts, bank, use_layer),
        (dk.TuckerExperts, bank, use_layer),
        (dk.Experts, template, use_layer),
        (dk.MoE, gated, use_layer),
        (dk.MMoE, gated, use_layer),
        (dk.CGC, gated, use_layer),
        (dk.SmearExperts, gated, use_layer),
        (dk.L2Constrained, gated, use_layer),
        (dk.CrossStitch, {}, use_layer_of_sequences),
        (dk.SoftMoE, gated, use_layer_of_sequences),
        (dk.Task, {"name": "click"}, use_task),
        (dk.build_multitask_model, {"inputs": DIM, "tasks": 2}, use_model),
        (routed_model, routed, use_model),
        (dk.Ramp, ramp, lambda schedule: [schedule(3)]),
        (dk.DecideGates, {}, use_callback),
        (dk.GateRecorder, {}, use_callback),
        (dk.Batches, {"data": (X, X), "batch_size": 2}, lambda data: [data[0][0]]),
    ]
    return found


ENTRIES = entries()


def known_arguments(function):
    """The names of the arguments, with those that base classes take as `**kwargs`."""
    names = []
    for cls in getattr(function, "__mro__", [function]):
        if cls.__module__.startswith("keras"):
            break
        parameters = inspect.signature(cls).parameters
        names += parameters
        if "kwargs" not in parameters:
            break
    return [name for name in dict.fromkeys(names) if name not in OF_KERAS]


def fault(function, arguments, use, names):
    """What is wrong with a call whose values of some arguments may be wrong."""
    try:
        made = {
            name: value() if callable(value) and name in {"experts", "gate"} else value
            for name, value in arguments.items()
        }
        for tensor in use(function(**made)):
            if not np.isfinite(numpy(tensor)).all():
                return "is not finite"
    except ValueError as error:
        if not any(name in str(error) for name in names):
            return f"has an error without the name: {error}"
    except Exception as error:  # noqa: BLE001
        return f"ends in {type(error).__name__}: {error}"
    return None


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch, tmp_path):
    """Have text that is taken for a path name a folder of the test."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("function", "arguments", "use"),
    ENTRIES,
    ids=[entry[0].__name__ for entry in ENTRIES],
)
def test_a_wrong_argument_is_refused_by_its_name(function, arguments, use):
    names = known_arguments(function)
    if "name" in arguments:
        names.append("name")
    arguments = {name: arguments[name] for name in names if name in arguments}
    assert fault(function, arguments, use, []) is None
    faults = [
        f"{name}={value!r} {found}"
        for name in names
        for value in VALUES
        if (found := fault(function, {**arguments, name: value}, use, [name]))
    ]
    assert not faults, "\n".join(faults)


OPTIONS = {
    "attentive": ["routing_network"],
    "cgc": ["num_task_experts"],
    "cross_stitch": ["initial_share"],
    "l2_constrained": ["strength"],
    "mmoe": ["routing_network", "dispatch", *OF_MODEL],
    "omoe": ["routing_network", "dispatch"],
    "ple": ["num_task_experts", "levels"],
    "tensor_factorization": ["ranks"],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", OPTIONS)
def test_a_wrong_option_of_an_architecture_is_refused_by_its_name(architecture):
    arguments = {"inputs": DIM, "tasks": 2, "architecture": architecture, "experts": 2}
    arguments["per_example"] = True
    faults = [
        f"{name}={value!r} {found}"
        for name in OPTIONS.get(architecture, ())
        for value in VALUES
        if (
            found := fault(
                dk.build_multitask_model, {**arguments, name: value}, use_model, [name]
            )
        )
    ]
    assert not faults, "\n".join(faults)
