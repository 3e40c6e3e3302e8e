"""A model whose routers learn from its loss, and agree with themselves."""

from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, dtype_of
from helpers import differentiated, numbers, numpy, refusals, reloaded, weight_gradients
from keras import layers, ops

import dselectk_keras as dk
from dselectk_keras._keras import with_mask
from dselectk_keras.baselines import L2Constrained
from dselectk_keras.baselines.routed_model import (
    _losses_of_output,
    symmetric_divergence,
)
from dselectk_keras.gates import RouterInputs
from dselectk_keras.gates.record import recording

BATCH, DIM = 6, 4
X, Y = numbers((BATCH, DIM)), numbers((BATCH, 2), seed=1)


def compiled(inputs, outputs, loss="mse", **settings):
    model = dk.baselines.RoutedModel(inputs, outputs, **settings)
    model.compile("sgd", loss)
    return model


def make(layer, outputs=2, activation=None, loss="mse", **settings):
    inputs = keras.Input((DIM,))
    head = layers.Dense(outputs, activation)
    return compiled(inputs, head(layer(inputs)), loss, **settings)


def reinforced(per_example=True, **settings):
    gate = dk.baselines.ReinforceGate(**{"seed": 0, **settings})
    return dk.MoE(dk.DenseExperts(3, [5], "tanh"), gate, per_example=per_example)


def rewind(gate):
    """Make the gate draw again as at first."""
    gate.generator.state.assign([0, 0])


def step_loss(model):
    return model.compute_loss(X, Y, model(X, training=True), training=True)


def losses_of_a_step(model, y, sample_weight=None):
    """The loss of a training step, and a function of what it should be."""
    (gate,) = [
        e for e in model._flatten_layers() if isinstance(e, dk.baselines.ReinforceGate)
    ]
    rewind(gate)
    predictions = model(X, training=True)
    found = model.compute_loss(X, y, predictions, sample_weight, training=True)
    assert gate.policy_loss(np.zeros(BATCH)) == 0.0

    def expected(each, weight=None):
        """The mean of the losses, and the policy loss of the same draw."""
        rewind(gate)
        gate.route(X, training=True)
        each = np.array(each, "float32")
        if gate.num_gates is not None:
            each = np.stack([each] * gate.num_gates, axis=1)
        return numpy(gate.policy_loss(each, weight))

    return numpy(found), keras.tree.map_structure(numpy, predictions), expected


CLASSES = np.array([0, 1, 1, 0, 1, 0])


@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        ("mse", Y),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True), CLASSES),
    ],
)
def test_the_reward_is_minus_the_loss_of_each_example(loss, labels):
    model = make(reinforced(entropy_weight=0.0), loss=loss)
    found, predictions, policy = losses_of_a_step(model, labels)
    function = keras.losses.get(loss)
    each = [
        numpy(ops.mean(function(labels[[i]], predictions[[i]]))) for i in range(BATCH)
    ]
    assert_close(found, np.mean(each) + policy(each), rtol=1e-4)


def test_the_gate_learns_from_its_reward():
    moe = reinforced(entropy_weight=0.0, baseline_weight=0.0)
    model, gate = make(moe), moe.gate

    def by_hand():
        errors = model(X, training=True) - ops.convert_to_tensor(Y)
        return gate.policy_loss(ops.mean(errors**2, axis=1))

    rewind(gate)
    found = weight_gradients(gate, lambda: step_loss(model))
    rewind(gate)
    expected = weight_gradients(gate, by_hand)
    assert found[0].any()
    assert_close(found, expected, rtol=1e-4, atol=1e-7)


def test_sample_weights_weigh_the_rewards():
    model = make(reinforced(policy_weight=1.0))
    weight = np.array([1, 0, 2, 0, 1, 1], "float32")
    spoiled = np.where(weight[:, None] > 0, Y, 100.0)
    losses = [losses_of_a_step(model, y, weight)[0] for y in (Y, spoiled)]
    assert_close(losses[0], losses[1], rtol=1e-5)
    found, predictions, policy = losses_of_a_step(model, Y, weight)
    each = ((predictions - Y) ** 2).mean(axis=1)
    plain = numpy(keras.losses.MeanSquaredError()(Y, predictions, weight))
    assert_close(found, plain + policy(each, weight), rtol=1e-4)


