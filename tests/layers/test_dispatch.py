"""Evaluating only the chosen experts gives what evaluating all gives."""

from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import dtype_policy, numbers, numpy, refusals, weight_gradients
from keras import ops

import dselectk_keras as dk
from dselectk_keras.gates import Routing
from dselectk_keras.gates import dispatch as dispatching
from dselectk_keras.gates.record import recording
from dselectk_keras.layers import moe

BATCH, DIM = 24, 3
X = numbers((BATCH, DIM))
GATES = {
    "top-k": lambda: dk.TopKGate(2, kernel_initializer="glorot_uniform"),
    "noisy top-k": lambda: dk.TopKGate(1, noise=True, seed=0),
    "switch": lambda: dk.SwitchGate(kernel_initializer="glorot_uniform"),
    "drawn": lambda: dk.baselines.STGumbelGate(seed=0),
}


def pair(make, tasks=None, units=(5, 4), num_experts=16, dispatch=True):
    """A layer that evaluates all experts and one that does not, with equal weights."""
    layers, settings = [], {"per_example": True}
    if tasks is not None:
        settings.update(tasks=tasks, stacked=True)
    for choice in (False, dispatch):
        cls = dk.MoE if tasks is None else dk.MMoE
        bank = dk.DenseExperts(num_experts, units)
        layers.append(cls(bank, make(), dispatch=choice, **settings))
        layers[-1].build(X.shape)
    for part in ("experts", "gate"):
        source, target = (getattr(layer, part) for layer in layers)
        target.set_weights(source.get_weights())
    return layers


# Gates that choose few experts later.
DENSE_AT_FIRST = {
    "DSelect-k": lambda: dk.DSelectKGate(2),
    "dense steps": lambda: dk.TopKGate(2, dense_steps=1),
}
ALL_GATES = {**GATES, **DENSE_AT_FIRST}


@pytest.mark.parametrize("tasks", [None, 3], ids=["one", "three"])
@pytest.mark.parametrize("make", ALL_GATES.values(), ids=ALL_GATES)
def test_outputs_are_the_same(make, tasks):
    dense, sparse = pair(make, tasks)
    assert_close(sparse(X), dense(X), atol=1e-5)
    assert_close(sparse(X[:1]), dense(X[:1]), atol=1e-5)


@pytest.mark.parametrize("make", DENSE_AT_FIRST.values(), ids=DENSE_AT_FIRST)
def test_outputs_are_the_same_once_gates_are_sparse(make):
    layers = pair(make)
    for layer in layers:
        layer.gate.step.assign(2)
        if isinstance(layer.gate, dk.DSelectKGate):
            layer.gate.decide_between(0, 1)
    dense, sparse = (numpy(layer(X, training=True)) for layer in layers)
    assert_close(sparse, dense, atol=1e-5)
    assert (numpy(layers[1].expert_weights(X)) > 0).sum(axis=-1).max() <= 2


@pytest.mark.parametrize("name", ["top-k", "switch"])
def test_gradients_are_the_same(name):
    upstream = ops.convert_to_tensor(numbers((BATCH, 3, 4), seed=1))
    dense, sparse = (
        weight_gradients(
            layer, lambda layer=layer: ops.sum(layer(X, training=True) * upstream)
        )
        for layer in pair(GATES[name], tasks=3, units=(5, 4))
    )
    assert_close(sparse, dense, atol=1e-4)
    assert all(np.abs(each).max() > 0 for each in dense)


def test_nothing_is_dropped_where_all_are_alike_and_no_branch_is_compiled(monkeypatch):
    dense, sparse = pair(GATES["top-k"], num_experts=8)
    x = np.repeat(X[:1], BATCH, axis=0)
    assert (numpy(dense.expert_weights(x)) > 0).any(axis=0).sum() == 2
    assert_close(sparse(x), dense(x), atol=1e-5)
    dense, sparse = pair(GATES["top-k"])
    monkeypatch.setattr(ops, "cond", None)
    for inputs in (X, x):
        assert_close(sparse(inputs), dense(inputs), atol=1e-5)


def chosen_by(load):
    """Routing inputs of 64 examples: so many choose the first of 16 experts."""
    others = 1 + np.arange(64 - load) % 15
    return 9 * np.eye(16, dtype="float32")[[0] * load + others.tolist()]


