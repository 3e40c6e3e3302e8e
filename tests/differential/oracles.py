"""Build the model of a case, and compare two ways to the same numbers."""

import copy
import dataclasses
import math
import tempfile
from fractions import Fraction
from pathlib import Path

import keras
import numpy as np
from checks import assert_close
from differential.cases import (
    ARCHITECTURES,
    DECIDE,
    DIM,
    LENGTH,
    NUM_GATES,
    Case,
    num_padded,
)
from helpers import cloned, dtype_policy, numpy, reloaded, value_and_gradients

import dselectk_keras as dk
from dselectk_keras import baselines
from dselectk_keras import per_task as take_task

NAMES = {**vars(baselines), **vars(dk), "keras": keras}
TOLERANCES = {"float32": 2e-4, "mixed_float16": 2e-2}
OTHER_POLICY = {"float32": "mixed_float16", "mixed_float16": "float32"}


class Refused(Exception):
    """The package says why it cannot do what a case asks for."""


def build(case, **changes):
    """The compiled model of a case; its weights come from NumPy."""
    keras.utils.clear_session(free_memory=False)
    keras.config.set_dtype_policy(case.dtype)  # The session has forgotten it.
    keras.utils.set_random_seed(0)
    model = initial(case, **changes)
    generator = np.random.default_rng(7)
    for variable in model.trainable_variables:
        variable.assign(generator.normal(size=variable.shape) * 0.7)
    if case.decides:
        decide(model, case)
    return model


def initial(case, **changes):
    """The compiled model of a case, with the weights of its initializers."""
    model = _architecture(case) if _is_built(case) else _of_layer(case, **changes)
    compile_model(model, case)
    return model


def compile_model(model, case):
    settings = {} if _is_built(case) else {"loss": "mse"}
    if case.jit and keras.backend.backend() == "tensorflow":
        settings["jit_compile"] = True
    model.compile(_optimizer(case), **settings)


def decide(model, case):
    """Train until all gates have decided."""
    x, y = split(case)
    settings = {"batch_size": 3, "verbose": 0, "shuffle": False}
    model.fit(x, y, epochs=4, callbacks=[dk.DecideGates(by=0.5)], **settings)


def gates_of(model):
    return [each for each in model._flatten_layers() if hasattr(each, "has_decided")]


def _is_built(case):
    return case.layer in ARCHITECTURES


def _parts(case):
    """The gate and the bank of a case."""
    names = {**NAMES, "n": case.experts}
    return eval(case.gate, names), eval(case.bank, names)


def _architecture(case):
    tasks = [dk.Task("a", tower=(3,)), dk.Task("b", "binary", weight=2.0), dk.Task("c")]
    gate, bank = _parts(case)
    inputs = (LENGTH, DIM) if case.tokens else DIM
    settings = {"per_example": case.per_example}
    if case.layer in ("cgc", "ple"):
        settings["num_task_experts"] = case.task_experts
    return dk.build_multitask_model(inputs, tasks, case.layer, bank, gate, **settings)


def _optimizer(case):
    if keras.backend.backend() == "jax" and "use_ema" in case.optimizer:
        # With it, the second `fit` of any model fails on JAX.
        return keras.optimizers.Adam(0.1)
    return eval(f"keras.optimizers.{case.optimizer}", NAMES)


def _of_layer(case, tokens=None, dispatch=None):
    layer = _layer(case, case.dispatch if dispatch is None else dispatch)
    tokens = case.tokens if tokens is None else tokens
    shapes = {name: array.shape[1:] for name, array in data(case, tokens).items()}
    dtypes = {"ids": "int32", "mask": "bool"}
    inputs = {
        name: keras.Input(shape, dtype=dtypes.get(name), name=name)
        for name, shape in shapes.items()
        if name != "y"
    }
    outputs = call(layer, inputs)
    x = keras.layers.Concatenate()(outputs) if len(outputs) > 1 else outputs[0]
    if len(x.shape) > 2:
        x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(1, name="head")(x)
    return dk.baselines.RoutedModel(inputs, x, outputs_are="values")


