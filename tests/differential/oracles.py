"""Build the model of a case, and compare two ways to the same numbers."""

import contextlib
import copy
import dataclasses
import json
import tempfile
from pathlib import Path

import keras
import numpy as np
from differential.cases import ARCHITECTURES, BATCH, DIM, LENGTH, NUM_GATES, Case
from helpers import numpy, value_and_gradients

import dselectk_keras
from dselectk_keras import RoutedModel, Task, build_multitask_model, condense, distill
from dselectk_keras import per_task as take_task

NAMES = {**vars(dselectk_keras), "keras": keras}
TOLERANCES = {"float32": 2e-4, "mixed_float16": 2e-2}


class Refused(Exception):
    """The package says why it cannot do what a case asks for."""


def build(case, **changes):
    """The compiled model of a case; its weights come from NumPy."""
    keras.utils.clear_session(free_memory=False)
    keras.config.set_dtype_policy(case.dtype)  # The session has forgotten it.
    keras.utils.set_random_seed(0)
    model = _architecture(case) if _is_built(case) else _of_layer(case, **changes)
    generator = np.random.default_rng(7)
    for variable in model.trainable_variables:
        variable.assign(generator.normal(size=variable.shape) * 0.7)
    if case.decides:
        decide(model, case)
    return model


def decide(model, case):
    """Train until all gates have decided."""
    x, y = split(case)
    callbacks = [dselectk_keras.DecideGates(by=0.5)]
    settings = {"batch_size": 3, "verbose": 0, "shuffle": False}
    model.fit(x, y, epochs=4, callbacks=callbacks, **settings)


def _is_built(case):
    return case.layer in ARCHITECTURES


def _architecture(case):
    tasks = [Task("a", tower=(3,)), Task("b", "binary", weight=2.0), Task("c")]
    gate, bank = eval(case.gate, NAMES), eval(case.bank, NAMES)
    model = build_multitask_model(
        DIM, tasks, case.layer, bank, gate, per_example=case.per_example
    )
    model.compile(_optimizer(case))
    return model


def _optimizer(case):
    if keras.backend.backend() == "jax" and "use_ema" in case.optimizer:
        # With it, the second `fit` of any model fails on JAX.
        return keras.optimizers.Adam(0.1)
    return eval(f"keras.optimizers.{case.optimizer}", NAMES)


def _of_layer(case, tokens=None, dispatch=None, compile=True):
    layer = _layer(case, case.dispatch if dispatch is None else dispatch)
    tokens = case.tokens if tokens is None else tokens
    shapes = {name: array.shape[1:] for name, array in data(case, tokens).items()}
    inputs = {
        name: keras.Input(
            shape, dtype={"ids": "int32", "mask": "bool"}.get(name), name=name
        )
        for name, shape in shapes.items()
        if name != "y"
    }
    outputs = call(layer, inputs)
    x = keras.layers.Concatenate()(outputs) if len(outputs) > 1 else outputs[0]
    if len(x.shape) > 2:
        x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(1, name="head")(x)
    model = RoutedModel(inputs, x, outputs_are="values")
    model.compile(_optimizer(case), "mse")
    return model


def _layer(case, dispatch):
    per_example = "by_gate" if case.routing == "per gate" else case.per_example
    settings = {"per_example": per_example, "name": "layer"}
    if case.layer in ("MoE", "MMoE"):
        settings |= {"dispatch": dispatch, "sum_features": case.sum_features}
    if case.layer in ("MMoE", "CGC"):
        settings["tasks"] = NUM_GATES
    if case.routing == "dense":
        settings["routing_network"] = keras.layers.Dense(4, "tanh")
    if case.routing == "pool":
        settings["routing_network"] = keras.layers.GlobalAveragePooling1D()
    gate, bank = eval(case.gate, NAMES), eval(case.bank, NAMES)
    name = "AttentiveMoE" if "AttentiveGate" in case.gate else case.layer
    return getattr(dselectk_keras, name)(bank, gate, **settings)


def call(layer, inputs, **settings):
    """Call a layer on a dict of inputs, and return a list of outputs."""
    routing = inputs.get("ids", inputs.get("v"))
    arguments = [inputs["x"]] if routing is None else [inputs["x"], routing]
    if "mask" in inputs:
        settings["mask"] = inputs["mask"]
        if "v" in inputs:
            settings["routing_inputs_mask"] = inputs["mask"]
    outputs = layer(*arguments, **settings)
    return keras.tree.flatten(outputs)