def routed(dispatch):
    """A model whose second input says which expert an example chooses."""
    inputs = [keras.Input((DIM,)), keras.Input((16,))]
    layer = dk.MoE(dk.DenseExperts(16, [4]), dk.SwitchGate(), True, dispatch=dispatch)
    model = keras.Model(inputs, layer(*inputs))
    layer.gate.trainable_variables[0].assign(np.eye(16))
    layer.gate.trainable = False
    model.compile(keras.optimizers.SGD(0.5), "mse")
    return model


def test_experts_have_even_slots_if_these_are_enough_and_else_blocks(monkeypatch):
    slots_of, model, seen = dk.DenseExperts.call_slots, routed(True), []
    monkeypatch.setitem(dispatching.ROWS_PER_COPY, "cpu", 1)

    def call_slots(self, inputs, owners=None):
        seen.append((len(inputs), 16 if owners is None else len(owners)))
        return slots_of(self, inputs, owners)

    monkeypatch.setattr(dk.DenseExperts, "call_slots", call_slots)
    for load in (5, 6, 7, 64):
        model.layers[-1](numbers((64, DIM)), chosen_by(load))
    exact = keras.backend.backend() == "torch"
    # An even share is 4, and 6 are 1.5 times as many. A block has 2 slots, and
    # (64 + 16) / 2 blocks are enough for any load.
    assert seen == [((5 if exact else 6) * 16, 16), (96, 16), (80, 40), (80, 40)]


@pytest.fixture
def in_blocks(monkeypatch):
    """Dispatch as on a GPU."""
    monkeypatch.setattr(dispatching, "_by_device", lambda _, on_cpu, other: other())


@pytest.mark.parametrize("make", GATES.values(), ids=GATES)
def test_on_a_gpu_there_is_no_condition(make, in_blocks, monkeypatch):
    dense, sparse = pair(make, tasks=3)
    monkeypatch.setattr(dispatching, "_if", None)
    alike = np.repeat(X[:1], BATCH, axis=0)
    for x in (X, X[:1], alike):
        assert_close(sparse(x), dense(x), atol=1e-5)


@pytest.mark.parametrize("name", ["top-k", "switch"])
def test_gradients_of_blocks_are_the_same(name, in_blocks):
    test_gradients_are_the_same(name)


@pytest.mark.backends("jax", reason="Only JAX has 64 bits to switch on.")
@pytest.mark.parametrize("on_gpu", [False, True], ids=["CPU", "GPU"])
def test_gradients_with_64_bits_are_the_same(on_gpu, request):
    import jax

    if on_gpu:
        request.getfixturevalue("in_blocks")
    with jax.enable_x64(True):
        test_gradients_are_the_same("top-k")
        test_an_empty_batch_has_an_empty_mixture(1.5)


def test_training_is_the_same_for_every_load():
    x = [numbers((5 * 64, DIM)), np.concatenate([*map(chosen_by, (5, 6, 7, 9, 17))])]
    dense, sparse = (routed(dispatch) for dispatch in (False, True))
    sparse.set_weights(dense.get_weights())
    before = dense.get_weights()
    for model in (dense, sparse):
        model.fit(x, numbers((320, 4)), batch_size=64, shuffle=False, verbose=0)
    assert_close(sparse.get_weights(), dense.get_weights(), atol=1e-5)
    assert np.abs(dense.get_weights()[0] - before[0]).max() > 1e-3


def hidden(gate, shape, dispatch):
    """A model whose hidden layer dispatches."""
    inputs = keras.Input(shape)
    layer = dk.MoE(dk.DenseExperts(8, [4]), gate(), per_example=True, dispatch=dispatch)
    outputs = layer(keras.layers.Dense(DIM)(inputs))
    return keras.Model(inputs, keras.layers.Dense(1)(outputs))


