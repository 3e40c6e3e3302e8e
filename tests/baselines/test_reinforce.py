"""A gate that draws one expert, and learns by its reward, told later."""

import warnings
from functools import partial

import helpers
import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, changed, dtype_of
from gate_cases import Case
from helpers import built, numbers, numpy, softmax, spread, value_and_gradients
from keras import ops

from dselectk_keras import ImportanceRegularizer, build_multitask_model
from dselectk_keras.baselines import ReinforceGate, RoutedModel
from dselectk_keras.gates import RouterInputs

CASES = [
    Case(
        "REINFORCE",
        partial(ReinforceGate, use_bias=True),
        training_only=("gate", "baseline"),
    ),
]
N, BATCH, DIM = 3, 8, 16
X = numbers((BATCH, DIM))
# The mixture of these is the weights.
EXPERTS = np.tile(np.eye(N, dtype="float32"), (BATCH, 1, 1))
LOSSES = np.abs(numbers((BATCH,), seed=2, scale=2.0))


def reinforce(*, per_example=True, dim=DIM, **settings):
    gate = ReinforceGate(**{"seed": 0, **settings})
    return spread(built(gate, N, dim if per_example else None), 0.5)


def of_a_draw(gate, compute):
    """Results of a draw of the gate, and gradients of the gate's weights."""
    return value_and_gradients(
        compute, gate.trainable_variables, [gate.generator.state]
    )


def huber(error):
    return np.where(np.abs(error) < 1, error**2 / 2, np.abs(error) - 0.5)


def by_name(gate):
    return {w.name.removeprefix("baseline_"): numpy(w) for w in gate.trainable_weights}


def trained_on(gate, losses=LOSSES, x=X, sample_weight=None):
    """The policy loss, what was drawn, and gradients of all the gate's weights."""
    experts = EXPERTS[: len(losses)]

    def compute():
        chosen = gate(experts if x is None else (experts, x), training=True)
        return [gate.policy_loss(losses, sample_weight), chosen]

    (loss, chosen), gradients = of_a_draw(gate, compute)
    names = [w.name.removeprefix("baseline_") for w in gate.trainable_variables]
    return loss, chosen, dict(zip(names, gradients, strict=True))