def _layer(case, dispatch, gate=None):
    per_example = "by_gate" if case.routing == "per gate" else case.per_example
    settings = {"per_example": per_example, "name": "layer"}
    if case.layer in ("MoE", "MMoE"):
        settings |= {"dispatch": dispatch, "sum_features": case.sum_features}
        settings["side_by_side"] = case.side_by_side
    if case.layer in ("MMoE", "CGC"):
        settings["tasks"] = NUM_GATES
    if case.layer == "CGC":
        settings["num_task_experts"] = case.task_experts
    if case.routing == "dense":
        settings["routing_network"] = keras.layers.Dense(4, "tanh")
    if case.routing == "pool":
        settings["routing_network"] = keras.layers.GlobalAveragePooling1D()
    own, bank = _parts(case)
    gate = gate or own
    if case.layer == "SmearExperts" and case.routing == "per gate":
        gate = gate.with_num_gates(NUM_GATES)
    name = "AttentiveMoE" if "AttentiveGate" in case.gate else case.layer
    return NAMES[name](bank, gate, **settings)


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
    size = (case.batch, LENGTH) if case.tokens else (case.batch,)
    found = {"x": generator.normal(size=(*size, DIM)).astype("float32")}
    if case.routing == "features":
        found["v"] = generator.normal(size=(*size, 2)).astype("float32")
    if case.routing == "per gate":
        found["v"] = generator.normal(size=(*size, NUM_GATES, 2)).astype("float32")
    if case.routing == "ids":
        lead = size[:1] if case.layer == "SmearExperts" else size
        found["ids"] = generator.integers(0, 3, (*lead, 1)).astype("int32")
    if case.oracle == "capacity":
        # Nearly equal examples choose one expert, which is then full.
        alike = {k: v[:1] + v / 3 for k, v in found.items() if k != "ids"}
        found = {**found, **{k: v.astype("float32") for k, v in alike.items()}}
    if case.masked:
        lengths = generator.integers(1, LENGTH, (case.batch, 1))
        if case.tokens and case.mask_axes == 2:
            found["mask"] = np.arange(LENGTH) < lengths
        else:
            padded = 2 if case.tokens else num_padded(case.batch)
            found["mask"] = np.arange(case.batch) >= padded
        for name in ("x", "v"):
            if name in found:
                found[name][~found["mask"]] = padding
    if case.tokens and tokens is False:
        found = {k: v.reshape(-1, *v.shape[2:]) for k, v in found.items()}
    if not _is_built(case):
        found["y"] = generator.normal(size=(len(found["x"]), 1)).astype("float32")
        return found
    signs = {name: generator.normal(size=case.batch) > 0 for name in "abc"}
    found["y"] = {name: each.astype("float32") for name, each in signs.items()}
    if case.labels == "missing":
        found["y"]["a"][:2] = np.nan
        found["y"]["b"][:-1] = np.nan  # A whole batch of them.
    return found


def split(case, **changes):
    """The inputs as `fit` takes them, and the labels."""
    found = data(case, **changes)
    y = found.pop("y")
    return (found["x"] if _is_built(case) else found), y


def predicted(model, case):
    x, _ = split(case)
    return arrays_of(model(x, training=False))


def arrays_of(outputs):
    return [numpy(each).astype("float32") for each in keras.tree.flatten(outputs)]


def step(model, case, times=1):
    """Train on one batch, and return all weights."""
    restart_dropout()
    for _ in range(times):
        model.train_on_batch(*split(case))
    return all_weights(model)


def restart_dropout():
    """On torch, Keras' dropout without a seed draws from the generator of torch."""
    keras.utils.set_random_seed(0)


def all_weights(model):
    """All weights of a model, which are all variables but the states of seeds."""
    return arrays_of(model.weights)


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
        atol = tolerance * max(np.abs(b).max(initial=0), 1e-3)
        assert_close(a, b, rtol=tolerance, atol=atol, err_msg=f"{what} {i}")


def mixture(case):
    layer, arrays = build(case).get_layer("layer"), data(case)
    found = [numpy(each) for each in call(layer, arrays, training=False)]
    outputs, seen = _outputs_and_weights(layer, arrays, case)
    expected = np.einsum("bgn,bn...->gb...", seen, outputs)
    if case.side_by_side:
        choices = numpy(layer.gate.choices)
        choices = choices.reshape(-1, choices.shape[-1])
        chosen = [[outputs[:, i] for i in row] for row in choices]
        expected = [np.concatenate(row, axis=-1) for row in chosen]
    _same_rows(found, expected, arrays, case)


def capacity(case):
    model, arrays = build(case), data(case)
    layer, (x, _) = model.get_layer("layer"), split(case)
    found = [numpy(each) for each in call(layer, arrays, training=False)]
    outputs, seen = _outputs_and_weights(layer, arrays, case)
    valid = arrays.get("mask", np.ones(len(seen), bool)).ravel()
    used = (seen != 0).any(axis=1) & valid[:, None]
    chosen = min(case.experts, layer.gate.max_experts() * seen.shape[1])
    share = Fraction(str(case.dispatch)) * int(valid.sum()) * chosen / case.experts
    kept = used & (np.cumsum(used, axis=0) <= math.ceil(share))
    expected = np.einsum("bgn,bn...->gb...", seen * kept[:, None], outputs)
    _same_rows(found, expected, arrays, case)
    dropped = int(numpy(layer.num_dropped))
    assert dropped == used.sum() - kept.sum(), f"{dropped} choices dropped"
    model = keras.Model(model.inputs, layer.output)
    found = model.predict(x, batch_size=case.batch, verbose=0)
    _same_rows(keras.tree.flatten(found), expected, arrays, case)


