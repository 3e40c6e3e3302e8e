"""A condensed model gives the same outputs with fewer experts, and trains on."""

from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, changed
from helpers import model_of, numbers, numpy, refusals, reloaded
from keras import layers

import dselectk_keras as dk
from dselectk_keras._keras import all_layers
from dselectk_keras.models import condense

pytestmark = pytest.mark.backend_independent

X, Y = numbers((16, 3)), numbers((16, 3), seed=1)
# Three tasks use the experts 1, 4 and 6 of 8.
WEIGHTS = np.zeros((3, 8), "float32")
WEIGHTS[0, [1, 4]] = 0.25, 0.75
WEIGHTS[1, 4] = 1.0
WEIGHTS[2, [6, 1]] = 0.5, 0.5


def dense_bank():
    return dk.DenseExperts(8, [5, 2])


def decided(bank=None, optimizer="adam", architecture="mmoe", tasks=3):
    """A compiled model whose gates have decided."""
    bank, gate = bank or dense_bank(), dk.DSelectKGate(2, entropy_reg=0.01)
    model = dk.build_multitask_model(3, tasks, architecture, bank, gate)
    gate = model.get_layer("mmoe").gate
    gate.assign_expert_weights(WEIGHTS[: gate.num_gates])
    model.compile(optimizer)
    return model


def outputs(model):
    return np.concatenate([numpy(value) for value in model(X).values()], axis=1)


def train(model, epochs=2, callbacks=()):
    settings = {"batch_size": 8, "shuffle": False, "verbose": 0}
    model.fit(X, Y, epochs=epochs, callbacks=list(callbacks), **settings)


def copies():
    model = keras.Sequential([layers.Dense(2), layers.BatchNormalization()])
    return dk.Experts(model, 8)


@pytest.mark.every_backend
@pytest.mark.parametrize("make", [dense_bank, copies])
def test_outputs_are_the_same_with_the_experts_in_use_alone(make):
    model = decided(make())
    small = condense(model)
    assert small.get_layer("mmoe").experts.num_experts == 3
    assert small.count_params() < model.count_params()
    assert_close(outputs(small), outputs(model), atol=1e-6)
    assert type(small) is type(model)
    # The original is as it was.
    assert model.get_layer("mmoe").experts.num_experts == 8


@pytest.mark.every_backend
def test_training_goes_on_as_with_all_experts():
    whole = decided(optimizer=keras.optimizers.SGD(0.1))
    recorder = dk.GateRecorder(every=2)
    train(whole, callbacks=[recorder])
    small = condense(whole)
    train(small, callbacks=[recorder])
    train(whole)
    assert_close(outputs(small), outputs(whole), atol=1e-5)
    # Two epochs of two steps each. The experts keep their numbers.
    assert recorder.history.steps.tolist() == [0, 2, 4, 6, 8]
    found = recorder.history["mmoe"]["weights"]
    assert found.shape == (5, 3, 8)
    assert_close(found[-1], whole.get_layer("mmoe").gate.expert_weights(), atol=1e-5)


@pytest.mark.every_backend
def test_the_copy_is_compiled_alike_with_an_optimizer_that_begins_anew():
    model = decided(optimizer=keras.optimizers.Adam(0.25, use_ema=True))
    train(model, epochs=1)
    small = condense(model)
    assert small.optimizer.get_config() == model.optimizer.get_config()
    assert int(small.optimizer.iterations) == 0 < int(model.optimizer.iterations)


def report(model, labels=Y):
    return model.evaluate(X, labels, verbose=0, return_dict=True)


def test_the_copy_has_the_losses_of_the_model():
    loss = keras.losses.Huber(0.25)
    model = decided()
    model.compile("adam", loss=loss)
    tasks = [dk.Task(f"task_{i}", loss=loss) for i in range(3)]
    for each in (model, decided(tasks=tasks)):
        labels = {f"task_{i}": Y[:, [i]] for i in range(3)}
        assert report(condense(each), labels) == pytest.approx(report(each, labels))


