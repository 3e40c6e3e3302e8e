"""Keras' private names: each means what it did, and is used in one module.

If a test fails here after an update of Keras, mend `dselectk_keras/_keras.py`.
"""

import ast
import importlib
import inspect
import pathlib
import pkgutil
import re
import threading

import keras
import numpy as np
import pytest
from checks import assert_close
from helpers import model_of, numpy

import dselectk_keras
from dselectk_keras import _keras

pytestmark = pytest.mark.traced
BACKEND = keras.backend.backend()
PACKAGE = pathlib.Path(dselectk_keras.__file__).parent
SCRIPTS = PACKAGE.parent / "scripts"


def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(8, 3)).astype("float32"), np.ones((8, 1), "float32")


def compiled(loss="mse", model_class=keras.Model, **settings):
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(2, name="hidden")(inputs)
    model = model_class(inputs, keras.layers.Dense(1, name="top")(hidden))
    model.compile(keras.optimizers.Adam(0.1), loss, **settings)
    return model


class Pair(keras.Layer):
    """A layer that holds two others."""

    def __init__(self, first, second):
        super().__init__()
        self.first = first
        self.second = second

    def build(self, input_shape):
        self.first.build(input_shape)
        self.second.build((None, self.first.units))
        self.built = True

    def call(self, inputs):
        return self.second(self.first(inputs))


@pytest.mark.backend_independent
def test_few_private_names_are_used():
    nodes = [*ast.walk(ast.parse((PACKAGE / "_keras.py").read_text()))]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
    used = {name for name in used if re.match("_[a-z_]+$", name)}
    used -= {"_current_graph_task_id"}  # Of torch.
    used -= {"_predictors", "_baseline_prediction"}  # Of scikit-learn: `test_trees`.
    assert len(used) <= 13


@pytest.mark.backend_independent
def test_calls_of_a_layer_are_counted_in_models_and_layers_inside():
    dense, pair = keras.layers.Dense(3), Pair(*map(keras.layers.Dense, (3, 3)))
    inner = keras.Sequential([keras.Input((3,)), dense, pair])
    counts = _keras.calls_by_layer(model_of(lambda x: inner(inner(dense(x))), 3))
    assert [counts[id(each)] for each in (dense, inner, pair.second)] == [3, 2, 2]


def test_a_layer_in_time_distributed_is_called_once_per_time_step():
    known, either, unknown = (keras.layers.Dense(2) for _ in range(3))
    x = keras.Input((5, 2))
    y = keras.layers.TimeDistributed(known)(x)
    y = keras.Sequential([keras.layers.TimeDistributed(either), known])(either(y))
    z = keras.Input((None, 2))
    outputs = [y, keras.layers.TimeDistributed(unknown)(z)]
    counts = _keras.calls_by_layer(keras.Model([x, z], outputs))
    assert [counts[id(each)] for each in (known, either, unknown)] == [6, 6, 0]


@pytest.mark.backend_independent
def test_a_layer_inside_of_a_layer_is_replaced_in_its_place():
    pair = Pair(keras.layers.Dense(3), keras.layers.Dense(3))
    model, new = model_of(pair, 3), keras.layers.Dense(3, kernel_initializer="zeros")
    new.build((None, 3))
    _keras.replace_parts(model, pair, {"first": new})
    assert pair.first is new
    assert [id(each) for each in model.variables] == [
        id(each) for layer in (new, pair.second) for each in layer.variables
    ]
    assert all(each.path.startswith(pair.path) for each in new.variables)
    model.compile(keras.optimizers.SGD(1.0), "mse")
    x, y = data()
    model.train_on_batch(x, np.repeat(y, 3, axis=1))
    assert np.abs(new.get_weights()[1]).max() > 0
    if BACKEND == "torch":
        known = {id(each) for each in model.parameters()}
        assert known == {id(each.value) for each in model.variables}


@pytest.mark.backend_independent
def test_what_preprocessing_layers_learned_is_copied():
    normalization = keras.layers.Normalization()
    normalization.adapt(np.array([[1.0, 4.0], [3.0, 8.0]]))
    lookup = keras.layers.StringLookup()
    lookup.adapt(np.array(["b", "a", "b"]))
    copies = []
    for layer in (normalization, lookup):
        copies.append(type(layer).from_config(layer.get_config()))
        copies[-1].build((None, 2))
        _keras.copy_state(layer, copies[-1])
    assert_close(copies[0](np.array([[3.0, 4.0]])), [[1.0, -1.0]], rtol=1e-5)
    assert copies[1].get_vocabulary() == ["[UNK]", "b", "a"]


@pytest.mark.backend_independent
def test_layers_inside_of_layers_are_found():
    pair = Pair(keras.layers.Dense(2), keras.layers.Dense(1))
    model = model_of(pair, 3)
    found, inside = _keras.all_layers(model), [pair.first, pair.second]
    assert found[0] is model
    assert {*map(id, found[1:])} == {*map(id, [*model.layers, *inside])}
    assert len(found) == len({*map(id, found)})


