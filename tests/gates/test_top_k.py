import warnings
from functools import partial

import helpers
import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from gate_cases import Case
from helpers import numbers, numpy, sigmoid, softmax, spread, weight_gradients
from keras import ops

import dselectk_keras as dk
from dselectk_keras.gates import RouterInputs

SPARSE_BUT_FOR_NOISE = {"sparse_gradient": True, "training_only": ("noise",)}
CASES = [
    Case("top-k", partial(dk.TopKGate, 2, use_bias=True), sparse_gradient=True),
    Case(
        "noisy top-k",
        partial(dk.TopKGate, 2, noise=True, seed=1),
        **SPARSE_BUT_FOR_NOISE,
    ),
    Case(
        "top-k with load",
        partial(
            dk.TopKGate,
            2,
            noise=True,
            load_reg=dk.Ramp(0.1, 0.2, end=9),
            weights_regularizer=dk.ImportanceRegularizer(0.1, squared=True),
        ),
        penalties=("load", "weights"),
        **SPARSE_BUT_FOR_NOISE,
    ),
    Case(
        "top-k after dense steps",
        partial(
            dk.TopKGate,
            2,
            noise=dk.Ramp(1.0, 0.0, end=4, kind="linear"),
            load_reg=0.1,
            dense_steps=2,
        ),
        penalties=("load",),
        dense=True,
        training_only=("noise",),
    ),
    Case(
        "sigmoid top-k with a bias",
        partial(dk.TopKGate, 2, scores="sigmoid", bias_rate=0.01, use_bias=True),
        looks=("x",),
        sparse_gradient=True,
    ),
]
N, BATCH, DIM = 5, 64, 4


def top_k(num_nonzeros=2, num_experts=N, features=None, weights=None, **settings):
    gate = dk.TopKGate(num_nonzeros, **settings)
    return helpers.built(gate, num_experts, features, weights)


