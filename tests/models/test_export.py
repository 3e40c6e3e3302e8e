"""Exported models give the same numbers without this package."""

from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close
from gates.test_contract import all_gates, gates_of
from helpers import numbers, numpy, spread
from jobs import run_python

import dselectk_keras as dk
from dselectk_keras.gates.selector_gate import selector_gates
from dselectk_keras.models import ARCHITECTURES

# A `.keras` file can be loaded with TensorFlow, from whatever backend it comes. Only
# TensorFlow exports to all formats.
pytestmark = [
    pytest.mark.traced,
    pytest.mark.backends("tensorflow", reason="models are exported by TensorFlow"),
]
FORMATS = {"tf_saved_model": "model", "litert": "model.tflite", "onnx": "model.onnx"}
every_format = pytest.mark.parametrize("form", FORMATS)
# Loads every file of a folder in a process without this package, calls it with batches
# of two sizes and compares.
SERVE = """
import pathlib, sys, warnings
import numpy as np
sys.modules["dselectk_keras"] = sys.modules["keras"] = None
warnings.simplefilter("ignore")
for path in pathlib.Path(sys.argv[1]).glob("*/model*"):
    for batch in (1, 7):
        kept = np.load(path.parent / f"{batch}.npz")
        given = {k[3:]: kept[k] for k in kept if k.startswith("in_")}
        wanted = {k[4:]: kept[k] for k in kept if k.startswith("out_")}
        if path.suffix == ".onnx":
            import onnxruntime
            session = onnxruntime.InferenceSession(path)
            names = [output.name for output in session.get_outputs()]
            found = dict(zip(names, session.run(None, given)))
        elif path.suffix == ".tflite":
            import tensorflow as tf
            serve = tf.lite.Interpreter(str(path)).get_signature_runner()
            found = serve(**given)
        else:
            import tensorflow as tf
            serve = tf.saved_model.load(path).signatures["serving_default"]
            found = serve(**{k: tf.constant(v) for k, v in given.items()})
        assert len(found) == len(wanted), (path, list(found), list(wanted))
        for name, values in found.items():
            other = wanted[name if name in wanted else "output"]
            np.testing.assert_allclose(values, other, atol=2e-5, err_msg=str(path))
"""


def exported(model, folder, form):
    """Export a model, with batches to call it with and what it gives for them."""
    folder.mkdir()
    for batch in (1, 7):
        given = {
            one.name: numbers((batch, *one.shape[1:]))
            if "float" in one.dtype
            else np.arange(-3, batch - 3, dtype=one.dtype)[:, None] * 10**6
            for one in model.inputs
        }
        found = model(keras.tree.pack_sequence_as(model.input, [*given.values()]))
        found = found if isinstance(found, dict) else {"output": found}
        np.savez(
            folder / f"{batch}.npz",
            **{f"in_{name}": value for name, value in given.items()},
            **{f"out_{name}": numpy(value) for name, value in found.items()},
        )
    model.export(str(folder / FORMATS[form]), form, verbose=False, **options(form))


def options(form):
    """The operations that a file may have: LiteRT's own, and those of a new ONNX."""
    if form == "litert":
        import tensorflow as tf

        return {"target_spec": {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]}}
    return {"opset_version": 18} if form == "onnx" else {}


def joined(*models):
    """One model of models with the same inputs."""
    inputs = keras.Input(models[0].input.shape[1:])
    outputs = []
    for number, model in enumerate(models):
        model.name = f"model_{number}"
        found = model(inputs)
        outputs += found.values() if isinstance(found, dict) else [found]
    return keras.Model(inputs, keras.layers.Concatenate()(outputs))


def per_example_gates():
    """Every gate, after steps in which some change from dense to sparse."""
    model = spread(all_gates(per_example=True), 0.5)
    for gate in gates_of(model):
        gate.step.assign(5)
    return model


def several_gates():
    """Every static gate and every per-example gate, which have decided."""
    models = [spread(all_gates(*kind), 0.5) for kind in [(False, 3), (True, 3)]]
    for model in models:
        for gate in gates_of(model):
            gate.step.assign(5)
        for gate in selector_gates(model):
            gate.decide_between(1, 3) if gate.per_example else gate.decide()
    return joined(*models)


