"""Regularizers: terms by hand, schedules, configs, and what gates add of them."""

import itertools
import json
from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, dtype_of
from helpers import (
    built,
    gradient,
    numbers,
    numpy,
    shares,
    softmax,
    value_and_gradients,
)
from keras import layers, ops

import dselectk_keras as dk
from dselectk_keras import (
    DSelectKGate,
    EntropyRegularizer,
    ImportanceRegularizer,
    LoadRegularizer,
    ReachabilityRegularizer,
    SoftmaxGate,
    SparsityRegularizer,
    TopKGate,
)
from dselectk_keras.gates.record import recording
from dselectk_keras.ops import entropy, selector_product
from dselectk_keras.regularizers import (
    RouterZRegularizer,
    ScheduledRegularizer,
    WeightsRegularizer,
    squared_distances,
)

# All regularizers.

CLASSES = [dk.EntropyRegularizer, dk.ImportanceRegularizer, dk.LoadRegularizer]
CLASSES += [dk.ReachabilityRegularizer, dk.RouterZRegularizer, dk.SparsityRegularizer]
SETTINGS = {
    **{kind: {} for kind in [*CLASSES, dk.SwitchLoadRegularizer]},
    dk.EntropyRegularizer: {"target": "bits"},
    dk.ImportanceRegularizer: {"squared": True},
    dk.SampleSimilarityRegularizer: {"beta_s": 0.7, "beta_d": 0.3},
}
INPUTS = [[0.5, 0.25, 0.0]]


@keras.saving.register_keras_serializable(package="tests")
def tenfold(step):
    return 10.0 * step


@pytest.fixture(params=CLASSES, ids=lambda cls: cls.__name__)
def cls(request):
    return request.param


def test_the_weight_is_taken_at_the_step_or_at_the_first(cls):
    unit = float(cls(1.0)(INPUTS))
    regularizer = cls(tenfold)
    found = [float(regularizer(INPUTS, step)) for step in (1, 2, 2, 7)]
    assert_close(found, np.multiply([10, 20, 20, 70], unit), rtol=1e-5)
    regularizer = cls(tenfold)
    for _ in range(2):
        assert float(regularizer(INPUTS)) == float(regularizer(INPUTS, 1))


@pytest.mark.backend_independent
@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("weight", [0.5, dk.Ramp(0.1, 1.0, end=9), tenfold])
def test_every_setting_is_saved(kind, weight):
    regularizer = kind(weight=weight, **SETTINGS[kind])
    config = json.dumps(keras.saving.serialize_keras_object(regularizer))
    again = keras.saving.deserialize_keras_object(json.loads(config))
    assert type(again) is kind
    assert again.get_config() == regularizer.get_config()
    assert again.get_config().items() >= SETTINGS[kind].items()
    if weight is tenfold:
        assert again.weight is tenfold


@pytest.mark.backend_independent
def test_a_bare_function_cannot_be_saved_and_a_weight_is_a_number_or_schedule(cls):
    with pytest.raises(ValueError, match=r"is not .* cannot be saved\. Pass a number"):
        cls(lambda calls: calls).get_config()
    with pytest.raises(ValueError, match=r"be a finite .*LearningRateSchedule"):
        cls("1")


@pytest.mark.backend_independent
def test_get_makes_a_regularizer_of_many_things(cls):
    regularizer = cls(0.5)
    assert cls.get(None, "x") is None
    assert cls.get(regularizer, "x") is regularizer
    assert cls.get(0.5, "x").get_config() == regularizer.get_config()
    assert cls.get(tenfold, "x").weight is tenfold
    assert ScheduledRegularizer.get(regularizer, "x") is regularizer


@pytest.mark.backend_independent
def test_what_a_regularizer_or_a_gate_has_no_meaning_for_is_refused():
    with pytest.raises(ValueError, match="`load_reg` must be a regularizer of"):
        ScheduledRegularizer.get(0.5, "load_reg")
    with pytest.raises(ValueError, match="`target` must be one of 'selectors', 'bits'"):
        EntropyRegularizer(target="experts")
    with pytest.raises(ValueError, match="z_reg"):
        DSelectKGate(2, z_reg=0.1)
    for other in (dk.SparsityRegularizer(0.1), LoadRegularizer(0.1)):
        with pytest.raises(ValueError, match="be a regularizer of a gate's weights"):
            WeightsRegularizer.get(other, "weights_regularizer")


