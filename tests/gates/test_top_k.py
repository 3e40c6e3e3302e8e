import keras
import numpy as np
import pytest
from gate_cases import Case
from helpers import numbers, numpy, value_and_gradients
from keras import ops

from dselectk_keras import (
    DenseExperts,
    ImportanceRegularizer,
    MMoE,
    MoE,
    Ramp,
    SoftmaxGate,
    TopKGate,
)
from dselectk_keras.gates import RouterInputs
from dselectk_keras.models import condense

CASES = [
    Case(
        "top-k",
        lambda **kwargs: TopKGate(2, use_bias=True, **kwargs),
        sparse_gradient=True,
    ),
    Case(
        "noisy top-k",
        lambda **kwargs: TopKGate(2, noise=True, **{"seed": 1, **kwargs}),
        sparse_gradient=True,
        training_only=("noise",),
    ),
    Case(
        "top-k with load",
        lambda **kwargs: TopKGate(
            2,
            noise=True,
            load_reg=Ramp(0.1, 0.2, end=9),
            weights_regularizer=ImportanceRegularizer(0.1, squared=True),
            **kwargs,
        ),
        penalties=("load", "weights"),
        sparse_gradient=True,
        training_only=("noise",),
    ),
    Case(
        "top-k after dense steps",
        lambda **kwargs: TopKGate(
            2,
            noise=Ramp(1.0, 0.0, end=4, kind="linear"),
            load_reg=0.1,
            dense_steps=2,
            **kwargs,
        ),
        penalties=("load",),
        dense=True,
        training_only=("noise",),
    ),
    Case(
        "sigmoid top-k with a bias",
        lambda **kwargs: TopKGate(
            2, scores="sigmoid", bias_rate=0.01, use_bias=True, **kwargs
        ),
        looks=("x",),
        sparse_gradient=True,
    ),
]


N, BATCH, DIM = 5, 64, 4


def built(num_nonzeros=2, *, per_example=False, **settings):
    gate = TopKGate(num_nonzeros, **settings)
    gate.build((None, N), (None, DIM) if per_example else None)
    return gate


def test_weights_by_hand():
    gate = built(2)
    gate.set_weights([np.log([1.0, 3.0, 0.5, 1.0, 0.1])])
    np.testing.assert_allclose(
        numpy(gate.expert_weights()), [0.25, 0.75, 0, 0, 0], rtol=1e-5
    )


@pytest.mark.parametrize("num_nonzeros", [1, 2, N])
def test_every_example_keeps_exactly_k(num_nonzeros):
    gate = built(num_nonzeros, per_example=True)
    weights = numpy(gate.expert_weights(numbers((BATCH, DIM))))
    np.testing.assert_array_equal((weights > 0).sum(axis=1), num_nonzeros)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)


def test_equal_logits_still_keep_exactly_k():
    gate = built(2, kernel_initializer="zeros")
    np.testing.assert_array_equal(numpy(gate.expert_weights()), [0.5, 0.5, 0, 0, 0])


def test_noise_is_there_in_training_only():
    gate = built(2, per_example=True, noise=True, seed=0)
    quiet = built(2, per_example=True)
    gate.set_weights([numbers(w.shape) for w in gate.trainable_weights])
    quiet.set_weights(gate.get_weights()[:1])
    inputs = (numbers((BATCH, N, 3)), numbers((BATCH, DIM)))
    wanted = numpy(quiet(inputs))
    np.testing.assert_array_equal(numpy(gate(inputs, training=False)), wanted)
    noisy = [numpy(gate(inputs, training=True)) for _ in range(2)]
    assert not np.allclose(noisy[0], wanted)
    assert not np.allclose(noisy[0], noisy[1])


def test_the_noise_starts_at_softplus_of_zero():
    gate = built(N, per_example=True, noise=True, kernel_initializer="zeros", seed=0)
    weights = gate.route(numbers((5000, DIM)), training=True).weights
    # Equal logits and nothing dropped: the log weights differ by the noise alone.
    first, second, *_ = np.log(numpy(weights)).T
    spread = (first - second) / np.sqrt(2)
    np.testing.assert_allclose(spread.std(), np.log(2), rtol=0.03)
    np.testing.assert_allclose(spread.mean(), 0, atol=0.02)


