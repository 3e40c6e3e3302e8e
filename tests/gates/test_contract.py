"""What every gate keeps to, whatever its paper."""

import inspect
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
    GumbelSoftmaxGate,
    HashGate,
    ImportanceRegularizer,
    LatentSkillsGate,
    Ramp,
    RandomGate,
    SoftmaxGate,
    SoftmaxSelectorGate,
    STGumbelGate,
    SwitchGate,
    TagGate,
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
    "switch": SwitchGate,
    "straight-through Gumbel": lambda **kwargs: STGumbelGate(
        temperature=Ramp(2.0, 0.5, end=9), **kwargs
    ),
    "Gumbel-softmax": lambda **kwargs: GumbelSoftmaxGate(
        temperature=Ramp(2.0, 0.5, end=9), sparsity_reg=Ramp(0.1, 0.2, end=9), **kwargs
    ),
    "softmax selectors": lambda **kwargs: SoftmaxSelectorGate(
        2, temperature=Ramp(1.0, 0.1, end=9), entropy_reg=0.01, **kwargs
    ),
    "latent skills": lambda **kwargs: LatentSkillsGate(
        temperature=Ramp(2.0, 0.5, end=9), **kwargs
    ),
    "latent skills of tasks": lambda **kwargs: LatentSkillsGate(num_tasks=3, **kwargs),
    "hash": HashGate,
    "tag": lambda **kwargs: TagGate([0, 2, [3, 1]], **kwargs),
    "random": lambda **kwargs: RandomGate(2, **kwargs),
    "fixed random": lambda **kwargs: RandomGate(2, fixed=True, seed=1, **kwargs),
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
    "Gumbel-softmax": ["sparsity"],
    "softmax selectors": ["entropy"],
}
# What gates look at: nothing, if they are static, features or integers.
LOOKS = {name: [None, "x"] for name in GATES} | {
    "latent skills": [None],
    "latent skills of tasks": ["ids"],
    "hash": ["ids"],
    "tag": ["ids"],
}
# Their weights sum to at most one.
OFF_THE_SIMPLEX = (SwitchGate, GumbelSoftmaxGate)
# All their weights are positive, but for rounding.
DENSE = (
    SoftmaxGate,
    DSelectKGate,
    GumbelSoftmaxGate,
    SoftmaxSelectorGate,
    LatentSkillsGate,
)
# They have nothing to learn.
WEIGHTLESS = (HashGate, TagGate, RandomGate)


def kinds(make):
    """What a gate of `GATES` may look at."""
    return next(LOOKS[name] for name in GATES if GATES[name] is make)


def gates_that_look(at=(None, "x", "ids")):
    """Parametrize by gates, and by what each looks at, out of `at`."""
    cases = [
        pytest.param(make, look, id=f"{name}-{look or 'static'}")
        for name, make in GATES.items()
        for look in LOOKS[name]
        if look in at
    ]
    return pytest.mark.parametrize(("make", "look"), cases)


every_gate = pytest.mark.parametrize("make", GATES.values(), ids=GATES)
every_gate_and_kind = gates_that_look()
one_and_several = pytest.mark.parametrize("num_gates", [None, 3], ids=["one", "three"])
any_number = pytest.mark.parametrize("num_experts", [4, 5])


def own_inputs(look, batch=BATCH):
    """What `expert_weights` takes."""
    if look is None:
        return []
    if look == "ids":
        return [np.arange(batch, dtype="int32") % 3]
    return [numbers((batch, DIM), seed=1)]


def call_inputs(look, num_experts=5, batch=BATCH):
    experts = numbers((batch, num_experts, UNITS))
    return (experts, *own_inputs(look, batch)) if look else experts


def build(gate, look, num_experts=5):
    experts = (None, num_experts, UNITS)
    routing = {"x": (None, DIM), "ids": (None,)}
    gate.build((experts, routing[look]) if look else experts)


def counts(gate):
    return [int(schedule.num_calls) for schedule in gate._schedules]


def spread(gate):
    """Give the weights values that differ, as after some training."""
    for i, weight in enumerate(gate.weights):
        weight.assign(numbers(weight.shape, seed=i, scale=0.1))


# Shapes and weights.


