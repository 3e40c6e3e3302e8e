"""Copies come to what each would alone, side by side on every backend."""

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import dense_model, numbers

import dselectk_keras as dk
from research.engine.side_by_side import make_program

pytestmark = pytest.mark.every_backend

X = numbers((10, 2))
DATA = X, X[:, :1]
ROWS = np.array([[0, 1, 2, 3, 4], [9, 8, 7, 6, 5]])


@pytest.fixture
def models():
    return [dense_model(seed) for seed in range(3)]


@pytest.fixture
def program(models):
    return make_program(models.pop(), batch_size=2)


def test_each_copy_takes_the_steps_of_its_own_rows(program, models):
    state, found = program.train(program.read(models), ROWS, DATA)
    for copy, model in enumerate(models):
        batches = [X[rows] for rows in np.split(ROWS[copy], [2, 4])]
        logs = [model.train_on_batch(x, x[:, :1], return_dict=True) for x in batches]
        for name in logs[0]:
            expected = np.average([log[name] for log in logs], weights=[2, 2, 1])
            assert_close(found.logs[name][copy], expected, rtol=1e-5)
        mine = [each[copy] for each in state[0]]
        assert_close(mine, model.trainable_variables, rtol=1e-5)


def test_a_test_changes_no_weights_and_begins_metrics_anew(program, models):
    before = program.read(models)
    state, first = program.test(program.read(models), ROWS, DATA)
    state, second = program.test(state, ROWS, DATA, batch_size=5)
    assert_equal(before[0], state[0])
    pairs = zip(models, ROWS, strict=True)
    expected = [m.evaluate(X[rows], X[rows, :1], verbose=0)[0] for m, rows in pairs]
    for found in (first, second):
        assert_close(found.logs["loss"], expected, rtol=1e-5)


def test_results_of_an_epoch_are_those_of_evaluate():
    """Missing labels, sample weights and AUC: no mean over the batches has them."""
    keras.utils.set_random_seed(0)
    click = dk.Task("click", "binary", metrics=[keras.metrics.AUC(name="auc")])
    model = dk.build_multitask_model(2, [click, "time"], "shared_bottom")
    model.compile(keras.optimizers.SGD(0.0))
    y = np.stack([np.arange(10) % 3 == 0, 3 * X[:, 0]], axis=1)
    y[:3, 0], y[4:9, 1] = np.nan, np.nan
    data = X, y, np.linspace(0.5, 2.0, 10)
    model.train_on_batch(*data)
    settings = {"sample_weight": data[2], "batch_size": 4, "verbose": 0}
    right = model.evaluate(X, y, **settings, return_dict=True)
    program = make_program(model, 4)
    for run in (program.test, program.train):
        _, found = run(program.read([model]), np.arange(10)[None], data)
        assert {*found.logs} == {"loss", "task_loss"}
        for variable, value in zip(model.metrics_variables, found.metrics, strict=True):
            variable.assign(value[0])
        report = model.get_metrics_result()
        assert_close(found.logs["task_loss"], [right["task_loss"]], rtol=1e-5)
        for name, value in right.items():
            # In training, it is an average over the examples, labeled or not.
            if name != "loss" or run == program.test:
                assert_close(report[name], value, rtol=1e-5)
    assert model.reset_metrics.__func__ is keras.Model.reset_metrics


def test_values_are_computed_assigned_and_replaced_for_each_copy(program, models):
    kernel = program.model.trainable_variables[0]

    def total():
        return keras.ops.sum(kernel)

    state = program.assign(program.read(models), {id(kernel): np.ones((2, 2, 1))})
    program.write(program.model, state, 0)
    kernel.assign([[3.0], [4.0]])
    state = program.replace(state, 1)
    assert_close(program.compute(total, state), [2.0, 7.0])
    program.write(models[0], state, 1)
    assert_equal(models[0].trainable_variables[0], [[3], [4]])
