"""The contract that every gate keeps, whatever its paper.

Each gate's own test module hands in its cases (see `gate_cases.Case`).
"""

import functools
import json
import warnings

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, dtype_of
from gate_cases import all_cases, case_named, router_inputs
from helpers import (
    dtype_policy,
    floatx,
    numbers,
    numpy,
    refusals,
    spread,
    weight_gradients,
)
from keras import ops

import dselectk_keras as dk
from dselectk_keras.gates import GATES, RouterInputs
from dselectk_keras.gates.logit_gate import LogitGate
from dselectk_keras.gates.record import recording
from dselectk_keras.gates.selector_gate import SelectorGate
from dselectk_keras.utils import argument_names

BATCH, DIM, UNITS = 4, 3, 2
# Draws enough to count what comes of them, and one number for all tests: JAX compiles
# each operation again for each shape.
MANY = 500
CASES = all_cases()


def cases_that_look(at=(None, "x", "ids", "hidden")):
    """Parametrize by cases, and by what each looks at, out of `at`."""
    found = [
        pytest.param(case, look, id=f"{case.name}-{look or 'static'}")
        for case in CASES
        for look in case.looks
        if look in at
    ]
    return pytest.mark.parametrize(("case", "look"), found)


every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_case_and_look = cases_that_look()
# What depends on how a gate uses Keras, and not on how a backend computes it.
once = pytest.mark.backend_independent
# One gate is several without their axis.
alone = pytest.param(None, marks=once, id="one")
one_and_several = pytest.mark.parametrize(
    "num_gates", [alone, pytest.param(3, id="three")]
)


def seen(look, num_experts=5, batch=BATCH):
    """Call arguments of a gate beside the experts."""
    if look is None:
        return {}
    if look == "ids":
        return {"routing_inputs": np.arange(batch, dtype="int32") % 3}
    found = {"routing_inputs": numbers((batch, DIM), seed=1)}
    if look == "hidden":
        found["hidden"] = numbers((batch, num_experts, DIM), seed=3)
    return found


def experts_of(num_experts=5, batch=BATCH):
    return numbers((batch, num_experts, UNITS))


def build(gate, look, num_experts=5):
    shapes = {f"{name}_shape": x.shape for name, x in seen(look, num_experts).items()}
    gate.build((None, num_experts, UNITS), **shapes)
    return spread(gate, 0.1)


# Shapes and weights.


@every_case_and_look
@pytest.mark.parametrize(
    ("num_gates", "num_experts"), [pytest.param(None, 4, marks=once), (3, 5)]
)
def test_weights_lie_on_the_simplex_in_float32(case, look, num_gates, num_experts):
    gate = build(case.make(num_gates=num_gates, dtype="float16"), look, num_experts)
    weights = gate.expert_weights(router_inputs(**seen(look, num_experts)))
    shape = (*[BATCH] * bool(look), *[3] * (num_gates is not None), num_experts)
    assert weights.shape == shape
    assert dtype_of(weights) == "float32"
    assert {variable.dtype for variable in gate.trainable_weights} <= {"float32"}
    mixed = gate(experts_of(num_experts), **seen(look, num_experts))
    assert dtype_of(mixed) == "float16"
    total = numpy(weights).sum(axis=-1)
    assert (numpy(weights) >= 0).all()
    if case.sums_to_one:
        assert_close(total, 1, atol=1e-6)
    else:
        # Such as codes that belong to no expert, which keep their share.
        assert (total <= 1 + 1e-6).all()


@pytest.mark.usefixtures("full_precision")
@every_case_and_look
def test_experts_of_any_rank_come_as_a_list_or_as_one_tensor(case, look):
    gate, stacked = case.make(num_gates=3), numbers((BATCH, 5, 2, 3))
    listed = [stacked[:, i] for i in range(5)]
    outputs = [numpy(gate(experts, **seen(look))) for experts in (listed, stacked)]
    weights = numpy(gate.expert_weights(router_inputs(**seen(look))))
    rows = "b" if look else ""
    wanted = np.einsum(f"{rows}gn,bnij->bgij", weights, stacked)
    for output in outputs:
        assert_close(output, wanted, atol=1e-5)


