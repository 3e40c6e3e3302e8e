import json
from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, dtype_of
from helpers import model_of, numbers, refusals, reloaded

from dselectk_keras import DSelectKGate, Ramp
from dselectk_keras.schedules import check_schedule, value_at
from dselectk_keras.utils import serialize_argument


@pytest.mark.parametrize(
    ("kind", "initial", "final", "wanted"),
    [
        ("exponential", 1.0, 16.0, [1, 1, 2, 4, 8, 16, 16]),
        ("exponential", 1.0, 0.0625, [1, 1, 0.5, 0.25, 0.125, 0.0625, 0.0625]),
        ("linear", 1.0, 0.0, [1, 1, 0.75, 0.5, 0.25, 0, 0]),
        ("linear", -1.0, 3.0, [-1, -1, 0, 1, 2, 3, 3]),
    ],
)
def test_ramp_by_hand(kind, initial, final, wanted):
    ramp = Ramp(initial, final, begin=10, end=50, kind=kind)
    found = [float(ramp(step)) for step in [0, 10, 20, 30, 40, 50, 10**6]]
    assert_close(found, wanted, rtol=1e-6)


@pytest.mark.backend_independent
@pytest.mark.parametrize("kind", ["exponential", "linear"])
def test_fractions_of_a_run_are_steps_of_it(kind):
    fractions = Ramp(1.0, 0.1, begin=0.25, end=0.75, kind=kind, num_steps=400)
    steps = Ramp(1.0, 0.1, begin=100, end=300, kind=kind)
    for step in (0, 100, 101, 150, 200, 299, 300, 400, 10**6):
        assert_close(float(fractions(step)), float(steps(step)), rtol=1e-5)
    ramp = Ramp(0.0, 8.0, end=1.0, kind="linear", num_steps=4)
    assert [float(ramp(step)) for step in range(6)] == [0, 2, 4, 6, 8, 8]
    assert float(Ramp(1.0, 4.0, end=1, num_steps=10)(5)) == 2.0


def test_ramp_is_a_learning_rate_of_keras_which_is_saved():
    ramp = Ramp(0.5, 0.25, begin=0.5, end=1.0, num_steps=10, kind="linear")
    optimizer = keras.optimizers.SGD(ramp)
    assert float(optimizer.learning_rate) == 0.5
    config = json.loads(json.dumps(keras.optimizers.serialize(optimizer)))
    again = keras.optimizers.deserialize(config)
    assert again.get_config() == optimizer.get_config()


def test_a_schedule_follows_the_step_and_a_number_does_not():
    assert check_schedule(-1.0, "weight") == -1.0
    value = check_schedule(0.5, "gamma")
    assert value_at(value, 7) == 0.5
    assert serialize_argument(value, "gamma") == 0.5
    schedule = check_schedule(Ramp(1.0, 4.0, end=2), "gamma")
    found = [float(value_at(schedule, step)) for step in range(4)]
    assert_close(found, [1, 2, 4, 4], rtol=1e-6)
    found = [float(value_at(piecewise(), step)) for step in range(6)]
    assert found == [1, 1, 0.5, 0.5, 0.25, 0.25]


@pytest.mark.parametrize("step", [2**24 + 2, np.int32(2**24 + 2)])
def test_a_schedule_gets_the_step_as_a_float(step):
    seen = []
    value_at(seen.append, keras.Variable(step, dtype="int32", trainable=False))
    assert dtype_of(seen[0]) == "float32"
    assert float(seen[0]) == 2**24 + 2


def piecewise():
    return keras.optimizers.schedules.PiecewiseConstantDecay([1, 3], [1.0, 0.5, 0.25])


@pytest.mark.backend_independent
def test_a_gate_saves_piecewise_constants(tmp_path):
    gate = DSelectKGate(2, gamma=piecewise(), entropy_reg=piecewise(), name="gate")
    model = model_of(gate, 5, 2)
    for _ in range(3):
        model(numbers((4, 5, 2)), training=True)
    again = reloaded(model, tmp_path).get_layer("gate")
    for each in (gate, again):
        assert int(each.step) == 3
        assert float(value_at(each.gamma, each.step)) == 0.5
    assert again.get_config() == gate.get_config()
    assert_equal(again.expert_weights(), gate.expert_weights())


def test_a_gate_counts_batches_under_gradient_accumulation():
    gate, experts = DSelectKGate(2), [keras.layers.Dense(1) for _ in range(4)]
    model = model_of(lambda x: gate([expert(x) for expert in experts]), 2)
    model.compile(keras.optimizers.SGD(gradient_accumulation_steps=4), "mse")
    model.fit(np.ones((8, 2)), np.ones((8, 1)), batch_size=1, verbose=0)
    assert int(gate.step) == 8


def ramp(initial_value=1.0, final_value=2.0, end=10, **settings):
    Ramp(initial_value, final_value, end, **settings)


test_ramps_that_cannot_be_are_refused = refusals(
    (ramp, "`kind` must be one of 'exponential', 'linear'", {"kind": "cosine"}),
    (ramp, r"two positive values\. .*initial_value=0.0", 0.0),
    (ramp, 'For a ramp to 0, pass kind="linear"', (1.0, -1.0)),
    (ramp, "needs 0 <= begin < end", {"begin": 10}, {"begin": -1}),
    (
        ramp,
        r"length `num_steps`.* Received: begin=",
        {"end": 0.5},
        {"end": 1000, "begin": 0.5},
        {"end": 800.0, "num_steps": 1000},
    ),
    (ramp, "`num_steps` must be a positive integer", {"end": 0.5, "num_steps": 0}),
    (
        ramp,
        r"fractions of a run.* Received: begin=0, end=500, num_steps=1000\.",
        {"end": 500, "num_steps": 1000},
    ),
)
CHECK = partial(check_schedule, name="gamma")
test_what_is_neither_number_nor_schedule_is_refused = refusals(
    (CHECK, r"`gamma` must be a finite number.*Received: gamma=", None, True, "fast"),
    (CHECK, r"`gamma` must be a finite number\. Rec", float("nan"), float("inf")),
    (partial(CHECK, positive=True), r"`gamma` must be .* above 0\. .*gamma=0", 0),
    # At saving.
    (serialize_argument, "`gamma` is a function .*'ramp'", (ramp, "gamma")),
)