def test_labels_without_a_weight_may_be_nan_in_the_reward():
    labels = np.array([[[1.0], [np.nan]], [[np.nan], [np.nan]]], "float32")
    predictions = np.array([[[3.0], [0.0]], [[np.nan], [0.0]]], "float32")
    weight = np.array([[0.5, 0.0], [0.0, 0.0]], "float32")
    losses, weights = _losses_of_output("mse", labels, predictions, weight)
    # (3 - 1)², and the mean weight of the tokens.
    assert_equal(losses, [4, 0])
    assert_equal(weights, [0.25, 0])


def test_tokens_get_the_reward_of_their_sequence_without_padding():
    x = numbers((BATCH, 3, DIM))
    x[2, 1:] = 0.0
    inputs = keras.Input((3, DIM))
    moe = reinforced(policy_weight=1.0)
    model = compiled(inputs, layers.Dense(2)(moe(layers.Masking()(inputs))))
    y, mask = numbers((BATCH, 3, 2), seed=1), (x != 0).any(-1)
    rewind(moe.gate)
    predictions = model(x, training=True)
    found = numpy(model.compute_loss(x, y, predictions, training=True))
    errors = ((numpy(predictions) - y) ** 2).mean(-1)
    each = (errors * mask).sum(1) / mask.sum(1)
    rewind(moe.gate)
    moe.gate.route(RouterInputs(x.reshape(-1, DIM), valid=mask.ravel()), True)
    policy = numpy(moe.gate.policy_loss(each.astype("float32")))
    assert_close(found, errors[mask].mean() + policy, rtol=1e-4)
    assert np.isfinite(model.fit(x, y, verbose=0).history["loss"]).all()


@pytest.mark.parametrize("ignore", [False, True], ids=["weights", "ignore_class"])
def test_tokens_without_a_weight_have_no_part_in_the_reward(ignore):
    x, y = numbers((BATCH, 3, DIM)), np.arange(3 * BATCH).reshape(BATCH, 3) % 2
    weight = np.array([[1, 1, 1], [2, 0, 0], [1, 0, 3]] * 2, "float32")
    if ignore:
        weight = np.minimum(weight, 1.0)
    inputs, gate = (
        keras.Input((3, DIM)),
        dk.baselines.ReinforceGate(seed=0, policy_weight=1.0),
    )
    pool = layers.GlobalAveragePooling1D()
    moe = dk.MoE(dk.DenseExperts(3, [5]), gate, True, routing_network=pool)
    model = dk.baselines.RoutedModel(inputs, layers.Dense(2, "softmax")(moe(inputs)))
    ignored = -1 if ignore else None
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(False, ignored))
    labels = np.where(weight > 0, y, -1 if ignore else 1 - y)
    rewind(moe.gate)
    predictions = model(x, training=True)
    given = None if ignore else weight
    found = numpy(model.compute_loss(x, labels, predictions, given, training=True))
    chances = np.take_along_axis(numpy(predictions), y[..., None], -1)[..., 0]
    each = -(weight * np.log(chances)).sum(1) / weight.sum(1)
    rewind(moe.gate)
    moe.gate.route(x.mean(1), training=True)
    own = None if ignore else weight.mean(1)
    policy = numpy(moe.gate.policy_loss(each.astype("float32"), own))
    plain = -(weight * np.log(chances)).sum() / (weight.sum() if ignore else 3 * BATCH)
    assert_close(found, plain + policy, rtol=1e-4)