@every_gate_and_kind
@one_and_several
@any_number
def test_weights_lie_on_the_simplex_in_float32(make, look, num_gates, num_experts):
    gate = make(num_gates=num_gates, dtype="float16")
    build(gate, look, num_experts)
    spread(gate)
    weights = gate.expert_weights(*own_inputs(look))
    shape = (*[BATCH] * bool(look), *[3] * (num_gates is not None), num_experts)
    assert weights.shape == shape
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    assert {variable.dtype for variable in gate.weights} <= {"float32"}
    total = numpy(weights).sum(axis=-1)
    assert (numpy(weights) >= 0).all()
    leaks = num_experts == 5 and getattr(gate, "unreachable", "assign") != "assign"
    if leaks or isinstance(gate, OFF_THE_SIMPLEX):
        # Codes that belong to no expert keep their share, as in the release.
        assert (total <= 1 + 1e-6).all()
    else:
        np.testing.assert_allclose(total, 1, atol=1e-6)


@every_gate_and_kind
@one_and_several
@pytest.mark.parametrize("trailing", [(), (3,), (2, 3)])
def test_experts_come_as_a_list_or_as_one_tensor_of_any_rank(
    make, look, num_gates, trailing
):
    gate = make(num_gates=num_gates)
    stacked = numbers((BATCH, 5, *trailing))
    routing = own_inputs(look)
    listed = [stacked[:, i] for i in range(5)]
    outputs = [
        numpy(gate((experts, *routing) if look else experts))
        for experts in (listed, stacked)
    ]
    weights = numpy(gate.expert_weights(*routing))
    rows = "b" if look else ""
    gates = "" if num_gates is None else "g"
    wanted = np.einsum(f"{rows}{gates}n,bn...->b{gates}...", weights, stacked)
    for output in outputs:
        np.testing.assert_allclose(output, wanted, atol=1e-5)
        assert output.shape == wanted.shape


@every_gate_and_kind
@one_and_several
def test_symbolic_shapes_leave_the_batch_open(make, look, num_gates):
    gate = make(num_gates=num_gates)
    experts = [keras.Input((UNITS,)) for _ in range(5)]
    routing = {"x": keras.Input((DIM,)), "ids": keras.Input((1,), dtype="int32")}
    mixed = gate((experts, routing[look]) if look else experts)
    gates = () if num_gates is None else (num_gates,)
    assert mixed.shape == (None, *gates, UNITS)


@every_gate_and_kind
def test_a_batch_of_one_is_a_batch(make, look):
    gate = make()
    many = numpy(gate(call_inputs(look)))
    inputs = call_inputs(look)
    one = gate(tuple(x[:1] for x in inputs) if look else inputs[:1])
    np.testing.assert_allclose(numpy(one), many[:1], atol=1e-6)


@every_gate_and_kind
def test_the_output_has_the_dtype_of_the_policy(make, look):
    for policy, dtype in [("mixed_bfloat16", "bfloat16"), ("float16", "float16")]:
        mixed = make(dtype=policy)(call_inputs(look))
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


@every_gate_and_kind
@one_and_several
def test_training_reaches_every_weight(make, look, num_gates):
    gate = make(num_gates=num_gates)
    inputs = call_inputs(look, batch=256)
    build(gate, look)
    spread(gate)
    for name, found in trained_gradients(gate, inputs, training=True).items():
        assert np.isfinite(found).all()
        if isinstance(gate, TopKGate) and not look and gate.load_reg is None:
            # What one static gate drops, it drops for all examples.
            np.testing.assert_array_equal((found != 0).sum(axis=-1), 2)
        else:
            assert (found != 0).all(), name


@every_gate
def test_every_gate_but_the_fixed_ones_learns(make):
    gate = make()
    build(gate, kinds(make)[0])
    assert bool(gate.trainable_variables) != isinstance(gate, WEIGHTLESS)


@every_gate_and_kind
@one_and_several
def test_no_gradient_comes_from_noise_or_dropped_experts_at_inference(
    make, look, num_gates
):
    gate = make(num_gates=num_gates)
    inputs = call_inputs(look)
    build(gate, look)
    spread(gate)
    # Examples that all keep the same experts.
    if look:
        inputs = (inputs[0], np.repeat(inputs[1][:1], BATCH, axis=0))
    weights = numpy(gate.expert_weights(*inputs[1:] if look else []))
    for name, found in trained_gradients(gate, inputs, training=False).items():
        closed = isinstance(gate, GumbelSoftmaxGate) and name.startswith("z_")
        if name.startswith("noise") or closed or isinstance(gate, STGumbelGate):
            # There is no noise, an expert is open or closed, the choice is hard.
            np.testing.assert_array_equal(found, 0)
        elif isinstance(gate, TopKGate):
            kept = weights[0] > 0 if look else weights > 0
            last = found.reshape(-1, *kept.shape)
            np.testing.assert_array_equal((last != 0).any(axis=0), kept)
        elif look == "ids":
            # All examples are of task 0.
            assert (found[0] != 0).all()
            np.testing.assert_array_equal(found[1:], 0)
        else:
            assert (found != 0).all()