@pytest.mark.backend_independent
def test_a_regularizer_of_another_kind_is_refused(cls):
    others = [other(0.5) for other in CLASSES if other is not cls]
    for other in (*others, keras.regularizers.L2(0.1)):
        wanted = f"`x` must be a `{cls.__name__}`, or its weight. Received: x=<"
        with pytest.raises(ValueError, match=wanted):
            cls.get(other, "x")


# Entropy.


def test_entropy_is_summed_over_selectors_with_the_weight_of_the_release():
    found = float(EntropyRegularizer(0.5)(np.full((2, 3, 4), 0.25)))
    assert_close(found, 0.5 * 6 * np.log(4), rtol=1e-5)
    regularizer = EntropyRegularizer()
    assert regularizer.get_config() == {"weight": 1e-6, "target": "selectors"}
    assert_close(float(regularizer([[0.5, 0.5]])), 1e-6 * np.log(2), rtol=1e-5)


def test_entropy_of_bits_is_that_of_all_codes():
    bits = np.array([0.2, 0.5, 0.9])
    both = np.stack([bits, 1.0 - bits], axis=-1)
    by_bit = float(EntropyRegularizer(1.0, target="bits")(both))
    codes = selector_product(bits, 8)
    assert_close(by_bit, float(EntropyRegularizer(1.0)(codes)), rtol=1e-4)
    # Five experts: the other codes are left out, and their entropy.
    assert float(EntropyRegularizer(1.0)(codes[:5])) < by_bit - 0.1


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (SoftmaxGate, 1),
        (partial(DSelectKGate, 2), 5),
        (partial(DSelectKGate, 2, reduction="mean"), 1),
    ],
)
def test_a_gate_sums_or_averages_the_entropy_of_its_weights(make, count):
    gate = built(make(weights_regularizer=EntropyRegularizer(0.5)), 4, 3)
    x = numbers((5, 3))
    mean = 0.5 * numpy(entropy(gate.expert_weights(x))).sum() / 5
    assert_close(gate.report(x)["penalties"]["weights"], count * mean, rtol=1e-5)
    bits = EntropyRegularizer(0.5, target="bits")
    with pytest.raises(ValueError, match=r"no bits.*target='bits'.*`entropy_reg`"):
        built(make(weights_regularizer=bits), 4, 3).report(x)


# Importance and load.


@pytest.mark.parametrize(("squared", "wanted"), [(False, 0.5), (True, 0.25)])
def test_importance_by_hand(squared, wanted):
    # The experts get 1 and 3: their mean is 2, their standard deviation 1.
    weights = [[0.5, 0.5], [0.5, 0.5], [0.0, 1.0], [0.0, 1.0]]
    value = ImportanceRegularizer(2.0, squared=squared)(weights)
    assert_close(float(value), 2 * wanted, rtol=1e-6)


def test_load_by_hand():
    # The experts expect 1 and 3 examples: the coefficient of variation is 1/2.
    probabilities = [[0.5, 1.0], [0.25, 1.0], [0.25, 1.0]]
    assert_close(float(LoadRegularizer(2.0)(probabilities)), 2 * 0.25, rtol=1e-6)


@pytest.mark.parametrize("cls", [ImportanceRegularizer, LoadRegularizer])
def test_balance_is_summed_over_gates_and_has_no_gradient_where_it_is_perfect(cls):
    # Each gate is unbalanced; together they are balanced.
    assert float(cls(1.0)([[[1.0, 0.0], [0.0, 1.0]]] * 3)) == 2.0
    assert_equal(gradient(cls(1.0), np.array([[1.0, 0.0], [0.0, 1.0]])), 0)


# The auxiliary loss of the Switch Transformer.

TOKENS = numbers((12, 3))


def test_switch_load_by_hand_summed_over_gates_and_zero_of_nothing():
    # Three of four tokens choose expert 0, whose mean probability is 5/8.
    p = np.array([[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.25, 0.75]])
    value = dk.SwitchLoadRegularizer(2.0)((p * (p > 0.5), p))
    assert float(value) == pytest.approx(2 * 2 * (3 / 4 * 5 / 8 + 1 / 4 * 3 / 8))
    weights = np.array([[[1.0, 0.0], [0.0, 1.0]]] * 3)  # Balanced only together.
    assert float(dk.SwitchLoadRegularizer(1.0)((weights, weights))) == 4.0
    nothing = np.zeros((3, 2))
    assert float(dk.SwitchLoadRegularizer(1.0)((nothing, nothing))) == 0.0