def data(case, tokens=None, padding=0.0):
    """The inputs of the model and its labels, as arrays."""
    generator = np.random.default_rng(1)
    size = (BATCH, LENGTH) if case.tokens else (BATCH,)
    found = {"x": generator.normal(size=(*size, DIM)).astype("float32")}
    if case.routing == "features":
        found["v"] = generator.normal(size=(*size, 2)).astype("float32")
    if case.routing == "per gate":
        found["v"] = generator.normal(size=(*size, NUM_GATES, 2)).astype("float32")
    if case.routing == "ids":
        lead = size[:1] if case.layer == "SmearExperts" else size
        found["ids"] = generator.integers(0, 3, (*lead, 1)).astype("int32")
    if case.masked:
        found["mask"] = np.arange(LENGTH) < generator.integers(1, LENGTH, (BATCH, 1))
        for name in ("x", "v"):
            if name in found:
                found[name][~found["mask"]] = padding
    if case.tokens and tokens is False:
        found = {k: v.reshape(-1, *v.shape[2:]) for k, v in found.items()}
    if not _is_built(case):
        found["y"] = generator.normal(size=(len(found["x"]), 1)).astype("float32")
        return found
    found["y"] = {
        name: (generator.normal(size=BATCH) > 0).astype("float32") for name in "abc"
    }
    if case.labels == "missing":
        found["y"]["a"][:2] = np.nan
        found["y"]["b"][:] = np.nan
    return found


def split(case, **changes):
    """The inputs as `fit` takes them, and the labels."""
    found = data(case, **changes)
    y = found.pop("y")
    return (found["x"] if _is_built(case) else found), y


def predicted(model, case):
    x, _ = split(case)
    outputs = model(x, training=False)
    return [numpy(each).astype("float32") for each in keras.tree.flatten(outputs)]


def step(model, case, times=1):
    """Train on one batch, and return all weights."""
    for _ in range(times):
        model.train_on_batch(*split(case))
    return weights(model)


def weights(model):
    """All weights of a model, which are all variables but the states of seeds."""
    return [numpy(each).astype("float32") for each in model.weights]


def copy_seeds(model, copy):
    """Give a copy the states of seeds, which files of Keras do not hold."""
    of_model, of_copy = (
        [v for v in each.non_trainable_variables if "seed_generator" in v.path]
        for each in (model, copy)
    )
    for old, new in zip(of_model, of_copy, strict=True):
        new.assign(numpy(old))  # On JAX, not its buffer, which a step deletes.


def same(first, second, case, what="values"):
    """Compare lists of arrays, relative to the largest number of each."""
    assert len(first) == len(second), f"{what}: {len(first)} and {len(second)}"
    tolerance = TOLERANCES[case.dtype]
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        scale = max(np.abs(b).max(initial=0), 1e-3)
        np.testing.assert_allclose(
            a, b, rtol=tolerance, atol=tolerance * scale, err_msg=f"{what} {i}"
        )


def mixture(case):
    layer, arrays = build(case).get_layer("layer"), data(case)
    found = [numpy(each) for each in call(layer, arrays, training=False)]
    axes = layer.num_routed_axes if case.per_example else 1
    x = arrays["x"].reshape(-1, *arrays["x"].shape[axes:])
    outputs = numpy(layer.experts(x)).astype("float32")
    if case.sum_features:
        outputs = outputs.sum(axis=-1, keepdims=True)
    gates = 1 if layer.gate.num_gates is None else layer.gate.num_gates
    seen = _weights_of_rows(layer, arrays, case)
    seen = np.broadcast_to(
        seen.reshape(-1, gates, seen.shape[-1]), (len(x), gates, seen.shape[-1])
    )
    expected = np.einsum("bgn,bn...->gb...", seen, outputs)
    lead = arrays["x"].shape[:axes]
    expected = [each.reshape(*lead, *each.shape[1:]) for each in expected]
    if case.masked and axes == 2:
        keep = arrays["mask"]
        found, expected = ([e[keep] for e in each] for each in (found, expected))
    same(found, expected, case)


def _weights_of_rows(layer, arrays, case):
    """The weights of the layer; of a pooled sequence, those without its padding."""
    if not case.per_example:
        return numpy(layer.expert_weights())
    routing = arrays.get("ids", arrays.get("v"))
    if case.routing != "pool" or not case.masked:
        return numpy(layer.expert_weights(arrays["x"], routing))
    rows = zip(arrays["x"], arrays["mask"], strict=True)
    return np.concatenate(
        [numpy(layer.expert_weights(row[keep][None])) for row, keep in rows]
    )