def test_policy_losses_of_several_layers_are_averaged():
    inputs = keras.Input((DIM,))
    model = compiled(inputs, Taught()(layers.Dense(2)(Taught()(inputs))))
    task = ((numpy(model(X)) - Y) ** 2).mean()
    assert_close(step_loss(model), task + 2.0 * task, rtol=1e-5)


class Taught(layers.Layer):
    """Not one of our gates, but taught by the loss all the same."""

    num_gates = None

    def call(self, inputs):
        return inputs

    def policy_loss(self, losses, sample_weight=None):
        assert sample_weight.shape == losses.shape == (BATCH,)
        return 2.0 * ops.mean(losses)

    def forget(self):
        """Nothing is kept."""


def test_labels_without_an_axis_fit_outputs_of_width_one():
    model = make(reinforced(), outputs=1)
    losses = [losses_of_a_step(model, y)[0] for y in (Y[:, 0], Y[:, :1])]
    assert_close(losses[0], losses[1], rtol=1e-6)


def test_losses_of_several_outputs_are_summed_for_each_gate():
    inputs = keras.Input((DIM,))
    mixed = reinforced(policy_weight=1.0, num_gates=2)(inputs)
    mixed = layers.Flatten()(mixed)
    outputs = {"a": layers.Dense(1)(mixed), "b": layers.Dense(2)(mixed)}
    model = compiled(inputs, outputs, {"a": "mae", "b": "mse"})
    y = {"a": Y[:, :1], "b": Y}
    found, outputs, policy = losses_of_a_step(model, y)
    each = np.abs(outputs["a"] - y["a"])[:, 0]
    each = each + ((outputs["b"] - y["b"]) ** 2).mean(axis=1)
    assert_close(found, each.mean() + policy(each), rtol=1e-4)


def test_outputs_have_weights_of_their_own_and_names_in_any_order():
    inputs = keras.Input((DIM,))
    mixed = reinforced(policy_weight=1.0)(inputs)
    outputs = [layers.Dense(2, name="b")(mixed), layers.Dense(2, name="a")(mixed)]
    model = compiled(inputs, outputs, {"a": "mae", "b": "mse"})
    y = {"a": Y, "b": Y + 3.0}
    of_b, of_a = np.array([0, 1, 1, 0, 2, 1.0]), np.arange(6.0)
    found, (b, a), policy = losses_of_a_step(model, y, [of_b, of_a])
    each = of_a * np.abs(a - y["a"]).mean(1)
    each = each + of_b * ((b - y["b"]) ** 2).mean(1)
    labeled = np.array([0, 1, 1, 1, 1, 1.0])
    assert_close(found, each.mean() + policy(each, labeled), rtol=1e-4)


@pytest.mark.traced
@pytest.mark.parametrize("per_example", [False, True])
def test_learns_which_expert_is_right(per_example):
    bank = dk.DenseExperts(3, [1], None)
    gate = dk.baselines.ReinforceGate(1.0, 0.01, 1.0, use_bias=True, seed=0)
    inputs = keras.Input((2,))
    moe = dk.MoE(bank, gate, per_example=per_example)
    model = dk.baselines.RoutedModel(inputs, moe(inputs))
    kernels = np.array([[[-1.0], [1.0]], [[1.0], [2.0]], [[1.0], [0.0]]])
    bank.set_weights([kernels, np.zeros((3, 1))])
    bank.trainable = False
    x = numbers((64, 2))
    y = x @ np.array([[1.0], [2.0]], "float32")
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.fit(x, y, batch_size=8, epochs=10, verbose=0)
    weights = numpy(moe.expert_weights(x if per_example else None)).reshape(-1, 3)
    assert weights[:, 1].mean() > 0.9
    # At inference there is no draw, and nothing is left of the last step.
    assert model.evaluate(x, y, verbose=0) < 0.2
    assert model.predict(x[:3], verbose=0).shape == (3, 1)
    assert gate.policy_loss(np.zeros(8)) == 0.0