@pytest.mark.traced
@pytest.mark.parametrize(
    ("gate", "shape", "policy"),
    [
        (partial(dk.DSelectKGate, 2), (DIM,), "float32"),
        (GATES["top-k"], (None, DIM), "mixed_float16"),
    ],
    ids=["DSelect-k", "tokens"],
)
def test_a_hidden_layer_trains_with_xla_and_batches_of_any_size(gate, shape, policy):
    with dtype_policy(policy):
        dense, sparse = (hidden(gate, shape, dispatch) for dispatch in (False, True))
    sparse.set_weights(dense.get_weights())
    before = dense.get_weights()
    sizes = [4] * (len(shape) - 1)
    x, y = numbers((8, *sizes, DIM)), np.ones((8, *sizes, 1))
    with_xla = keras.backend.backend() == "tensorflow"
    for model in (dense, sparse):
        # As Keras does with a GPU. The other model need not be compiled.
        how = {"jit_compile": model is sparse, "run_eagerly": model is dense}
        settings = {"auto_scale_loss": False, **(how if with_xla else {})}
        model.compile(keras.optimizers.SGD(0.1), "mse", **settings)
        model.fit(((x, y) for _ in range(1)), steps_per_epoch=1, verbose=0)
    tolerance = 1e-5 if policy == "float32" else 1e-2
    assert_close(sparse.get_weights(), dense.get_weights(), atol=tolerance)
    assert np.abs(dense.get_weights()[0] - before[0]).max() > 1e-3


@pytest.mark.parametrize("dispatch", [True, 1.5])
def test_an_empty_batch_has_an_empty_mixture(dispatch):
    _, sparse = pair(GATES["top-k"], tasks=3, dispatch=dispatch)
    for training in (False, True):
        assert tuple(sparse(X[:0], training=training).shape) == (0, 3, 4)
        assert dispatch is True or int(sparse.num_dropped) == 0


@pytest.mark.every_backend
@pytest.mark.parametrize("training", [False, True])
def test_positions_of_padding_alone_have_a_mixture_of_zeros(training):
    layer = dk.MoE(dk.DenseExperts(8, [4]), dk.TopKGate(2), True, dispatch=True)
    mask = np.zeros((2, 3), bool)
    found = layer(numbers((2, 3, 5)), mask=mask, training=training)
    assert_equal(found, np.zeros((2, 3, 4)))


@pytest.mark.parametrize("dispatch", [True, 1.0])
def test_an_example_that_overflows_changes_no_other(dispatch):
    settings = {"per_example": True, "stacked": True, "dispatch": dispatch}
    layer = dk.MMoE(dk.DenseExperts(8, [5, 4]), GATES["top-k"](), 3, **settings)
    looks, big = numbers((BATCH, 2), seed=1), X.copy()
    big[3] = np.inf
    wanted, found = (numpy(layer(x, looks)) for x in (X, big))
    others = np.arange(BATCH) != 3
    np.testing.assert_array_equal(found[others], wanted[others])


@pytest.mark.traced
@pytest.mark.parametrize("dispatch", ["auto", 1.5])
def test_sequences_of_unknown_length_are_dispatched_whole(dispatch):
    found, x, y = [], numbers((8, 5, 128)), numbers((8, 5, 128))
    for choice in (False, dispatch):
        keras.utils.set_random_seed(0)
        pool, inputs = keras.layers.GlobalAveragePooling1D(), keras.Input((None, 128))
        moe = dk.MoE(dk.DenseExperts(8, [128]), dk.SwitchGate(), True, pool, choice)
        model = keras.Model(inputs, moe(keras.layers.Dense(128)(inputs)))
        assert model.output_shape == (None, None, 128)
        assert moe.dispatches == bool(choice)
        model.compile(keras.optimizers.SGD(0.1), "mse")
        for length in (5, 3):
            model.train_on_batch(x[:, :length], y[:, :length])
        found.append(numpy(model(x)))
    if dispatch == "auto":
        assert_close(*found, rtol=1e-4, atol=1e-5)


def test_a_capacity_drops_and_counts():
    dense, sparse = pair(GATES["switch"], num_experts=8, dispatch=1.0)
    x = np.repeat(X[:1], BATCH, axis=0)
    # An even share of 24 examples is 3, and all want the same expert.
    outputs = numpy(sparse(x))
    assert_close(outputs[:3], numpy(dense(x))[:3], atol=1e-5)
    assert_equal(outputs[3:], 0)
    assert int(sparse.num_dropped) == BATCH - 3
    sparse.num_dropped.assign(2**31 - 2)
    sparse(x)
    assert int(sparse.num_dropped) == 2**31 - 1
    capacity = np.float32(1.5)
    moe = dk.MoE(dk.DenseExperts(8, [4]), dk.SwitchGate(), True, dispatch=capacity)
    assert type(moe.get_config()["dispatch"]) is float
    assert moe(X).shape == (BATCH, 4)


