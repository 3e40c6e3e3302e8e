"""Each copy comes to what it would alone; what cannot be is refused before any work."""

import keras
import numpy as np
import pytest
from helpers import numbers, numpy
from keras import layers

from dselectk_keras import (
    DenseExperts,
    DSelectKGate,
    MoE,
    Ramp,
    Task,
    TopKGate,
    build_multitask_model,
)
from dselectk_keras.training import Batches, Replicas, replicate
from dselectk_keras.training.fit_runs import _num_bytes
from dselectk_keras.training.scanned_runs import ScannedRuns

ON_JAX = keras.backend.backend() == "jax"
X = numbers((42, 3))
Y = {"a": X[:, :1], "b": (X[:, 1:2] > 0).astype("float32")}
SEEDS = [3, 4, 8]
SETTINGS = {
    "learning_rate": [0.01, 0.03, 0.1],
    "entropy": [0.001, 0.1, 0.01],
    "gamma": [1.0, 0.5, 2.0],
    "dropout": 0.1,
    "weight": [1.0, 0.25, 3.0],
}


def part(begin, end):
    return X[begin:end], {name: array[begin:end] for name, array in Y.items()}


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


def gated(seed, learning_rate, entropy, gamma, dropout, weight):
    """Drawn noise and dropout, a gate that decides, schedules and named tasks."""
    inputs = keras.Input((3,))
    noisy = TopKGate(2, noise=True)
    mixed = MoE(DenseExperts(2, [2]), noisy)(inputs)
    mixed = layers.Dropout(dropout)(mixed)
    model = build_multitask_model(
        keras.Model(inputs, mixed),
        [Task("a"), Task("b", "binary", weight=weight)],
        experts=DenseExperts(3, [2]),
        gate=DSelectKGate(2, gamma=gamma, entropy_reg=Ramp(entropy, 0.2, end=9)),
    )
    model.compile(keras.optimizers.Adam(learning_rate))
    return model


def plain(seed, rate=0.1, units=2, activation="tanh", **settings):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(units, activation)])
    model.add(layers.Dense(1))
    model.compile(keras.optimizers.SGD(rate), "mse", metrics=["mae"], **settings)
    return model


@pytest.fixture(scope="module")
def runs():
    return replicate(
        gated,
        TRAIN,
        validation_data=VALIDATION,
        seeds=SEEDS,
        settings=SETTINGS,
        epochs=3,
        batch_size=8,
        histories=[1],
        verbose=0,
    )


@pytest.fixture(scope="module")
def alone():
    """The second and third copy by themselves, with the weights they end with."""
    results = {}
    for copy in (1, 2):
        own = {
            name: values[copy] if isinstance(values, list) else values
            for name, values in SETTINGS.items()
        }
        keras.utils.set_random_seed(SEEDS[copy])
        model = gated(SEEDS[copy], **own)
        history = model.fit(
            Batches(TRAIN, 8, SEEDS[copy]),
            validation_data=VALIDATION,
            validation_batch_size=8,
            epochs=3,
            shuffle=False,
            verbose=0,
        ).history
        results[copy] = history, model
    return results


def assert_same(runs, alone, copy):
    history, model = alone[copy]
    table = runs.table.query("copy == @copy")
    for name, values in history.items():
        np.testing.assert_allclose(
            table[name], values, rtol=1e-4, atol=1e-6, err_msg=name
        )
    trained = runs.model(copy)
    for mine, its in zip(trained.variables, model.variables, strict=True):
        if mine.path.split("/")[0] not in {"loss", "adam"}:
            np.testing.assert_allclose(numpy(mine), numpy(its), rtol=1e-3, atol=1e-5)


def test_each_copy_equals_the_run_alone(runs, alone):
    for copy in alone:
        assert_same(runs, alone, copy)