def test_a_saved_model_gives_the_same_and_trains_on(tmp_path):
    model = make(reinforced(), consistency=0.5, outputs_are="values")
    model.fit(X, Y, verbose=0)
    model(X, training=True)
    # Evaluation reports the loss alone.
    predicted = model.predict(X, verbose=0)
    wanted = ((predicted - Y) ** 2).mean()
    assert_close(model.evaluate(X, Y, verbose=0), wanted, rtol=1e-5)
    loaded = reloaded(model, tmp_path)
    assert type(loaded) is dk.baselines.RoutedModel
    assert (loaded.consistency, loaded.outputs_are) == (0.5, "values")
    assert_equal(loaded.predict(X, verbose=0), predicted)
    assert np.isfinite(loaded.fit(X, Y, verbose=0).history["loss"]).all()


def test_divergence_by_hand_and_from_certainty_in_half_precision():
    a, b = [[0.5, 0.5], [0.25, 0.75]], [[0.25, 0.75], [0.25, 0.75]]
    there = 0.5 * np.log(2) + 0.5 * np.log(2 / 3)
    back = 0.25 * np.log(1 / 2) + 0.75 * np.log(3 / 2)
    # Half the sum of both, and the mean over two examples.
    for pair, kind, wanted in [
        ((a, b), "probabilities", (there + back) / 2 / 2),
        ((np.log(a) + 3, np.log(b)), "logits", (there + back) / 2 / 2),
        ((a, b), "values", 0.5 * 2 * 0.25**2 / 2),
    ]:
        assert_close(symmetric_divergence(*pair, kind), wanted, rtol=1e-5)
    # Padding does not count.
    long, mask = (
        (np.stack([x, 1 - np.array(x)], 1) for x in (a, b)),
        [[True, False]] * 2,
    )
    masked = [with_mask(ops.convert_to_tensor(each), np.array(mask)) for each in long]
    found = symmetric_divergence(*masked, "probabilities")
    assert_close(found, (there + back) / 2 / 2, rtol=1e-5)
    a, b = (ops.cast(v, "float16") for v in ([[1.0, 0.0]], [[0.0, 1.0]]))
    for kind in ("probabilities", "logits", "values"):
        found = symmetric_divergence(a, b, kind)
        assert dtype_of(found) == "float32"
        assert np.isfinite(numpy(found))


@pytest.mark.parametrize("kind", ["probabilities", "logits", "values"])
def test_adamix_draws_two_predictions_together(kind):
    activation = "softmax" if kind == "probabilities" else None
    bank = dk.DenseExperts(30, [4, DIM], ["swish", None])
    adamix = dk.SmearExperts(bank, dk.RandomGate(seed=0), False, per_layer=True)
    model = make(adamix, activation=activation, consistency=2.0, outputs_are=kind)
    rewind(adamix.gate)
    first, second = (numpy(model(X, training=True)) for _ in range(2))
    assert (first != second).any()
    rewind(adamix.gate)
    expected = ((first - Y) ** 2).mean()
    expected += 2 * float(symmetric_divergence(first, second, kind))
    assert_close(step_loss(model), expected, rtol=1e-4)


def test_both_predictions_get_a_gradient():
    bank = dk.DenseExperts(2, [DIM], None)
    adamix = dk.SmearExperts(bank, dk.RandomGate(seed=0), per_example=False)
    model = make(adamix, consistency=1.0, outputs_are="values")
    kernel = adamix.experts.trainable_variables[0]

    # If the two runs take different experts, both experts get a gradient.
    step = differentiated(
        lambda: [step_loss(model)], [kernel], model.non_trainable_variables
    )
    reached = []
    for _ in range(8):
        _, (by_kernel,) = step()
        reached.append(by_kernel.any(axis=(1, 2)).sum())
    assert max(reached) == 2


