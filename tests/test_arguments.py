"""Each argument takes a value with which the object works, or refuses it by name.

The tests draw N wrong calls of public classes and functions. To draw more:
`N=1000 SEED=1 KERAS_BACKEND=torch python -m pytest tests/test_arguments.py`.
"""

import functools
import inspect
import math
import os
import random
import re
import types

import keras
import numpy as np
import pytest
from gate_cases import all_cases, router_inputs
from helpers import numbers, numpy

import dselectk_keras as dk
from dselectk_keras.gates import GATES
from dselectk_keras.models.build import OF_MODEL

pytestmark = pytest.mark.backend_independent
N, SEED = int(os.environ.get("N", "100")), os.environ.get("SEED", "0")
BATCH, DIM, UNITS, EXPERTS = 4, 3, 2, 4
NAN, INFINITY = float("nan"), float("inf")
VALUES = ("a", "false", None, NAN, INFINITY, -1, 0, 1.5, 2**70, True, object())
VALUES += ([], {}, [1, "a"])
X = numbers((BATCH, DIM))
# The options of an architecture have a test of their own.
OF_KERAS = {"args", "kwargs", "options", "verbose"}
# Matplotlib takes anything as a text.
OF_KERAS |= {"ax", "label", "title", "x_label", "y_label"}
# Other names of an argument in errors.
SAID = {"experts": "experts|template|num_experts"}
# Values of another type get the error of Keras.
TENSORS = {"inputs", "labels", "routing_inputs", "sample_weight", "weights", "x", "y"}
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
    return [mixed, gate.expert_weights(router_inputs(**inputs)), *gate.losses]


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
    return dk.baselines.RoutedModel(inputs, outputs, **settings)


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
    weights = {"weight": 0.1, "beta_s": 1.0, "beta_d": 1.0}
    names = [name for name in dk.regularizers.__all__ if hasattr(dk, name)]
    found += [(getattr(dk, name), weights, use_regularizer) for name in names]
    sizes = {"num_experts": EXPERTS, "num_classes": 2}
    found += [
        (cls, sizes, use_metric)
        for cls in map(vars(dk.metrics).get, dk.metrics.__all__)
        if isinstance(cls, type) and issubclass(cls, keras.Metric)
    ]
    layers = [dk.MoE, dk.MMoE, dk.CGC, dk.SmearExperts, dk.baselines.L2Constrained]
    found += [
        (dk.DenseExperts, bank, use_layer),
        (dk.baselines.TuckerExperts, bank, use_layer),
        (dk.Experts, template, use_layer),
        *((layer, gated, use_layer) for layer in layers),
        (dk.baselines.CrossStitch, {}, use_layer_of_sequences),
        (dk.baselines.SoftMoE, gated, use_layer_of_sequences),
        (dk.Task, {"name": "click"}, use_task),
        (dk.build_multitask_model, {"inputs": DIM, "tasks": 2}, use_model),
        (routed_model, routed, use_model),
        (dk.Ramp, ramp, lambda schedule: [schedule(3)]),
        (dk.DecideGates, {}, use_callback),
        (dk.ChooseExperts, {"x": X, "y": X[:, :2]}, use_callback),
        (dk.GateRecorder, {}, use_callback),
        (
            dk.batches.Batches,
            {"data": (X, X), "batch_size": 2},
            lambda data: [data[0][0]],
        ),
    ]
    return found


def multitask_model(tasks, label_average, task_weighting):
    inputs = keras.Input((DIM,))
    outputs = {"a": keras.layers.Dense(1)(inputs)}
    settings = {"label_average": label_average, "task_weighting": task_weighting}
    return dk.MultitaskModel(inputs, outputs, tasks=tasks, **settings)


def sparse_model():
    model = dk.build_multitask_model(DIM, ["a"], experts=2, gate=dk.TopKGate(1))
    model.compile("sgd", run_eagerly=True)
    return model