def _outputs_and_weights(layer, arrays, case):
    """The outputs of all experts, and their weights, `(rows, gates, n)`."""
    axes = layer.num_routed_axes if case.per_example else 1
    x = arrays["x"].reshape(-1, *arrays["x"].shape[axes:])
    outputs = numpy(layer.experts(x)).astype("float32")
    if case.sum_features:
        outputs = outputs.sum(axis=-1, keepdims=True)
    seen = _weights_of_rows(layer, arrays, case)
    seen = seen.reshape(-1, layer.gate.num_gates or 1, seen.shape[-1])
    return outputs, np.broadcast_to(seen, (len(x), *seen.shape[1:]))


def _same_rows(found, expected, arrays, case):
    """Compare the rows of each gate that are no padding."""
    found = [a.reshape(b.shape) for a, b in zip(found, expected, strict=True)]
    if case.masked and len(expected[0]) == arrays["mask"].size:
        keep = arrays["mask"].ravel()
        found, expected = ([each[keep] for each in part] for part in (found, expected))
    same(found, [*expected], case)


def _weights_of_rows(layer, arrays, case):
    """The weights of the layer; of a pooled sequence, those without its padding."""
    if not case.per_example:
        return numpy(layer.expert_weights())
    routing = arrays.get("ids", arrays.get("v"))
    if case.routing != "pool" or not case.masked:
        return numpy(layer.expert_weights(arrays["x"], routing))
    pairs = zip(arrays["x"], arrays["mask"], strict=True)
    rows = (row[keep][None] for row, keep in pairs)
    return np.concatenate([numpy(layer.expert_weights(row)) for row in rows])


def dispatch(case):
    models = build(case), build(case, dispatch=False)
    same(*(predicted(model, case) for model in models), case)


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


def all_tokens(case):
    model, (x, _) = build(case), split(case)
    before = predicted(model, case)
    for place in range(LENGTH):
        changed = x.copy()
        changed[:, place] += 1.0
        after = [numpy(each) for each in keras.tree.flatten(model(changed))]
        for name, a, b in zip("abc", before, after, strict=True):
            assert np.abs(a - b).max() > 1e-6, f"task {name} ignores token {place}"


def padding(case):
    def of(number):
        layer, arrays = build(case).get_layer("layer"), data(case, padding=number)

        def compute():
            outputs = call(layer, arrays, training=True)
            routed = getattr(layer, "num_routed_axes", 1) > 1
            keep = list(outputs)
            if not routed and len(outputs[0].shape) > 2:
                mask = arrays["mask"].reshape(case.batch, -1, 1)
                mask = keras.ops.convert_to_tensor(mask, "float32")
                if len(outputs[0].shape) > 3:  # An axis for the gates.
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
    order = np.random.default_rng(2).permutation(case.batch)
    first = predicted(model, case)
    x = keras.tree.map_structure(lambda a: a[order], x)
    second = arrays_of(model(x, training=False))
    same([each[order] for each in first], second, case)


def saved(case):
    model = build(case)
    step(model, case)
    with tempfile.TemporaryDirectory() as folder:
        again = reloaded(model, Path(folder))
        with dtype_policy(OTHER_POLICY[case.dtype]):
            elsewhere = keras.saving.load_model(Path(folder) / "model.keras")
    for each, what in ((again, "loaded"), (elsewhere, "loaded under another policy")):
        copy_seeds(model, each)
        same(predicted(each, case), predicted(model, case), case, what)
    copy_seeds(model, again)
    same(step(again, case), step(model, case), case, "after one more step")


def compiled(case):
    (x, y), models = split(case), [build(case), build(case)]
    models[1].run_eagerly = True
    # The last batch has another size.
    settings = {"batch_size": 4, "verbose": 0}
    for model in models:
        model.make_train_function(force=True)  # It has one if its gates have decided.
        restart_dropout()
        model.fit(x, y, epochs=2, shuffle=False, **settings)
    same(*map(all_weights, models), case)
    losses = [model.evaluate(x, y, **settings) for model in models]
    same(*[np.atleast_1d(each) for each in losses], case, "evaluated")
    copy_seeds(*models)
    found = [keras.tree.flatten(model.predict(x, **settings)) for model in models]
    same(*found, case, "predicted")


def copied(case):
    model = build(case)
    same(predicted(cloned(model), case), predicted(model, case), case, "cloned")
    same(predicted(copy.deepcopy(model), case), predicted(model, case), case, "copied")