def with_logits(logits, num_nonzeros=1, bias_rate=0.1, **settings):
    """A per-example gate; an example is a mixture of the rows of logits."""
    settings["bias_rate"] = bias_rate
    gate = top_k(num_nonzeros, np.shape(logits)[1], len(logits), **settings)
    kernel = gate.trainable_weights[0]
    kernel.assign(np.tile(logits, kernel.shape[1] // np.shape(logits)[1]))
    return gate


def share(values):
    return values / values.sum(axis=-1, keepdims=True)


LOGITS = np.log([1.0, 3.0, 0.5, 1.0, 0.1])
SIGNED = np.array([1.0, 3.0, -2.0, 0.5, -0.1])
FAVOURITE = [np.array([50.0, 0, 0, 0, 0]), np.zeros(N)]
WORTH = np.array([1.0, 2.0, 3.0, 4.0, 5.0])


@pytest.mark.parametrize(
    ("logits", "settings", "wanted"),
    [
        (LOGITS, {}, [0.25, 0.75, 0, 0, 0]),
        # Equal logits still keep exactly k, and sigmoids of huge ones are finite.
        (np.zeros(N), {}, [0.5, 0.5, 0, 0, 0]),
        (np.full(N, 200.0), {"scores": "sigmoid"}, [0.5, 0.5, 0, 0, 0]),
        (np.full(N, -200.0), {"scores": "sigmoid"}, [0.5, 0.5, 0, 0, 0]),
        # Sigmoid scores are divided by the sum of those chosen; in dense steps, of all.
        (SIGNED, {"scores": "sigmoid"}, share(sigmoid(SIGNED) * [1, 1, 0, 0, 0])),
        (SIGNED, {"scores": "sigmoid", "dense_steps": 1}, share(sigmoid(SIGNED))),
    ],
)
def test_weights_by_hand(logits, settings, wanted):
    found = top_k(2, weights=[logits], **settings).expert_weights()
    assert_close(found, wanted, rtol=1e-5)


def test_the_noise_starts_at_softplus_of_zero():
    gate = top_k(N, features=DIM, noise=True, kernel_initializer="zeros", seed=0)
    weights = gate.route(numbers((5000, DIM)), training=True).weights
    # Equal logits and nothing dropped: the log weights differ by the noise alone.
    first, second, *_ = np.log(numpy(weights)).T
    noise = (first - second) / np.sqrt(2)
    assert_close(noise.std(), np.log(2), rtol=0.03)
    assert_close(noise.mean(), 0, atol=0.02)
    # So the load is balanced.
    gate = top_k(2, features=DIM, noise=True, load_reg=1.0, kernel_initializer="zeros")
    gate((numbers((4096, N, 1)), numbers((4096, DIM))), training=True)
    assert 0 < numpy(gate.losses[0]) < 0.01


def only_largest(weights, k):
    kept = np.where(weights >= np.sort(weights)[..., -k, None], weights, 0)
    return kept / kept.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("num_gates", [None, 3])
@pytest.mark.parametrize("per_example", [False, True])
def test_the_gate_is_dense_before_it_keeps_k(per_example, num_gates):
    x, features = (numbers((BATCH, DIM)), DIM) if per_example else (None, None)
    gate = spread(top_k(2, N, features, dense_steps=2, num_gates=num_gates))
    assert (gate.max_experts(), top_k(2).max_experts()) == (None, 2)
    logits = numbers(gate.trainable_weights[0].shape)
    if per_example:
        logits = (x @ logits).reshape(BATCH, *gate.gate_shape, N)
    dense = softmax(logits)
    assert_close(gate.expert_weights(x), dense, rtol=1e-4)
    for weights in [dense, dense, only_largest(dense, 2), only_largest(dense, 2)]:
        assert_close(gate.route(x, training=True).weights, weights, rtol=1e-4)
        assert_close(gate.expert_weights(x), weights, rtol=1e-4)


def test_all_logits_get_a_gradient_in_dense_steps_and_then_k():
    gate = top_k(2, dense_steps=1, weights=[LOGITS])
    for weights in (np.exp(LOGITS) / 5.6, np.array([0.25, 0.75, 0, 0, 0])):
        (found,) = weight_gradients(
            gate, lambda: ops.sum(gate(WORTH[None, :, None], training=True))
        )
        assert_close(found, weights * (WORTH - (weights * WORTH).sum()), rtol=1e-4)


def test_dense_steps_drop_experts_among_all():
    gate = top_k(1, dense_steps=1, expert_dropout=0.5, num_gates=2000, seed=0)
    weights = numpy(gate.route(training=True).weights)
    open_experts = (weights > 0).sum(axis=-1)
    # At least one of five, each kept with probability 1/2.
    assert set(open_experts) == {1, 2, 3, 4, 5}
    assert_close(weights.sum(axis=-1), 1, rtol=1e-6)
    assert_close(open_experts.mean(), 2.5 + 5 / 32, rtol=0.03)
    assert_equal((numpy(gate.route(training=True).weights) > 0).sum(axis=-1), 1)


@pytest.mark.parametrize("dense_steps", [0, 1])
def test_the_load_is_equal_in_dense_steps_and_then_that_of_one_favourite(dense_steps):
    settings = {"noise": True, "load_reg": 0.5, "dense_steps": dense_steps}
    gate = top_k(1, weights=FAVOURITE, **settings)
    # All on one of n: the squared coefficient of variation is n - 1.
    for wanted in [0] * dense_steps + [0.5 * (N - 1)]:
        gate(numbers((BATCH, N, 1)), training=True)
        assert_close(gate.losses[0], wanted, rtol=1e-5)


def test_each_gate_has_its_distance_from_a_binary_selection():
    weights = [[1.0, 3.0, 0.5, 1.0, 0.5], [4.0, 2.0, 1.0, 0.5, 0.5]]
    gate = top_k(2, dense_steps=1, num_gates=2, weights=[np.log(weights), np.int32(1)])
    for distances in [[2 / 6] * 2, [2 / 8] * 2], [[0, 0]] * 2:
        found = gate.chosen_experts()
        assert_equal(found.choices, [[1, 0], [0, 1]])
        assert_close(found.distance, distances, rtol=1e-5)
        gate.step.assign(2)


def test_models_are_condensed_with_sigmoid_scores():
    inputs = keras.Input((DIM,))
    gate = dk.TopKGate(3, scores="sigmoid")
    layer = dk.MMoE(dk.DenseExperts(8, [3]), gate, ["a", "b"], stacked=True)
    model, x = keras.Model(inputs, layer(inputs)), numbers((BATCH, DIM))
    layer.gate.trainable_weights[0].assign(3 * numbers((2, 8)))
    assert_close(dk.condense(model)(x), model(x), atol=1e-5)


def test_the_noise_has_a_factor():
    def logits(noise):
        gate = top_k(N, noise=noise, seed=0, kernel_initializer="zeros")
        weights = np.log(numpy(gate.route(training=True).weights))
        return weights - weights.mean()

    wanted, ramp = logits(True) / 2, dk.Ramp(1.0, 0.0, end=2, kind="linear")
    for noise in (0.5, ramp, lambda step: 0.5):
        assert_close(logits(noise), wanted, atol=1e-5)


def test_the_noise_ends_with_its_schedule():
    ramp = dk.Ramp(1.0, 0.0, end=2, kind="linear")
    weights = [LOGITS, np.zeros(N), np.int32(1)]
    gate = top_k(2, noise=ramp, load_reg=1.0, weights=weights)
    assert_close(gate.route(training=True).weights, [0.25, 0.75, 0, 0, 0], rtol=1e-5)
    # Experts 0 and 3 share the threshold; the load is (1/2, 1, 0, 1/2, 0).
    assert_close(gate.losses[0], 0.14 / 0.16, rtol=1e-5)
    for each in weight_gradients(gate, lambda: gate.report()["penalties"]["load"]):
        assert_equal(each, 0)


def test_the_gradient_of_sigmoid_scores_by_hand():
    gate = top_k(2, scores="sigmoid", weights=[SIGNED])
    (found,) = weight_gradients(gate, lambda: ops.sum(gate(WORTH[None, :, None])))
    scores = sigmoid(SIGNED) * [1, 1, 0, 0, 0]
    gains = WORTH - (scores * WORTH).sum() / scores.sum()
    # The derivative of the sigmoid is s (1 - s).
    wanted = scores * (1 - scores) * gains / scores.sum()
    assert_close(found, wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("bias_rate", [0.0, 0.1])
@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
@pytest.mark.parametrize("logits", [[200, 600, 400], [-300, -100, -200]])
def test_scores_that_rounding_makes_equal_are_chosen_by_their_logits(
    logits, scores, bias_rate
):
    for k in (1, 2):
        gate = with_logits(np.diag(logits), k, bias_rate, scores=scores)
        weights = partial(gate.expert_weights, np.ones((1, 3)))
        (found,) = weight_gradients(gate, lambda each=weights: ops.sum(each() ** 2))
        assert np.isfinite(found).all()
        even = scores == "sigmoid" and k == 2 and logits[0] > 0
        wanted = [0, 0.5, 0.5] if even else [0, 1, 0]
        assert_close(numpy(weights())[0], wanted, atol=1e-7)


def with_bias(**settings):
    """A gate of identical logits, so that the bias alone decides."""
    return with_logits(np.zeros((2, 3)), scores="sigmoid", use_bias=True, **settings)


def bias(gate):
    (found,) = (each for each in gate.weights if each.name == "choice_bias")
    return found


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
def test_the_bias_falls_where_the_load_is_high(scores):
    # Example i prefers expert i, and then the first of the others.
    gate = with_logits(np.eye(4), 2, 0.25, scores=scores)
    x = np.eye(4, dtype="float32")[[0, 1, 3]]
    gate.route(x, training=False)
    assert_equal(bias(gate), np.zeros(4))
    gate.route(x, training=True)
    # The loads are 3, 2, 0 and 1, and their mean is 1.5.
    assert_equal(bias(gate), [-0.25, -0.25, 0.25, 0.25])


@pytest.mark.parametrize(
    ("chosen", "valid", "wanted"),
    [([0, 1, 2] * 7, None, [0, 0, 0]), ([0, 1, 2, 2], [1, 1, 0, 0], [-0.1, -0.1, 0.1])],
    ids=["equal loads leave the bias", "padding has no load"],
)
def test_the_load_is_that_of_all_valid_examples(chosen, valid, wanted):
    gate = with_logits(np.eye(3))
    valid = None if valid is None else ops.convert_to_tensor(np.array(valid, bool))
    gate.route(RouterInputs(np.eye(3)[chosen], valid=valid), training=True)
    assert_close(bias(gate), wanted, rtol=1e-6)


def test_the_bias_changes_the_choice_by_scores_but_not_the_weights():
    logits = np.array([2.0, 1.0, 0.5])
    gate = with_logits(np.diag(logits), 2, scores="sigmoid")
    bias(gate).assign([-1.0, 0.0, 0.0])
    wanted = [[0, *share(sigmoid(logits[1:]))]]
    assert_close(gate.expert_weights(np.ones((1, 3))), wanted, rtol=1e-5)
    gate = with_logits([[5.0, 3.0]], scores="sigmoid")
    for size, chosen in ((0.03, 0), (0.05, 1)):  # The scores differ by 0.041.
        bias(gate).assign([0.0, size])
        assert_equal(gate.expert_weights(np.ones((1, 1))), [np.eye(2)[chosen]])
    gate = with_logits([[200.0, 50.0, 0.0]], 2)
    assert_equal(gate.route(np.ones((4, 1)), training=True).weights, [[1, 0, 0]] * 4)
    assert_close(bias(gate), [-0.1, -0.1, 0.1], rtol=1e-6)


def test_each_gate_has_a_bias_of_its_own_load_which_dense_steps_leave():
    gate = with_bias(num_gates=2)
    bias(gate).assign([[0.0, 0.5, 0.0], [0.0, 0.0, 0.5]])
    gate.route(numbers((4, 2)), training=True)
    assert_close(bias(gate), [[0.1, 0.4, 0.1], [0.1, 0.1, 0.4]], rtol=1e-6)
    gate = with_bias(dense_steps=1, expert_dropout=0.5, seed=0)
    for wanted in ([0, 0, 0], [-0.1, 0.1, 0.1]):
        assert np.isfinite(numpy(gate.route(numbers((1, 2)), True).weights)).all()
        assert_close(np.sort(numpy(bias(gate))), wanted, rtol=1e-6)


def test_dropped_experts_are_not_chosen_whatever_their_bias():
    gate = with_bias(num_gates=500, expert_dropout=0.5, seed=0)
    bias(gate).assign(np.tile([0.0, 0.0, 9.0], (500, 1)))
    weights = numpy(gate.route(numbers((4, 2)), training=True).weights)
    assert_equal((weights > 0).sum(axis=-1), 1)
    # The last expert is dropped in half of the draws, unless all of them are.
    assert_close(weights[..., 2].mean(), 1 / 2 + 1 / 8, atol=0.04)


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
@pytest.mark.parametrize("k", [1, 9, 12])
def test_many_experts_are_chosen_by_score_then_logit_then_place(k, scores):
    # Whole numbers, so that some scores and some logits are equal.
    logits = np.round(2 * numbers((6, 20), seed=1))
    gate = with_logits(logits, k, scores=scores)
    bias(gate).assign(np.round(numbers(20, seed=2)))
    found = numpy(gate.expert_weights(np.eye(6)))
    each = {"softmax": softmax, "sigmoid": sigmoid}[scores](logits).astype("float32")
    score = (each + numpy(bias(gate))).astype("float32")
    places = np.broadcast_to(np.arange(20), logits.shape)
    order = np.lexsort((places, -logits, -score))[:, :k]
    wanted = np.zeros(logits.shape)
    np.put_along_axis(wanted, order, np.take_along_axis(each, order, 1), 1)
    assert_close(found, share(wanted), rtol=1e-4, atol=1e-7)


@pytest.mark.traced
@pytest.mark.parametrize("k", [8, 9])
def test_the_gradient_of_many_chosen_experts_is_that_of_their_scores(k):
    # Twenty equal biases choose as no bias does.
    weights = []
    for rate in (0.0, 0.1):
        gate = spread(top_k(k, 20, DIM, bias_rate=rate))
        x, worth = numbers((6, DIM)), numbers((6, 20), seed=3)
        experts = worth[..., None]
        call = partial(gate, experts, x, training=True)
        weights += weight_gradients(gate, lambda call=call: ops.sum(call()))
    assert_close(*weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_a_logit_that_is_nan_shows_in_the_weights_with_a_bias(k, scores):
    logits = np.zeros((2, 12))
    logits[0, 5] = np.nan
    found = numpy(with_logits(logits, k, scores=scores).expert_weights(np.eye(2)))
    assert np.isnan(found[0]).any()


def test_a_frozen_gate_keeps_its_bias_and_counts_its_steps():
    moe = dk.MoE(dk.DenseExperts(3, [2]), dk.TopKGate(2, bias_rate=0.1), True)
    moe(numbers((8, 4)), training=True)
    before = numpy(bias(moe.gate))
    assert before.any()
    moe.trainable = False
    moe(numbers((8, 4)), training=True)
    assert_equal(bias(moe.gate), before)
    assert int(moe.gate.step) == 2
    moe.trainable = True
    moe(numbers((8, 4)), training=True)
    assert (numpy(bias(moe.gate)) != before).any()


UNTRAINED = "does not train the router of a `TopKGate` with num_nonzeros=1: .*Switch"


@pytest.mark.backend_independent
def test_the_warning_comes_once_from_each_layer_with_the_gate():
    banks, x = [dk.DenseExperts(3, [DIM]) for _ in range(4)], numbers((2, DIM))
    for layer in (
        dk.MoE(banks[0], dk.TopKGate(1), per_example=True),
        dk.MMoE(banks[1], dk.TopKGate(1), 2),
        dk.CGC(banks[2], dk.TopKGate(1), 2),
        dk.SmearExperts(banks[3], dk.TopKGate(1)),
    ):
        with pytest.warns(UserWarning, match=UNTRAINED) as caught:
            layer(x, training=True)
        assert len(caught) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            layer(x, training=True)


@pytest.mark.backend_independent
def test_a_gate_does_not_warn_whose_router_learns_or_is_not_to_learn():
    frozen = dk.TopKGate(1)
    frozen.trainable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frozen.build((None, N))
        top_k(1, num_experts=1)
        top_k(1, dense_steps=1)
        for gate in (dk.SwitchGate(), dk.DSelectKGate(1), dk.ChosenGate(1)):
            gate.build((None, N))


test_settings_that_cannot_be_are_refused = helpers.refusals(
    (top_k, r"must not exceed the 5 experts.*nonzeros=6", 6),
    (
        lambda noise: top_k(noise=noise),
        "`noise` must be",
        *(0, -1.0, "large", None),
    ),
    (
        lambda k: top_k(dense_steps=k),
        "`dense_steps` must be an integer >=",
        *(-1, 2.5, True),
    ),
    (top_k, "`scores` must be one of 'softmax', 'sigm", {"scores": "relu"}),
    (top_k, "`bias_rate` must be a finite number at l", {"bias_rate": -0.1}),
    (top_k, "needs noise=True", {"load_reg": 0.1}),
    (
        top_k,
        "needs noise=True, and bias_rate=0",
        {"bias_rate": 0.1, "noise": True, "load_reg": 0.1},
    ),
    (top_k, "A static gate has no loads to balance", {"bias_rate": 0.1}),
)