def test_one_seed_gives_the_same_noise():
    experts = numbers((BATCH, N, 3))
    outputs = []
    for seed in (3, 3, 4):
        gate = built(2, noise=True, seed=seed)
        gate.set_weights([numbers((N,)), numbers((N,), seed=1)])
        outputs.append(numpy(gate(experts, training=True)))
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert not np.allclose(outputs[0], outputs[2])


def test_the_load_of_equal_logits_is_balanced():
    gate = built(
        2, per_example=True, noise=True, load_reg=1.0, kernel_initializer="zeros"
    )
    gate((numbers((4096, N, 1)), numbers((4096, DIM))), training=True)
    assert 0 < numpy(gate.losses[0]) < 0.01


def test_the_load_of_one_favourite_is_not():
    gate = built(1, noise=True, load_reg=0.5)
    gate.set_weights([np.array([50.0, 0, 0, 0, 0]), np.zeros(N)])
    gate(numbers((BATCH, N, 1)), training=True)
    # All on one of n: the squared coefficient of variation is n - 1.
    np.testing.assert_allclose(numpy(gate.losses[0]), 0.5 * (N - 1), rtol=1e-5)


def test_more_nonzeros_than_experts_are_refused():
    with pytest.raises(ValueError, match=r"must not exceed the 5 experts.*nonzeros=6"):
        built(6)


def test_a_load_without_noise_is_refused():
    with pytest.raises(ValueError, match="needs noise=True"):
        TopKGate(2, load_reg=0.1)


# Dense steps.


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def only_largest(weights, k):
    kept = np.where(weights >= np.sort(weights)[..., -k, None], weights, 0)
    return kept / kept.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("num_gates", [None, 3])
@pytest.mark.parametrize("per_example", [False, True])
def test_the_gate_is_dense_before_it_keeps_k(per_example, num_gates):
    gate = built(2, per_example=per_example, dense_steps=2, num_gates=num_gates)
    gate.trainable_weights[0].assign(numbers(gate.trainable_weights[0].shape))
    x = numbers((BATCH, DIM)) if per_example else None
    logits = numbers(gate.trainable_weights[0].shape)
    if per_example:
        logits = (x @ logits).reshape(BATCH, *gate.gate_shape, N)
    dense = softmax(logits)
    wanted = [dense, dense, only_largest(dense, 2), only_largest(dense, 2)]
    np.testing.assert_allclose(numpy(gate.expert_weights(x)), dense, rtol=1e-4)
    for weights in wanted:
        found = numpy(gate.route(x, training=True).weights)
        np.testing.assert_allclose(found, weights, rtol=1e-4)
        np.testing.assert_allclose(numpy(gate.expert_weights(x)), weights, rtol=1e-4)


def test_all_logits_get_a_gradient_in_dense_steps_and_then_k():
    gate, worth = built(2, dense_steps=1), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    gate.set_weights([np.log([1.0, 3.0, 0.5, 1.0, 0.1])])
    for weights in (np.array([10, 30, 5, 10, 1]) / 56, np.array([0.25, 0.75, 0, 0, 0])):
        (value,), (found,) = value_and_gradients(
            lambda: [ops.sum(gate(worth[None, :, None], training=True))],
            gate.trainable_variables,
            [gate.step],
        )
        mean = (weights * worth).sum()
        np.testing.assert_allclose(value, mean, rtol=1e-5)
        np.testing.assert_allclose(found, weights * (worth - mean), rtol=1e-4)


def test_dense_steps_drop_experts_among_all():
    gate = built(1, dense_steps=1, expert_dropout=0.5, num_gates=2000, seed=0)
    weights = numpy(gate.route(training=True).weights)
    open_experts = (weights > 0).sum(axis=-1)
    # At least one of five, each kept with probability 1/2.
    assert set(open_experts) == {1, 2, 3, 4, 5}
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_allclose(open_experts.mean(), 2.5 + 5 / 32, rtol=0.03)
    weights = numpy(gate.route(training=True).weights)
    np.testing.assert_array_equal((weights > 0).sum(axis=-1), 1)


