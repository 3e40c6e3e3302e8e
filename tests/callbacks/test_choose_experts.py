"""Experts that are chosen by fit: which, when, for which models and data."""

import re
from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import model_of, refusals, reloaded
from helpers import numpy as to_numpy

import dselectk_keras as dk
from dselectk_keras.callbacks._sample import draw_sample

pytestmark = pytest.mark.backend_independent

FEATURES, SAMPLES = 6, 64
RNG = np.random.default_rng(0)
X = RNG.normal(size=(SAMPLES, FEATURES)).astype("float32")


def bank(n=6, units=3):
    return dk.DenseExperts(n, [units])


def compiled(tasks=("a", "b"), gate=None, experts=None, optimizer="sgd", **settings):
    keras.utils.set_random_seed(0)
    settings |= {"gate": gate or dk.ChosenGate(1), "experts": experts or bank()}
    model = dk.build_multitask_model(FEATURES, list(tasks), **settings)
    model.compile(optimizer)
    for layer in model.layers:
        if hasattr(layer, "gate") and layer.name[-2:] != "_1":
            see_one_feature(layer.experts)
    return model


def see_one_feature(experts, axis=-2):
    """Give the first layer of each expert one feature, so that they differ."""
    kernels = [each for each in experts.weights if "kernel" in each.name]
    if isinstance(experts, dk.DenseExperts):
        n, features, _ = kernels[0].shape
        kernels[0].assign(to_numpy(kernels[0]) * np.eye(n, features)[..., None])
        return
    for i, kernel in enumerate(kernels):
        values = to_numpy(kernel)
        kernel.assign(values * np.eye(len(kernels))[i, : values.shape[axis], None])


def layer_of(model, name="mmoe"):
    return model.get_layer(name)


def choices(model, name="mmoe"):
    return to_numpy(layer_of(model, name).gate.choices)


def labels_from(model, experts, x=X):
    """Labels that are sums of the units of one expert for each task."""
    outputs = to_numpy(layer_of(model).experts(x))
    return outputs.reshape(len(outputs), outputs.shape[1], -1).sum(-1)[:, experts]


def fit(model, callbacks, y, epochs=2, x=X, **settings):
    settings = {"batch_size": 16, "verbose": 0, "shuffle": False, **settings}
    return model.fit(x, y, epochs=epochs, callbacks=callbacks, **settings)


def still(**settings):
    """An optimizer that changes nothing, so that the choice stays the best one."""
    return keras.optimizers.SGD(0.0, **settings)


def differences(model):
    """Labels of two tasks: of the experts 1 and 5, and of the experts 4 and 0."""
    outputs = to_numpy(layer_of(model).experts(X))
    return outputs[:, [1, 4], 0] - outputs[:, [5, 0], 2]


@pytest.mark.every_backend
@pytest.mark.parametrize("gate", [dk.ChosenGate, dk.DSelectKGate])
def test_each_task_gets_the_experts_that_made_its_labels(gate):
    model = compiled(gate=gate(2), optimizer=still())
    log = fit(model, [dk.ChooseExperts()], differences(model))
    assert np.sort(choices(model), -1).tolist() == [[1, 5], [0, 4]]
    assert log.history["changed"] == [1.0, 0.0]
    small = dk.condense(model)
    assert layer_of(small).experts.num_experts == 4
    assert_close(small(X)["a"], model(X)["a"], atol=1e-5)


def test_tasks_find_their_gates_by_name():
    inputs, named = keras.Input((FEATURES,)), {}
    layer = dk.MMoE(bank(), dk.ChosenGate(2), ["a", "b"])
    for name, mixture in layer(inputs).items():
        named[name] = keras.layers.Dense(1)(keras.layers.Flatten()(mixture))
    see_one_feature(layer.experts)
    model = dk.MultitaskModel(inputs, named, tasks=["b", "a"])
    model.compile(still())
    outputs = to_numpy(layer.experts(X))
    y = {"a": outputs[:, 1, 0] - outputs[:, 5, 2], "b": outputs[:, 4, 0]}
    y["b"] -= outputs[:, 0, 2]
    fit(model, [dk.ChooseExperts()], y)
    assert np.sort(to_numpy(layer.gate.choices), -1).tolist() == [[1, 5], [0, 4]]


