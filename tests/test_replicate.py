"""Each copy gets the result that it would have alone, however many are trained."""

import functools
import importlib

import keras
import numpy as np
import pytest
from checks import assert_close
from helpers import model_of, numbers, refusals
from keras import layers

import dselectk_keras as dk

ON_JAX = keras.backend.backend() == "jax"
X = numbers((42, 3))
Y = {"a": X[:, :1], "b": (X[:, 1:2] > 0).astype("float32")}
SEEDS = [3, 4, 8]
SETTINGS = {
    "learning_rate": [0.01, 0.03, 0.1],
    "entropy": [0.001, 0.01, 0.01],
    "gamma": np.array([1.0, 2.0, 2.0]),
    "activation": ["relu", "tanh", "tanh"],
    "dropout": 0.1,
    "weight": (1.0, 3.0, 3.0),
}


def part(begin, end):
    return X[begin:end], {name: array[begin:end] for name, array in Y.items()}


def named(seed):
    """Two tasks by name."""
    tasks = [dk.Task("a"), dk.Task("b", "binary")]
    model = dk.build_multitask_model(3, tasks, experts=2)
    model.compile("sgd")
    return model


# The last batch of each is smaller than the others.
TRAIN, VALIDATION = part(0, 27), part(27, 42)


@pytest.fixture(autouse=True, scope="module")
def quick_compilation():
    """Compiling takes the time here, not running."""
    if not ON_JAX:
        yield
        return
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def gated(seed, learning_rate, entropy, gamma, activation, dropout, weight):
    """Drawn noise and dropout, a gate that decides, schedules and named tasks."""
    bank, noisy = dk.DenseExperts(2, [2], activation), dk.TopKGate(2, noise=True)
    stack = [keras.Input((3,)), dk.MoE(bank, noisy), layers.Dropout(dropout)]
    tasks = [dk.Task("a"), dk.Task("b", "binary", weight=weight)]
    gate = dk.DSelectKGate(2, gamma=gamma, entropy_reg=dk.Ramp(entropy, 0.2, end=9))
    parts = dk.DenseExperts(3, [2]), gate
    model = dk.build_multitask_model(keras.Sequential(stack), tasks, "mmoe", *parts)
    model.compile(keras.optimizers.Adam(learning_rate))
    return model


def plain(seed, rate=0.1, units=2, activation="tanh", **settings):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(units, activation)])
    model.add(layers.Dense(1))
    model.compile(keras.optimizers.SGD(rate, **settings), "mse", metrics=["mae"])
    return model


def callbacks():
    """Gates that decide, and are recorded; the best epoch thereafter is restored."""
    settings = {"restore_best_weights": True, "start_from_epoch": 1, "mode": "min"}
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=9, **settings)
    recorder = dk.GateRecorder(every=1, unit="epochs", probe=X)
    return [dk.DecideGates(), recorder, stopping]


def train(build, data=(X, X[:, :1]), **settings):
    settings = {"seeds": range(3), "batch_size": 32, "verbose": 0} | settings
    return dk.replicate(build, data, **{"validation_data": data} | settings)


def train_alone(copy, build, data, validation, batch_size, **settings):
    """Train a copy as `replicate` promises, by `fit`."""
    keras.utils.set_random_seed(copy.seed)
    model = build(copy.seed, **copy.settings)
    batches = dk.batches.Batches(data, batch_size, copy.seed)
    settings |= {"validation_batch_size": batch_size, "shuffle": False, "verbose": 0}
    return model, model.fit(batches, validation_data=validation, **settings).history


