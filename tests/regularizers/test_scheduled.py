"""What all regularizers of the package have in common."""

import json

import keras
import numpy as np
import pytest
from checks import assert_close, dtype_of

import dselectk_keras as dk
from dselectk_keras.regularizers import ScheduledRegularizer, WeightsRegularizer

CLASSES = [dk.EntropyRegularizer, dk.ImportanceRegularizer, dk.LoadRegularizer]
CLASSES += [dk.ReachabilityRegularizer, dk.RouterZRegularizer, dk.SparsityRegularizer]
SETTINGS = {
    **{kind: {} for kind in [*CLASSES, dk.SwitchLoadRegularizer]},
    dk.EntropyRegularizer: {"target": "bits"},
    dk.ImportanceRegularizer: {"squared": True},
    dk.SampleSimilarityRegularizer: {"beta_s": 0.7, "beta_d": 0.3},
}
INPUTS = [[0.5, 0.25, 0.0]]


@keras.saving.register_keras_serializable(package="tests")
def tenfold(step):
    return 10.0 * step


@pytest.fixture(params=CLASSES, ids=lambda cls: cls.__name__)
def cls(request):
    return request.param


def test_the_weight_is_taken_at_the_step_or_at_the_first(cls):
    unit = float(cls(1.0)(INPUTS))
    regularizer = cls(tenfold)
    found = [float(regularizer(INPUTS, step)) for step in (1, 2, 2, 7)]
    assert_close(found, np.multiply([10, 20, 20, 70], unit), rtol=1e-5)
    regularizer = cls(tenfold)
    for _ in range(2):
        assert float(regularizer(INPUTS)) == float(regularizer(INPUTS, 1))


def test_a_schedule_gets_a_float(cls):
    def schedule(step):
        assert dtype_of(step) == "float32"
        return 0.5**step + step / 2

    assert_close(float(cls(schedule)(INPUTS)), float(cls(1.0)(INPUTS)), rtol=1e-5)


@pytest.mark.parametrize("kind", SETTINGS)
def test_every_setting_is_saved(kind):
    regularizer = kind(weight=0.1, **SETTINGS[kind])
    config = keras.saving.serialize_keras_object(regularizer)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(regularizer)
    assert again.get_config() == regularizer.get_config()
    assert again.get_config().items() >= SETTINGS[kind].items()


@pytest.mark.parametrize(
    "weight",
    [0.5, dk.Ramp(0.1, 1.0, end=9), keras.optimizers.schedules.CosineDecay(0.1, 9)],
)
def test_config_round_trip_through_json(cls, weight):
    regularizer = cls(weight)
    config = keras.saving.serialize_keras_object(regularizer)
    again = keras.saving.deserialize_keras_object(json.loads(json.dumps(config)))
    assert type(again) is cls
    assert again.get_config() == regularizer.get_config()
    assert float(again(INPUTS)) == float(regularizer(INPUTS))


def test_a_registered_function_can_be_saved(cls):
    config = keras.saving.serialize_keras_object(cls(tenfold))
    assert keras.saving.deserialize_keras_object(config).weight is tenfold


def test_a_bare_function_cannot_be_saved(cls):
    def ninefold(calls):
        return 9.0 * calls

    text = r"is a function that is not .* cannot be saved\. Pass a number"
    for function in (ninefold, lambda calls: calls):
        with pytest.raises(ValueError, match=text):
            cls(function).get_config()


@pytest.mark.parametrize("weight", [None, "1", True, [1.0]])
def test_what_is_no_weight_is_refused(cls, weight):
    with pytest.raises(ValueError, match=r"must be a number, a .*LearningRateSchedule"):
        cls(weight)


def test_get_makes_a_regularizer_of_many_things(cls):
    regularizer = cls(0.5)
    assert cls.get(None, "x") is None
    assert cls.get(regularizer, "x") is regularizer
    assert cls.get(0.5, "x").get_config() == regularizer.get_config()
    assert cls.get(tenfold, "x").weight is tenfold
    assert ScheduledRegularizer.get(regularizer, "x") is regularizer


def test_get_does_not_guess_which_regularizer_a_number_means():
    with pytest.raises(ValueError, match="`load_reg` must be a regularizer of this"):
        ScheduledRegularizer.get(0.5, "load_reg")
    with pytest.raises(ValueError, match="must be a regularizer of a gate's weights"):
        WeightsRegularizer.get(dk.SparsityRegularizer(0.1), "weights_regularizer")


def test_a_regularizer_of_another_kind_is_refused(cls):
    others = [other(0.5) for other in CLASSES if other is not cls]
    for other in (*others, keras.regularizers.L2(0.1)):
        wanted = f"`x` must be a `{cls.__name__}`, or its weight. Received: x=<"
        with pytest.raises(ValueError, match=wanted):
            cls.get(other, "x")
