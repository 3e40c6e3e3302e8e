"""Other ways to choose experts by fit."""

import keras
import numpy as np
import pytest

from dselectk_keras import ChooseExperts, ChosenGate, build_multitask_model
from dselectk_keras.ops import choose_by_fit
from research.engine import Results, Run
from research.studies.choice import (
    AS_IT_IS,
    SEEMED_TO_PAY,
    Choice,
    choose_by,
    held_out,
)
from research.studies.choice import ways as all_ways

pytestmark = pytest.mark.backend_independent


def test_a_gain_on_held_out_parts_finds_the_experts_that_make_the_labels():
    rng = np.random.default_rng(0)
    units = rng.normal(size=(200, 6, 3))
    labels = np.stack([units[:, 3].sum(-1) + units[:, 1, 0], units[:, 5, 1]], axis=1)
    labels[::4, 1] = np.nan
    weights, tasks = np.ones((200, 2)), np.arange(2)
    first, second = held_out(units, labels, 2, 0.1, weights, tasks, 5)
    assert first.tolist() == [3, 1]
    assert second[0] == 5


def test_experts_are_chosen_by_a_function_as_by_the_callback():
    keras.utils.set_random_seed(0)
    x, y = np.random.default_rng(0).normal(size=(2, 64, 3)).astype("float32")
    gate = ChosenGate(2, initial_choices=[0, 1])
    model = build_multitask_model(3, 3, gate=gate, stacked=True)
    model.compile("adam")
    layer = model.get_layer("mmoe").gate
    found = []
    for choose in (
        lambda: choose_by(choose_by_fit, model, x, y),
        lambda: ChooseExperts(x, y).choose(model),
    ):
        layer.choose(np.broadcast_to([0, 1], (3, 2)))
        layer.shares.static.assign(np.ones(layer.shares.static.shape))
        choose()
        choices = keras.ops.convert_to_numpy(layer.choices)
        shares = keras.ops.convert_to_numpy(layer.shares.static)
        found.append((np.sort(choices).tolist(), shares.ravel().tolist()))
    assert found[0] == found[1]
    assert found[0][0] != [[0, 1]] * 3


def test_a_way_has_its_events_in_the_parts_of_the_training():
    ways = all_ways()
    assert [*ways["every 0.1"]] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert [*ways["dense until 0.2"]] == pytest.approx(np.arange(0.2, 0.51, 0.05))
    assert {*SEEMED_TO_PAY} <= {*ways}


def test_the_table_compares_the_ways_that_were_confirmed_with_the_default():
    experiment = Choice(num_problems=2)
    results = Results(experiment, "cpu")
    for arm, (_, _, way) in experiment.arms.items():
        test = 2.0 if way == AS_IT_IS else 3.0
        results.add(Run(arm, 0, {}, {"test": test, "untuned": 1.0}, 1.0), {})
    _, *rows = experiment.table_ratios(results)
    # Those of the other half are not shown. Without an interval, of one draw.
    assert [row[0] for row in rows] == [w for w in SEEMED_TO_PAY if w != AS_IT_IS]
    assert all(row[1:] == [1, "1.500", "1.000"] for row in rows)