def assert_same(copy, model, history):
    assert_close(copy.history, history, rtol=1e-4, atol=1e-6)
    variables = [*model.weights, *model.optimizer.variables]
    found = [*copy.model.weights, *copy.model.optimizer.variables]
    assert_close(found, variables, rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def runs():
    settings = {"settings": SETTINGS, "seeds": SEEDS, "validation_data": VALIDATION}
    return train(gated, TRAIN, epochs=3, batch_size=8, callbacks=callbacks, **settings)


@pytest.fixture(scope="module")
def alone(runs):
    """The second and third copy by themselves, with what their gates showed."""
    found = {}
    for number in (1, 2):
        own = callbacks()
        given = (runs.copies[number], gated, TRAIN, VALIDATION, 8)
        trained = train_alone(*given, epochs=3, callbacks=own)
        found[number] = *trained, own[1].history
    return found


def test_each_copy_equals_the_run_alone(runs, alone):
    for number, (model, history, gates) in alone.items():
        copy = runs.copies[number]
        assert_same(copy, model, history)
        assert copy.model.get_layer("mmoe").gate.has_decided
        found = copy.callbacks[1].history
        assert found.steps.tolist() == gates.steps.tolist() == [0, 4, 8, 12]
        assert_close(found["mmoe"]["weights"], gates["mmoe"]["weights"], atol=1e-5)


@pytest.mark.backends("jax", reason="Elsewhere copies are fitted one by one.")
def test_copies_side_by_side_equal_the_run_alone():
    settings = {name: np.ravel(values)[-1] for name, values in SETTINGS.items()}
    settings["learning_rate"] = [0.01, 0.03, 0.1]
    options = {"settings": settings, "seeds": SEEDS, "validation_data": VALIDATION}
    options |= {"epochs": 2, "batch_size": 8, "callbacks": callbacks, "vectorize": 2}
    for copy in train(gated, TRAIN, **options).copies[1:]:
        given = {"epochs": 2, "callbacks": callbacks()}
        trained = train_alone(copy, gated, TRAIN, VALIDATION, 8, **given)
        assert_same(copy, *trained)


@pytest.mark.backend_independent
def test_the_table_is_tidy(runs):
    table = runs.table
    assert table.columns[:9].tolist() == ["copy", "seed", *SETTINGS, "epoch"]
    assert table["epoch"].tolist() == [0, 1, 2] * 3
    assert table["gamma"].tolist() == [1.0] * 3 + [2.0] * 6
    assert {"loss", "val_loss", "a_loss", "val_b_binary_accuracy"} < {*table.columns}
    assert table["loss"].tolist()[3:6] == runs.copies[1].history["loss"]


@pytest.mark.backends("jax", reason="Others fit each copy.")
@pytest.mark.parametrize(
    ("text", "kind", "wanted"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory", MemoryError, "hold 4 .* vectorize=2"),
        ("INTERNAL: other", RuntimeError, "INTERNAL: other"),
    ],
)
def test_too_little_memory_names_the_argument(monkeypatch, text, kind, wanted):
    import jax

    def fail(*_):
        raise jax.errors.JaxRuntimeError(text)

    module = importlib.import_module("dselectk_keras.replicate")
    monkeypatch.setattr(module._Run, "scan", fail)
    with pytest.raises(kind, match=wanted):
        dk.replicate(plain, (X, X[:, :1]), seeds=range(5), vectorize=4, verbose=0)


@pytest.mark.parametrize("vectorize", ["auto", 3])
def test_copies_that_fail_or_stop_leave_the_others_alone(vectorize):
    def stopping():
        return [keras.callbacks.EarlyStopping("val_loss", mode="min", patience=2)]

    rates = [0.05, 1e30, 0.0]
    options = {"settings": {"rate": rates}, "epochs": 6, "vectorize": vectorize}
    runs = train(plain, callbacks=stopping, **options)
    losses = [copy.history["val_loss"] for copy in runs.copies]
    # Without a learning rate nothing gets better after the first epoch.
    assert [len(values) for values in losses][::2] == [6, 3]
    assert not np.isfinite(losses[1]).all()
    for copy in runs.copies[::2]:
        given = (copy, plain, *[(X, X[:, :1])] * 2, 32)
        assert_same(copy, *train_alone(*given, epochs=6, callbacks=stopping()))


class Scaled(keras.metrics.MeanMetricWrapper):
    """The mean error times a number, which is no part of the program."""

    def __init__(self, scale):
        super().__init__(keras.losses.mean_absolute_error, "scaled")
        self.scale = scale

    def result(self):
        return self.scale * super().result()


def test_numbers_of_a_metric_are_each_copys_own():
    def build(seed, scale):
        model = plain(seed)
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae", Scaled(scale)])
        return model

    table = train(build, seeds=[1, 1], settings={"scale": [1.0, 2.0]}).table
    for name in ("scaled", "val_scaled"):
        wanted = [1.0, 2.0] * table[name.replace("scaled", "mae")]
        assert_close(table[name], wanted, rtol=1e-5)


class Shifted(layers.Layer):
    """Adds constants that are drawn, and are no variables."""

    def __init__(self, seed):
        super().__init__()
        self.shift = numbers(3, seed=seed)

    def call(self, inputs):
        return keras.ops.add(inputs, self.shift)


@pytest.mark.parametrize("settings", [{}, {"use_ema": True, "momentum": 0.9}])
def test_whatever_differs_copies_equal_the_run_alone(settings):
    """Constants that the seed draws, another number of layers, and averages."""

    def build(seed):
        model = plain(seed, units=3 if seed == 1 else 2, **settings)
        shifted = Shifted(seed // 2)
        outer = model_of(lambda x: model(shifted(x)), 3)
        outer.compile(model.optimizer, "mse", metrics=["mae"])
        return outer

    for copy in train(build, seeds=range(4), epochs=2, vectorize=4).copies:
        own = train_alone(copy, build, *[(X, X[:, :1])] * 2, 32, epochs=2)
        assert_same(copy, *own)


@pytest.mark.parametrize("as_dict", [False, True])
def test_a_model_that_its_first_batch_builds_and_sample_weights(as_dict):
    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.dropout = layers.Dropout(0.3)

        def build(self, shape):
            # Its default initializer draws a seed here, not in `__init__`.
            self.kernel = self.add_weight((3, 1))

        def call(self, inputs):
            x = inputs["x"] if as_dict else inputs
            return self.dropout(keras.ops.matmul(x, self.kernel))

    def build(seed):
        model = Subclassed()
        model.compile("adam", "mse", weighted_metrics=["mae"])
        return model

    data = {"x": X} if as_dict else X, X[:, :1], np.arange(42.0)
    for copy in train(build, data, epochs=2).copies[:2]:
        own = train_alone(copy, build, data, data, 32, epochs=2)
        assert_same(copy, *own)


@pytest.mark.backends("jax", reason="Only JAX has programs to share.")
def test_copies_that_differ_in_variables_share_a_program(monkeypatch):
    import jax

    compiled = []
    jit = jax.jit

    def counted(function, **options):
        program = jit(function, **options)

        def call(*arguments):
            compiled.append(program)
            return program(*arguments)

        call.lower = program.lower
        return call

    monkeypatch.setattr(jax, "jit", counted)
    rates = [0.1, 0.2, 0.3, 0.1]
    settings = {"rate": rates, "activation": ["tanh", "tanh", "relu", "tanh"]}
    runs = train(plain, seeds=range(4), settings=settings)
    # For each copy, an epoch of training and one of validation.
    assert len(compiled) == 8
    assert len({id(program) for program in compiled}) == 4
    assert len({copy.history["loss"][0] for copy in runs.copies}) == 4


@pytest.mark.backends("jax", reason="Elsewhere `fit` calls back each step.")
@pytest.mark.parametrize(
    "callback",
    [
        dk.GateRecorder(),
        keras.callbacks.LambdaCallback(on_train_batch_end=print),
        keras.callbacks.ModelCheckpoint("x.keras", save_freq=10),
    ],
)
def test_what_each_step_calls_is_refused_where_an_epoch_is_one_program(callback):
    name = type(callback).__name__
    with pytest.raises(ValueError, match=f"once per epoch. Received: a `{name}`"):
        train(plain, callbacks=lambda: [callback])


@pytest.mark.backends("jax", reason="Elsewhere `fit` calls back each step.")
def test_a_checkpoint_per_epoch_is_written(tmp_path):
    path = str(tmp_path / "{epoch}.keras")
    train(plain, seeds=[0], callbacks=lambda: [keras.callbacks.ModelCheckpoint(path)])
    assert keras.saving.load_model(path.format(epoch=1)).compiled


def test_a_callback_that_catches_up_at_epochs_is_called():
    class Due(keras.callbacks.Callback):
        catches_up = True

        def on_train_batch_begin(self, batch, logs=None):
            self.on_epoch_begin(None)

        def on_epoch_begin(self, epoch, logs=None):
            self.model.stop_training = True

    runs = train(plain, seeds=[0], callbacks=lambda: [Due()])
    assert len(runs.copies[0].history["loss"]) == 1


TRAIN_PLAIN = functools.partial(train, plain)
test_what_cannot_be_is_refused = refusals(
    (TRAIN_PLAIN, "2 values for 'rate'", {"settings": {"rate": [0.1, 0.2]}}),
    (TRAIN_PLAIN, "name of a column", {"settings": {"epoch": 1}}),
    (TRAIN_PLAIN, r"`settings` must be a dict .*\['rate'\]", {"settings": ["rate"]}),
    (TRAIN_PLAIN, r"one seed for each copy\. Received: seeds=\[\]", {"seeds": []}),
    (TRAIN_PLAIN, "an integer >= 0. Received: seeds=0.5", {"seeds": [0.5]}),
    (train, "`build` must be a function .* Received: build='model'", "model"),
    (TRAIN_PLAIN, "epochs=0", {"epochs": 0}),
    (TRAIN_PLAIN, "batch_size=0", {"batch_size": 0}),
    (TRAIN_PLAIN, "vectorize=0", {"vectorize": 0}),
    (TRAIN_PLAIN, "for each copy its own", {"callbacks": [dk.DecideGates()]}),
    (train, "a compiled Keras model. Received: None", lambda seed: None),
    (TRAIN_PLAIN, r"`data` must .* lengths: \[4, 5\]", {"data": (X[:5], X[:4, :1])}),
    (TRAIN_PLAIN, "`data` must be a tuple of inputs and", {"data": X}),
)


@pytest.mark.backend_independent
def test_tables_are_read_as_in_fit():
    pandas = pytest.importorskip("pandas")

    def build(seed):
        columns = [keras.Input((1,), name=name) for name in ("c", "a")]
        encoder = keras.Model(
            {each.name: each for each in columns}, layers.Concatenate()(columns)
        )
        model = dk.build_multitask_model(encoder, ["q", "p"], experts=2)
        model.compile("sgd")
        return model

    names = {"a": 0, "c": 2}
    table = pandas.DataFrame({name: X[:, i] for name, i in names.items()})
    table.insert(1, "b", "a column that no input reads")
    labels = pandas.DataFrame({"q": X[:, 0], "p": X[:, 1]})
    arrays = {name: X[:, i : i + 1] for name, i in names.items()}
    columns = {"q": X[:, :1], "p": X[:, 1:2]}
    logs = [
        train(build, data, validation_data=data, seeds=[1]).copies[0].history
        for data in [(table, labels), (arrays, columns)]
    ]
    assert_close(*logs, rtol=1e-6)


def with_label(value, place="data"):
    y = {**Y, "b": Y["b"].copy()}
    y["b"][4] = value
    train(named, **{"data": (X, Y), "validation_data": (X, Y), place: (X, y)})


test_labels_are_checked_as_in_fit = refusals(
    *(
        (with_label, r"'b' must be between 0 and 1\. Received: 7 in row 4", given)
        for given in [(7.0,), (7.0, "validation_data")]
    ),
    (lambda: train(named, (X, {"a": Y["a"]})), r"missing \['b'\]"),
)


@pytest.mark.parametrize("differs", ["columns", "order"])
def test_copies_of_one_program_train_on_the_data_that_they_read(differs):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(X[:, :2], columns=["good", "other"])
    labels = {"a": X[:, :1], "b": -X[:, 1:2]}

    def make(seed, names):
        names = [*names]
        column = names[0] if differs == "columns" else "good"
        inputs = keras.Input((1,), name=column)
        encoder = keras.Model({column: inputs}, layers.Identity()(inputs))
        tasks = ["a", "b"] if differs == "columns" else names
        model = dk.build_multitask_model(encoder, tasks, "shared_bottom", experts=2)
        model.compile(keras.optimizers.SGD(0.1))
        return model

    names = ["good", "other"] if differs == "columns" else ["a", "b"]
    orders = [tuple(names), tuple(names[::-1])]
    runs = dk.replicate(
        make, (table, labels), seeds=[1, 1], settings={"names": orders}, epochs=2
    )
    for copy in runs.copies:
        alone = dk.replicate(
            make,
            (table, labels),
            seeds=[1],
            settings={"names": [copy.settings["names"]]},
            epochs=2,
        )
        assert_close(copy.history["loss"], alone.copies[0].history["loss"], rtol=1e-5)