@every_case_and_look
def test_a_batch_may_have_one_example_or_none(case, look):
    gate = case.make()
    many = numpy(gate(experts_of(), **seen(look)))
    one = gate(experts_of()[:1], **{name: x[:1] for name, x in seen(look).items()})
    assert_close(one, many[:1], atol=1e-6)
    for training in (False, True):
        mixed = gate(experts_of(batch=0), **seen(look, batch=0), training=training)
        assert tuple(mixed.shape) == (0, UNITS)


# The two forms of a call.


@once
@cases_that_look(at=["x", "ids"])
def test_the_tuple_of_the_release_stands_for_two_arguments(case, look):
    gate, experts = case.make(), experts_of()
    (routing_inputs,) = seen(look).values()
    assert_equal(gate((experts, routing_inputs)), gate(experts, routing_inputs))


def test_a_graph_never_has_the_tuple():
    x, experts = keras.Input((DIM,)), keras.Input((5, UNITS))
    model = keras.Model([x, experts], dk.SoftmaxGate(name="gate")((experts, x)))
    (node,) = model.get_layer("gate")._inbound_nodes
    assert [tensor.shape for tensor in node.arguments.args] == [experts.shape, x.shape]
    again = type(model).from_config(model.get_config())
    again.set_weights(model.get_weights())
    inputs = [numbers((BATCH, DIM)), experts_of()]
    assert_equal(again(inputs), model(inputs))


# Gradients.


def trained_gradients(gate, experts, inputs, *, training, penalties=True):
    """Gradients of a loss that depends on each output differently."""
    upstream = numbers((len(experts), *gate.gate_shape, UNITS), seed=2)

    def loss():
        mixed = gate(experts, **inputs, training=training)
        product = mixed * ops.convert_to_tensor(upstream)
        total = sum(gate.losses if penalties else [], ops.sum(product))
        if hasattr(gate, "policy_loss"):
            total = total + gate.policy_loss(ops.sum(product, axis=-1))
        return total

    names = [variable.name for variable in gate.trainable_variables]
    return dict(zip(names, weight_gradients(gate, loss), strict=True))


@every_case_and_look
@one_and_several
def test_training_reaches_every_weight(case, look, num_gates):
    gate = build(case.make(num_gates=num_gates), look)
    experts, inputs = experts_of(batch=MANY), seen(look, batch=MANY)
    for name, found in trained_gradients(gate, experts, inputs, training=True).items():
        assert np.isfinite(found).all()
        if case.sparse_gradient and not case.penalties and not look:
            # A static gate drops the same experts for all examples.
            assert_equal((found != 0).sum(axis=-1), 2)
        else:
            assert (found != 0).all(), name


def with_one_choice():
    """All gates that learn their choice, and those of k experts with k = 1 too."""
    for case in CASES:
        make = case.make
        if not case.learns or isinstance(made := make(), dk.ChosenGate):
            continue  # No gradient would train the choice.
        makes = {case.name: make}
        if getattr(made, "num_nonzeros", 1) > 1:
            one = functools.partial(make.func, 1, **make.keywords)
            makes[f"{case.name} of one"] = one
            if isinstance(made, dk.TopKGate):
                makes[f"{case.name} of one sigmoid"] = functools.partial(
                    one, scores="sigmoid"
                )
        for name, each in makes.items():
            for look in case.looks:
                yield pytest.param(each, look, id=f"{name}-{look or 'static'}")


@once
@pytest.mark.parametrize(("make", "look"), [*with_one_choice()])
def test_the_loss_of_the_task_trains_a_router_or_the_gate_warns(make, look):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gate = build(make(), look)
    warned = any("does not train the router" in str(each.message) for each in caught)
    experts, inputs = experts_of(batch=MANY), seen(look, batch=MANY)
    settings = {"training": True, "penalties": False}
    found = trained_gradients(gate, experts, inputs, **settings).items()
    # The shares of one selector have no gradient, but its choice has.
    # A softmax over one weight may leave a gradient of rounding errors.
    moves = any(
        np.abs(each).max() > 1e-4 for name, each in found if not name.startswith("w_")
    )
    assert moves != warned