def test_loss_and_gradients_by_hand():
    gate = reinforce(policy_weight=0.7, entropy_weight=0.2, baseline_weight=0.4)
    w = by_name(gate)
    assert w["kernel_0"].shape == (DIM, DIM // 8)
    loss, chosen, found = trained_on(gate)
    p = softmax(X @ w["gate_kernel"])
    hidden = X @ w["kernel_0"] + w["bias_0"]
    error = (hidden @ w["kernel_1"] + w["bias"])[:, 0] + LOSSES
    assert (np.abs(error) > 1).any()
    assert (np.abs(error) < 1).any()
    entropy = -(p * np.log(p)).sum(axis=1)
    log_p = np.log((p * chosen).sum(axis=1))
    expected = (0.7 * log_p * error + 0.2 * entropy + 0.4 * huber(error)).mean()
    assert_close(loss, expected, rtol=1e-4)
    # The reward less the baseline is -error, and a constant for the policy.
    by_logits = 0.7 * error[:, None] * (chosen - p)
    by_logits -= 0.2 * p * (np.log(p) + entropy[:, None])
    by_baseline = 0.4 * np.clip(error, -1, 1)[:, None]
    by_hidden = by_baseline @ w["kernel_1"].T
    expected = {
        "gate_kernel": X.T @ by_logits,
        "bias": by_baseline.sum(axis=0),
        "kernel_1": hidden.T @ by_baseline,
        "bias_0": by_hidden.sum(axis=0),
        "kernel_0": X.T @ by_hidden,
    }
    means = {name: each / BATCH for name, each in expected.items()}
    assert_close(found, means, rtol=1e-3, atol=1e-5)


def test_the_baseline_sees_normalized_inputs_and_starts_near_zero():
    gate = ReinforceGate(policy_weight=0, entropy_weight=0, normalize=True, seed=0)
    w = by_name(built(gate, N, 200 * DIM))
    for name in ("kernel_0", "kernel_1"):
        assert_close(w[name].std(), 0.01, rtol=0.3)
    assert (w["kernel_0"].ravel()[:400] != w["kernel_1"].ravel()[:400]).any()
    # As large inputs as these change nothing once they are normalized.
    x = numbers((BATCH, 200 * DIM))
    for weight in gate.trainable_weights[-3:]:
        weight.assign(numbers(weight.shape, scale=0.1))
    losses = [trained_on(gate, x=scale * x)[0] for scale in (1.0, 1000.0)]
    assert_close(losses[0], losses[1], rtol=1e-4)
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    w = by_name(gate)
    value = (normal @ w["kernel_0"] + w["bias_0"]) @ w["kernel_1"] + w["bias"]
    assert_close(losses[0], 0.01 * huber(value[:, 0] + LOSSES).mean(), rtol=1e-4)


@pytest.mark.parametrize("learns", ["policy", "entropy", "baseline"])
def test_the_policy_reaches_the_routing_inputs_but_not_the_losses(learns):
    weights = {f"{name}_weight": 0.0 for name in ("policy", "entropy", "baseline")}
    gate = reinforce(**{**weights, f"{learns}_weight": 1.0})
    x, losses = keras.Variable(X), keras.Variable(LOSSES)

    def compute():
        gate((EXPERTS, ops.convert_to_tensor(x)), training=True)
        return [gate.policy_loss(ops.convert_to_tensor(losses))]

    state = [gate.generator.state]
    _, (by_x, by_losses) = value_and_gradients(compute, [x, losses], state)
    assert by_x.any() == (learns != "baseline")
    assert not by_losses.any()


@pytest.mark.parametrize("num_gates", [None, 2])
@pytest.mark.parametrize("per_example", [False, True])
def test_one_expert_is_drawn_in_training_and_the_likeliest_at_inference(
    per_example, num_gates
):
    gate = reinforce(per_example=per_example, num_gates=num_gates)
    inputs = (EXPERTS, X) if per_example else EXPERTS
    drawn, taken = (numpy(gate(inputs, training=mode)) for mode in (True, False))
    shape = (BATCH, N) if num_gates is None else (BATCH, num_gates, N)
    for weights in (drawn, taken):
        assert weights.shape == shape
        assert set(np.unique(weights)) == {0.0, 1.0}
        assert_equal(weights.sum(axis=-1), 1)
    kernel = by_name(gate)["gate_kernel" if per_example else "gate_logits"]
    logits = X @ kernel if per_example else np.tile(kernel.ravel(), (BATCH, 1))
    assert_equal(taken.argmax(axis=-1), logits.reshape(shape).argmax(axis=-1))


LOGITS = np.log(np.array([0.6, 0.3, 0.1], "float32"))


@pytest.mark.backend_independent
def test_draws_follow_the_softmax():
    gate, x = reinforce(dim=1), np.ones((4000, 1), "float32")
    gate.trainable_variables[0].assign(LOGITS[None])
    first, second = (numpy(gate.route(x, training=True).weights) for _ in range(2))
    # Three standard deviations are below 0.025.
    assert_close(first.mean(axis=0), np.exp(LOGITS), atol=0.025)
    assert (first != second).any()


def test_dropped_experts_are_not_drawn_and_leave_finite_gradients():
    gate = reinforce(dim=1, expert_dropout=0.6)
    gate.trainable_variables[0].assign([[50.0, 0.0, 0.0]])
    x = np.ones((200, 1), "float32")

    def compute():
        drawn = gate.route(x, training=True).weights
        return [gate.policy_loss(np.ones(200, "float32")), drawn]

    (loss, drawn), gradients = of_a_draw(gate, compute)
    assert all(np.isfinite(each).all() for each in (loss, *gradients))
    # Another is drawn where the first is dropped, unless all would be.
    assert_close(1 - drawn[:, 0].mean(), 0.6 - 0.6**3, atol=0.1)


@pytest.mark.parametrize("own_inputs", [False, True])
def test_several_gates_learn_each_from_its_own_losses(own_inputs):
    settings = {"policy_weight": 1.0, "baseline_weight": 0.5, "baseline_units": 3}
    gate = reinforce(num_gates=2, **settings)
    losses = np.abs(numbers((BATCH, 2), seed=4))
    x = numbers((BATCH, 2, DIM)) if own_inputs else X
    loss, chosen, _ = trained_on(gate, losses, x)
    w, total = by_name(gate), 0.0
    for g in range(2):
        own = x[:, g] if own_inputs else x
        p = softmax(own @ w["gate_kernel"].reshape(DIM, 2, N)[:, g])
        hidden = own @ w["kernel_0"] + w["bias_0"]
        error = hidden @ w["kernel_1"][:, g] + w["bias"][g] + losses[:, g]
        log_p = np.log((p * chosen[:, g]).sum(axis=1))
        entropy = -(p * np.log(p)).sum(axis=1)
        total += (log_p * error + 5e-4 * entropy + 0.5 * huber(error)).mean()
    assert_close(loss, total, rtol=1e-4)


@pytest.mark.parametrize("num_gates", [None, 2])
def test_tokens_share_the_reward_of_their_example_and_padding_learns_nothing(num_gates):
    gate = reinforce(num_gates=num_gates, policy_weight=1.0, baseline_weight=0.5)
    gates = num_gates or 1
    losses = np.abs(numbers((BATCH // 2, gates), seed=4))
    weight = np.abs(numbers(losses.shape, seed=5))
    valid = np.array([True, True, True, False, False, True, False, False])

    def compute():
        drawn = gate.route(RouterInputs(X, valid=valid), training=True).weights
        given = (losses, weight) if num_gates else (losses[:, 0], weight[:, 0])
        return [gate.policy_loss(*given), drawn]

    (loss, drawn), found = of_a_draw(gate, compute)
    w, total = by_name(gate), 0.0
    logits = (X @ w["gate_kernel"]).reshape(BATCH, gates, N)
    p, chosen = softmax(logits), drawn.reshape(BATCH, gates, N)
    value = (X @ w["kernel_0"] + w["bias_0"]) @ w["kernel_1"] + w["bias"]
    for row in np.flatnonzero(valid):
        for g in range(gates):
            error = value[row, g] + losses[row // 2, g]
            term = np.log(p[row, g] @ chosen[row, g]) * error + 0.5 * huber(error)
            term -= 5e-4 * p[row, g] @ np.log(p[row, g])
            total += term * weight[row // 2, g] / weight[:, g].sum()
    assert_close(loss, total, rtol=1e-4)
    assert all(gradient.any() for gradient in found)


@pytest.mark.backend_independent
def test_the_expected_gradient_of_tokens_is_that_of_the_expected_loss(monkeypatch):
    gate = reinforce(dim=2, policy_weight=1.0, entropy_weight=0.0, baseline_weight=0.0)
    x, kernel = numbers((2, 2)), by_name(gate)["gate_kernel"]
    first, second = softmax(x @ kernel)
    losses = numbers((N, N), seed=6)  # For each choice of two tokens.
    mean = 0.0
    for i, j in np.ndindex(N, N):
        noise = ops.convert_to_tensor(1e6 * np.eye(N, dtype="float32")[[i, j]])
        name = "dselectk_keras.baselines.reinforce.gumbel_noise"
        monkeypatch.setattr(name, lambda *_, noise=noise: noise)

        def compute(loss=losses[i, j]):
            gate.route(x, training=True)
            return [gate.policy_loss(loss[None])]

        _, found = value_and_gradients(compute, gate.trainable_variables)
        mean += first[i] * second[j] * found[0]
    expected = first @ losses @ second
    by_first = first * (losses @ second - expected)
    wanted = x.T @ np.stack([by_first, second * (first @ losses - expected)])
    assert_close(mean, wanted, rtol=1e-3, atol=1e-6)


def test_the_gates_do_not_teach_one_another():
    gate = reinforce(num_gates=2)
    weight = np.stack([np.zeros(BATCH), np.ones(BATCH)], axis=1)
    losses = np.abs(numbers((BATCH, 2), seed=4))
    _, _, found = trained_on(gate, losses, sample_weight=weight)
    by_gate = found["gate_kernel"].reshape(DIM, 2, N).any(axis=(0, 2))
    assert by_gate.tolist() == [False, True]
    assert found["bias"].astype(bool).tolist() == [False, True]


@pytest.mark.parametrize("num_gates", [None, 2])
def test_a_static_gate_is_rewarded_by_the_mean_loss(num_gates):
    gate = reinforce(per_example=False, num_gates=num_gates, policy_weight=1.0)
    losses = LOSSES if num_gates is None else np.stack([LOSSES, 2 * LOSSES], axis=1)
    weight = np.abs(numbers(losses.shape, seed=5))
    loss, chosen, found = trained_on(gate, losses, None, weight)
    w = by_name(gate)
    p = softmax(w["gate_logits"])
    log_p, entropy = np.log((p * chosen[0]).sum(-1)), -(p * np.log(p)).sum(-1)
    error = w["bias"] + (losses * weight).sum(axis=0) / weight.sum(axis=0)
    expected = log_p * error + 5e-4 * entropy + 0.01 * huber(error)
    assert_close(loss, np.sum(expected), rtol=1e-4)
    assert all(gradient.any() for gradient in found.values())


@pytest.mark.parametrize("per_example", [False, True])
def test_examples_without_weight_teach_nothing(per_example):
    x = X if per_example else None
    gate = reinforce(per_example=per_example)
    loss, _, found = trained_on(gate, x=x, sample_weight=np.zeros(BATCH))
    assert loss == 0
    assert not any(gradient.any() for gradient in found.values())


def test_the_loss_of_a_call_is_given_once_in_float32():
    gate = reinforce(dtype="float16")
    assert gate.policy_loss(LOSSES) == 0.0
    gate((EXPERTS, X), training=True)
    loss = gate.policy_loss(ops.cast(LOSSES, "float16"))
    assert dtype_of(loss) == "float32"
    assert np.isfinite(numpy(loss))
    assert numpy(loss) != 0.0
    assert gate.policy_loss(LOSSES) == 0.0


@pytest.mark.parametrize("how", ["forget", "inference"])
def test_what_is_forgotten_gets_no_reward(how):
    gate = reinforce()
    gate((EXPERTS, X), training=True)
    if how == "forget":
        gate.forget()
    else:
        gate((EXPERTS[:2], X[:2]))
    assert gate.policy_loss(LOSSES[:2]) == 0.0


def test_a_regularizer_reaches_the_logits():
    gate = reinforce(dim=2, weights_regularizer=ImportanceRegularizer(1.0))

    def loss():
        gate.route(numbers((8, 2)), training=True)
        return sum(gate.losses)

    found = helpers.weight_gradients(gate, loss)
    gate.forget()
    moved = dict(zip([v.name for v in gate.trainable_variables], found, strict=True))
    assert np.abs(moved["gate_kernel"]).max() > 1e-4


def test_a_model_of_tasks_warns_and_its_graph_is_taught_in_a_routed_model():
    model = build_multitask_model(3, 2, gate=ReinforceGate())
    model.compile("sgd")
    x, y = numbers((4, 3)), numbers((4, 2))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(x, y, verbose=0)
    assert any("Train it in a `RoutedModel`" in str(each.message) for each in found)
    taught = RoutedModel(model.input, model.output)
    taught.compile("sgd", {"task_0": "mse", "task_1": "mse"})
    labels = {"task_0": y[:, :1], "task_1": y[:, 1:]}
    gate = model.get_layer("mmoe").gate
    assert all(
        changed(gate.trainable_weights, lambda: taught.train_on_batch(x, labels))
    )