def dispatches(bank, gate, dispatch="auto"):
    layer = dk.MoE(bank, gate, per_example=True, dispatch=dispatch)
    layer.build((None, 64))
    return layer.dispatches


class Kernels(dk.experts.ExpertBank):
    """A bank that has even slots and no blocks, and whose widths nobody knows."""

    can_dispatch, num_experts, shared_input = True, 8, True

    def build(self, input_shape):
        self.kernel = self.add_weight((8, input_shape[-1], 4))
        self.built = True

    def call(self, inputs):
        return ops.einsum("bd,ndh->bnh", inputs, self.kernel)

    def call_slots(self, inputs):
        x = ops.reshape(inputs, (8, -1, inputs.shape[-1]))
        return ops.reshape(ops.matmul(x, self.kernel), (-1, 4))


def test_auto_evaluates_all_experts_of_a_bank_whose_widths_are_not_known():
    layers = [
        dk.MoE(Kernels(), dk.SwitchGate(), per_example=True, dispatch=dispatch)
        for dispatch in ("auto", True)
    ]
    for layer in layers:
        layer.build(X.shape)
        layer.set_weights(layers[0].get_weights())
    assert [layer.dispatches for layer in layers] == [False, True]
    assert_close(layers[1](X), layers[0](X), atol=1e-5)


def test_auto_dispatches_where_it_pays():
    large = partial(dk.DenseExperts, 32, [256])
    assert dispatches(large(), dk.TopKGate(2))
    # Four times as many experts as are chosen, and kernels of 2 ** 14: not one less.
    assert dispatches(dk.DenseExperts(8, [256, 1]), dk.TopKGate(2))
    assert dispatches(dk.DenseExperts(24, [256]), dk.TopKGate(2, num_gates=3))
    for bank, gate in [
        (dk.DenseExperts(7, [256]), dk.TopKGate(2)),
        (dk.DenseExperts(23, [256]), dk.TopKGate(2, num_gates=3)),
        (dk.DenseExperts(8, [255, 256]), dk.TopKGate(2)),
        (dk.DenseExperts(32, [8]), dk.TopKGate(2)),
        (dk.DenseExperts(4, [256]), dk.TopKGate(2)),
        (large(), dk.TopKGate(2, dense_steps=1)),
        (large(), dk.SoftmaxGate()),
        (large(), dk.DSelectKGate(2)),
        (dk.DenseExperts(32, [256, 9], dropout=0.5), dk.TopKGate(2)),
        (dk.Experts(keras.layers.Dense(256), 32), dk.TopKGate(2)),
    ]:
        assert not dispatches(bank, gate), (bank.get_config(), gate.get_config())


def limit(monkeypatch, on_cpu):
    """Make 32 examples enough on a GPU, or 56 in half precision."""
    monkeypatch.setattr(moe, "is_on_cpu", lambda _: on_cpu)
    # For 31, 32, 55 and 56 examples, blocks have 4, 4, 5 and 5 slots. The 21, 22, 28
    # and 28 blocks, with copies, leave 122, 124, 244 and 252 of all experts' rows.
    monkeypatch.setattr(dispatching, "ROWS_PER_COPY", {"gpu": 2, "torch": 2})
    monkeypatch.setitem(dispatching.ROWS_PER_COPY, "cpu", 32)
    on_torch, each = keras.backend.backend() == "torch", 64 * 256 + 256
    least = {"torch" if on_torch else "float32": 123 * each, "bfloat16": 246 * each}
    monkeypatch.setattr(moe, "MIN_ON_GPU", least)


@pytest.mark.parametrize("dispatch", ["auto", True])
@pytest.mark.parametrize(
    ("dtype", "on_cpu", "size", "pays"),
    [
        ("float32", False, 31, False),
        ("float32", False, 32, True),
        ("bfloat16", False, 55, False),
        ("bfloat16", False, 56, True),
        ("float32", True, 2, True),
    ],
)
def test_on_a_gpu_auto_dispatches_large_batches(
    monkeypatch, dispatch, dtype, on_cpu, size, pays
):
    limit(monkeypatch, on_cpu)
    with dtype_policy(f"mixed_{dtype}" if dtype != "float32" else dtype):
        layer = dk.MoE(dk.DenseExperts(8, [256]), dk.TopKGate(2), True, None, dispatch)
    seen = []
    with recording(seen.append):
        layer(numbers((size, 64)))
    assert (seen[0].experts is None) == (pays or dispatch is True)


