"""A trained model teaches one with another gate."""

from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, changed
from helpers import built, model_of, numbers, numpy, refusals, reloaded
from keras import layers
from models.test_condense import sharing, subclassed

import dselectk_keras as dk

pytestmark = pytest.mark.backend_independent

N, DIM, BATCH = 4, 5, 6
X = numbers((BATCH, DIM))
GATES = {
    "softmax": dk.SoftmaxGate,
    "softmax with bias": lambda: dk.SoftmaxGate(use_bias=True),
    "top-k with bias": lambda: dk.TopKGate(2, use_bias=True),
    "DSelect-k": lambda: dk.DSelectKGate(2, entropy_reg=0.01),
    "switch": dk.SwitchGate,
    "random": lambda: dk.RandomGate(2, seed=1),
}


def spread(model):
    """Give all weights but integers values that differ, as after some training."""
    for i, variable in enumerate(w for w in model.weights if "int" not in w.dtype):
        draws = numbers(variable.shape, seed=i)
        variable.assign(np.abs(draws) if "variance" in variable.name else draws)
    return model


def attentive_teacher():
    """A network before, a routing network, experts with a state, and one after."""
    inputs = keras.Input((DIM,))
    features = layers.Dense(DIM, "tanh", name="features")(inputs)
    stack = [layers.Dense(3, "tanh"), layers.BatchNormalization(), layers.Dense(2)]
    parts = dk.Experts(keras.Sequential(stack), N), dk.baselines.AttentiveGate(3), True
    moe = dk.baselines.AttentiveMoE(*parts, layers.Dense(4, "tanh"), name="moe")
    return spread(keras.Model(inputs, layers.Dense(1, name="head")(moe(features))))


def plain_teacher(gate, per_example=True):
    bank, head = dk.DenseExperts(N, [3, 2], "tanh"), layers.Dense(1, name="head")
    moe = dk.MoE(bank, gate, per_example, name="moe")
    return spread(model_of(lambda x: head(moe(x)), DIM))


def values(layer):
    return [numpy(weight) for weight in layer.weights]


@pytest.mark.every_backend
@pytest.mark.parametrize(
    "make", [dk.SoftmaxGate, lambda: dk.TopKGate(2), lambda: dk.DSelectKGate(2)]
)
def test_an_attentive_teacher_hands_over_all_but_its_gate(make):
    teacher = attentive_teacher()
    before, outputs = values(teacher), numpy(teacher(X))
    student = dk.distill(teacher, make())
    old, new = teacher.get_layer("moe"), student.get_layer("moe")
    assert isinstance(new.gate, type(make()))
    assert_equal(values(new.experts), values(old.experts))
    assert_equal(values(new.routing_network), values(old.routing_network))
    for name in ("features", "head"):
        assert_equal(values(student.get_layer(name)), values(teacher.get_layer(name)))
    assert not {id(w) for w in teacher.weights} & {id(w) for w in student.weights}
    # The gate is what differs.
    seen = student.get_layer("features")(X)
    mixed = np.einsum(
        "bn,bnh->bh", numpy(new.expert_weights(seen)), numpy(old.experts(seen))
    )
    expected = numpy(teacher.get_layer("head")(mixed))
    assert_close(student(X), expected, rtol=1e-4, atol=1e-5)
    # Training leaves the experts, with their state, and the teacher alone.
    student.compile("sgd", "mse")
    train = partial(student.fit, X, outputs, verbose=0)
    assert not any(changed(new.experts.weights, train))
    assert any(changed(new.gate.weights, train))
    assert any(changed(new.routing_network.weights, train))
    assert all(changed(student.get_layer("head").weights, train))
    assert_equal(values(teacher), before)
    assert_equal(teacher(X), outputs)


@pytest.mark.parametrize("new", GATES)
@pytest.mark.parametrize(
    ("old", "per_example"), [("softmax", True), ("DSelect-k", False)]
)
def test_any_gate_takes_the_place_of_any(old, new, per_example):
    teacher = plain_teacher(GATES[old](), per_example)
    student = dk.distill(teacher, GATES[new]())
    moe = student.get_layer("moe")
    assert type(moe.gate) is type(GATES[new]())
    assert_equal(values(moe.experts), values(teacher.get_layer("moe").experts))
    assert np.isfinite(numpy(student(X))).all()
    assert moe.expert_weights(X if per_example else None).shape[-1] == N
    if old == new:
        assert_equal(student(X), teacher(X))


def test_trained_variables_of_one_name_and_shape_are_copied():
    teacher = plain_teacher(dk.SoftmaxGate(use_bias=True))
    student = dk.distill(teacher, dk.TopKGate(2, use_bias=True))
    source, gate = (m.get_layer("moe").gate for m in (teacher, student))
    assert_equal(gate.trainable_variables, source.trainable_variables)
    # Others start anew: here there are no biases to copy.
    student = dk.distill(plain_teacher(dk.SoftmaxGate()), dk.TopKGate(2, use_bias=True))
    kernel, bias, _ = values(student.get_layer("moe").gate)
    start, _ = values(plain_teacher(dk.SoftmaxGate()).get_layer("moe").gate)
    assert_equal(kernel, start)
    assert np.abs(bias).max() <= 0.05


