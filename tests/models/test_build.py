"""Every architecture by name becomes a model that trains, and is what it says."""

import math
from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, changed, dtype_of
from helpers import dtype_policy, floatx, model_of, numbers, numpy, refusals, reloaded
from keras import layers

import dselectk_keras as dk
from dselectk_keras.gates import GATES, Gate
from dselectk_keras.models import ARCHITECTURES

pytestmark = pytest.mark.backend_independent

X, Y = numbers((4, 3)), numbers((4, 2), seed=1)
TASKS = [dk.Task("a", tower=(4,)), dk.Task("b", tower=(4,))]


def num_trained(model):
    """Count the numbers that are trained; gates count their steps beside."""
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def make(architecture="mmoe", tasks=TASKS, inputs=3, **settings):
    settings = {
        "experts": dk.DenseExperts(4, [2]),
        "gate": dk.DSelectKGate(2),
        **settings,
    }
    model = dk.build_multitask_model(inputs, tasks, architecture, **settings)
    model.compile("sgd")
    return model


def assert_all_train(model, y):
    """All variables are others after an epoch."""
    assert all(changed(model.trainable_variables, partial(model.fit, X, y, verbose=0)))


@pytest.mark.every_backend
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_trains_and_reloads(architecture, tmp_path):
    model = make(architecture, gate=dk.DSelectKGate(2, entropy_reg=0.1))
    assert_all_train(model, Y)
    loaded = reloaded(model, tmp_path)
    report = model.evaluate(X, Y, verbose=0, return_dict=True)
    assert loaded.evaluate(X, Y, verbose=0, return_dict=True) == report
    assert_equal(loaded(X), model(X))


@pytest.mark.traced
@pytest.mark.backends("tensorflow", reason="JAX compiles each above, torch none.")
def test_all_architectures_train_in_one_graph():
    # One graph takes less time to trace and compile than ten.
    inputs, outputs = keras.Input((3,)), []
    for architecture in ARCHITECTURES:
        model = make(architecture, gate=dk.DSelectKGate(2, entropy_reg=0.1))
        model.name = architecture
        outputs.extend(model(inputs).values())
    joined = keras.Model(inputs, layers.Concatenate()(outputs))
    joined.compile("sgd", "mse")
    assert_all_train(joined, np.ones((4, len(outputs))))


def mixtures_by_hand(architecture, model):
    """The inputs of the two towers, (batch, tasks, features)."""
    if architecture in {"single_task", "l2_constrained", "tensor_factorization"}:
        return numpy(model.layers[1](X))
    if architecture == "cross_stitch":
        matrix = numpy(model.get_layer("cross_stitch_0").matrix)
        return np.einsum("tu,buh->bth", matrix, numpy(model.layers[1](X)))
    if architecture in {"cgc", "ple", "smear"}:  # Layers with tests of their own.
        x = X
        for layer in model.layers[1 : 2 + (architecture == "ple")]:
            x = layer(x)
        return numpy(x)
    if architecture == "shared_bottom":
        return np.repeat(numpy(model.layers[1](X)), 2, axis=1)
    mmoe = model.get_layer("attentive" if architecture == "attentive" else "mmoe")
    weights = np.broadcast_to(numpy(mmoe.expert_weights()), (2, 4))
    return np.einsum("tn,bnh->bth", weights, numpy(mmoe.experts(X)))