def test_the_load_is_equal_in_dense_steps():
    gate = built(1, noise=True, load_reg=0.5, dense_steps=1)
    gate.set_weights([np.array([50.0, 0, 0, 0, 0]), np.zeros(N)])
    for wanted in (0, 0.5 * (N - 1)):
        gate(numbers((BATCH, N, 1)), training=True)
        np.testing.assert_allclose(numpy(gate.losses[0]), wanted, rtol=1e-5)


def test_a_selection_in_dense_steps_is_not_binary():
    gate = built(2, dense_steps=1)
    gate.set_weights([np.log([1.0, 3.0, 0.5, 1.0, 0.5]), np.int32(1)])
    found = gate.chosen_experts()
    np.testing.assert_array_equal(found.choices, [1, 0])
    np.testing.assert_allclose(found.distance, 2 / 6, rtol=1e-5)
    gate.step.assign(2)
    np.testing.assert_array_equal(gate.chosen_experts().distance, [0, 0])


def test_each_gate_has_its_distance_from_a_binary_selection():
    gate = built(2, dense_steps=1, num_gates=2)
    weights = [[1.0, 3.0, 0.5, 1.0, 0.5], [4.0, 2.0, 1.0, 0.5, 0.5]]
    gate.set_weights([np.log(weights), np.int32(1)])
    found = gate.chosen_experts()
    np.testing.assert_array_equal(found.choices, [[1, 0], [0, 1]])
    distances = [[2 / 6] * 2, [2 / 8] * 2]
    np.testing.assert_allclose(found.distance, distances, rtol=1e-5)


def test_a_model_is_condensed_after_the_dense_steps():
    inputs = keras.Input((DIM,))
    layer = MMoE(DenseExperts(8, [3]), TopKGate(2, dense_steps=1), ["a"], stacked=True)
    model = keras.Model(inputs, layer(inputs))
    with pytest.raises(ValueError, match="2 selectors are not binary"):
        condense(model)
    layer.gate.step.assign(2)
    small = condense(model)
    assert small.layers[-1].experts.num_experts == 2
    x = numbers((BATCH, DIM))
    np.testing.assert_allclose(numpy(small(x)), numpy(model(x)), atol=1e-5)


def test_the_dense_gate_is_the_softmax_gate():
    gate, dense = built(2, dense_steps=9), SoftmaxGate()
    dense.build((None, N))
    dense.set_weights(gate.get_weights())
    np.testing.assert_array_equal(
        numpy(gate.expert_weights()), numpy(dense.expert_weights())
    )
    assert gate.max_experts() is None
    assert built(2).max_experts() == 2


# A schedule of the noise.


def test_the_noise_has_a_factor():
    logits = []
    for noise in (True, 0.5, Ramp(1.0, 0.0, end=2, kind="linear"), lambda step: 0.5):
        gate = built(N, noise=noise, seed=0, kernel_initializer="zeros")
        weights = np.log(numpy(gate.route(training=True).weights))
        logits.append(weights - weights.mean())
    for found in logits[1:]:
        np.testing.assert_allclose(found, logits[0] / 2, atol=1e-5)


def test_the_noise_ends_with_its_schedule():
    gate = built(2, noise=Ramp(1.0, 0.0, end=2, kind="linear"), load_reg=1.0, seed=0)
    gate.set_weights([np.log([1.0, 3.0, 0.5, 1.0, 0.1]), np.zeros(N), np.int32(1)])
    weights = numpy(gate.route(training=True).weights)
    np.testing.assert_allclose(weights, [0.25, 0.75, 0, 0, 0], rtol=1e-5)
    # Experts 0 and 3 share the threshold; the load is (1/2, 1, 0, 1/2, 0).
    np.testing.assert_allclose(numpy(gate.losses[0]), 0.14 / 0.16, rtol=1e-5)
    _, found = value_and_gradients(
        lambda: [gate.report()["penalties"]["load"]], gate.trainable_variables
    )
    for each in found:
        np.testing.assert_array_equal(each, 0)


