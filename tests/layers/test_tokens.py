"""Each token of a sequence chooses its experts, and padding has no part in it."""

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import model_of, numbers, numpy, refusals, reloaded, value_and_gradients
from keras import layers, ops

import dselectk_keras as dk

BATCH, LENGTH, DIM, N = 3, 4, 6, 5
X = numbers((BATCH, LENGTH, DIM))
MASK = np.array([[1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 0, 0]], "bool")
BALANCE = dk.ImportanceRegularizer(0.5)
SIMILAR = dk.SampleSimilarityRegularizer(0.5, 0.7)
# With noise this small, its draws do not change the choices. Penalties for unreachable
# codes are scaled down from millions, beside which no other fault would show.
GATES = {
    "top-k": lambda: dk.TopKGate(2, z_reg=0.3, weights_regularizer=BALANCE),
    "noisy": lambda: dk.TopKGate(2, noise=1e-6, load_reg=0.5),
    "switch": lambda: dk.SwitchGate(z_reg=0.3, weights_regularizer=SIMILAR),
    "switch load": lambda: dk.SwitchGate(
        weights_regularizer=dk.SwitchLoadRegularizer(0.4)
    ),
    "top-k load": lambda: dk.TopKGate(
        2, weights_regularizer=dk.SwitchLoadRegularizer(0.4)
    ),
    "dselect-k": lambda: dk.DSelectKGate(2, entropy_reg=0.3, unreachable=1e-5),
    "bits": lambda: dk.DSelectKGate(
        2, 1.0, dk.EntropyRegularizer(0.3, "bits"), unreachable=1e-4, reduction="mean"
    ),
    "softmax": lambda: dk.SoftmaxGate(z_reg=0.3, weights_regularizer=BALANCE),
}
CASES = [(name, False) for name in GATES] + [("top-k", True), ("dselect-k", True)]


def pair(make, shapes, cls=dk.MoE, **settings):
    """Two equal layers, the gates far from uniform, built for inputs of two shapes."""
    made = []
    for shape in shapes:
        bank = dk.DenseExperts(N, [4, 3], ["tanh", None])
        made.append(cls(bank, make(), per_example=True, **settings))
        made[-1].build(shape)
    for one in made:
        for variable in one.gate.trainable_variables:
            variable.assign(numbers(variable.shape, seed=2))
        one.experts.set_weights(made[0].experts.get_weights())
    return made


def outputs_and_gradients(layer, inputs, upstream, **arguments):
    """The loss with penalties, the outputs and the penalties; and the gradients."""
    x = keras.Variable(inputs)

    def compute():
        y = layer(ops.convert_to_tensor(x), training=True, **arguments)
        total = ops.sum(ops.multiply(y, upstream)) + sum(layer.losses)
        return [total, y, *layer.losses]

    state = layer.non_trainable_variables
    return value_and_gradients(compute, [*layer.trainable_variables, x], state)