@pytest.mark.skipif(not ON_JAX, reason="Elsewhere copies are fitted one by one.")
def test_copies_side_by_side_take_turns_and_equal_the_run_alone(alone):
    runs = replicate(
        gated,
        TRAIN,
        validation_data=VALIDATION,
        seeds=SEEDS,
        settings=SETTINGS,
        epochs=3,
        batch_size=8,
        vectorize=2,
        verbose=0,
    )
    for copy in alone:
        assert_same(runs, alone, copy)


def test_the_tables_are_tidy(runs):
    table, summary = runs.table, runs.summary
    own = ["copy", "seed", *SETTINGS]
    assert table.columns[:8].tolist() == [*own, "epoch"]
    assert table["epoch"].tolist() == [0, 1, 2] * 3
    assert table["gamma"].tolist() == [1.0] * 3 + [0.5] * 3 + [2.0] * 3
    assert {"loss", "val_loss", "a_loss", "val_b_binary_accuracy"} < {*table.columns}
    assert summary.columns[7:10].tolist() == ["status", "epochs", "best_epoch"]
    assert summary["status"].tolist() == ["finished"] * 3
    assert summary["best_epoch"].tolist() == [2] * 3
    last = table.query("epoch == 2")["val_loss"].tolist()
    assert summary["val_loss"].tolist() == last


def test_gates_are_recorded_for_the_copies_asked_for(runs):
    assert list(runs.histories) == [1]
    history = runs.histories[1]
    assert history.steps.tolist() == [0, 4, 8, 12]
    weights = history["mmoe"]["weights"]
    assert weights.shape == (4, 2, 3)
    gate = runs.model(1).get_layer("mmoe").gate
    np.testing.assert_allclose(weights[-1], numpy(gate.expert_weights()), rtol=1e-5)


def train(build, seeds=3, **settings):
    data = X, X[:, :1]
    return replicate(
        build,
        data,
        validation_data=data,
        seeds=range(seeds) if isinstance(seeds, int) else seeds,
        batch_size=32,
        verbose=0,
        **settings,
    )


def test_copies_that_fail_or_stop_leave_the_others_alone():
    rates = [0.05, 1e30, 0.0]
    runs = train(
        plain, settings={"rate": rates}, epochs=6, monitor="val_loss", patience=2
    )
    summary = runs.summary
    assert summary["status"].tolist() == ["finished", "failed", "stopped"]
    # Without a learning rate nothing gets better after the first epoch.
    assert summary["epochs"].tolist()[::2] == [6, 3]
    assert summary["best_epoch"].tolist()[::2] == [5, 0]
    best = runs.best
    assert summary["val_loss"][best] == summary["val_loss"].min()
    values = runs.model().evaluate(X, X[:, :1], verbose=0, return_dict=True)
    np.testing.assert_allclose(values["loss"], summary["val_loss"][best], rtol=1e-4)
    if ON_JAX:
        again = train(
            plain,
            settings={"rate": rates},
            epochs=6,
            monitor="val_loss",
            patience=2,
            vectorize=2,
        )
        assert again.summary["status"].tolist() == summary["status"].tolist()


def test_no_epoch_before_the_first_that_may_be_best_is_kept():
    # Without a learning rate all epochs are equal, and the first of them is the best.
    runs = train(
        plain,
        settings={"rate": 0.0},
        epochs=4,
        monitor="val_loss",
        start_from_epoch=2,
    )
    assert runs.summary["best_epoch"].tolist() == [2] * 3


@pytest.mark.parametrize("name", ["accuracy", "own_AUC", "f_similarity"])
def test_the_best_weights_are_kept_where_higher_is_better(name):
    def build(seed):
        model = plain(seed, rate=0.2)
        accuracy = keras.metrics.BinaryAccuracy(name=name)
        model.compile(keras.optimizers.SGD(0.2), "mse", metrics=[accuracy])
        return model

    data = X, (X[:, :1] > 0).astype("float32")
    runs = replicate(
        build,
        data,
        validation_data=data,
        seeds=[1],
        epochs=4,
        monitor=f"val_{name}",
        verbose=0,
    )
    table = runs.table[f"val_{name}"]
    assert runs.summary["best_epoch"][0] == table.argmax()
    values = runs.model().evaluate(*data, verbose=0, return_dict=True)
    assert values[name] == pytest.approx(table.max())