@pytest.mark.parametrize("make", [dk.SwitchGate, partial(dk.TopKGate, 2)])
def test_a_gate_penalizes_the_probabilities_of_experts_that_are_chosen_often(make):
    gate = built(make(weights_regularizer=dk.SwitchLoadRegularizer(0.5)), 4, 3)
    gate.trainable_variables[0].assign(numbers((3, 4), seed=1))

    def compute():
        gate.route(ops.convert_to_tensor(TOKENS), training=True)
        return [gate.losses[0]]

    variables = gate.trainable_variables
    (loss,), (found,) = value_and_gradients(compute, variables, [gate.step])
    p = softmax(TOKENS @ numbers((3, 4), seed=1))
    chosen = numpy(gate.expert_weights(TOKENS)) > 0
    share = chosen.sum(axis=0) / chosen.sum()
    assert loss == pytest.approx(0.5 * 4 * (share * p.mean(axis=0)).sum(), rel=1e-5)
    # The shares of the choices have no gradient.
    by_logits = p * (share - p @ share[:, None]) / len(TOKENS)
    assert_close(found, 0.5 * 4 * TOKENS.T @ by_logits, rtol=1e-4, atol=1e-6)


def test_a_noisy_gate_counts_its_choices_and_has_probabilities_without_noise():
    gate = dk.baselines.STGumbelGate(
        weights_regularizer=dk.SwitchLoadRegularizer(1.0), seed=0
    )
    built(gate, 4, 3)
    weights = numpy(gate.route(TOKENS, training=True).weights)
    p = softmax(TOKENS @ numpy(gate.trainable_variables[0]))
    expected = 4 * ((weights > 0).mean(axis=0) * p.mean(axis=0)).sum()
    assert float(numpy(gate.losses[0])) == pytest.approx(expected, rel=1e-5)


@pytest.mark.backend_independent
@pytest.mark.parametrize("make", [dk.SoftmaxGate, dk.DSelectKGate])
def test_a_gate_without_choices_or_without_logits_of_experts_is_refused(make):
    gate = built(make(weights_regularizer=dk.SwitchLoadRegularizer(0.1)), 4, 3)
    with pytest.raises(ValueError, match="sparse gate with one logit per expert"):
        gate.route(TOKENS, training=True)


# The router z-loss keeps the logits of a gate small.

LOGITS = numbers((3, 4), scale=2.0)