def test_the_mask_that_keras_attaches_to_a_tensor_is_found():
    embedding = keras.layers.Embedding(3, 2, mask_zero=True)
    mask = _keras.mask_of(embedding(np.array([[1, 2, 0]])))
    assert numpy(mask).tolist() == [[True, True, False]]
    x = keras.ops.ones((1, 3, 2))
    assert _keras.mask_of(x) is None
    assert _keras.mask_of(numpy(x)) is None
    # The layer computes its mask only from the mask of its inputs.
    after = keras.layers.Dropout(0.5)(_keras.with_mask(x, mask))
    assert numpy(_keras.mask_of(after)).tolist() == [[True, True, False]]


class Interrupted(keras.layers.Layer):
    """Adds to the loss, and lets another thread call the model."""

    def call(self, inputs):
        self.add_loss(keras.ops.sum(inputs))
        if numpy(inputs)[0, 0] == 1:
            with _keras.kept_losses(self):
                thread = threading.Thread(target=self.model, args=(2 * inputs,))
                thread.start()
                thread.join()
        return inputs

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs.shape, inputs.dtype)


def test_a_call_keeps_its_losses_while_another_thread_calls_the_model():
    layers = [Interrupted(), Interrupted()]
    model = keras.Sequential(layers)
    layers[0].model = layers[1].model = model.__call__
    model(np.ones((1, 1), "float32"))
    assert [numpy(loss).tolist() for loss in model.losses] == [1, 1]


@pytest.mark.backend_independent
def test_settings_that_a_config_lacks_are_found():
    huber = keras.losses.Huber(0.25)
    assert _keras.settings(huber) == {**huber.get_config(), "delta": 0.25}
    accuracy = keras.metrics.SparseTopKCategoricalAccuracy(2, from_sorted_ids=True)
    config = {**accuracy.get_config(), "k": 2, "from_sorted_ids": True}
    assert _keras.settings(accuracy) == config
    # Other arguments of the function are no arguments of the class.
    for complete in (keras.losses.MeanSquaredError(), keras.metrics.AUC()):
        assert _keras.settings(complete) == complete.get_config()
    for neither in ("mse", np.square, keras.losses.Huber):
        assert _keras.settings(neither) == {}


@pytest.mark.backend_independent
def test_what_compile_was_given_is_found():
    model = keras.Sequential([keras.layers.Dense(1)])
    assert _keras.compile_arguments(model) == {}
    given = {"optimizer": keras.optimizers.SGD(), "loss": np.square, "metrics": ["mae"]}
    model.compile(**given)
    found = _keras.compile_arguments(model)
    assert {name: found[name] for name in given} == given
    assert found["loss_weights"] is None
    names = inspect.signature(model.compile).parameters
    assert found.keys() == names.keys() - {"auto_scale_loss"}


def test_keras_calls_what_is_overridden():
    class Reporting(keras.Model):
        def _get_metrics_result_or_logs(self, logs):
            return {**logs, "own": 7.0}

    assert {*_keras.OVERRIDDEN} <= {*vars(Reporting)}
    x, y = data()
    model = compiled(model_class=Reporting)
    history = model.fit(x, y, validation_data=(x, y), verbose=0).history
    assert history["own"] == history["val_own"] == [7.0]
    assert model.evaluate(x, y, return_dict=True, verbose=0)["own"] == 7.0


def modules():
    files = sorted(f for top in (PACKAGE, SCRIPTS) for f in top.rglob("*.py"))
    return {f: ast.parse(f.read_text()) for f in files if f != PACKAGE / "_keras.py"}


def private(name):
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.backend_independent
def test_no_other_module_uses_a_private_name_of_keras():
    defined, used = set(), {}
    for file, tree in modules().items():
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(name=name):
                    defined.add(name)
                case ast.Attribute(attr=name, ctx=ast.Store()):
                    defined.add(name)
                case ast.Attribute(attr=name):
                    used[name] = f"{file}:{node.lineno}"
                case ast.Call(func=ast.Name("getattr" | "hasattr" | "setattr")):
                    match node.args[1]:
                        case ast.Constant(str(name)):
                            used[name] = f"{file}:{node.lineno}"
    found = {name: at for name, at in used.items() if private(name)}
    # Named tuples, and `os`, have public functions that begin with an underscore.
    strange = {*found} - defined - {"_asdict", "_replace", "_fields", "_exit"}
    assert not strange, {name: found[name] for name in strange}


