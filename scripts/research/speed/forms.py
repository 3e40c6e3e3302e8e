"""The forms in which a workload can be computed."""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.models import build_multitask_model, condense, per_task
from research.speed.plain import PlainModel

MANY_TASKS = 8  # With so many, the form "stacked" makes sense.


def forms_of(workload):
    """The names of the forms that make sense for a `Workload`."""
    plain = ["plain", "plain+metrics"] if workload.units else []
    names = ["list", *plain, "bank"]
    if workload.num_tasks >= MANY_TASKS:
        names.append("stacked")
    if keras.backend.backend() == "tensorflow":
        names.append("XLA")
    if workload.per_example:
        # Selectors that have not decided choose nearly all experts.
        few = 4 * workload.num_used <= workload.num_experts
        sparse = few and workload.gate == "top_k"
        return [*names, *(["dispatched"] if sparse else [])]
    if workload.num_used < workload.num_experts:
        names += ["condensed", "one task"]
    return names


def differences(workload):
    """The largest difference of each form to the bank, or to the decided bank."""
    x, _ = workload.data()
    names = [form for form in forms_of(workload) if form != "plain+metrics"]
    models = {form: workload.model(form) for form in names}
    bank = models.pop("bank")
    wanted = dict.fromkeys(models, bank.predict_on_batch(x))
    if "condensed" in models:
        decided = workload.model("decided").predict_on_batch(x)
        wanted |= {"condensed": decided, "one task": decided}
    found = {}
    for form, model in models.items():
        if form == "list":
            equal_weights(model, bank)
        elif form == "plain":
            equal_plain_weights(model, bank)
        elif form in ("stacked", "XLA", "dispatched"):
            model.set_weights(bank.get_weights())
        outputs = model.predict_on_batch(x)
        if not isinstance(outputs, dict):
            # Not the order of the outputs, which JAX sorts by name.
            columns = np.split(outputs, workload.num_tasks, 1)
            outputs = {f"task_{t}": column for t, column in enumerate(columns)}
        found[form] = max(
            float(np.abs(outputs[name] - wanted[form][name]).max()) for name in outputs
        )
    return found


def equal_plain_weights(plain, bank):
    """Give a plain model the weights of a bank's, so that both compute the same."""
    kernel, *others = map(ops.convert_to_numpy, bank.trainable_variables)
    values = [np.swapaxes(kernel, 0, 1), *others]
    for weight, value in zip(plain.trainable_variables, values, strict=True):
        weight.assign(value.reshape(weight.shape))


def equal_weights(model, bank):
    """Give the layers of a list the weights of a bank's, to the same end."""
    mmoe = bank.get_layer("mmoe")
    for i, layers in enumerate(model.expert_layers):
        weights = [weight for layer in layers for weight in layer.weights]
        own = mmoe.experts.sliced([i])
        for weight, value in zip(weights, own.weights, strict=True):
            weight.assign(ops.reshape(ops.convert_to_tensor(value), weight.shape))
    for t, gate in enumerate(model.gates):
        pairs = zip(gate.trainable_weights, mmoe.gate.trainable_weights, strict=True)
        for weight, values in pairs:
            array = ops.convert_to_numpy(values)
            if len(weight.shape) == len(array.shape):
                array = np.split(array, len(model.gates), axis=-1)[t]
            else:
                array = array[t]
            weight.assign(array.reshape(weight.shape))
    towers = [layer for layer in bank.layers if layer.name.startswith("towers_")]
    values = [weight for each in towers for weight in each.weights]
    for t, layers in enumerate(model.tower_layers):
        weights = [weight for layer in layers for weight in layer.weights]
        for weight, value in zip(weights, values, strict=True):
            weight.assign(ops.convert_to_tensor(value)[t])