@pytest.mark.parametrize("noise", [0, -1.0, "large", None])
def test_a_factor_of_the_noise_is_a_positive_number_or_a_schedule(noise):
    with pytest.raises(ValueError, match="`noise` must be"):
        TopKGate(2, noise=noise)


@pytest.mark.parametrize("steps", [-1, 2.5, True])
def test_dense_steps_are_counted(steps):
    with pytest.raises(ValueError, match="`dense_steps` must be an integer >= 0"):
        TopKGate(2, dense_steps=steps)


# Sigmoid scores.


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def test_sigmoid_scores_are_divided_by_the_sum_of_those_chosen():
    gate = built(2, scores="sigmoid")
    logits = np.array([1.0, 3.0, -2.0, 0.5, -0.1])
    gate.set_weights([logits])
    wanted = np.append(sigmoid(logits[:2]), [0, 0, 0])
    wanted = wanted / wanted.sum()
    np.testing.assert_allclose(numpy(gate.expert_weights()), wanted, rtol=1e-5)


def test_sigmoid_scores_of_dense_steps_are_divided_by_the_sum_of_all():
    gate = built(2, scores="sigmoid", dense_steps=1)
    logits = np.array([1.0, 3.0, -2.0, 0.5, -0.1])
    gate.set_weights([logits])
    wanted = sigmoid(logits) / sigmoid(logits).sum()
    np.testing.assert_allclose(numpy(gate.expert_weights()), wanted, rtol=1e-5)


def test_the_gradient_of_sigmoid_scores_by_hand():
    gate, worth = built(2, scores="sigmoid"), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    logits = np.array([1.0, 3.0, -2.0, 0.5, -0.1])
    gate.set_weights([logits])
    (value,), (found,) = value_and_gradients(
        lambda: [ops.sum(gate(worth[None, :, None]))], gate.trainable_variables
    )
    scores = sigmoid(logits) * [1, 1, 0, 0, 0]
    mean = (scores * worth).sum() / scores.sum()
    np.testing.assert_allclose(value, mean, rtol=1e-5)
    # The derivative of the sigmoid is s (1 - s).
    wanted = scores * (1 - scores) * (worth - mean) / scores.sum()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("bias_rate", [0.0, 0.1])
@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
@pytest.mark.parametrize("logits", [[200, 600, 400], [-300, -100, -200]])
def test_scores_that_rounding_makes_equal_are_chosen_by_their_logits(
    logits, scores, bias_rate
):
    for k in (1, 2):
        gate = TopKGate(k, scores=scores, bias_rate=bias_rate)
        gate.build((None, 3), (None, 3))
        gate.trainable_weights[0].assign(np.diag(logits))
        _, gradient = value_and_gradients(
            lambda gate=gate: [ops.sum(gate.expert_weights(np.ones((1, 3))) ** 2)],
            gate.trainable_variables,
        )
        assert np.isfinite(gradient[0]).all()
        found = numpy(gate.expert_weights(np.ones((1, 3))))[0]
        even = scores == "sigmoid" and k == 2 and logits[0] > 0
        wanted = [0, 0.5, 0.5] if even else [0, 1, 0]
        np.testing.assert_allclose(found, wanted, atol=1e-7)


def test_a_model_with_sigmoid_scores_is_condensed():
    inputs = keras.Input((DIM,))
    gate = TopKGate(3, scores="sigmoid", kernel_initializer="random_normal")
    layer = MMoE(DenseExperts(8, [3]), gate, ["a", "b"], stacked=True)
    model = keras.Model(inputs, layer(inputs))
    layer.gate.trainable_weights[0].assign(3 * numbers((2, 8)))
    x = numbers((BATCH, DIM))
    np.testing.assert_allclose(numpy(condense(model)(x)), numpy(model(x)), atol=1e-5)