@every_case_and_look
@one_and_several
def test_no_gradient_comes_from_noise_or_dropped_experts_at_inference(
    case, look, num_gates
):
    gate = build(case.make(num_gates=num_gates), look)
    # Examples that all keep the same experts.
    inputs = {name: np.repeat(x[:1], MANY, axis=0) for name, x in seen(look).items()}
    weights = numpy(gate.expert_weights(router_inputs(**inputs)))
    gradients = trained_gradients(gate, experts_of(batch=MANY), inputs, training=False)
    for name, found in gradients.items():
        if name.startswith(case.training_only):
            assert_equal(found, 0)
        elif case.sparse_gradient:
            kept = weights[0] > 0 if look else weights > 0
            assert_equal((found.reshape(-1, *kept.shape) != 0).any(axis=0), kept)
        elif look == "ids":
            # All examples are of task 0.
            assert (found[0] != 0).all()
            assert_equal(found[1:], 0)
        else:
            assert (found != 0).all()


@pytest.mark.parametrize(
    "name", ["top-k", "REINFORCE", "straight-through Gumbel", "DSelect-k"]
)
def test_nan_in_an_example_shows_in_its_weights_alone(name):
    gate, inputs = build(case_named(name).make(), "x"), seen("x")
    wanted = numpy(gate.expert_weights(router_inputs(**inputs)))
    inputs["routing_inputs"][1] = np.nan
    found = numpy(gate.expert_weights(router_inputs(**inputs)))
    assert np.isnan(found[1]).any()
    assert_equal(found[[0, 2, 3]], wanted[[0, 2, 3]])


# Regularization.


@every_case_and_look
def test_penalties_come_in_order_and_in_training_only(case, look):
    gate = case.make(num_gates=3)
    experts, inputs = experts_of(), seen(look)
    for training in (None, False):
        gate(experts, **inputs, training=training)
        assert gate.losses == []
    assert int(gate.step) == 0
    penalties = gate.report(router_inputs(**inputs))["penalties"]
    assert list(penalties) == list(case.penalties)
    for step in (1, 2):
        gate(experts, **inputs, training=True)
        assert [value.shape for value in gate.losses] == [()] * len(case.penalties)
        assert int(gate.step) == step


@pytest.mark.parametrize("look", [None, "x"], ids=["static", "x"])
@one_and_several
def test_the_weights_regularizer_sees_the_weights_of_the_batch(look, num_gates):
    importance = dk.ImportanceRegularizer(0.5)
    gate = dk.SoftmaxGate(weights_regularizer=importance, num_gates=num_gates)
    build(gate, look)
    gate(experts_of(), **seen(look), training=True)
    weights = numpy(gate.expert_weights(router_inputs(**seen(look))))
    total = weights.sum(axis=0) if look else weights
    variation = total.std(axis=-1) / total.mean(axis=-1)
    assert_close(gate.losses, [0.5 * variation.sum()], rtol=1e-4)


@once
@every_case
def test_a_gate_that_learns_nothing_takes_no_regularizer(case):
    settings = {"weights_regularizer": dk.ImportanceRegularizer(0.1)}
    makes = [] if case.learns else [case.make]
    assert bool(build(case.make(), case.looks[0]).trainable_variables) == case.learns
    if isinstance(case.make(), dk.ChosenGate):
        makes.append(functools.partial(case.make, train_shares=False))
    for make in makes:
        with pytest.raises(ValueError, match="has no trainable weights to regularize"):
            build(make(**settings), case.looks[0])
    if case.learns:
        frozen = case.make(**settings)
        frozen.trainable = False
        build(frozen, case.looks[0])