@pytest.mark.backend_independent
def test_no_class_overrides_a_private_name_of_keras_but_those_listed():
    for module in pkgutil.walk_packages(dselectk_keras.__path__, "dselectk_keras."):
        for each in vars(importlib.import_module(module.name)).values():
            if not isinstance(each, type) or each.__module__ != module.name:
                continue
            base = next((b for b in each.__mro__ if b.__module__[:6] == "keras."), None)
            taken = {n for n in vars(each) if private(n) and hasattr(base, n)}
            assert taken <= {*_keras.OVERRIDDEN}, (each, taken)


@pytest.mark.backend_independent
def test_no_module_silences_the_lint_rule_about_private_names():
    for top in (PACKAGE, SCRIPTS):
        for file in top.rglob("*.py"):
            assert "SLF001" not in file.read_text(), f"{file}: see _keras.py"


def test_a_functional_model_trains_a_layer_that_is_its_attribute_once():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model = keras.Model(model.inputs, model.outputs)
    model.further = keras.layers.Dense(1)
    model.further.build((None, 3))
    for _ in range(2):
        _keras.track_layer(model, model.further)
        assert len(model.trainable_variables) == 4


OPTIMIZERS = {
    "SGD": {"momentum": 0.9},
    "Adam": {"amsgrad": True},
    "AdamW": {"weight_decay": 1.0},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "Adagrad": {},
    "Adadelta": {},
    "Adamax": {},
    "Nadam": {"use_ema": True},
    "Ftrl": {
        "l1_regularization_strength": 0.1,
        "l2_regularization_strength": 0.2,
        "beta": 0.3,
        "learning_rate_power": -0.7,
    },
    "Lion": {},
    "Lamb": {},
    "Adafactor": {},
    "Muon": {},
    "ScheduleFreeAdamW": {},
}


def apply(optimizer, gradients, variables):
    """Take a step of an optimizer as `fit` does: on JAX without side effects.

    `ops.cond`, which some optimizers use, keeps tracers of JAX otherwise.
    """
    if BACKEND != "jax":
        optimizer.apply(gradients, variables)
        return
    if not optimizer.built:
        optimizer.build(variables)
    slots = [slot.value for slot in optimizer.variables]
    values = [variable.value for variable in variables]
    values, slots = optimizer.stateless_apply(slots, gradients, values)
    for variable, value in zip(
        [*variables, *optimizer.variables], [*values, *slots], strict=True
    ):
        variable.assign(value)


def trained_and_changed(optimizer, changed=True):
    """Two matrices after equal steps; the first one then gets other values."""
    variables = [keras.Variable([[1.0, 2.0], [3.0, -4.0]]) for _ in range(2)]
    gradient = keras.ops.convert_to_tensor([[1.0, -2.0], [-1.0, 3.0]])
    for _ in range(3):
        apply(optimizer, [gradient, gradient], variables)
    variables[0].assign([[0.5, -0.5], [-0.25, 0.75]])
    _keras.restart_slots(optimizer, variables[0], changed)
    return variables


@pytest.mark.parametrize(
    ("name", "accumulate"),
    [*((name, None) for name in OPTIMIZERS), ("SGD", 2), ("AdamW", 2)],
)
def test_a_gradient_of_zero_keeps_a_variable_with_restarted_slots(name, accumulate):
    if not hasattr(keras.optimizers, name):
        pytest.skip("This Keras lacks the optimizer.")
    settings = {**OPTIMIZERS[name], "gradient_accumulation_steps": accumulate}
    optimizer = getattr(keras.optimizers, name)(0.1, **settings)
    first, second = trained_and_changed(optimizer)
    zeros = keras.ops.zeros((2, 2))
    for _ in range(2):
        apply(optimizer, [zeros, zeros], [first, second])
    # Weight decay makes values smaller, and changes no sign and no order.
    decay = 1.0 - 0.1 * (optimizer.weight_decay or 0.0)
    decay **= 2 if accumulate is None else 1
    wanted = decay * np.array([[0.5, -0.5], [-0.25, 0.75]])
    assert_close(first, wanted, rtol=1e-5)


def test_only_slots_of_changed_entries_restart():
    optimizer = keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.25)
    trained_and_changed(optimizer, [[True], [False]])
    first, second = (numpy(slot) for slot in optimizer._accumulators)
    kept = 0.25 + 3 * np.array([[1, 4], [1, 9]])
    assert_close(first, [[0.25, 0.25], kept[1]])
    assert_close(second, kept)


def test_momentum_within_loss_scaling_restarts():
    inner = keras.optimizers.Adam(0.1)
    trained_and_changed(keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0))
    for slots in (inner._momentums, inner._velocities):
        assert not numpy(slots[0]).any()
        assert numpy(slots[1]).all()


def test_a_model_without_an_optimizer_and_one_that_has_no_slots_yet_are_left_alone():
    variable = keras.Variable([1.0])
    for optimizer in (None, keras.optimizers.Adam()):
        _keras.restart_slots(optimizer, variable)