# Regularization.


@every_gate_and_kind
@one_and_several
def test_penalties_come_in_order_and_in_training_only(make, look, num_gates):
    names = next(PENALTIES.get(name, []) for name in GATES if GATES[name] is make)
    gate = make(num_gates=num_gates)
    inputs = call_inputs(look)
    for training in (None, False):
        gate(inputs, training=training)
        assert gate.losses == []
    assert counts(gate) == [0] * len(gate._schedules)

    gate(inputs, training=True)
    penalties = gate.report(*own_inputs(look))["penalties"]
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


@pytest.mark.parametrize("look", [None, "x"], ids=["static", "x"])
@one_and_several
def test_the_weights_regularizer_sees_the_weights_of_the_batch(look, num_gates):
    gate = SoftmaxGate(
        weights_regularizer=ImportanceRegularizer(0.5), num_gates=num_gates
    )
    build(gate, look)
    spread(gate)
    gate(call_inputs(look), training=True)
    weights = numpy(gate.expert_weights(*own_inputs(look)))
    total = weights.sum(axis=0) if look else weights
    variation = total.std(axis=-1) / total.mean(axis=-1)
    (found,) = gate.losses
    np.testing.assert_allclose(numpy(found), 0.5 * variation.sum(), rtol=1e-4)


@every_gate_and_kind
@one_and_several
def test_the_report_changes_nothing(make, look, num_gates):
    gate = make(num_gates=num_gates)
    gate(call_inputs(look))
    routing = own_inputs(look)
    report = gate.report(*routing)
    np.testing.assert_array_equal(
        numpy(report["weights"]), numpy(gate.expert_weights(*routing))
    )
    assert gate.losses == []
    assert counts(gate) == [0] * len(gate._schedules)


def test_a_power_of_two_has_nothing_to_reach():
    gate = GATES["DSelect-k with entropy"]()
    gate(call_inputs(None, num_experts=4), training=True)
    assert list(gate.report()["penalties"]) == ["entropy", "weights"]


# Dropped experts.


@every_gate_and_kind
def test_training_drops_experts(make, look):
    rows, rate = 400, 0.4
    gate = make(expert_dropout=rate, num_gates=None if look else rows)
    build(gate, look)
    spread(gate)
    routing = own_inputs(look, rows)
    found = numpy(gate.route(*routing, training=True))
    plain = numpy(gate.expert_weights(*routing))
    assert np.isfinite(found).all()
    assert (found.sum(axis=-1) > 0).all()
    if not isinstance(gate, OFF_THE_SIMPLEX):
        np.testing.assert_allclose(found.sum(-1), plain.sum(-1), atol=1e-5)
    if isinstance(gate, DENSE):
        # Where all would be dropped, none is.
        dropped = (found == 0).mean()
        np.testing.assert_allclose(dropped, rate - rate**5, atol=0.04)
    np.testing.assert_array_equal(numpy(gate.route(*routing, training=False)), plain)


@gates_that_look(at=[None])
def test_a_favourite_is_chosen_unless_it_is_dropped(make, look):
    rate = 0.4
    gate = make(expert_dropout=rate, num_gates=500)
    build(gate, look)
    if not (gate.drops_logits and gate.weights):
        return  # It chooses nothing by logits.
    gate._logits.static.assign(np.tile([0.0, 0.0, 60.0, 0.0, 0.0], (500, 1)))
    found = numpy(gate.route(training=True))
    wanted = rate - rate**5
    np.testing.assert_allclose((found[:, 2] == 0).mean(), wanted, atol=0.07)
    assert (found[:, 2] > 0.9).mean() > 1 - rate - 0.07


@pytest.mark.parametrize("make", [SoftmaxGate, GATES["DSelect-k"]])
def test_where_all_would_be_dropped_none_is(make):
    gate = make(expert_dropout=0.95, num_gates=500)
    build(gate, None)
    found = numpy(gate.route(training=True))
    plain = numpy(gate.expert_weights())
    untouched = np.isclose(found, plain).all(axis=-1).mean()
    np.testing.assert_allclose(untouched, 0.95**5, atol=0.06)


# One routing input for each gate.


