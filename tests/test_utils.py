"""Small helpers of several modules."""

import json
import os
import sys
from functools import partial

import keras
import numpy as np
import pytest
from helpers import built, refusals

import dselectk_keras as dk
from dselectk_keras import utils

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_numbers_of_numpy_become_those_of_python(kind):
    found = utils.check_number("size", kind(0.25), minimum=0, below=1)
    assert type(found) is float
    assert found == 0.25


def test_what_is_right_is_given_back_or_passes():
    for value in (1, 7, np.int64(3)):
        utils.check_count("size", value)
    assert utils.check_integers("rows", np.array([0, 2]), 0, 2) == [0, 2]
    assert utils.convert("size", "2", float) == 2.0
    utils.check_type("path", "a", str, "a path")


BEYOND = "`num_experts` must be at most 65,536. Received: num_experts=1,000,000,000"
test_what_is_wrong_is_refused_by_name = refusals(
    (
        partial(utils.check_count, "size"),
        "`size` must be a positive integer",
        *(0, -1, 2.0, "2", None, True),
    ),
    (
        partial(utils.check_number, "size"),
        "`size` must be a finite number",
        *(np.float32("inf"), np.float32("nan"), np.bool_(1)),
    ),
    (
        utils.convert,
        "`size` cannot be used. Received: size='a'. could not convert",
        ("size", "a", float),
    ),
    (utils.check_type, "`path` must be a p.*: path=1", ("path", 1, str, "a path")),
    # It has no hash.
    (utils.check_choice, r"`kind` must be one of 'a'.*\[\]", ("kind", [], {"a": 1})),
    (
        lambda wrong: utils.check_integers("rows", wrong, 0, 2),
        "`rows` must",
        *(1, [3], [-1], [0.5], "a", []),
    ),
    # At once, and not when memory is full.
    (dk.DenseExperts, BEYOND, (10**9, [4])),
    (dk.Experts, BEYOND, (keras.layers.Dense(4), 10**9)),
    (built, BEYOND, (dk.DSelectKGate(2), 10**9), (dk.SoftmaxGate(), 10**9, 3)),
)


def test_settings_of_numpy_are_saved():
    half, two = np.float32(0.5), np.int64(2)
    settings = {"bias_rate": half, "num_gates": two, "expert_dropout": half}
    gate = dk.TopKGate(two, dense_steps=two, **settings)
    bank = dk.DenseExperts(np.int64(4), [np.int64(8)], dropout=np.float32(0.5))
    of_tasks = {"tasks": two, "num_task_experts": two}
    for layer in (
        gate,
        bank,
        dk.CGC(bank, gate.unbuilt_copy(num_gates=None), **of_tasks),
        dk.ChosenGate(two),
        dk.DSelectKGate(two),
        dk.RandomGate(two),
        dk.baselines.AttentiveGate(two),
        dk.baselines.LatentSkillsGate(two),
        dk.baselines.ReinforceGate(baseline_units=two),
        dk.baselines.SoftMoE(dk.DenseExperts(two), two),
        dk.baselines.TuckerExperts(two, [two], [two] * 3),
    ):
        for each in keras.tree.flatten(layer.get_config()):
            assert not isinstance(each, np.generic | np.ndarray), layer
        again = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
        assert again.get_config() == layer.get_config()


@pytest.mark.every_backend
def test_counters_are_integers_as_those_of_optimizers():
    layer = keras.Layer()
    counter = utils.add_counter(layer, "step")
    assert counter.dtype == keras.optimizers.SGD().iterations.dtype
    # Files of other backends, and old ones, have int32.
    layer.load_own_variables({"0": np.asarray(2**31 - 1, "int32")})
    assert int(counter) == 2**31 - 1


def test_optional_modules_are_imported_or_named_with_their_extra(monkeypatch):
    assert utils.optional_import("os.path", "math", extra="e", purpose="p") is os.path
    monkeypatch.setitem(sys.modules, "pandas.core", None)
    text = r'^A table needs math and pandas. .*"dselectk-keras\[data\]"'
    with pytest.raises(ImportError, match=text):
        utils.optional_import("math", "pandas.core", extra="data", purpose="A table")


def test_names_are_counted_as_keras_counts_them():
    keras.backend.clear_session()
    names = [utils.with_name({"trainable": False}, "mmoe")["name"] for _ in range(3)]
    assert names == ["mmoe", "mmoe_1", "mmoe_2"]
    assert utils.with_name({"name": "mine"}, "mmoe") == {"name": "mine"}


class Pair(utils.Configured, keras.layers.Layer):
    def __init__(self, one, several=(), **kwargs):
        super().__init__(**kwargs)
        self.one, self.several = one, several


class Triple(Pair):
    def __init__(self, third, *rest, **others):
        super().__init__(*rest, **others)
        self.third = third


def test_a_config_has_the_arguments_of_a_class_and_those_that_it_passes_on():
    assert utils.argument_names(Triple) == ("third", "one", "several")
    config = Triple(3, keras.layers.Dense(2), name="x").get_config()
    assert [config["third"], config["several"], config["name"]] == [3, (), "x"]
    assert config["one"]["class_name"] == "Dense"


def test_configs_of_arguments_become_objects_and_the_rest_stays():
    dense = keras.layers.Dense(2)
    config = keras.saving.serialize_keras_object(dense)
    made = Triple.from_config(
        {"third": {"end": 2}, "one": config, "several": [config, dense]}
    )
    assert [made.one.units, made.several[0].units] == [2, 2]
    assert made.several[1] is dense
    assert made.third == {"end": 2}


def test_arguments_that_are_not_passed_on_are_not_those_of_a_class():
    class Fixed(Pair):
        def __init__(self, number):
            super().__init__(1)

    assert utils.argument_names(Fixed) == ("number",)


def test_a_value_in_an_error_is_short_and_one_of_python():
    with pytest.raises(ValueError, match=r"Received: size=-2\.$"):
        utils.check_count("size", np.int64(-2))
    with pytest.raises(ValueError, match=r"^.{50,300} \.\.\.\.$"):
        utils.check_count("size", np.zeros((20, 20)))