class Scaled(keras.metrics.MeanMetricWrapper):
    """The mean error times a number."""

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
        np.testing.assert_allclose(
            table[name], [1.0, 2.0] * table[name.replace("scaled", "mae")], rtol=1e-5
        )


@pytest.mark.skipif(not ON_JAX, reason="Only JAX has programs to share.")
def test_settings_that_change_what_is_computed_get_a_program_of_their_own():
    def build(seed, power):
        inputs = keras.Input((3,))
        hidden = layers.Dense(2)(inputs) ** int(power)
        model = keras.Model(inputs, layers.Dense(1)(hidden))
        model.compile("sgd", "mse")
        return model

    runs = train(build, settings={"power": [1, 2, 3]})
    assert len(runs) == 3
    assert len(set(runs.table["loss"])) == 3


def two_widths(seed):
    return plain(seed, units=2 + seed % 2)


def two_activations(seed):
    return plain(seed, activation=["tanh", "softplus"][seed % 2])


@pytest.mark.parametrize(
    ("build", "settings", "error", "match"),
    [
        (plain, {"settings": {"rate": [0.1, 0.2]}}, ValueError, "2 values for 'rate'"),
        (plain, {"settings": {"rate": "fast"}}, ValueError, "one number for each"),
        (plain, {"settings": {"epoch": 1}}, ValueError, "name of a column"),
        (plain, {"settings": {"activation": ["a"] * 3}}, ValueError, "be numbers"),
        (plain, {"seeds": []}, ValueError, "one seed for each copy"),
        (plain, {"epochs": 0}, ValueError, "epochs=0"),
        (plain, {"histories": [3]}, ValueError, r"from 0 to 2\. Received: \[3\]"),
        (plain, {"histories": [0]}, ValueError, "no gates to record"),
        (plain, {"monitor": "val_auc"}, ValueError, "val_mae. Received: 'val_auc'"),
        (plain, {"patience": 1}, ValueError, 'monitor="val_loss"'),
        (plain, {"epochs": 2, "start_from_epoch": 2}, ValueError, "at most 1"),
        (plain, {"mode": "least"}, ValueError, "Received: 'least'"),
        (plain, {"vectorize": 0}, ValueError, "vectorize=0"),
        (plain, {"memory_limit": 100}, MemoryError, "copies, .* at a time, need about"),
        (lambda seed: None, {}, ValueError, "a compiled Keras model. Received: None"),
        (two_widths, {}, ValueError, r"copy 1 \(seed 1\) has a variable 'kernel' \(3,"),
        (two_activations, {}, ValueError, "different architectures: copy 1"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(
    build, settings, error, match, monkeypatch
):
    if build is two_activations and not ON_JAX:
        pytest.skip("Only a traced step tells.")
    monkeypatch.setattr(keras.Model, "fit", None)
    monkeypatch.setattr(ScannedRuns, "run", None)
    with pytest.raises(error, match=match):
        train(build, **settings)


@pytest.mark.backend_independent
def test_each_number_takes_the_bytes_of_its_type():
    for dtype, size in {"int8": 1, "bool": 1, "bfloat16": 2, "float32": 4}.items():
        variable = keras.Variable(np.ones((2, 3)), dtype=dtype, trainable=False)
        assert _num_bytes([variable, variable]) == 12 * size


def test_data_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match=r"`data` must .* Received lengths: \[4, 5\]"):
        replicate(plain, (X[:5], X[:4, :1]), verbose=0)
    with pytest.raises(ValueError, match="`data` must be a tuple of inputs and"):
        replicate(plain, X, verbose=0)


def test_which_copy_is_best_takes_something_to_look_at(runs):
    assert isinstance(runs, Replicas)
    with pytest.raises(ValueError, match="Received: monitor=None"):
        runs.model()