class Slower(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.5

    def get_config(self):
        return {}


class Momentum(keras.optimizers.SGD):
    """An optimizer of a user."""


def cubic(y, y_pred):
    return keras.ops.mean(keras.ops.absolute(y - y_pred) ** 3, axis=-1)


def test_what_is_compiled_need_not_be_registered():
    model = model_of(dk.MoE(dk.DenseExperts(8, [3]), dk.TopKGate(2)), 3)
    model.compile(Momentum(Slower()), cubic, metrics=[cubic])
    small = condense(model)
    assert type(small.optimizer) is Momentum
    assert float(small.optimizer.learning_rate) == 0.5
    assert report(small) == pytest.approx(report(model))
    # The task alone is not compiled, and needs nothing of it.
    model = decided(optimizer=Momentum(Slower()))
    assert condense(model).compiled
    assert not dk.per_task(model, "task_0").compiled


@keras.saving.register_keras_serializable("tests")
class Pretrained(layers.Layer):
    """Has a layer inside, which may be frozen."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inside, self.other = layers.Dense(3), layers.Dense(3)

    def call(self, inputs):
        return self.other(self.inside(inputs))


def test_layers_inside_of_layers_stay_frozen():
    inputs, block = keras.Input((3,)), Pretrained()
    mixed = dk.MoE(dk.DenseExperts(4, [2]), dk.TopKGate(1))(block(inputs))
    model = keras.Model(inputs, mixed)
    block.inside.trainable = False
    own = condense(model).get_layer(block.name)
    assert [x.trainable for x in (own, own.inside, own.other)] == [True, False, True]
    assert len(own.trainable_variables) == 2


@pytest.mark.parametrize("part", ["gate", "experts", "layer", "model"])
def test_what_is_frozen_stays_frozen_and_needs_no_new_optimizer(part):
    model = decided()
    train(model, epochs=1)
    layer = model.get_layer("mmoe")
    parts = {"gate": layer.gate, "experts": layer.experts, "layer": layer}
    parts.get(part, model).trainable = False
    small = condense(model)
    assert bool(small.trainable_variables) == (part != "model")
    assert_close(outputs(small), outputs(model), atol=1e-6)
    if part != "model":
        own = small.get_layer("mmoe")
        frozen = {"gate": own.gate, "experts": own.experts, "layer": own}[part].weights
        kept = [each for each in frozen if "int" not in each.dtype]
        assert not any(changed(kept, lambda: train(small, epochs=1)))
        assert np.abs(outputs(small) - outputs(model)).max() > 1e-4


@pytest.mark.every_backend
def test_normalization_keeps_what_it_learned_from_data():
    normalization = layers.Normalization()
    normalization.adapt(5.0 + 3.0 * X)
    encoder = keras.Sequential([keras.Input((3,)), normalization, layers.Dense(4)])
    experts = keras.Sequential([keras.Input((4,)), layers.Normalization()])
    experts.layers[0].adapt(numbers((9, 4)))
    bank = dk.Experts([layers.Dense(4), experts, layers.Dense(4)])
    model = dk.build_multitask_model(encoder, ["a"], experts=bank, gate=dk.TopKGate(1))
    model.get_layer("mmoe").gate.assign_expert_weights(np.eye(3)[[1]])
    small = condense(model)
    assert small.get_layer("mmoe").experts.num_experts == 1
    assert_close(outputs(small), outputs(model), rtol=1e-5)
    assert_close(outputs(dk.distill(model, dk.TopKGate(1))), outputs(model), rtol=1e-5)


def test_one_gate_for_all_tasks_or_a_single_moe_or_one_of_several_layers():
    model = decided(architecture="omoe")
    small = condense(model)
    assert small.get_layer("mmoe").experts.num_experts == 2
    assert_close(outputs(small), outputs(model), atol=1e-6)
    model = model_of(dk.MoE(dk.DenseExperts(8, [4]), dk.TopKGate(2)), 3)
    small = condense(model)
    assert small.layers[-1].experts.num_experts == 2
    assert_close(small(X), model(X), atol=1e-6)


def in_list(*gates):
    """A model with gates on one list of experts, as in the README."""
    x = keras.Input((3,))
    experts = [layers.Dense(2, name=f"expert_{i}")(x) for i in range(6)]
    return keras.Model(x, [layers.Dense(1)(gate(experts)) for gate in gates])


def of_bank(*gates, experts=None):
    x = keras.Input((3,))
    outputs = (experts or dk.DenseExperts(6, [2]))(x)
    return keras.Model(x, [layers.Dense(1)(gate(outputs)) for gate in gates])


def chosen(*choices, **settings):
    return dk.ChosenGate(initial_choices=list(choices), **settings)


def experts_of(model):
    return [layer.name for layer in model.layers if layer.name.startswith("expert")]


@pytest.mark.parametrize("gate", [dk.TopKGate, dk.DSelectKGate, dk.ChosenGate])
def test_experts_of_a_list_that_no_gate_uses_are_left_out(gate, tmp_path):
    gate = gate(2, num_gates=2, expert_dropout=0.25, seed=3)
    model = in_list(gate)
    weights = np.eye(6)[[4, 1]] * 0.25 + np.eye(6)[[1, 4]] * 0.75
    if hasattr(gate, "kept"):
        gate.choose([[4, 1], [1, 4]])
    else:
        gate.assign_expert_weights(weights)
    model.compile("sgd", "mse")
    model.fit(X, np.ones((16, 2, 1)), verbose=0)
    gate.trainable = False
    small = condense(model)
    assert experts_of(small) == ["expert_1", "expert_4"]
    assert_close(small(X), model(X), atol=1e-6)
    assert_equal(reloaded(small, tmp_path)(X), small(X))
    own = small.get_layer(gate.name)
    assert (own.kept, own.num_before, own.trainable) == ([1, 4], 6, False)
    assert int(own.step) == int(gate.step) == 1
    assert_equal(own.generator.state, gate.generator.state)
    assert experts_of(condense(small)) == experts_of(small)
    small.fit(X, np.ones((16, 2, 1)), verbose=0)


def test_several_gates_and_mixtures_keep_what_any_of_them_uses():
    model = in_list(chosen(4, 1), chosen(1, 1), chosen(5, -1))
    small = condense(model)
    assert experts_of(small) == ["expert_1", "expert_4", "expert_5"]
    for found, expected in zip(small(X), model(X), strict=True):
        assert_close(found, expected, atol=1e-6)
    # A bank has the same experts for all of its gates.
    experts = dk.Experts(keras.Sequential([layers.Dense(2)]), 6, name="bank")
    for bank in (dk.DenseExperts(6, [2], name="bank"), experts):
        model = of_bank(chosen(4, 1), chosen(5, 5), experts=bank)
        small = condense(model)
        assert small.get_layer("bank").num_experts == 3
        for found, expected in zip(small(X), model(X), strict=True):
            assert_close(found, expected, atol=1e-6)
    layer = dk.MoE(dk.DenseExperts(4, [2]), dk.TopKGate(1), name="moe")
    x = keras.Input((3,))
    lists = [layers.Dense(2)(x) for _ in range(4)]
    model = keras.Model(x, layer(x) + chosen(3, 0)(lists) + chosen(3)(lists))
    small = condense(model)
    assert small.get_layer("moe").experts.num_experts == 1
    assert sum(isinstance(each, layers.Dense) for each in small.layers) == 2
    assert_close(small(X), model(X), atol=1e-6)


def test_a_gate_that_is_called_twice_or_follows_its_bank_in_a_row():
    x, gate = keras.Input((3,)), chosen(2, 0)
    first, second = ([layers.Dense(2)(x) for _ in range(4)] for _ in range(2))
    model = keras.Model(x, gate(first) - gate(second))
    small = condense(model)
    assert sum(isinstance(each, layers.Dense) for each in small.layers) == 4
    assert_close(small(X), model(X), atol=1e-6)
    parts = [keras.Input((3,)), dk.DenseExperts(4, [2]), dk.TopKGate(1)]
    model = keras.Sequential(parts)
    small = condense(model)
    assert small.layers[0].num_experts == 1
    assert_close(small(X), model(X), atol=1e-6)


def test_experts_that_others_read_are_kept():
    x, bank = keras.Input((3,)), dk.DenseExperts(4, [2], name="bank")
    outputs, gate = bank(x), chosen(1)
    lists = chosen(0)([layers.Dense(2)(x) for _ in range(3)])
    for other in (dk.SoftmaxGate()(outputs), dk.TopKGate(1)(outputs, x), outputs):
        model = keras.Model(x, [gate(outputs), other, lists])
        small = condense(model)
        assert small.get_layer("bank").num_experts == 4
        assert sum(isinstance(each, layers.Dense) for each in small.layers) == 1
        for found, expected in zip(small(X), model(X), strict=True):
            assert_close(found, expected, atol=1e-6)


@pytest.mark.every_backend
def test_a_condensed_model_is_condensed_again_and_reloads(tmp_path):
    once = condense(decided())
    twice = condense(once)
    assert_close(outputs(twice), outputs(once), atol=1e-6)
    gate = twice.get_layer("mmoe").gate
    assert (gate.kept, gate.num_before) == ([1, 4, 6], 8)
    # Keras would warn of an optimizer that is not built.
    assert_equal(outputs(reloaded(once, tmp_path)), outputs(once))
    train(once, epochs=1)
    assert_equal(outputs(reloaded(once, tmp_path)), outputs(once))


def test_gates_without_any_expert_keep_the_first_or_their_loss_of_weight():
    gate = dk.DSelectKGate(2)
    model = model_of(dk.MoE(dk.DenseExperts(5, [2]), gate), 3)
    z, w, *_ = gate.get_weights()
    # The codes 3 and 7, of which the second has no expert.
    z[:, 0] = np.where([[0, 1, 1], [1, 1, 1]], 1.0, -1.0)
    gate.set_weights([z, w])
    small = condense(model)
    assert small.layers[-1].experts.num_experts == 1
    assert_close(small(X), model(X), atol=1e-6)
    layer = dk.MoE(dk.DenseExperts(4, [2]), chosen(-1, -1))
    small = condense(model_of(layer, 3))
    assert small.layers[-1].gate.kept == [0]
    assert_equal(small(X), 0.0)


def test_an_annealed_gate_is_condensed_where_it_stands():
    gate = dk.DSelectKGate(2, gamma=dk.Ramp(4.0, 0.5, end=9, kind="linear"))
    model = dk.build_multitask_model(3, 2, experts=dk.DenseExperts(8, [2]), gate=gate)
    gate = model.get_layer("mmoe").gate
    # Half way into the band that the smooth step has at its end: decided only then.
    signs = np.sign(numbers(gate._z.static.shape))
    gate._z.static.assign(0.3 * signs)
    for _ in range(12):
        model(X, training=True)
    small = condense(model)
    assert_close(outputs(small), outputs(model), atol=1e-6)
    assert int(small.get_layer("mmoe").gate.step) == int(gate.step) == 12


def test_only_what_has_nearly_decided_passes_within_a_tolerance():
    bank, gate = dk.DenseExperts(8, [2]), dk.DSelectKGate(2)
    model = dk.build_multitask_model(3, 3, experts=bank, gate=gate)
    text = r"6 selectors are not binary .*mmoe \(0, 0\) by 0\.4.*`DecideGates\(\)`"
    with pytest.raises(ValueError, match=text):
        condense(model)
    assert condense(model, tolerance=1.0).get_layer("mmoe").experts.num_experts <= 6
    model = decided()
    model.get_layer("mmoe").gate.assign_expert_weights(WEIGHTS, slack=0.02)
    with pytest.raises(ValueError, match="raise `tolerance`"):
        condense(model)
    assert_close(outputs(condense(model, tolerance=0.01)), outputs(model), atol=1e-2)


OPTIONS = {
    "weights_regularizer": dk.ImportanceRegularizer(0.3),
    "expert_dropout": 0.25,
    "seed": 7,
    "dtype": "mixed_bfloat16",
    "name": "router",
}


@pytest.mark.parametrize(
    "make", [dk.DSelectKGate, dk.baselines.SoftmaxSelectorGate, dk.TopKGate]
)
def test_a_gate_keeps_its_options(make):
    gate = make(2, **OPTIONS)
    model = dk.build_multitask_model(3, 3, experts=dk.DenseExperts(8, [5]), gate=gate)
    own = model.get_layer("mmoe").gate
    own.assign_expert_weights(WEIGHTS)
    own.generator.state.assign([7, 5])
    small = condense(model, tolerance=1.0)
    for each in (small, dk.per_task(small, small.tasks[1].name)):
        gate = each.get_layer("mmoe").gate
        found, given = gate.get_config(), own.get_config()
        assert {name: found[name] for name in OPTIONS}.items() <= given.items()
        assert gate.trainable
    assert_equal(small.get_layer("mmoe").gate.generator.state, [7, 5])


@pytest.mark.parametrize("trained", [False, True])
def test_shares_that_are_not_trained_stay_so(trained):
    gate = dk.ChosenGate(2, "random", train_shares=trained)
    small = condense(dk.build_multitask_model(3, 3, experts=8, gate=gate))
    assert bool(small.get_layer("mmoe").gate.trainable_weights) == trained


class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.moe = dk.MoE(dk.DenseExperts(4, [3]), dk.TopKGate(1))

    def call(self, inputs):
        return self.moe(inputs)


def subclassed():
    model = Subclassed()
    model(X)
    return model


def on_a_stack():
    x = keras.Input((3,))
    experts = keras.ops.stack([layers.Dense(2)(x) for _ in range(3)], axis=1)
    return keras.Model(x, chosen(1, name="here")(experts))


def own_inputs():
    bank = dk.DenseExperts(4, [3], shared_input=False)
    return model_of(dk.MoE(bank, dk.TopKGate(2), name="a"), 4, 6)


def sharing(part):
    """A model of two layers that share a part."""
    first = dk.MoE(dk.DenseExperts(4, [3]), dk.TopKGate(2), name="first")
    own = {"experts": dk.DenseExperts(4, [3]), "gate": dk.TopKGate(2)}
    second = dk.MoE(**{**own, part: getattr(first, part)}, name="second")
    return model_of(lambda x: second(first(x)), 3)


def of_gate(gate, architecture="mmoe", **settings):
    return dk.build_multitask_model(3, 2, architecture, gate=gate, **settings)


NO_LAYER = r"no layer with experts that can be changed, such as `MMoE`.*"
test_what_cannot_be_condensed_is_refused = pytest.mark.backend_independent(
    refusals(
        *(
            (lambda model: condense(model()), text, model)
            for model, text in [
                (lambda: keras.Sequential([layers.Dense(2)]), "A built model is"),
                (
                    lambda: keras.Sequential([keras.Input((3,)), layers.Dense(2)]),
                    NO_LAYER + r"dense.* \(Dense\)",
                ),
                (lambda: of_gate(dk.TopKGate(1), "cgc"), NO_LAYER + r"cgc \(CGC\)"),
                (lambda: in_list(dk.SoftmaxGate()), "SoftmaxGate does not choose"),
                (lambda: in_list(dk.DSelectKGate(1)), "1 selectors are not binary"),
                (on_a_stack, r"only such gates read\. Received: here\. Pass a list"),
                (own_inputs, "share one input can be removed. Received: the layer 'a'"),
                (lambda: of_gate(dk.SoftmaxGate()), "SoftmaxGate does not choose amo"),
                (
                    lambda: of_gate(dk.DSelectKGate(1), per_example=True),
                    "Only a static gate",
                ),
            ]
        ),
        *(
            (lambda part: condense(sharing(part)), f"{part!r} shared by first, s", part)
            for part in ["experts", "gate"]
        ),
        *(
            (
                lambda value, call=call: call(decided(), tolerance=value),
                "`tolerance` must be a finite number at le",
                *(float("nan"), -0.1, 1.1, "all"),
            )
            for call in (condense, partial(dk.per_task, name="task_0"))
        ),
    )
)


@keras.saving.register_keras_serializable("tests")
class Block(layers.Layer):
    """A layer of a user, which has no `get_config` and no `build`."""

    def __init__(self, per_example=False, **kwargs):
        super().__init__(**kwargs)
        self.scale = layers.Dense(3)
        self.moe = dk.MoE(dk.DenseExperts(4, [3]), dk.TopKGate(2), per_example)

    def call(self, inputs):
        return inputs + self.moe(self.scale(inputs))


@keras.saving.register_keras_serializable("tests")
class OfBlocks(keras.Model):
    """A model of a user, of two of these layers."""

    def __init__(self, per_example=False, **kwargs):
        super().__init__(**kwargs)
        self.per_example = per_example
        self.blocks = [Block(per_example) for _ in range(2)]

    def get_config(self):
        return {**super().get_config(), "per_example": self.per_example}

    def call(self, inputs):
        for block in self.blocks:
            inputs = block(inputs)
        return inputs


def of_blocks(per_example):
    model = OfBlocks(per_example)
    model(X)
    return model


def with_block(per_example):
    inputs = keras.Input((3,))
    return keras.Model(inputs, layers.Dense(2)(Block(per_example)(inputs)))


def in_a_model(per_example):
    inner = with_block(per_example)
    return keras.Sequential([keras.Input((3,)), inner, layers.Dense(2)])


@pytest.mark.parametrize("make", [with_block, in_a_model, of_blocks])
@pytest.mark.parametrize("data", [None, X])
def test_experts_inside_of_other_layers_are_removed(make, data):
    model = make(data is not None)
    for i, weight in enumerate(model.trainable_weights):
        weight.assign(numbers(weight.shape, seed=i))
    model.compile("sgd", "mse")
    before = numpy(model(X))
    small = condense(model, data=data, experts=None if data is None else 2)
    banks = [each for each in all_layers(small) if isinstance(each, dk.DenseExperts)]
    assert [bank.num_experts for bank in banks] == [2] * (1 + (make is of_blocks))
    if data is None:
        assert_close(small(X), before, atol=1e-5)
    y = numbers(before.shape, seed=5)
    trained = small.trainable_variables
    # Each expert of a per-example gate may be the second choice of no example.
    assert np.mean(changed(trained, lambda: small.fit(X, y, verbose=0))) > 0.8
    assert_equal(numpy(model(X)), before)


@pytest.mark.every_backend
def test_a_step_forgets_the_gradients_of_the_step_before():
    """On torch, the layers around the new parts must know their parameters."""
    small = condense(with_block(False))
    small.compile(keras.optimizers.SGD(0.1), "mse")
    before, found = small.get_weights(), []
    for _ in range(2):
        small.set_weights(before)
        small.train_on_batch(X, numbers((16, 2), seed=5))
        found.append(small.get_weights())
    assert_close(*found, rtol=1e-5)