@keras.saving.register_keras_serializable(package="dselectk_keras.benchmark")
class PlainMixture(keras.layers.Layer):
    """A list of experts, weighed by a gate of one task and summed one by one."""

    def __init__(self, gate, **kwargs):
        super().__init__(**kwargs)
        self.gate = gate

    def build(self, experts_shape, routing_inputs_shape=None):
        """Build the gate."""
        self.gate.build((None, len(experts_shape)), routing_inputs_shape)

    def call(self, experts, routing_inputs=None, training=None):
        """Mix."""
        weights = self.gate.route(routing_inputs, training).weights
        total = 0.0
        for i, expert in enumerate(experts):
            total = total + expert * weights[..., i : i + 1]
        return total


def _plain(workload, metrics=False):
    """The forty lines that someone would write for this workload alone."""

    def error_of(task):
        def squared(y, y_pred):
            return ops.square(y[:, task] - y_pred[:, task])

        return keras.metrics.MeanMetricWrapper(squared, name=f"error_{task}")

    model = PlainModel(workload)
    tracked = [error_of(t) for t in range(workload.num_tasks)] if metrics else None
    model.compile(keras.optimizers.Adam(), loss="mse", metrics=tracked)
    model.build((None, *workload.input_shape))
    return model


def _list(workload):
    """The way the original release goes: lists of layers, one gate layer a task."""
    inputs = keras.Input(workload.input_shape, name="features")
    experts = [workload.expert_layers() for _ in range(workload.num_experts)]
    mixtures = [PlainMixture(workload.new_gate()) for _ in range(workload.num_tasks)]
    towers, outputs, tasks = [], {}, workload.new_tasks()
    evaluated = [_through(layers, inputs) for layers in experts]
    routing_inputs = [inputs] if workload.per_example else []
    for task, mixture in zip(tasks, mixtures, strict=True):
        x, layers = mixture(evaluated, *routing_inputs), []
        if task.tower == "sum":
            x = ops.sum(x, axis=-1, keepdims=True)
        else:
            layers = [keras.layers.Dense(width, "relu") for width in task.tower]
            layers += [keras.layers.Dense(task.num_outputs, task.rules.activation)]
        towers.append(layers)
        outputs[task.name] = _through(layers, x)
    model = keras.Model(inputs, outputs)
    model.compile(
        keras.optimizers.Adam(),
        loss={task.name: task.loss for task in tasks},
        metrics={task.name: list(task.metrics) for task in tasks},
    )
    model.expert_layers, model.tower_layers = experts, towers
    model.gates = [mixture.gate for mixture in mixtures]
    return model


def _through(layers, x):
    return functools.reduce(lambda x, layer: layer(x), layers, x)


def _bank(workload, dispatch=False, stacked=False, jit_compile: Any = "auto"):
    """All experts, gates and towers on axes of tensors."""
    model = build_multitask_model(
        workload.input_shape,
        workload.new_tasks(),
        experts=workload.new_bank(),
        gate=workload.new_gate(workload.num_tasks),
        per_example=workload.per_example,
        dispatch=dispatch,
        stacked=stacked,
    )
    model.compile(keras.optimizers.Adam(), jit_compile=jit_compile)
    return model


def _xla(workload):
    """The fastest form with all experts, compiled by XLA."""
    stacked = workload.num_tasks >= MANY_TASKS
    return _bank(workload, stacked=stacked, jit_compile=True)


def _decided(workload):
    """A bank whose static gates have chosen."""
    model = _bank(workload)
    gate = model.get_layer("mmoe").gate
    gate.assign_expert_weights(workload.chosen_weights())
    return model


def _one_task(workload):
    model = per_task(_decided(workload), "task_0")
    model.compile(keras.optimizers.Adam())
    return model


FORMS = {
    "list": _list,
    "plain": _plain,
    "plain+metrics": lambda workload: _plain(workload, metrics=True),
    "bank": _bank,
    "stacked": lambda workload: _bank(workload, stacked=True),
    "XLA": _xla,
    "decided": _decided,
    "condensed": lambda workload: condense(_decided(workload)),
    "one task": _one_task,
    "dispatched": lambda workload: _bank(workload, dispatch=True),
}