@pytest.mark.traced
@pytest.mark.backends("tensorflow", reason="Others know all sizes.")
@pytest.mark.parametrize("with_xla", [False, True])
def test_auto_decides_by_the_batch_of_a_step(monkeypatch, with_xla):
    import tensorflow as tf

    limit(monkeypatch, on_cpu=False)
    layer = dk.MoE(dk.DenseExperts(8, [256]), dk.TopKGate(2), True)
    layer.build((None, 64))

    @tf.function(input_signature=[tf.TensorSpec((None, 64))], jit_compile=with_xla)
    def call(x):
        return layer(x), layer._pays(x)

    for size, pays in ((31, False), (32, True), (1, False)):
        outputs, found = call(x := numbers((size, 64)))
        assert bool(found) == pays
        mixture = np.einsum("bn,bnd->bd", layer.expert_weights(x), layer.experts(x))
        assert_close(outputs, mixture, atol=1e-5)


@pytest.mark.backends("jax", reason="Only JAX has `vmap`.")
def test_copies_that_are_computed_at_once_evaluate_one_branch():
    import jax

    models = [routed(dispatch) for dispatch in (False, True)]
    models[1].set_weights(models[0].get_weights())
    x, routing = numbers((64, DIM)), np.stack([chosen_by(load) for load in (4, 9, 60)])

    def results(model):
        def loss(x, routing):
            return ops.sum(model([x, routing]) ** 2)

        return jax.vmap(jax.value_and_grad(loss), (None, 0))

    dense, sparse = map(results, models)
    assert_close(sparse(x, routing), dense(x, routing), rtol=1e-4, atol=1e-5)
    # `vmap` replaces a condition that differs among copies by both of its branches.
    assert "cond[" in str(jax.make_jaxpr(sparse)(x, routing))


def test_auto_does_not_dispatch_experts_that_are_split_over_devices(monkeypatch):
    monkeypatch.setattr("dselectk_keras.layers.moe.is_model_parallel", lambda: True)
    for dispatch in ("auto", True, 1.5):
        bank, gate = dk.DenseExperts(32, [256]), dk.TopKGate(2)
        assert dispatches(bank, gate, dispatch) == (dispatch != "auto")


@pytest.mark.parametrize("num_gates", [None, 3])
def test_examples_with_more_experts_than_slots_are_mixed_densely(num_gates):
    # As of a gate that has not decided: 3 experts, where 2 are expected.
    bank, gates = dk.DenseExperts(16, [4]), () if num_gates is None else (num_gates,)
    outputs = numpy(bank(X))
    weights = np.zeros((BATCH, *gates, 16), "float32")
    weights[..., :2] = 0.25
    weights[5, ..., 2] = 0.5
    weights = np.stack([np.roll(w, 2 * i, axis=-1) for i, w in enumerate(weights)])
    routing = Routing(weights, per_example=True, max_experts=2)
    if num_gates is not None:
        routing = routing._replace(max_experts=1, weights=weights[:, :2])
    mixed, dropped = routing.dispatch(bank, ops.convert_to_tensor(X))
    expected = np.einsum("b...n,bnu->b...u", routing.weights, outputs)
    assert_close(mixed, expected, rtol=1e-4, atol=1e-6)
    assert dropped is None


def build(dispatch=True, units=(3,), gate=None, per_example=True, **settings):
    bank = dk.DenseExperts(2, units, **settings)
    moe = dk.MoE(bank, gate or dk.TopKGate(1), per_example, dispatch=dispatch)
    moe.build((None, DIM))


test_what_cannot_be_dispatched_is_refused = refusals(
    *(
        (build, f"a capacity of 1 or more. Received: dispatch={given!r}", given)
        for given in (0.5, float("inf"), float("nan"), 0, "always")
    ),
    (build, "needs a per-example gate", {"per_example": False}),
    (build, "without dropout", {"units": [3, 3], "dropout": 0.5}),
    (build, "and `activity_reg", {"dispatch": 2, "activity_regularizer": "l2"}),
    (
        build,
        "limits the number of experts.* Received: dispatch=True and SoftmaxGate",
        {"gate": dk.SoftmaxGate()},
    ),
    (
        build,
        "capacity, which drops choices.*dispatch=1.5 and TopKGate",
        {"dispatch": 1.5, "gate": dk.TopKGate(1, dense_steps=9)},
    ),
)