def distilled(case):
    model = build(case)
    student = dk.distill(model, _parts(case)[0])
    if not case.decides:  # A decision begins anew.
        same(predicted(student, case), predicted(model, case), case)
    # A gate with other logits begins anew, and decides for itself.
    if not isinstance(case.dispatch, (bool, str)):
        return  # A capacity needs a gate that is sparse from the first step.
    other = dk.DSelectKGate(3, unreachable=1e-4, seed=0)
    student = dk.distill(model, other, freeze_experts=False)
    for gate in gates_of(student):
        assert not gate.has_decided, "decided before any training"
        assert int(gate.step) == 0, f"begins at step {int(gate.step)}"
    compile_model(student, case)
    decide(student, case)
    _check_decided(student, case)


def decided(case):
    model, (x, y) = build(case), split(case)
    if not case.decides:
        decide(model, case)
    _check_decided(model, case)
    if case.per_example:
        return
    before = [gate.chosen_experts().choices for gate in gates_of(model)]
    for optimizer in (case.optimizer, DECAY):
        if optimizer == DECAY:
            compile_model(model, dataclasses.replace(case, optimizer=DECAY))
        model.fit(x, y, batch_size=3, epochs=2, verbose=0)
        _check_decided(model, case)
        after = [gate.chosen_experts().choices for gate in gates_of(model)]
        same(before, after, case, f"choices after {optimizer}")


# A weight without a gradient becomes 0 in one step.
DECAY = "SGD(0.1, weight_decay=10.0)"
CONDENSES = ("MoE", "MMoE", "omoe", "mmoe")


def _check_decided(model, case):
    """Check that all gates have decided, and condensing changes nothing."""
    assert all(gate.has_decided for gate in gates_of(model)), "not decided"
    if case.layer in CONDENSES and not case.per_example and "Tucker" not in case.bank:
        small = dk.condense(model)
        same(predicted(small, case), predicted(model, case), case, "condensed")


def per_task(case):
    model, (x, _) = build(case), split(case)
    if case.gate.startswith(DECIDE) and not case.decides:
        decide(model, case)
    whole = predicted(model, case)
    same(predicted(dk.condense(model), case), whole, case, "condensed")
    for name, outputs in zip("abc", whole, strict=True):
        alone = take_task(model, name)(x, training=False)
        same([numpy(alone[name])], [outputs], case, name)


def apart(case):
    """Inputs of one gate move no other gate, nor labels of one task another task."""
    model = build(case)
    if _is_built(case):
        _labels_apart(model, case)
        return
    layer, arrays = model.get_layer("layer"), data(case)
    before = _of_each_gate(layer, arrays)
    arrays["v"][..., 1, :] *= -1.5
    after = _of_each_gate(layer, arrays)
    same(after[::2], before[::2], case, "other gates")
    if "SoftmaxGate" in case.gate:
        assert np.abs(after[1] - before[1]).max() > 1e-6, "the gate ignores its inputs"


def _of_each_gate(layer, arrays):
    """The outputs of each gate, and its weights, in one array."""
    outputs = [numpy(each) for each in call(layer, arrays, training=False)]
    if len(outputs) == 1:
        outputs = [*np.moveaxis(outputs[0], 1, 0)]
    weights = numpy(layer.expert_weights(arrays["x"], arrays["v"]))
    return [
        np.concatenate([np.ravel(own), np.ravel(weights[..., gate, :])])
        for gate, own in enumerate(outputs)
    ]


def _labels_apart(model, case):
    x, y = split(case)
    settings = {"batch_size": case.batch, "return_dict": True, "verbose": 0}
    logs = [model.evaluate(x, y, **settings)]
    logs.append(model.evaluate(x, {**y, "b": 1.0 - y["b"]}, **settings))
    of_all = "loss", "task_loss"
    others = [k for k in logs[0] if k not in of_all and not k.startswith("b_")]
    assert others, "no numbers of other tasks"
    same(*([np.array(log[name]) for name in others] for log in logs), case, "others")
    assert logs[0]["b_loss"] != logs[1]["b_loss"], "the loss ignores its labels"


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


def as_lines(case):
    """Python that runs a case again, from the folder `tests`."""
    fields = [
        f"{field.name}={getattr(case, field.name)!r}"
        for field in dataclasses.fields(case)
        if getattr(case, field.name) != field.default
    ]
    lines = ["from differential.cases import Case"]
    lines += ["from differential.oracles import run_case", "run_case(Case("]
    return "\n".join([*lines, *(f"    {field}," for field in fields), "))"])


__all__ = ["Case", "Refused", "as_lines", "run_case"]