@once
@every_case_and_look
def test_a_record_has_what_each_call_computes(case, look):
    gate, calls, experts = case.make(num_gates=3), [], experts_of()
    gate(experts, **seen(look))
    with recording(calls.append):
        mixture = gate(experts, **seen(look))
    gate(experts, **seen(look))
    (call,) = calls
    assert call.gate is gate
    assert call.own is None
    assert_equal((call.experts, call.mixture), (experts, mixture))
    report = gate.report(call.routing)
    wanted = gate.report(router_inputs(**seen(look)))
    keras.tree.assert_same_structure(report, wanted)
    assert_equal(*map(keras.tree.flatten, (report, wanted)))
    assert_equal(report["weights"], gate.expert_weights(router_inputs(**seen(look))))
    assert (gate.losses, int(gate.step)) == ([], 0)
    for _ in range(2):
        with recording(calls.append):
            gate(experts, **seen(look), training=True)
        penalties = gate.report(calls[-1].routing)["penalties"]
        assert_equal(penalties.values(), gate.losses)


# Dropped experts.


@every_case_and_look
def test_weights_draws_and_penalties_are_the_same_in_half_precision(case, look):
    def found(dtype=None, seed=1):
        settings = {"num_gates": None if look else 3, "expert_dropout": 0.4}
        gate = build(case.make(seed=seed, dtype=dtype, **settings), look)
        weights = gate.route(router_inputs(**seen(look)), training=True).weights
        plain = gate.expert_weights(router_inputs(**seen(look)))
        values = [weights, plain, *gate.losses]
        assert {*map(dtype_of, values)} == {"float32"}
        return [*map(numpy, values)]

    wanted, others = found(), [found("float16"), found("mixed_bfloat16")]
    with floatx("float16"):
        others.append(found())
    for other in others:
        assert_equal(other, wanted)
    if case.dense:
        assert (found(seed=2)[0] != wanted[0]).any()


@every_case_and_look
def test_training_drops_experts(case, look):
    rate, inputs = 0.4, router_inputs(**seen(look, batch=MANY))
    gate = case.make(expert_dropout=rate, num_gates=None if look else MANY)
    build(gate, look)
    found = numpy(gate.route(inputs, training=True).weights)
    plain = numpy(gate.expert_weights(inputs))
    assert np.isfinite(found).all()
    assert (found.sum(axis=-1) > 0).all()
    if not case.sum_varies:
        assert_close(found.sum(-1), plain.sum(-1), atol=1e-5)
    if case.dense:
        # If all experts would be dropped, none is.
        assert_close((found == 0).mean(), rate - rate**5, atol=0.04)
    assert_equal(gate.route(inputs, training=False).weights, plain)


@once
@cases_that_look(at=[None])
def test_a_favourite_is_chosen_unless_it_is_dropped(case, look):
    rate = 0.4
    gate = build(case.make(expert_dropout=rate, num_gates=MANY), look)
    if not isinstance(gate, LogitGate):
        return  # It does not choose by logits.
    gate._logits.static.assign(np.tile([0.0, 0.0, 60.0, 0.0, 0.0], (MANY, 1)))
    found = numpy(gate.route(training=True).weights)
    assert_close((found[:, 2] == 0).mean(), rate - rate**5, atol=0.07)
    assert (found[:, 2] > 0.9).mean() > 1 - rate - 0.07


@once
@cases_that_look(at=[None])
def test_the_z_loss_is_of_dropped_experts_too(case, look):
    gate = case.make(expert_dropout=0.5, num_gates=MANY)
    if not isinstance(gate, LogitGate):
        return  # It has no z-loss.
    gate.z_reg, none = dk.RouterZRegularizer(1.0), RouterInputs()
    build(gate, look)
    in_training, at_inference = (
        gate.compute_penalties(gate.compute_weights(none, training, gate.step), 1)["z"]
        for training in (True, False)
    )
    assert_close(in_training, at_inference, rtol=1e-5)


# One routing input for each gate.