def test_towers_read_the_chosen_experts_side_by_side(tmp_path):
    model = compiled(gate=dk.ChosenGate(2), optimizer=still(), side_by_side=True)
    fit(model, [dk.ChooseExperts()], differences(model))
    assert np.sort(choices(model), -1).tolist() == [[1, 5], [0, 4]]
    loaded = reloaded(model, tmp_path)
    assert_equal(choices(loaded), choices(model))
    for other in (loaded, dk.condense(model)):
        assert_close(other(X)["a"], model(X)["a"], atol=1e-5)


def test_experts_that_stay_keep_their_places_and_a_choice_that_stays_its_shares():
    gate = dk.ChosenGate(initial_choices=[[2, 0, 5], [1, 1, 3]], num_gates=2)
    model = compiled(gate=gate)
    gate = layer_of(model).gate
    gate.trainable_weights[0].assign([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    outputs = to_numpy(layer_of(model).experts(X))
    # The best experts are 0, 2 and 4, and 1, 3 and 5.
    y = outputs[:, [[0, 2, 4], [1, 3, 5]]].sum(axis=(2, 3))
    choose = dk.ChooseExperts(X, y)
    assert choose.choose(model) == 1.0
    assert choices(model).tolist() == [[2, 0, 4], [1, 5, 3]]
    assert_equal(gate.trainable_weights[0], 0.0)
    gate.trainable_weights[0].assign([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    gate.choices.assign([[2, 0, 4], [1, 5, 0]])
    assert choose.choose(model) == 0.5
    assert_equal(gate.trainable_weights[0], [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    assert choose.choose(model) == 0.0


def thirds(y):
    return np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))


@pytest.mark.parametrize(
    ("task", "made"),
    [
        (dk.Task("a", "binary"), lambda y: y > np.median(y)),
        (dk.Task("a", "multiclass", 3), thirds),
        (dk.Task("a", loss="poisson"), lambda y: np.round(3 * y + 20)),
    ],
)
def test_all_kinds_of_labels_are_regressed(task, made):
    model = compiled([task, "b"], optimizer=still(), experts=bank(units=1))
    y = labels_from(model, [3, 1])
    dk.ChooseExperts(X, {"a": made(y[:, 0]), "b": y[:, 1]}).choose(model)
    assert choices(model).tolist() == [[3], [1]]


def test_missing_labels_and_sample_weights_of_zero_are_left_out():
    model = compiled(["a", "b", "c"], optimizer=still())
    y, other = labels_from(model, [3, 1, 2]), labels_from(model, [0, 0, 0])
    gone = np.arange(SAMPLES) % 4 > 0
    y[gone, 0] = np.nan
    y[gone, 1] = 9 * other[gone, 1]
    weights = np.ones(y.shape)
    weights[gone, 1] = 0.0
    fit(model, [dk.ChooseExperts()], y, sample_weight=weights)
    assert choices(model).tolist() == [[3], [1], [2]]


class Parts(keras.utils.PyDataset):
    """Batches of 16 examples."""

    def __init__(self, x, y):
        super().__init__()
        self.arrays = x, y

    def __len__(self):
        return len(X) // 16

    def __getitem__(self, number):
        return tuple(each[16 * number :][:16] for each in self.arrays)


def as_sparse(y):
    return pytest.importorskip("scipy.sparse").csr_matrix(X), y


def as_tf_data(y):
    import tensorflow as tf

    return (tf.data.Dataset.from_tensor_slices((X, y)).batch(16),)


DATA = {
    "arrays": lambda y: (X, y),
    "SciPy": as_sparse,
    "batches": lambda y: (dk.batches.Batches((X, y), 16),),
    "PyDataset": lambda y: (Parts(X, y),),
}


@pytest.mark.parametrize(
    "make",
    [
        *(pytest.param(make, id=name) for name, make in DATA.items()),
        pytest.param(
            as_tf_data,
            id="tf.data",
            marks=pytest.mark.backends("tensorflow", reason="It is TensorFlow's."),
        ),
    ],
)
def test_the_sample_is_of_the_data_of_fit(make):
    model = compiled(optimizer=still())
    x, *y = make(labels_from(model, [5, 2]))
    settings = {"x": x, "batch_size": 16 if y else None}
    fit(model, [dk.ChooseExperts(sample=40)], *y or [None], **settings)
    assert choices(model).tolist() == [[5], [2]]
    assert vars(model.training_data) == {}


def test_rows_that_validation_split_holds_out_are_not_in_the_sample():
    y, other = np.repeat(np.arange(10.0)[:, None], 2, axis=1), np.ones((3, 2))
    # Keras holds out the last rows, floor(10 * 0.66) = 6 of them are left.
    for held_out, rows in (({}, 6), ({"validation_data": (X[:3], other)}, 10)):
        choose, model = dk.ChooseExperts(), compiled()
        fit(model, [choose], y, x=X[:10], validation_split=0.34, **held_out)
        assert_equal(choose._sample.x, X[:rows])


@pytest.mark.parametrize(
    "task", [dk.Task("a", "binary"), dk.Task("a", "multiclass", 2)]
)
def test_class_weights_count_as_sample_weights_but_not_for_missing_labels(task):
    y = (np.arange(SAMPLES) % 3 == 0).astype("float32")
    y[:4] = np.nan
    model, wanted = compiled([task]), np.where(y == 0, 9.0, 0.5) * ~np.isnan(y)
    for labels in (y, y[:, None]):
        settings = {"x": X, "y": labels, "class_weight": {0: 9.0, 1: 0.5}}
        sample = draw_sample(model, 99, 0, **settings)
        assert_equal(sample.weights[:, 0], wanted)
    choose, whole = dk.ChooseExperts(), Parts(X, np.nan_to_num(y))
    weights = {"class_weight": {0: 9.0}, "batch_size": None}
    fit(compiled([dk.Task("a", "binary")]), [choose], None, 1, whole, **weights)
    sample = choose._sample
    assert_equal(sample.weights, np.where(sample.labels < 0, 9, 1))
    assert (sample.weights == 9).sum() == (np.nan_to_num(y) == 0).sum()


@pytest.mark.filterwarnings("ignore:All labels are equal")
def test_a_task_of_which_the_sample_says_nothing_keeps_its_experts():
    first = [[4, 5], [3, 2], [0, 1], [2, 4], [1, 0]]
    tasks = ["a", "none", "constant", dk.Task("one class", "binary"), "weightless"]
    gate = dk.ChosenGate(initial_choices=first, num_gates=5)
    model = compiled(tasks, gate, optimizer=still())
    y = np.tile(differences(model)[:, :1], 5)
    y[:, 1], y[:, 2], y[:, 3] = np.nan, 0.1, 1.0
    weights = np.ones(y.shape)
    weights[:, 4] = 0.0
    y[0, 1], weights[0, 1] = 1.0, 0.0  # As `fit` wants a label.
    fit(model, [dk.ChooseExperts()], y, sample_weight=weights)
    assert np.sort(choices(model)).tolist() == [[1, 5], *np.sort(first[1:]).tolist()]


@pytest.mark.parametrize("bad", [0.0, np.nan])
def test_tasks_keep_their_experts_if_no_expert_explains_anything(bad):
    gate = dk.ChosenGate(initial_choices=[[4, 5], [3, 2]], num_gates=2)
    model = compiled(gate=gate)
    y = differences(model)
    for weight in layer_of(model).experts.weights:
        weight.assign(np.full(weight.shape, bad))
    assert dk.ChooseExperts(X, y).choose(model) == 0.0
    assert choices(model).tolist() == [[4, 5], [3, 2]]


def test_reading_batches_does_not_change_their_order():
    model = compiled(gate=dk.ChosenGate(1, "random"), optimizer=still())
    y = labels_from(model, [5, 2])
    first, second = (dk.batches.Batches((X, y), 16) for _ in range(2))
    for batches, callbacks in ((first, []), (second, [dk.ChooseExperts()])):
        fit(model, callbacks, None, x=batches, batch_size=None)
    assert_equal(first.order, second.order)


@pytest.mark.parametrize("architecture", ["cgc", "ple"])
def test_tasks_keep_their_own_experts(architecture):
    settings = {"architecture": architecture, "optimizer": still()}
    model = compiled(gate=dk.ChosenGate(2), **settings)
    name = "cgc" if architecture == "cgc" else "cgc_0"
    y = to_numpy(layer_of(model, name).experts(X))[:, [4, 2]].sum(-1)
    # Expert 6 is the first of the task's own. One without labels keeps its experts.
    before, constant = choices(model, name), y * [1.0, 0.0]
    dk.ChooseExperts(X, constant).choose(model)
    assert np.sort(choices(model, name))[0].tolist() == [4, 6]
    assert_equal(choices(model, name)[1], before[1])
    fit(model, [dk.ChooseExperts()], y)
    assert np.sort(choices(model, name)).tolist() == [[4, 6], [2, 6]]
    for layer in model.layers:
        for gate in (getattr(layer, "gate", None), getattr(layer, "shared_gate", None)):
            if gate is not None:
                assert (np.diff(np.sort(to_numpy(gate.choices))) > 0).all()


def test_one_gate_for_all_tasks_fits_all_labels_and_wide_experts_are_projected():
    model = compiled(["a", "b", "c"], gate=dk.ChosenGate(2), architecture="omoe")
    # Two of three tasks need expert 1, and each task has the same say.
    y = labels_from(model, [1, 1, 4]) * [1.0, 1.0, 10.0]
    dk.ChooseExperts(X, y).choose(model)
    assert choices(model).tolist() == [[1, 4]]
    model = compiled(experts=bank(6, 300), optimizer=still())
    fit(model, [dk.ChooseExperts()], labels_from(model, [5, 2]))
    assert choices(model).tolist() == [[5], [2]]


@pytest.mark.every_backend
def test_experts_of_any_model_and_several_layers():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 6, 4))
    images = dk.Experts(keras.layers.Conv2D(2, 3), 4)
    hidden = dk.MMoE(images, dk.ChosenGate(1), 2, stacked=True, name="first")(inputs)
    hidden = keras.layers.Flatten()(hidden)
    outputs = dk.MoE(bank(), dk.ChosenGate(1, num_gates=2), name="second")(hidden)
    model = keras.Model(inputs, keras.ops.sum(outputs, axis=-1))
    see_one_feature(images)
    x = RNG.normal(size=(200, 6, 6, 4)).astype("float32")
    y = to_numpy(images(x)).sum(axis=(2, 3, 4))[:, [3, 0]]
    model.compile(still(), "mse")
    fit(model, [dk.ChooseExperts(x, y)], y, x=x)
    assert choices(model, "first").tolist() == [[3], [0]]
    assert choices(model, "second").shape == (2, 1)


def test_frozen_gates_keep_their_experts_and_shares():
    keras.utils.set_random_seed(0)
    layers = [dk.MoE(bank(), dk.ChosenGate(1, [0])) for _ in range(2)]
    model = model_of(lambda x: [layer(x) for layer in layers], FEATURES)
    for layer in layers:
        see_one_feature(layer.experts)
    frozen, other = (layer.gate for layer in layers)
    frozen.choose([0], shares=[2.0])
    frozen.trainable = False
    # Labels that other experts of both layers tell.
    y = sum(to_numpy(each.experts(X))[:, 4].sum(axis=-1) for each in layers)
    dk.ChooseExperts(X, y).choose(model)
    assert [to_numpy(gate.choices).tolist() for gate in (frozen, other)] == [[0], [4]]
    assert_equal(frozen.shares.static, [2.0])


def test_a_gate_that_is_called_on_a_list_of_experts():
    keras.utils.set_random_seed(0)
    experts, gate = [keras.layers.Dense(2) for _ in range(4)], dk.ChosenGate(1)
    model = model_of(lambda x: gate([expert(x) for expert in experts]), FEATURES)
    dk.ChooseExperts(X, to_numpy(experts[2](X))[:, 0]).choose(model)
    assert to_numpy(gate.choices).tolist() == [2]


class Count(dk.ChooseExperts):
    """Notes the steps at which experts are chosen."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.at = []

    def choose(self, model):
        self.at.append(int(to_numpy(layer_of(model).gate.step)))
        return super().choose(model)


@pytest.mark.parametrize(
    ("settings", "epochs", "steps"),
    [
        # Four steps per epoch.
        ({}, 10, [*range(0, 21, 2)]),
        ({"by": 0.2, "every": 0.1}, 10, [0, 4, 8]),
        ({"by": 0.0}, 2, [0]),
        ({"by": 1.0, "every": 0.25}, 1, [0, 1, 2, 3]),
        # More often than there are steps.
        ({"every": 0.01, "by": 0.5}, 2, [0, 1, 2, 3, 4]),
    ],
)
def test_experts_are_chosen_after_each_part_of_the_training(settings, epochs, steps):
    choose = Count(**settings)
    model = compiled()
    fit(model, [choose], labels_from(model, [5, 2]), epochs)
    assert choose.at == steps


@pytest.mark.parametrize(
    ("epoch", "steps"),
    # Each second step of 16 is due until the eighth. Of 8 epochs, 3 are left then.
    [(0, [0, 2, 4, 6, 8]), (1, [4, 6, 8]), (2, [8]), (3, [])],
)
def test_a_training_that_goes_on_begins_with_what_is_due_then(epoch, steps):
    choose, model = Count(every=0.125), compiled(gate=dk.ChosenGate(1, "random"))
    layer_of(model).gate.step.assign(4 * epoch)
    y = labels_from(model, [5, 2])
    log = fit(model, [choose], y, 4, initial_epoch=epoch).history
    assert choose.at == steps
    assert log["changed"][-1] == 0.0  # Nothing is due in the last epoch.


@pytest.mark.every_backend
def test_momentum_of_shares_is_forgotten_where_experts_change():
    gate = dk.ChosenGate(initial_choices=[[5], [0]], num_gates=2)
    model = compiled(gate=gate, optimizer=still(momentum=0.9))
    y = labels_from(model, [5, 2])
    fit(model, [], y, epochs=1)
    (slot,) = (each for each in model.optimizer.variables if "w_logits" in each.name)
    slot.assign([[1.0], [2.0]])
    assert dk.ChooseExperts(X, y).choose(model) == 0.5
    assert_equal(slot, [[1.0], [0.0]])


@pytest.mark.every_backend
def test_copies_of_replicate_choose_as_models_that_are_fitted():
    y = RNG.normal(size=(SAMPLES, 2)).astype("float32")

    def callbacks():
        return [dk.ChooseExperts(every=0.25)]

    def build(seed):
        return compiled(optimizer="adam")

    settings = {"epochs": 4, "callbacks": callbacks, "verbose": 0}
    runs = dk.replicate(build, (X, y), seeds=[3], batch_size=16, **settings)
    model = build(3)
    fit(
        model,
        callbacks(),
        None,
        4,
        x=dk.batches.Batches((X, y), 16, 3),
        batch_size=None,
    )
    found = runs.copies[0]
    assert_equal(choices(found.model), choices(model))
    assert len(found.history["changed"]) == 4
    weights = [each.get_weights()[0] for each in (found.model, model)]
    assert_close(*weights, atol=1e-5)


def test_changes_are_printed_and_drawn_as_events(capsys):
    model = compiled(optimizer=still())
    recorder = dk.GateRecorder()
    count = (choices(model) != [[5], [2]]).sum()
    fit(model, [dk.ChooseExperts(), recorder], labels_from(model, [5, 2]), verbose=2)
    assert recorder.history.events == {"mmoe": [(0, f"{count} changed")]}
    line = re.search("Experts were chosen .*", capsys.readouterr().out)[0]
    name = layer_of(model).gate.name
    assert line == (
        "Experts were chosen 5 times. They changed last in epoch 1. The tasks use 2 of "
        f"6 experts in {name!r}."
    )


def test_a_table_is_read_by_its_columns():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=[*"abcdef"])
    inputs = {name: keras.Input((1,), name=name) for name in "dabcef"}
    columns = keras.layers.Concatenate()([inputs[name] for name in "abcdef"])
    encoder = keras.Model(inputs, columns)
    settings = {"gate": dk.ChosenGate(1), "experts": bank()}
    model = dk.build_multitask_model(encoder, ["a", "b"], **settings)
    see_one_feature(layer_of(model).experts)
    y = labels_from(model, [5, 2])
    dk.ChooseExperts(table, pandas.DataFrame(y, columns=["a", "b"])).choose(model)
    assert choices(model).tolist() == [[5], [2]]


def choose(model, *data):
    return lambda: dk.ChooseExperts(*data).choose(model())


def plain():
    return model_of(dk.MMoE(bank(), dk.ChosenGate(1), ["a", "b"]), FEATURES)


def merged():
    layer = dk.SmearExperts(bank(), dk.ChosenGate(2), per_example=False)
    return model_of(layer, FEATURES)


def fit_gate(gate, **settings):
    fit(compiled(gate=gate(), **settings), [dk.ChooseExperts()], X[:, :2])


def too_many():
    # More selectors than experts are allowed, and share them.
    gate = dk.DSelectKGate(7, num_gates=2)
    with pytest.warns(UserWarning, match="selectors share experts"):
        gate.build((None, 6))
    return gate


def fit_a_generator():
    batches = ((X, X[:, :2]) for _ in range(9))
    steps = {"batch_size": None, "steps_per_epoch": 2}
    fit(compiled(), [dk.ChooseExperts()], None, x=batches, **steps)


test_what_cannot_be_chosen_is_refused = refusals(
    (fit_gate, "that is not frozen", partial(dk.ChosenGate, trainable=False)),
    (fit_gate, r"needs a static gate with `choices`.*SoftmaxGate", dk.SoftmaxGate),
    (
        partial(fit_gate, per_example=True),
        "use `TopKGate`, or leave out",
        dk.DSelectKGate,
    ),
    # Experts of their own take places.
    (
        choose(lambda: compiled(architecture="cgc"), X, X[:, :2]),
        r"of 7 for each task, its own 1 among them.*num_nonzeros=1.* from 2 to 7\.",
    ),
    (
        choose(lambda: compiled(gate=too_many()), X, X[:, :2]),
        r"different experts of 6 for each task\. Received: the gate 'd_sel.*' with num",
    ),
    (choose(merged, X, X[:, 0]), r"Merged experts .* have none"),
    (fit_a_generator, "a generator, which can be read once"),
    *(
        (choose(compiled, x, y), "Received: ")
        for x, y in ((X, X[:, :1]), (X[1:], X[:, :2]), ([], X[:, :2]))
    ),
    # A plain model needs the data as arrays.
    (choose(plain), "Received: no data"),
    (choose(plain, X, {"a": X[:, 0], "b": X[:, 1]}), "an array of numbers with one"),
    (choose(plain, X, X[:, :2].astype(str) + "a"), "an array of numbers with one"),
    (choose(plain, X, X[:, :3]), "Received: labels of 3 tasks"),
    (dk.ChooseExperts, "`x` and `y` belong together", {"x": X}),
    *(
        (dk.ChooseExperts, f"`{name}` must be", {name: value})
        for name, value in zip(
            ("by", "every", "ridge", "sample", "seed"), (2, 0, -1, 0, -1), strict=True
        )
    ),
)


def test_labels_of_a_sample_have_a_mean_of_0_and_a_variance_of_1():
    y = np.array([[9.0, -3.0], [5.0, np.nan], [1.0, -1.0], [5.0, -2.0]])
    # `None` among objects is a missing label too.
    for labels in (y, np.where(np.isnan(y), None, y.astype(object))):
        sample = draw_sample(None, 4, seed=0, x=np.ones((4, 2)), y=labels)
        np.testing.assert_array_equal(sample.weights, ~np.isnan(y))
        for own, present in zip(sample.labels.T, sample.weights.T > 0, strict=True):
            assert own[present].mean() == pytest.approx(0.0)
            assert own[present].var() == pytest.approx(1.0)
            assert (own[~present] == 0).all()


def test_the_columns_of_a_task_keep_their_proportions_in_a_sample():
    # Variances of 3/16, 3/16 and 4/16 are 0.3, 0.3 and 0.4 of their sum.
    model, y = compiled([dk.Task("a", "multiclass", 3)]), np.array([0, 1, 2, 2])
    sample = draw_sample(model, 4, seed=0, x=X[:4], y=y)
    assert_close(sample.labels.var(axis=0), [0.3, 0.3, 0.4], rtol=1e-6)


def rows_of(size, seed=0, **data):
    """The rows that are drawn, of labels that are their numbers."""
    sample = draw_sample(None, size, seed, **data)
    assert_equal(sample.x[:, 0], sample.x[:, 1])
    return sample.x[:, 0]


def test_the_rows_of_a_sample_are_random():
    y = np.arange(400.0)
    x = np.stack([y, y], axis=1)
    draws = [rows_of(40, seed, x=x, y=y) for seed in range(20)]
    assert (np.diff(draws) > 0).all()
    # The mean of 800 uniform draws has a standard deviation of 4.
    assert np.mean(draws) == pytest.approx(199.5, abs=20)
    assert_equal(rows_of(40, 3, x=x, y=y), draws[3])


class Sorted(keras.utils.PyDataset):
    """Batches of labels that are the numbers of the examples."""

    def __init__(self, batch_size, length=400):
        super().__init__()
        self.batch_size, self.length, self.read = batch_size, length, []

    @property
    def num_batches(self):
        return None if self.length is None else self.length // self.batch_size

    def __getitem__(self, index):
        self.read.append(index)
        y = index * self.batch_size + np.arange(self.batch_size, dtype="float32")
        return np.stack([y, y], axis=1), y


def test_sorted_batches_are_read_in_a_random_order():
    for data in (Sorted(4), Sorted(40)):
        rows = rows_of(40, x=data)
        assert len(rows) == 40
        assert len(data.read) == len({*data.read}) == 10
        assert (rows.min() < 100, rows.max() > 300) == (True, True)
    # All examples of data that have fewer.
    assert_equal(np.sort(rows_of(999, x=Sorted(4))), np.arange(400.0))


def test_data_without_places_are_drawn_from_a_buffer():
    for data in ([Sorted(8)[i] for i in range(50)], Sorted(8, None)):
        draws = [rows_of(20, seed, x=data) for seed in range(20)]
        assert all(len(rows) == 20 and rows.max() < 200 for rows in draws)
        # The mean of 400 uniform draws of 200 has a standard deviation of 3.
        assert np.mean(draws) == pytest.approx(99.5, abs=15)
    assert max(data.read) == 24


def test_sample_weights_of_other_models_count():
    y = np.array([[1.0, np.nan], [2.0, 5.0], [9.0, 6.0]])
    for weights in ([1.0, 2.0, 0.0], [[1.0], [2.0], [0.0]]):
        sample = draw_sample(None, 9, 0, x=y, y=y, sample_weight=np.array(weights))
        assert_equal(sample.weights, [[1, 0], [2, 2], [0, 0]])