def test_a_fixed_seed_differs_between_layers_as_the_teachers_does():
    # The seed determines which experts own codes that are left over.
    def gate():
        return dk.DSelectKGate(1, unreachable="assign", z_initializer=spread, seed=3)

    spread = keras.initializers.RandomNormal(stddev=1.0, seed=0)
    teacher = dk.build_multitask_model(DIM, ["a", "b"], "ple", experts=5, gate=gate())
    assert_close(
        teacher.predict(X, verbose=0).values(),
        dk.distill(teacher, gate()).predict(X, verbose=0).values(),
        rtol=1e-5,
    )


@pytest.mark.parametrize("part", ["experts", "routing network"])
def test_a_part_may_be_a_functional_model(part):
    network = model_of(layers.Dense(3), DIM)
    bank, routing = dk.DenseExperts(N, [3]), network
    if part == "experts":
        bank, routing = dk.Experts(network, N), None
    moe = dk.MoE(bank, dk.SoftmaxGate(), True, routing, name="moe")
    teacher = spread(model_of(moe, DIM))
    assert_close(dk.distill(teacher, dk.TopKGate(N))(X), teacher(X), rtol=1e-5)


@pytest.mark.parametrize("freeze", [True, False])
def test_experts_are_frozen_unless_they_should_not_be(freeze, tmp_path):
    teacher = plain_teacher(dk.SoftmaxGate())
    student = dk.distill(teacher, dk.SoftmaxGate(), freeze_experts=freeze)
    bank = student.get_layer("moe").experts
    assert len(bank.trainable_variables) == (0 if freeze else 4)
    assert teacher.get_layer("moe").experts.trainable
    loaded = reloaded(student, tmp_path)
    again = loaded.get_layer("moe").experts
    assert len(again.trainable_variables) == len(bank.trainable_variables)
    assert_equal(loaded(X), student(X))


def test_frozen_layers_inside_of_experts_that_are_trained_stay_frozen():
    network = keras.Sequential([keras.Input((DIM,)), layers.Dense(3), layers.Dense(2)])
    network.layers[0].trainable = False
    moe = dk.MoE(dk.Experts(network, N), dk.SoftmaxGate(), True, name="moe")
    teacher = model_of(moe, DIM)
    student = dk.distill(teacher, dk.TopKGate(2), freeze_experts=False)
    bank = student.get_layer("moe").experts
    assert (
        len(bank.trainable_variables) == len(moe.experts.trainable_variables) == 2 * N
    )
    # A bank that is frozen as a whole is trained again.
    moe.experts.trainable = False
    student = dk.distill(teacher, dk.TopKGate(2), freeze_experts=False)
    assert len(student.get_layer("moe").experts.trainable_variables) == 4 * N


@pytest.mark.parametrize(("architecture", "num_gates"), [("mmoe", 2), ("omoe", 1)])
def test_a_multitask_model_stays_one(architecture, num_gates):
    tasks = [dk.Task("a", tower=(3,)), dk.Task("b", "binary")]
    parts = dk.DenseExperts(N, [3, 2], "tanh"), dk.SoftmaxGate(), True
    teacher = spread(dk.build_multitask_model(DIM, tasks, architecture, *parts))
    student = dk.distill(teacher, dk.TopKGate(2))
    assert type(student) is dk.MultitaskModel
    assert [task.name for task in student.tasks] == ["a", "b"]
    # OMoE stays OMoE: one gate for all the tasks.
    mmoe = student.get_layer("mmoe")
    assert mmoe.gate.num_gates == num_gates
    student.compile("sgd")
    y = {"a": numbers((BATCH,)), "b": np.array([0, 1, 0, 1, 1, 0], "float32")}
    train = partial(student.fit, X, y, verbose=0)
    assert not any(changed(mmoe.experts.weights, train))
    for name in ("towers_a", "towers_b"):
        tower, old = student.get_layer(name), teacher.get_layer(name)
        before = values(old)
        assert any(changed(tower.weights, train))
        assert_equal(values(old), before)


def test_an_attentive_model_teaches_one_with_a_gate_for_each_task():
    parts = dk.DenseExperts(N, [3, 2], "tanh"), dk.baselines.AttentiveGate(3), True
    teacher = dk.build_multitask_model(DIM, ["a", "b"], "attentive", *parts)
    student = dk.distill(spread(teacher), dk.DSelectKGate(2))
    old, new = (model.get_layer("attentive") for model in (teacher, student))
    assert new.gate.num_gates == 2
    assert_equal(values(new.experts), values(old.experts))
    assert sorted(student(X)) == ["a", "b"]


