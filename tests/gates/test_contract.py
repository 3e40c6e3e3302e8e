"""What every gate keeps to, whatever its paper."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from helpers import numbers, numpy, value_and_gradients
from keras import ops

import dselectk_keras
from dselectk_keras import (
    DSelectKGate,
    EntropyRegularizer,
    ImportanceRegularizer,
    Ramp,
    SoftmaxGate,
    TopKGate,
)

BATCH, DIM, UNITS = 4, 3, 2

GATES = {
    "softmax": SoftmaxGate,
    "softmax with bias": lambda **kwargs: SoftmaxGate(
        use_bias=True, weights_regularizer=ImportanceRegularizer(0.1), **kwargs
    ),
    "top-k": lambda **kwargs: TopKGate(2, use_bias=True, **kwargs),
    "noisy top-k": lambda **kwargs: TopKGate(2, noise=True, seed=1, **kwargs),
    "top-k with load": lambda **kwargs: TopKGate(
        2,
        noise=True,
        load_reg=Ramp(0.1, 0.2, end=9),
        weights_regularizer=ImportanceRegularizer(0.1, squared=True),
        **kwargs,
    ),
    "DSelect-k": lambda **kwargs: DSelectKGate(2, **kwargs),
    "DSelect-k that assigns": lambda **kwargs: DSelectKGate(
        2, unreachable="assign", reduction="mean", **kwargs
    ),
    "DSelect-k with entropy": lambda **kwargs: DSelectKGate(
        3,
        entropy_reg=0.01,
        weights_regularizer=ImportanceRegularizer(0.1),
        **kwargs,
    ),
    "DSelect-k with schedules": lambda **kwargs: DSelectKGate(
        2,
        gamma=Ramp(1.0, 0.1, end=9),
        entropy_reg=EntropyRegularizer(Ramp(1e-3, 1e-1, end=9), target="bits"),
        unreachable=Ramp(0.5, 1.0, end=9, kind="linear"),
        **kwargs,
    ),
}
# What a training call adds to the loss, for a number of experts that is no power of 2.
PENALTIES = {
    "softmax": [],
    "softmax with bias": ["weights"],
    "top-k": [],
    "noisy top-k": [],
    "top-k with load": ["load", "weights"],
    "DSelect-k": ["reachability"],
    "DSelect-k that assigns": [],
    "DSelect-k with entropy": ["entropy", "reachability", "weights"],
    "DSelect-k with schedules": ["entropy", "reachability"],
}

every_gate = pytest.mark.parametrize("make", GATES.values(), ids=GATES)
every_kind = pytest.mark.parametrize("per_example", [False, True], ids=["static", "x"])
one_and_several = pytest.mark.parametrize("num_gates", [None, 3], ids=["one", "three"])
any_number = pytest.mark.parametrize("num_experts", [4, 5])


def call_inputs(per_example, num_experts=5, batch=BATCH):
    experts = numbers((batch, num_experts, UNITS))
    return (experts, numbers((batch, DIM), seed=1)) if per_example else experts


def build(gate, per_example, num_experts=5):
    experts = (None, num_experts, UNITS)
    gate.build((experts, (None, DIM)) if per_example else experts)


def own_inputs(per_example, batch=BATCH):
    """What `expert_weights` takes."""
    return [numbers((batch, DIM), seed=1)] if per_example else []


def counts(gate):
    return [int(schedule.num_calls) for schedule in gate._schedules]


def spread(gate):
    """Give the weights values that differ, as after some training."""
    for i, weight in enumerate(gate.weights):
        weight.assign(numbers(weight.shape, seed=i, scale=0.1))


# Shapes and weights.


@every_gate
@every_kind
@one_and_several
@any_number
def test_weights_lie_on_the_simplex_in_float32(
    make, per_example, num_gates, num_experts
):
    gate = make(num_gates=num_gates, dtype="float16")
    build(gate, per_example, num_experts)
    spread(gate)
    weights = gate.expert_weights(*own_inputs(per_example))
    shape = (*[BATCH] * per_example, *[3] * (num_gates is not None), num_experts)
    assert weights.shape == shape
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    assert {variable.dtype for variable in gate.weights} == {"float32"}
    total = numpy(weights).sum(axis=-1)
    assert (numpy(weights) >= 0).all()
    if num_experts == 5 and getattr(gate, "unreachable", "assign") != "assign":
        # Codes that belong to no expert keep their share, as in the release.
        assert (total <= 1 + 1e-6).all()
    else:
        np.testing.assert_allclose(total, 1, atol=1e-6)


@every_gate
@every_kind
@one_and_several
@pytest.mark.parametrize("trailing", [(), (3,), (2, 3)])
def test_experts_come_as_a_list_or_as_one_tensor_of_any_rank(
    make, per_example, num_gates, trailing
):
    gate = make(num_gates=num_gates)
    stacked = numbers((BATCH, 5, *trailing))
    routing = own_inputs(per_example)
    listed = [stacked[:, i] for i in range(5)]
    outputs = [
        numpy(gate((experts, *routing) if per_example else experts))
        for experts in (listed, stacked)
    ]
    weights = numpy(gate.expert_weights(*routing))
    rows = "b" if per_example else ""
    gates = "" if num_gates is None else "g"
    wanted = np.einsum(f"{rows}{gates}n,bn...->b{gates}...", weights, stacked)
    for output in outputs:
        np.testing.assert_allclose(output, wanted, atol=1e-5)
        assert output.shape == wanted.shape


@every_gate
@every_kind
@one_and_several
def test_symbolic_shapes_leave_the_batch_open(make, per_example, num_gates):
    gate = make(num_gates=num_gates)
    experts = [keras.Input((UNITS,)) for _ in range(5)]
    mixed = gate((experts, keras.Input((DIM,))) if per_example else experts)
    gates = () if num_gates is None else (num_gates,)
    assert mixed.shape == (None, *gates, UNITS)


@every_gate
@every_kind
def test_a_batch_of_one_is_a_batch(make, per_example):
    gate = make()
    many = numpy(gate(call_inputs(per_example)))
    inputs = call_inputs(per_example)
    one = gate(tuple(x[:1] for x in inputs) if per_example else inputs[:1])
    np.testing.assert_allclose(numpy(one), many[:1], atol=1e-6)


@every_gate
@every_kind
def test_the_output_has_the_dtype_of_the_policy(make, per_example):
    for policy, dtype in [("mixed_bfloat16", "bfloat16"), ("float16", "float16")]:
        mixed = make(dtype=policy)(call_inputs(per_example))
        assert keras.backend.standardize_dtype(mixed.dtype) == dtype


# Gradients.


def trained_gradients(gate, inputs, *, training):
    """Gradients of a loss that depends on each output differently."""
    experts = inputs[0] if gate.per_example else inputs
    upstream = numbers((len(experts), *gate.gate_shape, UNITS), seed=2)

    def loss():
        mixed = gate(inputs, training=training)
        return [sum(gate.losses, ops.sum(mixed * ops.convert_to_tensor(upstream)))]

    _, gradients = value_and_gradients(loss, gate.trainable_variables, state(gate))
    return {
        variable.name: found
        for variable, found in zip(gate.trainable_variables, gradients, strict=True)
    }


def state(gate):
    """The variables that a training call changes."""
    return [variable for variable in gate.variables if not variable.trainable]


@every_gate
@every_kind
@one_and_several
def test_training_reaches_every_weight(make, per_example, num_gates):
    gate = make(num_gates=num_gates)
    inputs = call_inputs(per_example, batch=256)
    build(gate, per_example)
    spread(gate)
    for name, found in trained_gradients(gate, inputs, training=True).items():
        assert np.isfinite(found).all()
        if isinstance(gate, TopKGate) and not per_example and gate.load_reg is None:
            # What one static gate drops, it drops for all examples.
            np.testing.assert_array_equal((found != 0).sum(axis=-1), 2)
        else:
            assert (found != 0).all(), name


@every_gate
@every_kind
@one_and_several
def test_no_gradient_comes_from_noise_or_dropped_experts_at_inference(
    make, per_example, num_gates
):
    gate = make(num_gates=num_gates)
    inputs = call_inputs(per_example)
    build(gate, per_example)
    spread(gate)
    # Examples that all keep the same experts.
    if per_example:
        inputs = (inputs[0], np.repeat(inputs[1][:1], BATCH, axis=0))
    weights = numpy(gate.expert_weights(*inputs[1:] if per_example else []))
    for name, found in trained_gradients(gate, inputs, training=False).items():
        if name.startswith("noise"):
            np.testing.assert_array_equal(found, 0)
        elif isinstance(gate, TopKGate):
            kept = weights[0] > 0 if per_example else weights > 0
            last = found.reshape(-1, *kept.shape)
            np.testing.assert_array_equal((last != 0).any(axis=0), kept)
        else:
            assert (found != 0).all()


# Regularization.


@pytest.mark.parametrize(
    ("make", "names"),
    [(GATES[name], PENALTIES[name]) for name in GATES],
    ids=GATES,
)
@every_kind
@one_and_several
def test_penalties_come_in_order_and_in_training_only(
    make, names, per_example, num_gates
):
    gate = make(num_gates=num_gates)
    inputs = call_inputs(per_example)
    for training in (None, False):
        gate(inputs, training=training)
        assert gate.losses == []
    assert counts(gate) == [0] * len(gate._schedules)

    gate(inputs, training=True)
    penalties = gate.report(*own_inputs(per_example))["penalties"]
    assert list(penalties) == names
    assert all(value.shape == () for value in gate.losses)
    assert len(gate.losses) == len(names)
    assert counts(gate) == [1] * len(gate._schedules)
    if not getattr(gate, "noise", False):
        np.testing.assert_array_equal(
            [numpy(value) for value in gate.losses],
            [numpy(value) for value in penalties.values()],
        )

    gate(inputs, training=True)
    assert len(gate.losses) == len(names)
    assert counts(gate) == [2] * len(gate._schedules)


@every_kind
@one_and_several
def test_the_weights_regularizer_sees_the_weights_of_the_batch(per_example, num_gates):
    gate = SoftmaxGate(
        weights_regularizer=ImportanceRegularizer(0.5), num_gates=num_gates
    )
    build(gate, per_example)
    spread(gate)
    gate(call_inputs(per_example), training=True)
    weights = numpy(gate.expert_weights(*own_inputs(per_example)))
    total = weights.sum(axis=0) if per_example else weights
    variation = total.std(axis=-1) / total.mean(axis=-1)
    (found,) = gate.losses
    np.testing.assert_allclose(numpy(found), 0.5 * variation.sum(), rtol=1e-4)


@every_gate
@every_kind
@one_and_several
def test_the_report_changes_nothing(make, per_example, num_gates):
    gate = make(num_gates=num_gates)
    gate(call_inputs(per_example))
    routing = own_inputs(per_example)
    report = gate.report(*routing)
    np.testing.assert_array_equal(
        numpy(report["weights"]), numpy(gate.expert_weights(*routing))
    )
    assert gate.losses == []
    assert counts(gate) == [0] * len(gate._schedules)


def test_a_power_of_two_has_nothing_to_reach():
    gate = GATES["DSelect-k with entropy"]()
    gate(call_inputs(False, num_experts=4), training=True)
    assert list(gate.report()["penalties"]) == ["entropy", "weights"]


# Saving.


@every_gate
@one_and_several
def test_config_round_trip_through_json(make, num_gates):
    gate = make(num_gates=num_gates, name="gate", dtype="mixed_bfloat16")
    config = gate.get_config()
    again = type(gate).from_config(config)
    assert again.get_config() == config
    saved = json.loads(json.dumps(keras.saving.serialize_keras_object(gate)))
    revived = keras.saving.deserialize_keras_object(saved)
    assert type(revived) is type(gate)
    assert revived.get_config() == config


def test_a_bare_function_is_refused_at_saving():
    for name in ("gamma", "unreachable"):
        gate = DSelectKGate(2, **{name: lambda calls: 1.0 + calls})
        gate(call_inputs(False), training=True)
        with pytest.raises(ValueError, match="is a bare function"):
            gate.get_config()


@every_gate
@every_kind
def test_a_built_gate_is_rebuilt_from_its_config(make, per_example):
    gate = make(num_gates=3)
    build(gate, per_example)
    saved = json.loads(json.dumps(keras.saving.serialize_keras_object(gate)))
    revived = keras.saving.deserialize_keras_object(saved)
    assert revived.built
    shapes = [[tuple(w.shape) for w in each.weights] for each in (gate, revived)]
    assert shapes[0] == shapes[1]


def all_gates(per_example, num_gates=None, **kwargs):
    """One model with every gate on the same experts."""
    inputs = keras.Input((DIM,))
    experts = [keras.layers.Dense(UNITS)(inputs) for _ in range(5)]
    outputs = []
    for name, make in GATES.items():
        gate = make(num_gates=num_gates, name=name.replace(" ", "_"), **kwargs)
        mixed = gate((experts, inputs) if per_example else experts)
        outputs.append(keras.layers.Flatten()(mixed))
    return keras.Model(inputs, keras.layers.Concatenate()(outputs))


def gates_of(model):
    return [layer for layer in model.layers if isinstance(layer, dselectk_keras.Gate)]


def trained(model, **settings):
    """Train for five steps; the inputs and the loss."""
    x = numbers((20, DIM))
    model.compile("sgd", "mse", **settings)
    history = model.fit(
        x, numbers((20, model.output_shape[-1])), batch_size=4, verbose=0
    )
    return x, history.history["loss"]


@pytest.fixture(scope="module")
def saved_models(tmp_path_factory):
    """Models with every gate, the files they are saved in, and their output."""
    folder, x, saved = tmp_path_factory.mktemp("models"), numbers((20, DIM)), []
    for per_example, num_gates in [(False, 3), (True, None)]:
        model = all_gates(per_example, num_gates)
        for gate in gates_of(model):
            spread(gate)
        for _ in range(5):
            model(x, training=True)
        path = folder / f"{per_example}_{num_gates}.keras"
        model.save(path)
        saved.append((model, path, x, numpy(model(x))))
    return saved


def test_a_reloaded_model_is_the_same_to_the_bit(saved_models):
    for model, path, x, wanted in saved_models:
        again = keras.saving.load_model(path)
        np.testing.assert_array_equal(numpy(again(x)), wanted)
        pairs = list(zip(gates_of(model), gates_of(again), strict=True))
        assert len(pairs) == len(GATES)
        for gate, other in pairs:
            assert counts(gate) == counts(other) == [5] * len(gate._schedules)
            assert other.get_config() == gate.get_config()


def test_a_reloaded_model_trains_on(saved_models):
    _, path, _, _ = saved_models[-1]
    again = keras.saving.load_model(path)
    _, (loss,) = trained(again)
    assert np.isfinite(loss)
    assert {count for gate in gates_of(again) for count in counts(gate)} == {10}


def test_saved_weights_carry_the_counters(saved_models, tmp_path):
    model, _, x, wanted = saved_models[1]
    model.save_weights(tmp_path / "model.weights.h5")
    again = all_gates(per_example=True)
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(numpy(again(x)), wanted)
    assert {count for gate in gates_of(again) for count in counts(gate)} == {5}


def test_another_process_reloads_the_models_to_the_bit(saved_models, tmp_path):
    script = """
