"""Other ways to choose experts by fit."""

import choice_study
import numpy as np
import pytest

pytestmark = pytest.mark.backend_independent


def test_a_gain_on_held_out_parts_finds_the_experts_that_make_the_labels():
    rng = np.random.default_rng(0)
    units = rng.normal(size=(200, 6, 3))
    labels = np.stack([units[:, 3].sum(-1) + units[:, 1, 0], units[:, 5, 1]], axis=1)
    labels[::4, 1] = np.nan
    weights, tasks = np.ones((200, 2)), np.arange(2)
    first, second = choice_study.held_out(units, labels, 2, 0.1, weights, tasks, 5)
    assert first.tolist() == [3, 1]
    assert second[0] == 5


def test_a_way_has_its_events_in_the_parts_of_the_training():
    ways = choice_study.ways()
    assert [*ways["every 0.1"]] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert [*ways["dense until 0.2"]] == pytest.approx(np.arange(0.2, 0.51, 0.05))
    assert {*choice_study.SEEMED_TO_PAY} <= {*ways}


def test_the_page_compares_each_way_with_the_default():
    row = {"half": "develop", "problem": "p", "draw": 0, "test": 2.0, "untuned": 1.0}
    rows = [{**row, "arm": choice_study.AS_IT_IS}, {**row, "arm": "new", "test": 3.0}]
    page = choice_study.text_of(rows, "python x.py")
    assert "| develop | new | 1 | 1.500 [1.50, 1.50] | 1.000 [1.00, 1.00] |" in page