def test_a_model_taught_by_reward_may_be_distilled_and_a_merged_one():
    inputs, bank = keras.Input((DIM,)), dk.DenseExperts(N, [3, 2], "tanh")
    smear = dk.SmearExperts(bank, dk.SoftmaxGate(), per_layer=True, name="smear")
    moe = dk.MoE(
        dk.DenseExperts(N, [2]), dk.baselines.ReinforceGate(), True, name="moe"
    )
    teacher = dk.baselines.RoutedModel(inputs, moe(smear(inputs)), consistency=0.5)
    spread(teacher)
    student = dk.distill(teacher, dk.SoftmaxGate())
    assert type(student) is dk.baselines.RoutedModel
    assert student.consistency == 0.5
    assert student.get_layer("smear").gate.num_gates == 2
    assert {type(layer.gate) for layer in student.layers[1:]} == {dk.SoftmaxGate}
    smears = (model.get_layer("smear")(X) for model in (teacher, student))
    assert_close(*smears, rtol=1e-5)
    # The student starts from the weights that the teacher learned by reward.
    moes = [model.get_layer("moe") for model in (student, teacher)]
    best = [numpy(moe.expert_weights(X[:, :2])).argmax(axis=1) for moe in moes]
    assert_equal(*best)


def test_a_sequential_model_may_be_distilled_and_a_student_has_its_dense_steps():
    moe = dk.MoE(dk.DenseExperts(N, [2]), dk.SoftmaxGate(), True, name="moe")
    teacher = keras.Sequential([keras.Input((DIM,)), layers.Dense(DIM), moe])
    student = dk.distill(spread(teacher), dk.TopKGate(N))
    assert type(student) is keras.Sequential
    assert_close(student(X), teacher(X), rtol=1e-5)
    teacher = plain_teacher(dk.SoftmaxGate(), per_example=False)
    for _ in range(3):
        teacher(X, training=True)
    student = dk.distill(teacher, dk.TopKGate(1, dense_steps=2))
    assert (numpy(student.get_layer("moe").expert_weights()) > 0).all()


def test_experts_of_the_tasks_own_are_copied():
    parts = dk.DenseExperts(2, [4]), dk.SoftmaxGate(), True
    teacher = dk.build_multitask_model(3, 2, "ple", *parts)
    student = dk.distill(teacher, dk.TopKGate(1))
    for level in range(2):
        source, copy = (m.get_layer(f"cgc_{level}") for m in (teacher, student))
        for part in ("experts", "task_experts"):
            assert_equal(values(getattr(copy, part)), values(getattr(source, part)))
            assert not getattr(copy, part).trainable_variables
        assert isinstance(copy.gate, dk.TopKGate)
        assert copy.gate.num_gates == 2
    assert isinstance(student.get_layer("cgc_0").shared_gate, dk.TopKGate)


@pytest.mark.parametrize(
    ("dispatch", "gate"),
    [(1.0, dk.SwitchGate()), (True, dk.TopKGate(2)), (True, dk.DSelectKGate(2))],
)
def test_dispatch_is_kept(dispatch, gate):
    settings = {"dispatch": dispatch, "name": "moe"}
    moe = dk.MoE(dk.DenseExperts(N, [3]), dk.SwitchGate(), True, **settings)
    teacher = spread(model_of(moe, DIM))
    student = dk.distill(teacher, gate)
    assert student.get_layer("moe").dispatch == dispatch
    if type(gate) is dk.SwitchGate:
        # With a capacity, the same choices are dropped.
        assert_equal(student(X), teacher(X))
    with pytest.raises(ValueError, match="Dispatch needs a gate such as `TopKGate`"):
        dk.distill(teacher, dk.SoftmaxGate())


def without_hidden_outputs():
    moe = dk.baselines.AttentiveMoE(
        dk.DenseExperts(N, [2]), dk.SoftmaxGate(), per_example=True
    )
    return model_of(moe, DIM)


def distill_plain(*arguments):
    dk.distill(plain_teacher(dk.SoftmaxGate()), *arguments)


UNBUILT = keras.Sequential([dk.MoE(dk.DenseExperts(N, [2]), dk.SoftmaxGate())])
test_what_cannot_be_distilled_is_refused = pytest.mark.backend_independent(
    refusals(
        (
            distill_plain,
            "`gate` must be a gate that is not built",
            *(built(dk.SoftmaxGate()), dk.SoftmaxGate, "softmax"),
        ),
        (
            distill_plain,
            r"`freeze_experts` must be one of True",
            (dk.SoftmaxGate(), "no"),
        ),
        *(
            (
                lambda model: dk.distill(model(), dk.baselines.AttentiveGate(2)),
                text,
                *models,
            )
            for text, *models in [
                (
                    r"no layer with experts.*only \(Dense\)",
                    lambda: model_of(layers.Dense(1, name="only"), DIM),
                ),
                (
                    "functional or sequential model is needed",
                    subclassed,
                    lambda: UNBUILT,
                    lambda: dk.DenseExperts(N, [2]),
                ),
                ("looks at the input of each expert's last", without_hidden_outputs),
                ("'experts' shared by first, second", lambda: sharing("experts")),
            ]
        ),
    )
)