import sys
import keras, numpy as np
import dselectk_keras
target, inputs, *paths = sys.argv[1:]
x = np.load(inputs)
outputs = [keras.saving.load_model(path)(x) for path in paths]
np.savez(target, *map(keras.ops.convert_to_numpy, outputs))
"""
    np.save(tmp_path / "x.npy", saved_models[0][2])
    paths = [path for _, path, _, _ in saved_models]
    root = Path(dselectk_keras.__file__).parents[1]
    subprocess.run(
        [sys.executable, "-c", script, tmp_path / "y.npz", tmp_path / "x.npy", *paths],
        check=True,
        cwd=root,
        env=os.environ | {"KERAS_BACKEND": keras.backend.backend()},
    )
    with np.load(tmp_path / "y.npz") as found:
        for i, (_, _, _, wanted) in enumerate(saved_models):
            np.testing.assert_array_equal(found[f"arr_{i}"], wanted)


# Dtype policies.


@pytest.mark.parametrize("jit_compile", [False, True], ids=["as written", "compiled"])
@pytest.mark.parametrize(
    "policy", ["float16", "mixed_float16", "bfloat16", "mixed_bfloat16"]
)
def test_every_policy_trains_to_finite_numbers(policy, jit_compile):
    slow = {("torch", True): "with a C++ compiler", ("jax", False): "one by one"}
    how = slow.get((keras.backend.backend(), jit_compile))
    if how and (jit_compile or policy.startswith("mixed")):
        pytest.skip(f"Operations would be compiled {how}, which takes too long.")
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        inputs = keras.Input((DIM,))
        experts = keras.layers.Reshape((5, UNITS))(keras.layers.Dense(10)(inputs))
        mixtures = [
            GATES[name]()((experts, inputs) if per_example else experts)
            for name, per_example in [
                ("softmax with bias", True),
                ("top-k with load", True),
                ("DSelect-k with entropy", False),
                ("DSelect-k with schedules", True),
            ]
        ]
        model = keras.Model(inputs, keras.layers.Concatenate()(mixtures))
    finally:
        keras.config.set_dtype_policy(before)
    start = [numpy(gate.trainable_variables[0]) for gate in gates_of(model)]
    x, losses = trained(model, jit_compile=jit_compile)
    assert np.isfinite(losses).all()
    assert np.isfinite(model.predict_on_batch(x).astype("float32")).all()
    for variable in model.trainable_variables:
        assert np.isfinite(numpy(ops.cast(variable, "float32"))).all()
    for gate, first in zip(gates_of(model), start, strict=True):
        assert not np.array_equal(numpy(gate.trainable_variables[0]), first)
        assert counts(gate) == [5] * len(gate._schedules)


# Calls that cannot be right.


@every_gate
def test_a_gate_without_weights_says_so(make):
    for method in ("expert_weights", "report"):
        with pytest.raises(
            ValueError, match=r"has no weights yet\. Call it on experts"
        ):
            getattr(make(), method)()


@every_gate
def test_a_gate_stays_static_or_per_example(make):
    static, per_example = make(), make()
    build(static, per_example=False)
    build(per_example, per_example=True)
    with pytest.raises(ValueError, match="built static: leave the routing inputs out"):
        static(call_inputs(True))
    with pytest.raises(ValueError, match="built static"):
        static.expert_weights(numbers((BATCH, DIM)))
    with pytest.raises(ValueError, match="built per-example: pass routing inputs"):
        per_example(call_inputs(False))
    with pytest.raises(ValueError, match="built per-example"):
        per_example.expert_weights()


@every_gate
@pytest.mark.parametrize("shape", [(BATCH,), (BATCH, 2, 2)])
def test_routing_inputs_must_be_a_matrix(make, shape):
    experts = call_inputs(False)
    with pytest.raises(ValueError, match=r"one tensor of shape \(batch, features\)"):
        make()((experts, numbers(shape)))
    gate = make()
    build(gate, per_example=True)
    with pytest.raises(ValueError, match=r"must have the shape \(batch, 3\)"):
        gate((experts, numbers(shape)))


@every_gate
def test_routing_inputs_keep_their_width(make):
    gate = make()
    build(gate, per_example=True)
    with pytest.raises(ValueError, match=r"\(batch, 3\).*Received: \(4, 5\)"):
        gate.expert_weights(numbers((BATCH, 5)))


@every_gate
@every_kind
def test_the_number_of_experts_stays(make, per_example):
    gate = make()
    build(gate, per_example)
    with pytest.raises(ValueError, match=r"built for 5 experts\. Received: 4"):
        gate(call_inputs(per_example, num_experts=4))


@every_gate
def test_experts_have_one_shape(make):
    experts = [numbers((BATCH, units)) for units in (2, 2, 3)]
    with pytest.raises(ValueError, match=r"all of the same shape.*\(4, 2\).*\(4, 3\)"):
        make()(experts)
    gate = make()
    gate([experts[0]] * 3)
    with pytest.raises(ValueError, match="all of the same shape"):
        gate(experts)


def test_no_experts_are_no_bank():
    with pytest.raises(ValueError, match="Received shapes: none"):
        SoftmaxGate()([])


def test_experts_in_one_tensor_have_an_axis_of_known_length():
    for shape in [(None,), (None, None, 2)]:
        with pytest.raises(ValueError, match="with num_experts known"):
            SoftmaxGate().build(shape)


def test_a_tuple_is_not_a_list_of_experts():
    experts = tuple(numbers((BATCH, UNITS)) for _ in range(3))
    with pytest.raises(ValueError, match=r"A tuple must hold two things.*Received: 3"):
        SoftmaxGate()(experts)


@pytest.mark.parametrize("num_gates", [0, -1, 1.5, True])
@every_gate
def test_num_gates_counts(make, num_gates):
    with pytest.raises(ValueError, match="`num_gates` must be a positive integer"):
        make(num_gates=num_gates)


@every_gate
def test_a_number_is_no_weights_regularizer(make):
    cls = type(make())
    settings = {} if cls is SoftmaxGate else {"num_nonzeros": 2}
    with pytest.raises(ValueError, match="Expected a regularizer of this package"):
        cls(weights_regularizer=0.1, **settings)