@once
@cases_that_look(at=["x"])
def test_an_input_of_each_gate_is_seen_by_that_gate_alone(case, look):
    gate, x = build(case.make(num_gates=3), look), numbers((BATCH, DIM))
    inputs = np.stack([x] * 3, axis=1)
    wanted = numpy(gate.expert_weights(x))
    assert_close(gate.expert_weights(inputs), wanted, atol=1e-6)
    inputs[:, 1] = 1 - x
    wanted[:, 1] = numpy(gate.expert_weights(1 - x))[:, 1]
    assert_close(gate.expert_weights(inputs), wanted, atol=1e-6)


# Copies.


@once
@every_case_and_look
def test_the_step_is_the_last_weight_and_may_be_left_out(case, look):
    gate, other = (build(case.make(), look) for _ in range(2))
    for _ in range(3):
        gate(experts_of(), **seen(look), training=True)
    weights = gate.get_weights()
    place = next(i for i, weight in enumerate(gate.weights) if weight is gate.step)
    # Only choices, or the steps at which selectors decide, may follow.
    more = isinstance(gate, (SelectorGate, dk.ChosenGate))
    assert len(weights) - place == 1 + more
    for given, step in ((place, 0), (place + 1, 3), (len(weights), 3)):
        other.set_weights(weights[:given])
        assert int(other.step) == step


@once
@every_case
def test_with_num_gates_copies(case):
    gate = case.make(seed=3)
    several = gate.with_num_gates(3)
    assert several is not gate
    assert (gate.num_gates, several.num_gates) == (None, 3)
    assert several.seed == 3
    assert several.with_num_gates(3) is several
    build(gate, case.looks[0])
    wanted = r"num_gates=2 is needed here\. Received: one with num_gates="
    for each, text in ((several, r"3\. Pass a new"), (gate, "None, built already")):
        with pytest.raises(ValueError, match=wanted + text):
            each.with_num_gates(2)


# Of each argument a value that is not its default.
OTHER_VALUES = {
    **dict.fromkeys(("units", "seed", "salt", "baseline_units"), 9),
    **dict.fromkeys(("num_nonzeros", "num_tasks", "dense_steps"), 3),
    "kept": [2, 3],
    "initial_choices": [2, 3],
    "num_before": 7,
    **dict.fromkeys(("gamma", "temperature", "policy_weight"), 0.5),
    **dict.fromkeys(("entropy_reg", "sparsity_reg", "z_reg", "load_reg"), 0.02),
    **dict.fromkeys(("entropy_weight", "baseline_weight", "expert_dropout"), 0.1),
    **dict.fromkeys(("use_bias", "normalize", "noise"), True),
    **dict.fromkeys(("z_initializer", "w_initializer"), "ones"),
    "kernel_initializer": "ones",
    "unreachable": "assign",
    "reduction": "mean",
    "scores": "sigmoid",
    "bias_rate": 0.1,
    "train_shares": False,
    "learning_rate_ratio": 3.0,
    "experts_of_tags": [0, 1],
    "weights_regularizer": dk.ImportanceRegularizer(0.3),
}
NEEDED = {"attentive": {"units": 4}, "latent_skills": {"num_tasks": 2}}


@once
@pytest.mark.parametrize("name", sorted(GATES))
def test_a_copy_keeps_every_argument(name):
    for argument in set(argument_names(GATES[name])) - {"num_gates"}:
        needed = {"noise": True} if argument == "load_reg" else NEEDED.get(name, {})
        gate = GATES[name](**{**needed, argument: OTHER_VALUES[argument]})
        for copy in (gate.unbuilt_copy(), gate.with_num_gates(2)):
            found = {**copy.get_config(), "num_gates": None, "name": gate.name}
            assert found == gate.get_config(), argument


def test_a_copy_of_a_gate_is_frozen_as_it_is_and_keeps_a_bare_function():
    gate = dk.DSelectKGate(2)
    gate.trainable = False
    assert not gate.with_num_gates(3).trainable
    gate = dk.DSelectKGate(2, gamma=lambda step: 1.0 / step)
    assert gate.with_num_gates(3).gamma is gate.gamma