@gates_that_look(at=["x"])
def test_gates_with_an_input_each_are_separate_gates(make, look):
    gates, experts = make(num_gates=3), (None, 5, UNITS)
    gates.build((experts, (None, 3, DIM)))
    spread(gates)
    x = numbers((BATCH, 3, DIM))
    found = numpy(gates.expert_weights(x))
    assert found.shape == (BATCH, 3, 5)
    if isinstance(gates, RandomGate) and gates.fixed:
        return  # Its gates are drawn apart.
    for i in range(3):
        one = make()
        build(one, look)
        one.set_weights(
            [w.reshape(*w.shape[:-1], 3, -1)[..., i, :] for w in gates.get_weights()]
        )
        np.testing.assert_allclose(
            numpy(one.expert_weights(x[:, i])), found[:, i], atol=1e-6
        )


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
        gate(call_inputs(None), training=True)
        with pytest.raises(ValueError, match="is a bare function"):
            gate.get_config()


@every_gate_and_kind
def test_a_built_gate_is_rebuilt_from_its_config(make, look):
    gate = make(num_gates=3)
    build(gate, look)
    saved = json.loads(json.dumps(keras.saving.serialize_keras_object(gate)))
    revived = keras.saving.deserialize_keras_object(saved)
    assert revived.built
    shapes = [[tuple(w.shape) for w in each.weights] for each in (gate, revived)]
    assert shapes[0] == shapes[1]


def all_gates(per_example, num_gates=None, **kwargs):
    """One model with every gate of one kind on the same experts."""
    inputs = keras.Input((DIM,))
    routing = {"x": inputs, "ids": ops.cast(ops.argmax(inputs, axis=-1), "int32")}
    experts = [keras.layers.Dense(UNITS)(inputs) for _ in range(5)]
    outputs = []
    for name, make in GATES.items():
        for look in kinds(make):
            if bool(look) == per_example:
                gate = make(num_gates=num_gates, name=name.replace(" ", "_"), **kwargs)
                mixed = gate((experts, routing[look]) if look else experts)
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
        look = {"x", "ids"} if pairs[0][0].per_example else {None}
        assert len(pairs) == sum(bool(look & {*LOOKS[name]}) for name in GATES)
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
                ("switch", True),
                ("straight-through Gumbel", True),
                ("Gumbel-softmax", True),
                ("softmax selectors", True),
                ("latent skills", False),
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


@gates_that_look(at=["x"])
def test_a_gate_stays_static_or_per_example(make, look):
    static, per_example = make(), make()
    build(static, None)
    build(per_example, look)
    with pytest.raises(ValueError, match="built static: leave the routing inputs out"):
        static(call_inputs("x"))
    with pytest.raises(ValueError, match="built static"):
        static.expert_weights(numbers((BATCH, DIM)))
    with pytest.raises(ValueError, match="built per-example: pass routing inputs"):
        per_example(call_inputs(None))
    with pytest.raises(ValueError, match="built per-example"):
        per_example.expert_weights()


@gates_that_look(at=["x", "ids"])
def test_routing_inputs_must_be_a_matrix(make, look):
    experts, gate = call_inputs(None), make()
    build(gate, look)
    for shape in [(BATCH,), (BATCH, 2, 2)]:
        if len(shape) in gate.routing_ranks:
            continue  # Ids may be a vector.
        with pytest.raises(ValueError, match=r"tensor of shape \(batch, features\)"):
            make()((experts, numbers(shape)))
        with pytest.raises(ValueError, match=r"must have the shape \(batch, [13]\)"):
            gate((experts, numbers(shape)))


@gates_that_look(at=["x", "ids"])
def test_routing_inputs_keep_their_width(make, look):
    gate = make()
    build(gate, look)
    with pytest.raises(ValueError, match=r"\(batch, [13]\).*Received: \(4, 5\)"):
        gate.expert_weights(numbers((BATCH, 5)))


@every_gate_and_kind
def test_the_number_of_experts_stays(make, look):
    gate = make()
    build(gate, look)
    with pytest.raises(ValueError, match=r"built for 5 experts\. Received: 4"):
        gate(call_inputs(look, num_experts=4))


@every_gate_and_kind
def test_experts_have_one_shape(make, look):
    experts = [numbers((BATCH, units)) for units in (2, 2, 3, 2, 2)]
    routing = own_inputs(look)
    inputs, same = (
        (listed, *routing) if look else listed for listed in (experts, experts[:1] * 5)
    )
    with pytest.raises(ValueError, match=r"all of the same shape.*\(4, 2\).*\(4, 3\)"):
        make()(inputs)
    gate = make()
    gate(same)
    with pytest.raises(ValueError, match="all of the same shape"):
        gate(inputs)


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
    takes = inspect.signature(cls).parameters
    settings = {"num_nonzeros": 2} if "num_nonzeros" in takes else {}
    with pytest.raises(ValueError, match="Expected a regularizer of this package"):
        cls(weights_regularizer=0.1, **settings)