@pytest.mark.traced
def test_penalties_are_counted_once():
    gate, settings = dk.DSelectKGate(2, entropy_reg=0.5), {"outputs_are": "values"}
    model = make(dk.MoE(dk.DenseExperts(4, [5]), gate), consistency=1.0, **settings)
    penalty = numpy(gate.report()["penalties"]["entropy"])
    expected = ((numpy(model(X)) - Y) ** 2).mean() + penalty
    assert_close(step_loss(model), expected, rtol=1e-5)
    log = model.fit(X, Y, batch_size=BATCH, verbose=0)
    assert_close(log.history["loss"][0], expected, rtol=1e-5)


def test_rewards_and_consistency_leave_nothing_behind():
    model = make(reinforced(), consistency=1.0, outputs_are="values")
    log = model.fit(X, Y, batch_size=3, epochs=2, verbose=0)
    assert np.isfinite(log.history["loss"]).all()
    assert model.layers[1].gate.policy_loss(np.zeros(3)) == 0.0
    model.evaluate(X, Y, verbose=0)


@pytest.mark.parametrize("per_example", [False, True])
def test_a_batch_without_examples_is_no_error(per_example):
    model = make(reinforced(per_example), consistency=0.5, outputs_are="values")
    x, y = X[:0], Y[:0]
    loss = model.compute_loss(x, y, model(x, training=True), training=True)
    # The loss of Keras has no value, and what is added to it is finite.
    assert np.isfinite(numpy(loss)).all()


@pytest.mark.backend_independent
def test_arguments_that_it_does_not_have_are_refused():
    x = keras.Input((3,))
    with pytest.raises(TypeError, match="argument 'consistancy'"):
        dk.baselines.RoutedModel(x, x, consistancy=1.0)


def fit_with_weights_of_losses():
    inputs = keras.Input((3,))
    moe = dk.MoE(
        dk.DenseExperts(4, [2]), dk.baselines.ReinforceGate(), per_example=True
    )
    model = dk.baselines.RoutedModel(inputs, {"a": moe(inputs), "b": inputs})
    model.compile("sgd", {"a": "mse", "b": "mse"}, loss_weights={"a": 1.0, "b": 0.0})
    labels = {"a": np.zeros((6, 2)), "b": np.zeros((6, 3))}
    model.fit(numbers((6, 3)), labels, verbose=0)


DRAWS_NOTHING = partial(make, layers.Identity())
test_what_cannot_be_is_refused = refusals(
    (fit_with_weights_of_losses, "with `loss_weights`, or with outputs"),
    (DRAWS_NOTHING, r"'logits', 'values'.*='classes'", {"outputs_are": "classes"}),
    (DRAWS_NOTHING, "at least 0", {"consistency": -1}),
)


@pytest.mark.parametrize("consistency", [0.0, 1.0])
def test_a_second_run_is_in_the_same_step_and_changes_nothing(consistency):
    def step(consistency, steps=()):
        keras.utils.set_random_seed(0)
        inputs, bank = keras.Input((DIM,)), dk.DenseExperts(4, [5])
        gate = dk.TopKGate(2, bias_rate=0.1, kernel_initializer="glorot_normal")
        moe = dk.MoE(bank, gate, per_example=True, dispatch=1.0)
        close = L2Constrained(dk.DenseExperts(2, [3]), dk.Ramp(1.0, 0.1, end=10))
        x = layers.Concatenate()([moe(inputs), layers.Flatten()(close(inputs))])
        x = layers.BatchNormalization()(x)
        kind = {"consistency": consistency, "outputs_are": "values"}
        model = compiled(inputs, layers.Dense(2)(x), **kind)
        for _ in range(2):
            with recording(lambda call: steps.append(int(call.gate.step))):
                loss = step_loss(model)
        state = {each.path: numpy(each) for each in model.non_trainable_weights}
        return state, numpy(loss), int(moe.num_dropped)

    steps = []
    wanted, loss, dropped = step(0.0, [])
    assert dropped > 0
    found, again, _ = step(consistency, steps)
    assert steps == ([1, 1, 2, 2] if consistency else [1, 2])
    assert_equal([*found.values()], [*wanted.values()])
    assert_close(again, loss, rtol=1e-5)