# Saving.


@once
def test_routing_that_was_drawn_is_part_of_the_weights():
    salts, ids = (None, None, 3), np.arange(40, dtype="int32")
    gates = [build(dk.baselines.HashGate(each), "ids", 16) for each in salts]
    wanted, *others = [numpy(gate.expert_weights(ids)) for gate in gates]
    assert (others[0] != wanted).any()
    for gate in gates[1:]:
        gate.set_weights(gates[0].get_weights())
        assert_equal(gate.expert_weights(ids), wanted)


@once
@every_case_and_look
def test_config_round_trip_through_json(case, look):
    gate = case.make(num_gates=3, name="gate", dtype="mixed_bfloat16")
    config = gate.get_config()
    assert type(gate).from_config(config).get_config() == config
    build(gate, look)
    saved = json.loads(json.dumps(keras.saving.serialize_keras_object(gate)))
    revived = keras.saving.deserialize_keras_object(saved)
    assert type(revived) is type(gate)
    assert revived.get_config() == config
    assert revived.built
    shapes = [[tuple(w.shape) for w in each.weights] for each in (gate, revived)]
    assert shapes[0] == shapes[1]


@once
def test_a_bare_function_is_refused_at_saving():
    for name in ("gamma", "unreachable"):
        gate = dk.DSelectKGate(2, **{name: lambda calls: 1.0 + calls})
        gate(experts_of(), training=True)
        with pytest.raises(ValueError, match="is a function that is not registered"):
            gate.get_config()


def all_gates(per_example, num_gates=None, **kwargs):
    """One model with every gate of one kind on the same experts."""
    inputs = keras.Input((DIM,))
    ids = ops.sum(ops.cast(inputs[:, :2] > 0, "int32"), axis=-1)
    hidden = keras.layers.Reshape((5, DIM))(keras.layers.Dense(5 * DIM)(inputs))
    looks = {
        None: {},
        "x": {"routing_inputs": inputs},
        "ids": {"routing_inputs": ids},
        "hidden": {"routing_inputs": inputs, "hidden": hidden},
    }
    experts = [keras.layers.Dense(UNITS)(inputs) for _ in range(5)]
    outputs = []
    for case in CASES:
        for look in case.looks:
            if bool(look) == per_example:
                name = case.name.replace(" ", "_")
                gate = case.make(num_gates=num_gates, name=name, **kwargs)
                outputs.append(keras.layers.Flatten()(gate(experts, **looks[look])))
    # REINFORCE learns in a `RoutedModel` only.
    return dk.baselines.RoutedModel(inputs, keras.layers.Concatenate()(outputs))


def gates_of(model):
    return [layer for layer in model.layers if isinstance(layer, dk.Gate)]


def trained(model, **settings):
    """Train for five steps; the inputs and the loss."""
    x = numbers((20, DIM))
    model.compile("sgd", "mse", **settings)
    log = model.fit(x, numbers((20, model.output_shape[-1])), batch_size=4, verbose=0)
    return x, log.history["loss"]


@pytest.fixture(scope="module")
def saved_models(tmp_path_factory):
    """Models with every gate, the files they are saved in, and their output."""
    folder, x, saved = tmp_path_factory.mktemp("models"), numbers((20, DIM)), []
    for per_example, num_gates in [(False, 3), (True, None)]:
        model = all_gates(per_example, num_gates)
        for gate in gates_of(model):
            spread(gate, 0.1)
        for _ in range(5):
            model(x, training=True)
        path = folder / f"{per_example}_{num_gates}.keras"
        model.save(path)
        saved.append((model, path, x, numpy(model(x))))
    return saved


def test_models_reload_to_the_bit_and_saved_weights_carry_the_step(
    saved_models, tmp_path
):
    for _, path, x, wanted in saved_models:
        again = keras.saving.load_model(path)
        assert_equal(again(x), wanted)
        assert {int(gate.step) for gate in gates_of(again)} == {5}
    model, _, x, wanted = saved_models[1]
    model.save_weights(tmp_path / "model.weights.h5")
    again = all_gates(per_example=True)
    again.load_weights(tmp_path / "model.weights.h5")
    assert_equal(again(x), wanted)
    assert {int(gate.step) for gate in gates_of(again)} == {5}