@pytest.mark.parametrize("size", [-200.0, 200.0])
def test_sigmoid_scores_of_huge_logits_are_finite(size):
    gate = built(2, scores="sigmoid")
    gate.set_weights([np.full(N, size)])
    np.testing.assert_allclose(numpy(gate.expert_weights()), [0.5, 0.5, 0, 0, 0])


# A bias that balances the load.


def with_bias(rate=0.1, *, scores="sigmoid", **settings):
    """A gate of identical logits, so that the bias alone decides."""
    gate = TopKGate(1, bias_rate=rate, scores=scores, use_bias=True, **settings)
    gate.build((None, 3), (None, 2))
    gate.trainable_weights[0].assign(np.zeros(gate.trainable_weights[0].shape))
    return gate


def bias(gate):
    (found,) = (each for each in gate.weights if each.name == "choice_bias")
    return found


@pytest.mark.parametrize("scores", ["softmax", "sigmoid"])
def test_the_bias_falls_where_the_load_is_high(scores):
    gate = TopKGate(2, bias_rate=0.25, scores=scores)
    gate.build((None, 4), (None, 4))
    # Example i prefers expert i, and then the first of the others.
    gate.trainable_weights[0].assign(np.eye(4))
    x = np.eye(4, dtype="float32")[[0, 1, 3]]
    gate.route(x, training=False)
    np.testing.assert_array_equal(numpy(bias(gate)), np.zeros(4))
    gate.route(x, training=True)
    # The loads are 3, 2, 0 and 1, and their mean is 1.5.
    np.testing.assert_array_equal(numpy(bias(gate)), [-0.25, -0.25, 0.25, 0.25])


def test_the_bias_changes_the_choice_but_not_the_weights():
    gate = TopKGate(2, bias_rate=0.1, scores="sigmoid")
    gate.build((None, 3), (None, 3))
    logits = np.array([2.0, 1.0, 0.5])
    gate.trainable_weights[0].assign(np.diag(logits))
    bias(gate).assign([-1.0, 0.0, 0.0])
    found = numpy(gate.expert_weights(np.ones((1, 3))))
    wanted = sigmoid(logits[1:]) / sigmoid(logits[1:]).sum()
    np.testing.assert_allclose(found, [[0, *wanted]], rtol=1e-5)


def test_the_bias_is_added_to_scores_not_to_logits():
    gate = TopKGate(1, bias_rate=0.1, scores="sigmoid")
    gate.build((None, 2), (None, 1))
    gate.trainable_weights[0].assign([[5.0, 3.0]])
    for size, chosen in ((0.03, 0), (0.05, 1)):  # The scores differ by 0.041.
        bias(gate).assign([0.0, size])
        found = numpy(gate.expert_weights(np.ones((1, 1))))
        np.testing.assert_array_equal(found, [np.eye(2)[chosen]])


def test_a_choice_counts_whose_weight_is_too_small_for_float32():
    gate = TopKGate(2, bias_rate=0.1)
    gate.build((None, 3), (None, 1))
    gate.trainable_weights[0].assign([[200.0, 50.0, 0.0]])
    routing = gate.route(np.ones((4, 1)), training=True)
    np.testing.assert_array_equal(numpy(routing.weights), [[1, 0, 0]] * 4)
    np.testing.assert_allclose(numpy(bias(gate)), [-0.1, -0.1, 0.1], rtol=1e-6)


def test_dense_steps_leave_the_bias():
    gate = with_bias(dense_steps=1, expert_dropout=0.5, seed=0)
    for wanted in ([0, 0, 0], [-0.1, 0.1, 0.1]):
        assert np.isfinite(numpy(gate.route(numbers((1, 2)), True).weights)).all()
        found = np.sort(numpy(bias(gate)))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_equal_loads_leave_the_bias():
    gate = TopKGate(1, bias_rate=0.1)
    gate.build((None, 3), (None, 3))
    gate.trainable_weights[0].assign(np.eye(3))
    gate.route(np.eye(3)[[0, 1, 2] * 7], training=True)
    np.testing.assert_array_equal(numpy(bias(gate)), np.zeros(3))