# Each has kernels of (3, 2) and biases of 2, and the gates have two sorts of logits,
# for two selectors over an axis of bits.
SINGLE, GATE = 3 * 2 + 2, 2 * 2 + 2
WIDER_GATE = 2 * 3 + 2
NUM_PARAMS = {
    "single_task": 2 * SINGLE,
    "shared_bottom": SINGLE,
    "l2_constrained": 2 * SINGLE,
    "cross_stitch": 2 * SINGLE + 2 * 2,
    # Ranks of 2, 1 and 2: a core, three matrices and the biases.
    "tensor_factorization": 2 * 1 * 2 + 3 * 2 + 2 * 1 + 2 * 2 + 2 * 2,
    "omoe": 4 * SINGLE + GATE,
    "mmoe": 4 * SINGLE + 2 * GATE,
    "attentive": 4 * SINGLE + 2 * GATE,
    "smear": 4 * SINGLE + 2 * GATE,
    "cgc": 6 * SINGLE + 2 * WIDER_GATE,
    "ple": 6 * SINGLE + 6 * (2 * 2 + 2) + 5 * WIDER_GATE,
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_shares_experts_as_it_says(architecture):
    model = make(
        architecture, tasks=[dk.Task("a", tower="sum"), dk.Task("b", tower="sum")]
    )
    mixtures = mixtures_by_hand(architecture, model)
    outputs = model(X)
    for t, name in enumerate("ab"):
        expected = mixtures[:, t].sum(axis=1, keepdims=True)
        assert_close(outputs[name], expected, rtol=1e-5)
    assert num_trained(model) == NUM_PARAMS[architecture]


@pytest.mark.parametrize(
    ("towers", "dtype", "summed"),
    [
        (["sum", "sum"], "float32", True),
        (["sum", ()], "float32", False),
        (["sum", "sum"], "mixed_bfloat16", False),
    ],
)
def test_experts_are_summed_before_they_are_mixed_if_all_towers_sum(
    towers, dtype, summed
):
    tasks = [
        dk.Task(name, tower=tower) for name, tower in zip("ab", towers, strict=True)
    ]
    model = make("mmoe", tasks, experts=dk.DenseExperts(4, [3], dtype=dtype))
    assert model.get_layer("mmoe").sum_features is summed
    assert model.get_layer("mmoe").output.shape[-1] == (1 if summed else 3)


def same_weights(source, target):
    """Give one model the weights of another, in their order."""
    variables = target.trainable_variables, source.trainable_variables
    for weight, other in zip(*variables, strict=True):
        weight.assign(numpy(other))  # On JAX, a step deletes a buffer that is shared.


def by_task(model):
    return np.stack([numpy(model(X)[name]) for name in "ab"])


def test_cgc_without_task_experts_is_mmoe_and_ple_of_one_level_is_cgc():
    mmoe, cgc = make("mmoe"), make("cgc", num_task_experts=0)
    same_weights(mmoe, cgc)
    assert_equal(by_task(cgc), by_task(mmoe))
    cgc = make("cgc", num_task_experts=2)
    ple = make("ple", num_task_experts=2, levels=1)
    same_weights(cgc, ple)
    assert_equal(by_task(ple), by_task(cgc))


def test_every_level_of_ple_has_experts_and_gates_of_its_own():
    settings = {"levels": 3, "num_task_experts": 2, "per_example": True}
    gate = dk.DSelectKGate(2, entropy_reg=0.1, w_initializer="ones")
    model = make("ple", gate=gate, **settings)
    levels = [model.get_layer(f"cgc_{level}") for level in range(3)]
    gates = [level.gate for level in levels]
    gates += [level.shared_gate for level in levels]
    assert gates.pop() is None
    assert len({id(each) for each in [gate, *gates]}) == 6
    assert len({id(each.entropy_reg) for each in gates}) == 5
    assert [each.num_gates for each in gates] == [2, 2, 2, None, None]
    assert len({id(level.experts) for level in levels}) == 3
    shapes = [level.output.shape for level in levels]
    assert shapes == [(None, 3, 2), (None, 3, 2), (None, 2, 2)]


def test_levels_of_ple_take_inputs_of_several_sizes():
    network = keras.Sequential([layers.Dense(6, "tanh"), layers.Dense(2)])
    model = make("ple", experts=dk.Experts(network, 2), gate=dk.SoftmaxGate())
    found = [model.get_layer(f"cgc_{level}").experts for level in range(2)]
    assert [bank.experts[0].input_shape for bank in found] == [(None, 3), (None, 2)]


@pytest.mark.every_backend
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_works_in_mixed_precision(architecture):
    with dtype_policy("mixed_float16"):
        model = make(architecture, experts=dk.DenseExperts(4, [4, 2]))
        outputs = model(X, training=True)
    for output in outputs.values():
        assert dtype_of(output) == "float32"
        assert np.isfinite(numpy(output)).all()


@pytest.mark.parametrize("architecture", ["l2_constrained", "cgc", "ple"])
def test_experts_may_be_of_any_kind_and_are_flattened_for_the_towers(architecture):
    bank = dk.Experts(layers.Conv1D(1, 2, padding="same"), 2)
    model = make(architecture, inputs=(5, 1), experts=bank)
    assert model(numbers((4, 5, 1)))["b"].shape == (4, 1)
    model = make(inputs=(5, 1), experts=dk.Experts(layers.Conv1D(2, 2), 3))
    assert model(numbers((4, 5, 1)))["b"].shape == (4, 1)
    assert model.get_layer("towers_a_b").weights[0].shape == (2, 4 * 2, 4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_an_architecture_has_no_option_for_is_refused(architecture):
    with pytest.raises(TypeError, match="unexpected keyword argument 'share'"):
        make(architecture, share=0.5)


def test_layers_carry_the_names_of_the_tasks():
    tasks = [dk.Task("click"), dk.Task("is paid?", "binary"), dk.Task("like")]
    tasks += [dk.Task("is_paid", "multiclass", 3), dk.Task("点击", tower=(2,))]
    model = make(tasks=tasks)
    assert {*model(X)} == {task.name for task in tasks}
    names = [layer.name for layer in model.layers]
    for label in ("click_like", "is_paid", "2", "3"):
        assert {f"towers_{label}", f"predict_{label}"} <= set(names)
    names = [layer.name for layer in make(tasks=12).layers]
    assert names[2:] == ["towers_task_0_to_task_11", "predict_task_0_to_task_11"]


def test_each_task_has_a_tower_of_its_own():
    model = make()
    w0, b0, w1, b1 = (numpy(each) for each in model.get_layer("towers_a_b").weights)
    mixtures = mixtures_by_hand("mmoe", model)
    hidden = np.maximum(np.einsum("btd,tdh->bth", mixtures, w0) + b0, 0.0)
    expected = np.einsum("bth,tho->bto", hidden, w1) + b1
    assert_close(by_task(model), expected.swapaxes(0, 1), rtol=1e-4, atol=1e-6)


def test_unlike_tasks_keep_their_places_among_the_gates():
    tasks = [
        dk.Task("a", tower="sum"),
        dk.Task("b", "binary"),
        dk.Task("c", tower="sum"),
    ]
    model = make(tasks=tasks)
    mmoe = model.get_layer("mmoe")
    mmoe.gate.set_weights([numbers(w.shape, seed=3) for w in mmoe.gate.weights])
    weights, experts = numpy(mmoe.expert_weights()), numpy(mmoe.experts(X))
    outputs = model(X)
    for t, name in ((0, "a"), (2, "c")):
        expected = np.einsum("n,bnh->b", weights[t], experts)
        assert_close(numpy(outputs[name])[:, 0], expected, rtol=1e-5)


def test_per_example_gates_look_at_the_features():
    encoder = model_of(layers.Dense(5, "tanh"), 3)
    model = make(inputs=encoder, per_example=True)
    assert model.get_layer("mmoe").gate.routing_dim == 5
    train = partial(model.fit, X, Y, verbose=0)
    assert all(changed(encoder.trainable_variables[:1], train))


def test_an_encoder_may_be_sequential_or_have_several_inputs():
    encoder = keras.Sequential([layers.Dense(5, "tanh")])
    encoder(np.ones((2, 3)))
    train = partial(make(inputs=encoder).fit, X, Y, batch_size=3, verbose=0)
    assert all(changed(encoder.trainable_variables[:1], train))
    numbers_in = keras.Input((3,), name="numbers")
    word = keras.Input((), name="word", dtype="int32")
    features = layers.concatenate([numbers_in, layers.Embedding(7, 2)(word)])
    model = make(inputs=keras.Model({"numbers": numbers_in, "word": word}, features))
    x = {"numbers": X, "word": np.array([0, 6, 2, 1])}
    assert np.isfinite(model.fit(x, Y, verbose=0).history["loss"]).all()
    assert model.predict(x, verbose=0)["a"].shape == (4, 1)


@pytest.mark.parametrize("inputs", [3, (3,), keras.Input((3,))])
def test_inputs_may_be_a_number_a_shape_or_a_keras_input(inputs):
    assert make(inputs=inputs)(X)["a"].shape == (4, 1)


def test_gates_may_look_at_pooled_tokens_or_what_an_encoder_gives():
    pool = layers.GlobalAveragePooling1D()
    settings = {"gate": dk.SoftmaxGate(), "per_example": True}
    for model in (
        make(inputs=(5, 3), routing_network=pool, **settings),
        make(inputs=model_of(lambda x: [x, pool(x)], 5, 3), **settings),
    ):
        assert model(numbers((4, 5, 3)))["b"].shape == (4, 1)
    encoder = model_of(lambda x: [x, keras.ops.cast(x[:, :1] > 0, "int32")], 3)
    model = make(inputs=encoder, gate=dk.baselines.TagGate(), per_example=True)
    weights = numpy(model.get_layer("mmoe").gate.expert_weights((X[:, 0] > 0) * 1))
    assert_equal(weights.argmax(axis=-1)[:, 0], X[:, 0] > 0)
    assert np.isfinite(numpy(model(X)["a"])).all()


@pytest.mark.parametrize("name", sorted({*GATES} - {"tag", "hash", "attentive"}))
def test_gates_may_be_names_and_experts_a_number(name):
    model = dk.build_multitask_model(
        16, 2, "mmoe", 5, name, GATES[name].per_example_only
    )
    layer = model.get_layer("mmoe")
    assert type(layer.gate) is GATES[name]
    assert layer.experts.num_experts == 5


@pytest.mark.parametrize("architecture", ["omoe", "mmoe", "cgc", "ple", "smear"])
def test_every_gate_is_static_unless_asked(architecture):
    def gates(**settings):
        layers_ = make(architecture, **settings)._flatten_layers()
        return {each.per_example for each in layers_ if isinstance(each, Gate)}

    for gate in ("softmax", dk.SoftmaxGate(), dk.DSelectKGate(2)):
        assert gates(gate=gate) == {False}
        assert gates(gate=gate, per_example=True) == {True}


@pytest.mark.every_backend
def test_many_tasks_are_one_bank_of_towers_and_one_layer_of_gates():
    model = make(tasks=128)
    assert model.get_layer("mmoe").gate.num_gates == 128
    assert len(model.trainable_variables) == 2 + 2 + 2
    log = model.fit(X, numbers((4, 128)), verbose=0).history
    assert len([name for name in log if name.endswith("_loss")]) == 129


@pytest.mark.parametrize("architecture", ["omoe", "smear"])
def test_a_gate_is_copied_for_the_number_of_gates(architecture):
    gate = dk.SoftmaxGate()
    make(architecture, gate=gate)
    assert (gate.num_gates, gate.built) == (None, False)
    with pytest.raises(ValueError, match="Received: one with num_gates=5"):
        make(architecture, gate=dk.SoftmaxGate(num_gates=5))


MIXED = [
    dk.Task("a", tower=(4,)),
    dk.Task("b", "binary"),
    dk.Task("c", tower=(4,), weight=2.0),
]


def test_one_stacked_output_is_the_outputs_by_name_with_an_axis_for_classes(tmp_path):
    named, stacked = make(tasks=MIXED), make(tasks=MIXED, stacked=True)
    stacked.set_weights(named.get_weights())
    y = np.array([[0, 1, 1], [2, 0, np.nan], [1, 1, 1], [0, 0, 3]], "float32")
    for model in (stacked, named):
        model.train_on_batch(X, y)
    reports = [m.evaluate(X, y, verbose=0, return_dict=True) for m in (stacked, named)]
    assert reports[0] == pytest.approx(reports[1])
    loaded = reloaded(stacked, tmp_path)
    expected = np.concatenate([*map(numpy, named(X).values())], axis=1)
    assert stacked.output.shape == (None, 3)
    for outputs in (stacked(X), stacked.predict(X, verbose=0), loaded(X)):
        assert_close(outputs, expected, rtol=1e-5, atol=1e-6)
    tasks = [dk.Task(name, "multiclass", num_classes=3) for name in "ab"]
    stacked = make(tasks=tasks, stacked=True)
    assert stacked.output.shape == (None, 2, 3)
    assert_close(numpy(stacked(X)).sum(axis=-1), 1.0, rtol=1e-5)


@pytest.mark.every_backend
@pytest.mark.parametrize("stacked", [False, True])
def test_several_groups_of_tasks_are_trained_with_floats_of_half_precision(stacked):
    with floatx("bfloat16"):
        model = make(tasks=MIXED, stacked=stacked)
        log = model.fit(X, np.eye(4)[:, :3], verbose=0).history
        found = model.predict(X, verbose=0)
        assert_close(found, keras.tree.map_structure(numpy, model(X)), rtol=1e-2)
    assert all(np.isfinite(float(own[-1])) for own in log.values())


TOKENS = {"experts": dk.DenseExperts(3, [4, 4]), "per_example": True}
COLOR = dk.Task("color", "multiclass", num_classes=3)
BOTTOM = keras.Sequential([layers.Dense(5)], name="bottom")
test_what_cannot_be_built_is_refused = pytest.mark.backend_independent(
    refusals(
        (make, "'mmmoe'. Known names: single_task, ", {"architecture": "mmmoe"}),
        (make, r"unique names.*: tasks=\['a', 'b',", {"tasks": ["a", "b", "a"]}),
        (make, "a list of one or more `Task` or unique", {"tasks": []}),
        (make, r"`Task` objects or names.*Received: .*, 3\]", {"tasks": ["a", 3]}),
        (make, "`experts` must be a bank", {"experts": layers.Dense(3)}),
        (
            make,
            "must be the features, or a pair .* Received: ",
            {"inputs": model_of(lambda x: {"features": x, "context": x[:, :1]}, 3)},
            {"inputs": model_of(lambda x: [x, x, x], 3)},
        ),
        (make, "`num_experts` must be", {"experts": 0}),
        (make, "`gate` must be a gate, such as", {"gate": layers.Dense(3)}),
        (make, "There is no gate of the name 'top'", {"gate": "top"}),
        (make, "HashGate is per-example", {"gate": dk.baselines.HashGate()}),
        (
            make,
            "a model with two outputs",
            {"gate": dk.baselines.TagGate(), "per_example": True},
        ),
        (make, "`inputs` must be a number of features", {"inputs": "features"}),
        (make, r"`keras.Model` whose inputs.*name=bottom", {"inputs": BOTTOM}),
        (make, "`stacked` must be one of True, False", {"stacked": "false"}),
        (make, "have the same shape", {"stacked": True, "tasks": [*TASKS, COLOR]}),
        (make, "`per_example` must be .* True, .* 'by_gate'", {"per_example": "no"}),
        *(
            (
                partial(make, gate=gate, **TOKENS),
                rf"Received: \(None, {length}, 3\), of",
                {"architecture": name, "inputs": (length, 3)},
            )
            for name, gate in [
                *((name, dk.SoftmaxGate()) for name in ("mmoe", "omoe", "cgc", "ple")),
                ("attentive", dk.baselines.AttentiveGate(2)),
            ]
            for length in (2, 5)
        ),
    )
)