def dispatch(case):
    same(
        predicted(build(case), case), predicted(build(case, dispatch=False), case), case
    )


def tokens(case):
    whole, flat = build(case), build(case, tokens=False)
    whole, flat = whole.get_layer("layer"), flat.get_layer("layer")
    for a, b in zip(flat.weights, whole.weights, strict=True):
        if "seed" not in a.name:
            a.assign(b)
    a = call(whole, data(case), training=False)
    b = call(flat, data(case, tokens=False), training=False)
    b = [numpy(each).reshape(each_a.shape) for each, each_a in zip(b, a, strict=True)]
    same([numpy(each) for each in a], b, case)


def padding(case):
    def of(number):
        layer, arrays = build(case).get_layer("layer"), data(case, padding=number)

        def compute():
            outputs = call(layer, arrays, training=True)
            routed = getattr(layer, "num_routed_axes", 1) > 1
            keep = list(outputs)
            if not routed and len(outputs[0].shape) > 2:
                mask = keras.ops.convert_to_tensor(arrays["mask"][..., None], "float32")
                if case.layer == "CGC":  # Its outputs have an axis for the tasks.
                    mask = mask[:, None]
                keep = [keras.ops.cast(o, "float32") * mask for o in outputs]
            losses = sum(map(keras.ops.sum, layer.losses))
            total = sum(keras.ops.sum(keras.ops.square(o)) for o in keep)
            total = keras.ops.cast(total, "float32")
            return [total + losses, losses + 0.0 * total]

        state = layer.non_trainable_variables
        return value_and_gradients(compute, layer.trainable_variables, state)

    (values, gradients), (others, more) = of(0.0), of(37.0)
    same(values, others, case, "losses")
    same(gradients, more, case, "gradients")


def permutation(case):
    model, (x, _) = build(case), split(case)
    order = np.random.default_rng(2).permutation(BATCH)
    first = predicted(model, case)
    outputs = model(keras.tree.map_structure(lambda a: a[order], x), training=False)
    second = [numpy(each).astype("float32") for each in keras.tree.flatten(outputs)]
    same([each[order] for each in first], second, case)


def config(case):
    model = build(case)
    again = type(model).from_config(model.get_config())
    a, b = (
        json.dumps(_plain(each.get_config()), sort_keys=True, default=str)
        for each in (model, again)
    )
    assert a == b, "the config differs after from_config"


def _plain(config):
    """A config without build shapes, which a layer only has once it is built."""
    if isinstance(config, dict):
        return {k: _plain(v) for k, v in config.items() if k != "build_config"}
    if isinstance(config, (list, tuple)):
        return [_plain(each) for each in config]
    return config


def saved(case):
    model = build(case)
    step(model, case)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.keras")
        model.save(path)
        again = keras.saving.load_model(path)
    copy_seeds(model, again)
    same(predicted(again, case), predicted(model, case), case, "loaded")
    copy_seeds(model, again)
    same(step(again, case), step(model, case), case, "after one more step")


def weights_file(case):
    model = build(case)
    step(model, case)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.weights.h5")
        model.save_weights(path)
        again = build(case)
        again.load_weights(path)
    copy_seeds(model, again)
    same(predicted(again, case), predicted(model, case), case)


def compiled(case):
    first, second = build(case), build(case)
    second.run_eagerly = True
    same(step(first, case, 2), step(second, case, 2), case)


def copied(case):
    model = build(case)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    same(predicted(clone, case), predicted(model, case), case, "cloned")
    same(predicted(copy.deepcopy(model), case), predicted(model, case), case, "copied")


def distilled(case):
    model = build(case)
    student = distill(model, eval(case.gate, NAMES))
    same(predicted(student, case), predicted(model, case), case)


CONDENSES = ("MoE", "MMoE", "omoe", "mmoe")


def decided(case):
    model, (x, y) = build(case), split(case)
    if not case.decides:
        decide(model, case)
    gates = [g for g in model._flatten_layers() if hasattr(g, "has_decided")]
    assert all(gate.has_decided for gate in gates)
    if case.per_example:
        return
    before = [gate.chosen_experts().choices for gate in gates]
    if case.layer in CONDENSES and "Tucker" not in case.bank:
        small = condense(model)
        same(predicted(small, case), predicted(model, case), case, "condensed")
    model.fit(x, y, batch_size=3, epochs=2, verbose=0)
    same(before, [g.chosen_experts().choices for g in gates], case, "choices")