def test_router_z_is_the_squared_logarithms_with_the_softmax_in_its_gradient():
    logs = np.log(np.exp(LOGITS).sum(-1, keepdims=True))
    regularizer = RouterZRegularizer(0.5)
    assert float(regularizer(LOGITS)) == pytest.approx(0.5 * (logs**2).sum(), rel=1e-5)
    found = gradient(regularizer, LOGITS)
    assert_close(found, logs * softmax(LOGITS), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cls", [SoftmaxGate, lambda **kw: TopKGate(1, **kw)])
def test_a_gate_adds_the_mean_of_router_z_over_examples_and_its_sum_over_gates(cls):
    gate = cls(num_gates=2, z_reg=0.3)
    x = numbers((5, 3))
    gate(ops.ones((5, 4, 1)), x, training=True)
    kernel = numpy(gate.trainable_variables[0])
    logs = np.log(np.exp((x @ kernel).reshape(5, 2, 4)).sum(-1))
    assert_close(gate.losses[0], 0.3 * (logs**2).sum() / 5, rtol=1e-5)
    assert type(gate).from_config(gate.get_config()).z_reg.weight == 0.3


# Sparsity.


def test_sparsity_by_hand_and_descent_lowers_the_probabilities():
    value = SparsityRegularizer(2.0)(np.log([[0.5, 0.25], [1.0, 0.125]]))
    assert_close(float(value), -2 * 6 * np.log(2), rtol=1e-6)
    assert_equal(gradient(SparsityRegularizer(0.5), -np.abs(numbers((3, 4)))), 0.5)


# Reachability.


def test_reachability_and_its_gradient_by_hand_which_are_finite_without_any_mass():
    selectors = [[0.25, 0.25, 0.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.0]]
    value = float(ReachabilityRegularizer(0.5)(selectors))
    assert_close(value, 0.5 * (2 + 1 + 5), rtol=1e-6)
    found = gradient(ReachabilityRegularizer(2.0), np.array([[0.25, 0.25]]))
    assert_close(found, [[-8, -8]], rtol=1e-6)
    nothing = np.zeros((1, 3))
    assert_close(float(ReachabilityRegularizer(1.0)(nothing)), 1e6)
    assert_equal(gradient(ReachabilityRegularizer(1.0), nothing), 0)


# Alike examples to the same expert, others to others: Equations 8 to 10.

N, M, DIM = 6, 3, 4
X = numbers((N, DIM))


def by_hand(p, x, beta_s, beta_d):
    """The double sum over examples and over experts, term by term."""
    batch, experts = p.shape
    total = 0.0
    for a, b in itertools.permutations(range(batch), 2):
        distance = float(((x[a].astype("float64") - x[b]) ** 2).sum())
        products = np.outer(p[a], p[b])
        same = np.trace(products) / experts
        different = (products.sum() - np.trace(products)) / max(1, experts**2 - experts)
        total += (beta_s * same - beta_d * different) * distance
    return total / (batch**2 - batch)


def of_gates(weights, x):
    """The sum over gates of what is equal for all of them."""
    weights = np.reshape(weights, (N, -1, M))
    return sum(by_hand(w, x, 0.7, 0.3) for w in np.moveaxis(weights, 1, 0))


BOTH = dk.SampleSimilarityRegularizer(0.7, 0.3)


@pytest.mark.parametrize("experts", [M, 1])
@pytest.mark.parametrize("betas", [(1.0, 0.0), (0.7, 0.3)])
def test_similarity_equals_the_sums_term_by_term(betas, experts):
    p = shares(N, experts)
    found = dk.SampleSimilarityRegularizer(*betas, weight=2.0)((p, X))
    assert_close(float(found), 2 * by_hand(p, X, *betas), rtol=1e-5)


def test_the_mean_is_over_the_examples_that_count_and_computed_in_full():
    p, x = shares(N, M), X.copy()
    p[4:] = 0.0  # As where a mask left examples out.
    found = BOTH((p, x, np.float32(4)))
    assert_close(float(found), by_hand(p[:4], x[:4], 0.7, 0.3), rtol=1e-5)
    p, x = shares(N, M), 300 * X
    half = [ops.cast(value, "float16") for value in (p, x)]
    found = BOTH(half)
    assert dtype_of(found) == "float32"
    expected = by_hand(*(numpy(value).astype("float32") for value in half), 0.7, 0.3)
    assert_close(float(found), expected, rtol=1e-4)


@pytest.mark.parametrize("own", [False, True])
def test_similarity_is_summed_over_gates_by_their_own_inputs_if_they_have_any(own):
    p = shares(N, 2, M)
    x = numbers((N, 2, DIM), seed=5) if own else X
    found = BOTH((p, x))
    each = [x[:, g] if own else x for g in range(2)]
    expected = sum(by_hand(p[:, g], each[g], 0.7, 0.3) for g in range(2))
    assert_close(float(found), expected, rtol=1e-5)


def test_similarity_takes_inputs_as_constants():
    p, regularizer = shares(N, M), BOTH
    by_p, by_x = gradient(lambda v, x: regularizer((v, x)), p, X)
    assert by_p.any()
    assert not by_x.any()


@pytest.mark.parametrize("shape", [(5, 2, 3), (4,), (1, 3)])
@pytest.mark.parametrize("offset", [0, 1000])
def test_distances_follow_the_formula(shape, offset):
    x = numbers(shape) + np.float32(offset)
    exact = x.reshape(shape[0], -1).astype("float64")
    expected = ((exact[:, None] - exact[None]) ** 2).sum(axis=-1)
    assert_close(squared_distances(x), expected, rtol=1e-3, atol=1e-5)


def test_distances_are_zero_on_the_diagonal_and_nowhere_below():
    # Each row twice, but for a little: there rounding goes below zero.
    x = numbers((20, 7), scale=30.0)
    found = numpy(squared_distances(np.concatenate([x, x + numbers(x.shape) / 1e4])))
    assert_equal(np.diag(found), 0)
    assert_equal(found, found.T)
    assert (found >= 0).all()
    assert_close(np.diag(found, 20), 0, atol=1e-2)


def test_a_batch_without_pairs_has_no_penalty():
    p, regularizer = shares(1, M), dk.SampleSimilarityRegularizer(1.0, 1.0)
    assert float(regularizer((p, X[:1]))) == 0.0
    assert_equal(gradient(lambda v: regularizer((v, X[:1])), p), 0.0)
    gate = dk.SoftmaxGate(weights_regularizer=dk.SampleSimilarityRegularizer(1.0, 1.0))
    gate(ops.zeros((0, M, 2)), ops.zeros((0, DIM)), training=True)
    assert numpy(gate.losses[0]) == 0.0


@pytest.mark.parametrize("gate", [dk.SoftmaxGate, dk.baselines.AttentiveGate])
@pytest.mark.parametrize("num_gates", [None, 2])
def test_behind_a_network_the_network_s_inputs_are_compared(gate, num_gates):
    # As many rows in an image as gates: the axis is not taken for that of the gates.
    images = numbers((N, 2, 5), seed=3)
    network = keras.Sequential([layers.Flatten(), layers.Dense(4, "tanh")])
    made = gate(num_gates=num_gates, weights_regularizer=BOTH)
    make = dk.baselines.AttentiveMoE if gate is dk.baselines.AttentiveGate else dk.MoE
    moe = make(dk.DenseExperts(M, [4, 2]), made, True, routing_network=network)
    calls = []
    moe((X, images))
    with recording(calls.append):
        moe((X, images), training=True)
    expected = of_gates(numpy(moe.expert_weights((X, images))), images.reshape(N, -1))
    assert_close(moe.losses[0], expected, rtol=1e-4)
    penalties = moe.gate.report(calls[0].routing)["penalties"]
    assert_close(penalties["weights"], expected, rtol=1e-4)


def test_each_task_compares_its_own_inputs():
    gate = dk.SoftmaxGate(weights_regularizer=BOTH)
    bank = dk.DenseExperts(M, [2], shared_input=False)
    layer = dk.CGC(bank, gate, tasks=2, per_example="by_gate")
    x = numbers((N, 3, DIM), seed=3)
    layer(x, training=True)
    weights = numpy(layer.expert_weights(x))
    expected = sum(by_hand(weights[:, g], x[:, g], 0.7, 0.3) for g in range(2))
    assert_close(layer.losses[0], expected, rtol=1e-4)


@pytest.mark.backend_independent
def test_similarity_refuses_static_gates():
    gate = dk.SoftmaxGate(weights_regularizer=BOTH)
    gate(numbers((N, M, 2)))
    assert gate.losses == []
    with pytest.raises(ValueError, match=r"compares the weights of examples.*Pass"):
        gate(numbers((N, M, 2)), training=True)


def test_features_of_examples_are_not_taken_for_gates():
    losses = []
    for width in (4, 5):  # As many features as gates, and one more that is zero.
        examples = np.pad(numbers((6, 4)), [(0, 0), (0, width - 4)])
        gate = dk.SoftmaxGate(num_gates=4, weights_regularizer=BOTH)
        keras.utils.set_random_seed(0)
        x = numbers((6, 4, 3), seed=1)
        gate(numbers((6, 3, 2)), x, examples=examples, training=True)
        losses.append(numpy(gate.losses[0]))
    assert_close(losses[0], losses[1], rtol=1e-5)


def test_the_similarity_loss_does_not_read_examples_that_do_not_count():
    x, experts = numbers((4, 3)), numbers((4, 5, 2), seed=1)
    valid, losses = np.array([True, True, False, True]), []
    gate = dk.SoftmaxGate(weights_regularizer=dk.SampleSimilarityRegularizer(0.5, 0.7))
    for padding in (0.0, np.nan):
        examples = numbers((4, 6), seed=2)
        examples[~valid] = padding
        gate(experts, x, examples=examples, valid=valid, training=True)
        losses.append(numpy(gate.losses[0]))
    gate(experts[valid], x[valid], examples=examples[valid], training=True)
    assert_close(losses, [numpy(gate.losses[0])] * 2, rtol=1e-5)