def test_each_gate_has_a_bias_of_its_own_load():
    gate = with_bias(num_gates=2)
    bias(gate).assign([[0.0, 0.5, 0.0], [0.0, 0.0, 0.5]])
    gate.route(numbers((4, 2)), training=True)
    wanted = [[0.1, 0.4, 0.1], [0.1, 0.1, 0.4]]
    np.testing.assert_allclose(numpy(bias(gate)), wanted, rtol=1e-6)


def test_padding_has_no_load():
    gate = TopKGate(1, bias_rate=0.1)
    gate.build((None, 3), (None, 3))
    gate.trainable_weights[0].assign(np.eye(3))
    valid = ops.convert_to_tensor(np.array([True, True, False, False, False]))
    gate.route(RouterInputs(np.eye(3)[[0, 1, 2, 2, 2]], valid=valid), training=True)
    np.testing.assert_allclose(numpy(bias(gate)), [-0.1, -0.1, 0.1], rtol=1e-6)


def test_padding_of_routed_tokens_has_no_load():
    inputs = keras.Input((4, 3))
    gate = TopKGate(1, bias_rate=0.1)
    masked = keras.layers.Masking()(inputs)
    outputs = MoE(DenseExperts(3, [2]), gate, per_example=True)(masked)
    model = keras.Model(inputs, outputs)
    gate.trainable_weights[0].assign(np.eye(3))
    x = np.zeros((2, 4, 3), "float32")
    x[0, :2], x[1, :1] = np.eye(3)[[0, 1]], np.eye(3)[[1]]
    model(x, training=True)
    # The loads are 1, 2 and 0. Padding, all zeros, would be at the first expert.
    np.testing.assert_allclose(numpy(bias(gate)), [0, -0.1, 0.1], atol=1e-7)


def test_dropped_experts_are_not_chosen_whatever_their_bias():
    gate = with_bias(num_gates=500, expert_dropout=0.5, seed=0)
    bias(gate).assign(np.tile([0.0, 0.0, 9.0], (500, 1)))
    weights = numpy(gate.route(numbers((4, 2)), training=True).weights)
    np.testing.assert_array_equal((weights > 0).sum(axis=-1), 1)
    # The last expert is dropped in half of the draws, unless all of them are.
    np.testing.assert_allclose(weights[..., 2].mean(), 1 / 2 + 1 / 8, atol=0.04)


def test_fit_balances_the_load_and_keeps_the_bias(tmp_path):
    inputs = keras.Input((2,))
    gate = TopKGate(1, bias_rate=0.02, scores="sigmoid", use_bias=True)
    moe = MoE(DenseExperts(4, [3]), gate, per_example=True, name="moe")
    model = keras.Model(inputs, moe(inputs))
    kernel, first = gate.trainable_weights
    kernel.assign(0.1 * numbers(kernel.shape))
    first.assign([1.0, 0.0, 0.0, 0.0])
    gate.trainable = False
    x, y = numbers((64, 2)), numbers((64, 3))

    def loads():
        return (numpy(moe.expert_weights(x)) > 0).sum(axis=0)

    assert loads().tolist() == [64, 0, 0, 0]
    model.compile("sgd", "mse")
    model.fit(x, y, batch_size=64, epochs=40, verbose=0)
    assert loads().min() > 0
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(again(x)), numpy(model(x)))
    found = bias(again.get_layer("moe").gate)
    np.testing.assert_array_equal(numpy(found), numpy(bias(gate)))
    assert numpy(found)[0] < 0


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"bias_rate": -0.1}, "`bias_rate` must be a finite number at least 0"),
        ({"scores": "relu"}, "`scores` must be one of 'softmax', 'sigmoid'"),
        (
            {"bias_rate": 0.1, "noise": True, "load_reg": 0.1},
            "needs noise=True, and bias_rate=0",
        ),
    ],
)
def test_settings_of_scores_are_checked(settings, text):
    with pytest.raises(ValueError, match=text):
        TopKGate(2, **settings)


def test_a_static_gate_has_no_load_to_balance():
    with pytest.raises(ValueError, match="A static gate has no loads to balance"):
        built(2, bias_rate=0.1)
