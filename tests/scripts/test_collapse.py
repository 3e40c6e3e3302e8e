"""The measurement of what keeps experts alive."""

import collapse
import numpy as np
import pytest


def test_every_model_has_nine_settings():
    for name in collapse.ARMS:
        settings = collapse.settings_of(name)
        assert len(set(settings)) == 9
        assert {0.003, 0.01, 0.03} <= {rate for _, rate in settings}


def test_each_kind_and_task_has_a_function_of_its_own():
    x, y = collapse.make_problem(0)["train"]
    assert x.shape == (3_000, 16)
    assert y.shape == (3_000, 4)
    assert abs(x.mean() - collapse.OFFSET) < 1
    np.testing.assert_allclose(y.std(), 1.0, rtol=1e-4)
    assert np.abs(np.corrcoef(y.T) - np.eye(4)).max() < 0.3


def test_the_table_has_means_and_deviations():
    runs = [
        {"model": "a", "test_error": 1.0, "dead_experts": 1.0, "largest_share": 0.5},
        {"model": "a", "test_error": 3.0, "dead_experts": 2.0, "largest_share": 0.7},
        {"model": "b", "test_error": 0.5},
    ]
    *_, first, second = collapse.table(runs).splitlines()
    assert first == "| a | 1.5 of 8 | 0.60 | 2.000 ± 1.414 |"
    assert second == "| b |  |  | 0.500 ± nan |"


@pytest.mark.parametrize(
    ("name", "setting", "has_gate"),
    [
        ("Top-2, standardized inputs, importance", (0.1, 0.01), True),
        ("shared bottom", (None, 0.01), False),
    ],
)
def test_a_model_is_measured(monkeypatch, name, setting, has_gate):
    sizes = {"train": 64, "validation": 32, "test": 32}
    monkeypatch.setattr(collapse, "SIZES", sizes)
    (run,) = collapse.measure(name, 0, [3], [setting], epochs=1)
    assert (run["seed"], run["strength"], run["rate"]) == (3, *setting)
    assert run["test_error"] > 0
    assert ("dead_experts" in run) == has_gate
    if has_gate:
        assert 0 <= run["dead_experts"] < 8
        assert 1 / 8 < run["largest_share"] <= 1