def assert_alike(ours, theirs):
    assert_close(ours, theirs, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(("name", "dispatch"), CASES)
def test_tokens_are_routed_as_one_batch_of_them(name, dispatch):
    tokens, flat = pair(GATES[name], [X.shape, (None, DIM)], dispatch=dispatch)
    upstream = numbers((BATCH, LENGTH, 3), seed=3)
    ours = outputs_and_gradients(tokens, X, upstream)
    theirs = outputs_and_gradients(
        flat, X.reshape(-1, DIM), ops.reshape(upstream, (-1, 3))
    )
    assert ours[0][1].shape == (BATCH, LENGTH, 3)
    for found, wanted in zip(ours, theirs, strict=True):
        pairs = zip(found, wanted, strict=True)
        assert_alike([a.reshape(b.shape) for a, b in pairs], wanted)
    weights = numpy(tokens.expert_weights(X))
    assert weights.shape == (BATCH, LENGTH, N)
    assert_alike(weights.reshape(-1, N), flat.expert_weights(X.reshape(-1, DIM)))


@pytest.mark.parametrize(("name", "dispatch"), [*CASES, ("switch", 1.0)])
def test_padding_has_no_part_in_outputs_losses_gradients_and_capacity(name, dispatch):
    padded, short = pair(GATES[name], [X.shape, (None, DIM)], dispatch=dispatch)
    upstream = numbers((BATCH, LENGTH, 3), seed=3)
    x = X.copy()
    x[~MASK] = np.float32([[np.nan], [0.5], [np.inf], [1e6]])
    ours = outputs_and_gradients(padded, x, upstream, mask=MASK)
    theirs = outputs_and_gradients(short, X[MASK], upstream[MASK])
    assert_equal(ours[0][1][~MASK], 0.0)
    ours[0][1], ours[1][-1] = ours[0][1][MASK], ours[1][-1][MASK]
    assert_alike(ours, theirs)
    if padded.num_dropped is not None:
        assert int(padded.num_dropped) == int(short.num_dropped)


def language_model(gate, **settings):
    ids = keras.Input((None,), dtype="int32")
    x = layers.Embedding(7, DIM, mask_zero=True)(ids)
    bank = dk.DenseExperts(4, [8, DIM], ["relu", None])
    x = layers.Add()([x, dk.MoE(bank, gate, True, name="moe", **settings)(x)])
    return keras.Model(ids, layers.Dense(7)(x))


IDS = np.array([[1, 2, 3, 0, 0], [4, 5, 6, 1, 0]] * 4)


@pytest.mark.traced
@pytest.mark.parametrize(
    ("make", "dispatch"),
    [
        (lambda: dk.TopKGate(1, noise=True, load_reg=0.1, z_reg=0.1), "auto"),
        (
            lambda: dk.SwitchGate(weights_regularizer=dk.ImportanceRegularizer(0.01)),
            1.25,
        ),
        (lambda: dk.DSelectKGate(2, entropy_reg=0.01, reduction="mean"), True),
    ],
    ids=["top-k", "switch", "dselect-k"],
)
def test_a_model_of_tokens_trains_and_reloads_with_the_mask(make, dispatch, tmp_path):
    model = language_model(make(), dispatch=dispatch)
    assert model.output_shape == (None, None, 7)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    before = numpy(model.get_layer("moe").gate.trainable_variables[0])
    losses = model.fit(IDS, IDS, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert (before != numpy(model.get_layer("moe").gate.trainable_variables[0])).any()
    outputs = numpy(model(IDS))
    assert_equal(reloaded(model, tmp_path)(IDS), outputs)
    # Longer padding changes neither outputs nor the loss.
    longer = np.pad(IDS, [(0, 0), (0, 3)])
    assert_close(numpy(model(longer))[:, :5], outputs, rtol=1e-5, atol=1e-6)
    assert_close(*(model.evaluate(x, x, verbose=0) for x in (longer, IDS)), rtol=1e-5)


def test_a_mask_of_inputs_counts_also_if_there_are_routing_inputs():
    ids = np.array([[1, 2, 0]])
    embedding = layers.Embedding(4, DIM, mask_zero=True)
    x = embedding(ids)
    moe = dk.MoE(
        dk.DenseExperts(4, [3], activation=None),
        dk.baselines.HashGate(salt=0),
        per_example=True,
    )
    y = numpy(moe(x, ids[..., None]))
    assert (np.abs(y).sum(axis=-1) > 0).tolist() == [[True, True, False]]
    inputs = keras.Input((3,), dtype="int32")
    model = keras.Model(inputs, moe(embedding(inputs), ops.expand_dims(inputs, -1)))
    # Compiled, tensors of JAX have no attributes, not even a mask.
    assert_close(model.predict(ids, verbose=0), y, rtol=1e-5)
    assert_equal(
        moe.expert_weights(x, ids[..., None])[0], moe.gate.expert_weights(ids[0])
    )


def train_once(model, x, compiled):
    if not compiled:
        model(x, training=True)
        return
    model.compile("sgd", "mse")
    y = np.zeros((BATCH, *model.output_shape[1:]))
    model.fit(x, y, batch_size=BATCH, verbose=0)


def assert_has_statistics_of(x, expert):
    assert_close(expert.moving_mean, x.mean(0), rtol=1e-4, atol=1e-5)
    assert_close(expert.moving_variance, x.var(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("per_example", [False, True])
def test_padding_has_no_part_in_the_statistics_of_experts(compiled, per_example):
    bank = dk.Experts(layers.BatchNormalization(momentum=0.0), 2)
    moe = dk.MoE(bank, dk.SoftmaxGate(), per_example=per_example)
    x = np.where(MASK[..., None], X, 0.0)
    model = keras.Sequential([keras.Input((LENGTH, DIM)), layers.Masking(), moe])
    train_once(model, x, compiled)
    for expert in bank.experts:
        assert_has_statistics_of(X[MASK], expert)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("make", [dk.CGC, dk.MoE])
def test_padding_has_no_part_in_the_statistics_of_experts_with_own_inputs(
    make, compiled
):
    bank = dk.Experts(layers.BatchNormalization(momentum=0.0), 3, shared_input=False)
    tasks = {"tasks": 2, "per_example": "by_gate"} if make is dk.CGC else {}
    layer = make(bank, dk.SoftmaxGate(), **{"per_example": True, **tasks})
    x = np.where(MASK[..., None, None], numbers((BATCH, LENGTH, 3, DIM)), 0.0)
    data = [x, x[:, :, 0], MASK]
    if make is dk.CGC:
        data[1] = x  # Each task routes by its own input.
    inputs = [keras.Input(each.shape[1:], dtype=each.dtype.name) for each in data]
    model = keras.Model(inputs, ops.sum(layer(*inputs[:2], mask=inputs[2]), axis=-1))
    train_once(model, data, compiled)
    # In CGC, shared experts see the last entry, and the expert of a task its own.
    seen = [2, 2, 2, 0, 1] if make is dk.CGC else [0, 1, 2]
    experts = [*bank.experts, *getattr(layer, "task_experts", bank).experts]
    for place, expert in zip(seen, experts[: len(seen)], strict=True):
        assert_has_statistics_of(x[:, :, place][MASK], expert)


def test_a_given_mask_reaches_the_experts_and_the_routing_network():
    bank = dk.Experts([layers.GlobalAveragePooling1D(), layers.GRU(DIM)])
    pool = layers.GlobalAveragePooling1D()
    moe = dk.MoE(bank, dk.SoftmaxGate(), per_example=True, routing_network=pool)
    y = numpy(moe(np.where(MASK[..., None], X, np.nan), mask=MASK))
    for i in range(BATCH):
        alone = numpy(moe(X[i : i + 1][:, MASK[i]]))
        assert_close(y[i], alone[0], rtol=1e-4, atol=1e-6)


def test_frames_of_a_video_are_routed_to_convolutions():
    moe = dk.MoE(dk.Experts(layers.Conv2D(2, 3), 3), dk.SoftmaxGate(), per_example=True)
    x, v = numbers((2, 4, 5, 5, 1)), numbers((2, 4, 6), seed=1)
    y = numpy(moe(x, v))
    frames = numpy(moe.experts(x.reshape(8, 5, 5, 1)))
    weights = numpy(moe.gate.expert_weights(v.reshape(8, 6)))
    expected = np.einsum("bn,bn...->b...", weights, frames)
    assert y.shape == (2, 4, 3, 3, 2)
    assert_close(y.reshape(expected.shape), expected, rtol=1e-4, atol=1e-6)
    symbolic = moe(keras.Input((None, 5, 5, 1)), keras.Input((None, 6)))
    assert symbolic.shape == (None, None, 3, 3, 2)


def levels(shape):
    """Two levels of dk.CGC: progressive layered extraction."""
    gate, shared_gate = dk.SoftmaxGate(z_reg=0.3), dk.TopKGate(2, z_reg=0.2)
    banks = [dk.DenseExperts(3, [4], "tanh", shared_input=i == 0) for i in range(2)]
    below = dk.CGC(banks[0], gate, 2, per_example=True, shared_gate=shared_gate)
    above = dk.CGC(banks[1], dk.SwitchGate(z_reg=0.1), 2, per_example="by_gate")
    return model_of(lambda x: above(below(x)), *shape)


def test_cgc_routes_tokens_on_all_levels_as_one_batch_without_padding():
    tokens, short = (levels(shape) for shape in ((None, DIM), (DIM,)))
    assert tokens.output_shape == (None, None, 2, 4)
    tokens.set_weights(short.get_weights())
    for length in (LENGTH, 3):  # With 3, the axes of tokens and of inputs are as long.
        x, mask = X[:, :length], MASK[:, :length]
        y = np.where(mask[..., None], x, np.nan)
        for layer in tokens.layers[1:]:
            y = layer(y, mask=mask, training=True)
        assert_close(numpy(y)[mask], short(x[mask], training=True), 1e-4, 1e-6)
        assert_equal(numpy(y)[~mask], 0.0)
        assert len(tokens.losses) == 3
        assert_close(tokens.losses, short.losses, rtol=1e-4)
    weights = tokens.layers[-1].expert_weights(ops.ones((3, LENGTH, 3, 4)))
    assert tuple(weights.shape) == (3, LENGTH, 2, 4)  # Per task: 3 shared, and its own.


@pytest.mark.parametrize("num_tasks", [LENGTH - 1, LENGTH, LENGTH + 1])
def test_routing_does_not_depend_on_whether_sizes_are_equal(num_tasks):
    v = numbers((BATCH, LENGTH, 4), seed=1)
    mmoe = dk.MMoE(
        dk.DenseExperts(N, [3]), dk.SoftmaxGate(), num_tasks, per_example=True
    )
    assert [y.shape for y in mmoe(X, v)] == [(BATCH, LENGTH, 3)] * num_tasks
    assert mmoe.expert_weights(X, v).shape == (BATCH, LENGTH, num_tasks, N)
    # CGC has as many inputs as tasks, and one more.
    cgc = dk.CGC(
        dk.DenseExperts(2, [3]), dk.SoftmaxGate(), num_tasks, 1, per_example=True
    )
    assert cgc(X, v).shape == (BATCH, LENGTH, num_tasks, 3)


def test_smear_merges_once_per_sequence_without_padding_or_once_per_token():
    (once,) = pair(dk.SoftmaxGate, [X.shape], dk.SmearExperts)
    y = numpy(once(np.where(MASK[..., None], X, np.nan), mask=MASK))
    for i in (0, 2):
        alone = numpy(once(X[i : i + 1][:, MASK[i]]))
        assert_close(y[i][MASK[i]], alone[0], rtol=1e-4, atol=1e-6)
    assert np.abs(y - numpy(once(X)))[0].max() > 1e-3
    settings = {"cls": dk.SmearExperts, "routing_network": layers.Identity()}
    token, flat = pair(dk.SoftmaxGate, [X.shape, (None, DIM)], **settings)
    assert token(keras.Input((None, DIM))).shape == (None, None, 3)
    wanted = numpy(flat(X.reshape(-1, DIM)))
    assert_close(numpy(token(X)).reshape(-1, 3), wanted, atol=1e-5)


def mmoe(per_example):
    return dk.MMoE(
        dk.DenseExperts(N, [3]), dk.SoftmaxGate(), 2, per_example=per_example
    )


def moe(experts, per_example=True):
    return dk.MoE(experts, dk.SoftmaxGate(), per_example=per_example)


DENSE = dk.DenseExperts(N, [3])
test_what_cannot_be_routed_is_refused = refusals(
    (mmoe("by_gate"), r"2 gates need routing inputs of sh", (X[:, 0], X[:, :3])),
    (mmoe(True), r'set per_example="by_gate"', (X[:, 0], X[:, :2])),
    (moe, r"`per_example` must be .* 'by_gate'", (DENSE, "by_task")),
    (moe(DENSE), "begin with the same axes", (X, X[:, 1:])),
    (
        moe(dk.Experts(layers.Conv1D(2, 3), 2)),
        r"cannot be applied to single positions.*1D",
        X,
    ),
)