def compiled_model(seed, **settings):
    model = keras.Sequential([keras.Input((DIM,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    return model


def use_numbers(result):
    """Minus infinity is the logit of an expert that is not kept."""
    return [keras.ops.maximum(keras.ops.convert_to_tensor(result), -1e9)]


def use_nothing(_):
    return []


def use_splits(made):
    return [*made.train, *made.test]


def use_figure(axes):
    import matplotlib.pyplot as plt

    plt.close("all")
    return []


def entry(function, use=use_nothing, names=None, **arguments):
    """As in `entries`, with the names of the arguments to vary; `None` is all."""
    return function, arguments, use, names


def functions():
    weights, ones = np.full((BATCH, EXPERTS), 0.25, "float32"), np.ones((BATCH, 1))
    data, plots, condensed = dk.datasets, dk.plots, {"model": sparse_model()}
    split = data.Split(X, ones)
    parts = {"train": split, "validation": split, "test": split}
    kinds = {"task_names": ("a",), "task_kinds": ("regression",)}
    sizes = {"num_train": 4, "num_validation": 2, "num_test": 2}
    simulated = [data.correlated_tasks, data.grouped_tasks]
    simulated += [data.expert_recovery, data.recommender_sim]
    sets = [
        *((function, sizes) for function in simulated),
        (data.synthetic_moe, {**sizes, "num_tasks": 16}),
        (data.load, {"name": "expert_recovery"}),
        (data.Dataset, {**parts, **kinds}),
    ]
    labels = {"x": X, "y": ones, "sample_weight": ones[:, 0]}
    build = functools.partial(compiled_model)  # Not called by `fault`.
    replicas = {"build": build, "data": (X, ones), "seeds": [1], "verbose": 0}
    losses = {"label_average": "batch", "task_weighting": None}
    return [
        entry(dk.ops.binary_codes, use_numbers, num_experts=EXPERTS),
        entry(dk.ops.keep_largest, use_numbers, ["k"], weights=weights, k=2),
        entry(dk.ops.keep_top_k, use_numbers, ["k"], logits=weights, k=2),
        entry(dk.ops.smooth_step, use_numbers, ["gamma"], x=weights, gamma=1.0),
        *(entry(function, use_splits, **own) for function, own in sets),
        entry(dk.metrics.active_experts, weights=weights),
        entry(dk.metrics.jaccard_index, weights=weights),
        entry(dk.gates.get, use_gate, ["name"], name="softmax"),
        entry(dk.condense, use_model, **condensed),
        entry(dk.per_task, use_model, **condensed, name="a"),
        entry(dk.distill, use_model, **condensed, gate=dk.SoftmaxGate()),
        entry(dk.check_labels, **condensed, **labels),
        entry(multitask_model, use_model, tasks=[dk.Task("a")], **losses),
        entry(dk.replicate, **replicas),
        entry(dk.GateHistory),
        entry(plots.plot_curves, use_figure, curves={"a": ([0, 1], [2, 3])}),
        entry(plots.plot_runs, use_figure, values={"a": [1.0, 2.0]}),
        entry(plots.plot_expert_heatmap, use_figure, weights=weights),
        entry(plots.plot_gate_weights, use_figure, steps=[0, 1], weights=LINES),
    ]


LINES = np.ones((2, 3)) / 3
ENTRIES = [(*each, None) for each in entries()] + functions()


def parameters(function):
    """The arguments by name, with those that base classes take as `**kwargs`."""
    found = {}
    for cls in getattr(function, "__mro__", [function]):
        if cls.__module__.startswith("keras"):
            break
        own = inspect.signature(cls).parameters
        found = {**own, **found}
        if "kwargs" not in own:
            break
    return {name: each for name, each in found.items() if name not in OF_KERAS}


def is_wrong(annotation, value):
    """Check whether a value is certainly wrong for an argument of a type."""
    if annotation is float:
        return not isinstance(value, (int, float)) or math.isnan(value)
    kinds = {bool: int, int: int, str: str}
    return annotation in kinds and not isinstance(value, kinds[annotation])


def fault(function, arguments, use, name=None, value=None):
    """The fault of a call, of which one argument has a drawn value."""
    made = {
        key: each() if isinstance(each, (type, types.FunctionType)) else each
        for key, each in arguments.items()
    }
    if name is not None:
        made[name] = value
    try:
        for tensor in use(function(**made)):
            if not np.isfinite(numpy(tensor)).all():
                return "is not finite"
    except (TypeError, ValueError) as error:
        said = rf"\b({SAID.get(name, name)})\b"
        if name not in TENSORS and not (name and re.search(said, str(error))):
            return f"has an error without the name: {type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001
        return f"ends in {type(error).__name__}: {error}"
    else:
        known = parameters(function).get(name)
        return "passes" if known and is_wrong(known.annotation, value) else None
    return None


def drawn_faults(key, function, arguments, use, names):
    """The faults of some drawn calls; of all, if there are fewer."""
    calls = [(name, value) for name in names for value in VALUES]
    number = min(len(calls), -(-N // len(ENTRIES)))
    return "\n".join(
        f"{name}={value!r} {found}"
        for name, value in random.Random(SEED + key).sample(calls, number)
        if (found := fault(function, arguments, use, name, value))
    )


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch, tmp_path):
    """Have text that is taken for a path name a folder of the test."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("function", "arguments", "use", "names"),
    ENTRIES,
    ids=[each[0].__name__ for each in ENTRIES],
)
def test_a_wrong_argument_is_refused_by_its_name(function, arguments, use, names):
    known = parameters(function)
    names = names or [key for key in known if key != "name" or key in arguments]
    known = {*known, *names, "verbose"}
    arguments = {key: each for key, each in arguments.items() if key in known}
    assert fault(function, arguments, use) is None
    found = drawn_faults(function.__name__, function, arguments, use, names)
    assert not found, found


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
    build, names = dk.build_multitask_model, OPTIONS[architecture]
    found = drawn_faults(architecture, build, arguments, use_model, names)
    assert not found, found