def every_architecture():
    """Every architecture, and experts that are condensed."""
    tasks = [dk.Task("a", tower=(4,)), dk.Task("b", "binary")]
    make = partial(dk.build_multitask_model, 6, tasks)
    bank = dk.DenseExperts(12, [8])
    models = [
        *(make(name, per_example=True) for name in ARCHITECTURES),
        make("cgc", gate=dk.DSelectKGate(2)),
        make(experts=bank, gate=dk.TopKGate(9), per_example=True),
    ]
    sparse, *models = [spread(m, 0.5) for m in (make(gate=dk.TopKGate(2)), *models)]
    return joined(*models, dk.condense(sparse), dk.per_task(sparse, "b"))


def of_one_task():
    """The model of one task, which nobody has called."""
    model = dk.build_multitask_model(6, ["a", "b"], gate=dk.TopKGate(2))
    return dk.per_task(spread(model, 0.5), "b")


def by_ids():
    """A model whose gates see ids."""
    inputs = [keras.Input((6,), name="x"), keras.Input((1,), name="ids", dtype="int32")]
    encoder, gate = keras.Model(inputs, inputs), dk.baselines.HashGate(salt=1)
    return dk.build_multitask_model(encoder, ["a", "b"], gate=gate, per_example=True)


MODELS = [of_one_task, by_ids]
# The converters to ONNX and LiteRT take a minute for the last two.
GATED = {"tf_saved_model": [several_gates, every_architecture]}


def serve(folder):
    """Load what is in the folder without this package, and compare."""
    run_python("-c", SERVE, folder)


def require(form):
    """Skip a format whose packages are not installed (the extra `export`)."""
    if form == "onnx":
        pytest.importorskip("tf2onnx")
        pytest.importorskip("onnxruntime")


quietly = pytest.mark.filterwarnings(
    # tf2onnx and Keras' patch of it ask NumPy for what it no longer has.
    "ignore:In the future `np.object` will be defined:FutureWarning",
)


@quietly
@every_format
def test_an_exported_model_gives_the_same_without_this_package(form, tmp_path):
    require(form)
    for make in MODELS + GATED.get(form, [per_example_gates]):
        exported(make(), tmp_path / make.__name__, form)
    serve(tmp_path)


@quietly
def test_copies_are_exported_to_onnx_before_anyone_calls_them(tmp_path):
    model = dk.build_multitask_model(6, ["a", "b"], gate=dk.TopKGate(2))
    plain = keras.Model(model.input, model.output)
    stack = keras.Sequential(
        [keras.Input((6,)), dk.MoE(dk.DenseExperts(3, [2]), dk.TopKGate(1))]
    )
    copies = [dk.per_task(model, "a"), *map(dk.condense, (model, plain, stack))]
    # What Keras asks first.
    assert [copy._called for copy in copies] == [True] * 4
    require("onnx")
    for number, copy in enumerate(copies):
        path = str(tmp_path / f"{number}.onnx")
        copy.export(path, "onnx", verbose=False, **options("onnx"))


def test_inputs_of_any_name_are_exported(tmp_path):
    import tensorflow as tf

    names = ["user id", "user-id", "é", "veteran's", "plain"]
    inputs = {name: keras.Input((1,), name=name) for name in names}
    encoder = keras.Model(inputs, keras.layers.Concatenate()([*inputs.values()]))
    model = dk.build_multitask_model(encoder, ["Preis €", "b"])
    x = {name: numbers((3, 1), seed=i) for i, name in enumerate(names)}
    model.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "model")
    serve, plain = loaded.signatures["serving_default"], {}
    for name, given in zip(
        ["user_id", "user_id_", "input_", "veteran_s", "plain"], names, strict=True
    ):
        plain[name] = tf.constant(x[given])
    assert {*serve.structured_input_signature[1]} == {*plain}
    assert_close(serve(**plain)["b"], model(x)["b"], atol=1e-6)
    found = loaded.serve({name: tf.constant(array) for name, array in x.items()})
    assert_close(found["Preis €"], model(x)["Preis €"], atol=1e-6)