@pytest.mark.traced
def test_a_reloaded_model_trains_on(saved_models):
    for _, path, _, _ in saved_models:
        again = keras.saving.load_model(path)
        _, (loss,) = trained(again)
        assert np.isfinite(loss)
        assert {int(gate.step) for gate in gates_of(again)} == {10}


# Dtype policies.


def test_all_gates_train_in_half_precision():
    with dtype_policy("mixed_float16"):
        model = all_gates(per_example=True)
    learning = [gate for gate in gates_of(model) if gate.trainable_variables]
    before = [numpy(gate.trainable_variables[0]) for gate in learning]
    x, losses = trained(model)
    assert np.isfinite(losses).all()
    assert np.isfinite(model.predict_on_batch(x).astype("float32")).all()
    for gate, first in zip(learning, before, strict=True):
        assert (numpy(gate.trainable_variables[0]) != first).any()


# Calls that cannot be right.


@once
@every_case
def test_a_gate_without_weights_says_so(case):
    for method in ("expert_weights", "report"):
        with pytest.raises(ValueError, match=r"has no weights yet\. Call it on exp"):
            getattr(case.make(), method)()


@once
@cases_that_look(at=["x"])
def test_a_gate_stays_static_or_per_example(case, look):
    gate, features = build(case.make(), look), numbers((BATCH, DIM))
    rows = [
        (gate, (experts_of(),), r"pass routing inputs, gate\(experts, rout"),
        (gate.expert_weights, (), "built per-example"),
    ]
    if None in case.looks:
        gate = build(case.make(), None)
        rows += [
            (gate, (experts_of(), features), "static: leave out routing inputs"),
            (gate.expert_weights, (features,), "built static"),
        ]
    for call, given, text in rows:
        with pytest.raises(ValueError, match=text):
            call(*given)


@once
@cases_that_look(at=["x", "ids"])
def test_routing_inputs_are_a_matrix_and_keep_their_width(case, look):
    gate, matrices = build(case.make(), look), numbers((BATCH, 2, 2))
    for call, given, text in [
        (case.make(), (experts_of(), matrices), r"of shape \(batch, features\)"),
        (gate, (experts_of(), matrices), r"must have the shape \(batch, [13]\)"),
        (gate.expert_weights, (numbers((BATCH, 5)),), r"\(batch, [13]\).*: \(4, 5\)"),
    ]:
        with pytest.raises(ValueError, match=text):
            call(*given)


@once
@cases_that_look(at=["x"])
def test_one_feature_may_come_without_an_axis(case, look):
    gate, x = case.make(), numbers((BATCH,))
    gate(experts_of(), x)
    assert_equal(gate.expert_weights(x), gate.expert_weights(x[:, None]))


@once
@every_case_and_look
def test_experts_have_one_shape_and_stay_as_many(case, look):
    experts = [numbers((BATCH, units)) for units in (2, 2, 3, 2, 2)]
    gate = case.make()
    gate(experts[:1] * 5, **seen(look))
    for refusing, given, text in [
        (case.make(), experts, r"all of the same shape.*\(4, 2\).*\(4, 3\)"),
        (gate, experts_of(4), r"one weight for each of 4 experts\. Received: 5"),
    ]:
        with pytest.raises(ValueError, match=text):
            refusing(given, **seen(look))


# All gates leave their arguments to `Gate`.
test_arguments_that_cannot_be_are_refused = refusals(
    (
        dk.SoftmaxGate,
        "`num_gates` must be a positive integer",
        *({"num_gates": each} for each in (0, -1, 1.5, True)),
    ),
    (
        dk.SoftmaxGate,
        "`expert_dropout` .* at least 0 and below 1",
        *({"expert_dropout": each} for each in (-0.1, 1.0)),
    ),
)