def per_task(case):
    model, (x, _) = build(case), split(case)
    if "DSelectK" in case.gate and not case.decides:
        decide(model, case)
    whole = model(x, training=False)
    for name in "abc":
        alone = take_task(model, name)(x, training=False)
        same([numpy(alone[name])], [numpy(whole[name])], case, name)


def torch_parameters(case):
    if keras.backend.backend() != "torch":
        return
    model = build(case)
    step(model, case)
    held = {id(each) for each in model.parameters()}
    missing = [v.path for v in model.trainable_variables if id(v.value) not in held]
    assert not missing, f"not in model.parameters(): {missing}"


def steps_per_execution(case):
    if keras.backend.backend() == "torch":
        return
    (x, y), models = split(case), [build(case), build(case)]
    for model, steps in zip(models, (1, 2), strict=True):
        model.steps_per_execution = steps
        model.make_train_function(force=True)  # It has one if its gates have decided.
        model.fit(x, y, batch_size=3, epochs=2, verbose=0, shuffle=False)
    same(*([numpy(v) for v in m.trainable_variables] for m in models), case)


def sample_weight(case):
    (x, y), models = split(case), [build(case), build(case)]
    models[0].train_on_batch(x, y)
    ones = keras.tree.map_structure(lambda a: np.ones(len(a), "float32"), y)
    models[1].train_on_batch(x, y, sample_weight=ones)
    same(*([numpy(v) for v in m.trainable_variables] for m in models), case)


def replicas(case):
    if keras.backend.backend() != "jax":
        return
    devices = keras.distribution.list_devices("cpu")[:2]
    alone = step(build(case), case, 2)
    with keras.distribution.DataParallel(devices=devices).scope():
        together = step(build(case), case, 2)
    same(together, alone, case, f"on {len(devices)} devices")


def exported(case):
    if keras.backend.backend() != "tensorflow":
        return  # The only backend that exports to all formats.
    import tensorflow as tf

    model, (x, _) = build(case), split(case)
    step(model, case)
    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, verbose=False)
        loaded = tf.saved_model.load(folder)
        outputs = loaded.serve(keras.tree.map_structure(tf.convert_to_tensor, x))
    found = [numpy(each).astype("float32") for each in keras.tree.flatten(outputs)]
    same(found, predicted(model, case), case)


# Words of the package's own errors about what cannot be right, or is not possible.
CLEAR = ("Received", "cannot", "needs", "must")


def run_case(case):
    """Judge a case by its oracle: nothing if it is right, `Refused`, or an error."""
    with dtype_policy(case.dtype):
        try:
            build(case)
        except ValueError as error:
            if any(word in str(error) for word in CLEAR):
                raise Refused(str(error)) from error
            raise
        globals()[case.oracle](case)


@contextlib.contextmanager
def dtype_policy(name):
    """Keras saves the policy of a model neither in its config nor in its file."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


# Gates and banks that draw numbers in training, which differ between backends.
DRAWING = ("Gumbel", "Random", "Reinforce", "noise", "dropout")
# What the backends do not have alike.
UNEQUAL = (*DRAWING, "LatentSkills", "use_ema")


def values(case, expected=None):
    """What a model predicts, and its weights after two steps; compared if given.

    Nothing of a case that draws numbers, or has no equal on JAX.
    """
    if any(name in case.gate + case.bank + case.optimizer for name in UNEQUAL):
        return []
    with dtype_policy(case.dtype):
        model = build(case)
        found = [*predicted(model, case), *step(model, case, 2)]
    if expected is not None:
        same(found, expected, case)
    return found


def as_lines(case):
    """Python that runs a case again, from the folder `tests`."""
    fields = [
        f"{field.name}={getattr(case, field.name)!r}"
        for field in dataclasses.fields(case)
        if getattr(case, field.name) != field.default
    ]
    return "\n".join(
        [
            "from differential.cases import Case",
            "from differential.oracles import run_case",
            "run_case(Case(",
            *(f"    {field}," for field in fields),
            "))",
        ]
    )


__all__ = ["Case", "Refused", "as_lines", "run_case", "values"]
