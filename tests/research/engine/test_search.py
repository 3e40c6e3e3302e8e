"""Settings are drawn from the grid, and the rules are kept in taking one."""

import math
import sys

import pytest

from research.engine import Run
from research.engine.search import (
    best_run,
    best_settings,
    next_settings,
    random_settings,
)

SPACE = {"rate": (0.001, 0.01, 0.1), "units": (1, 2)}


def trial(settings, objective, admissible=True):
    numbers = {"objective": objective, "admissible": admissible}
    return Run("arm", 0, settings, numbers, 0.0, tuning=True)


def test_all_points_of_the_grid_are_drawn_once():
    drawn = random_settings(SPACE, 6)
    assert len({tuple(point.items()) for point in drawn}) == 6


def test_a_longer_search_begins_like_a_shorter_one():
    assert random_settings(SPACE, 4)[:2] == random_settings(SPACE, 2)
    assert random_settings(SPACE, 6, seed=1) != random_settings(SPACE, 6)


@pytest.mark.parametrize(
    ("trials", "taken"),
    [
        ([], ({}, True)),
        ([(0.1, 2.0, True), (0.2, 1.0, True)], ({"rate": 0.2}, True)),
        # A failed run, one that breaks the rules, and settings of which one run does.
        ([(0.1, None, True), (0.2, 1.0, True)], ({"rate": 0.2}, True)),
        ([(0.1, 2.0, True), (0.2, 1.0, False)], ({"rate": 0.1}, True)),
        (
            [(0.1, 1.0, True), (0.1, 1.0, False), (0.2, 5.0, True)],
            ({"rate": 0.2}, True),
        ),
        # If all break the rules, the best is taken and marked.
        ([(0.1, 2.0, False), (0.2, 1, False)], ({"rate": 0.2}, False)),
    ],
)
def test_the_lowest_objective_that_keeps_the_rules_is_taken(trials, taken):
    runs = [trial({"rate": rate}, *found) for rate, *found in trials]
    assert best_settings(runs) == taken


def test_the_run_with_the_lowest_number_is_the_best():
    runs = [trial({"rate": r}, o) for r, o in ((0.1, None), (0.2, 2.0), (0.3, 1.0))]
    assert best_run(runs) is runs[2]
    assert best_run(runs[:2], "objective") is runs[1]
    with pytest.raises(ValueError, match=r"`runs` must hold a run"):
        best_run([])


def test_the_gaussian_process_stays_in_the_box_and_finds_its_way():
    space, runs = {"rate": (1e-4, 1e-1), "units": (1, 8)}, []
    for _ in range(14):
        settings = next_settings(space, runs)
        assert 1e-4 <= settings["rate"] <= 1e-1
        assert settings["units"] in range(1, 9)
        objective = (math.log10(settings["rate"]) + 2) ** 2 + settings["units"] / 10
        runs.append(trial(settings, objective))
    best, _ = best_settings(runs)
    assert abs(math.log10(best["rate"]) + 2) < 0.35
    assert best["units"] <= 2


def test_the_gaussian_process_avoids_what_is_not_admissible():
    runs = [
        trial({"rate": 10**-e}, 1.0 + e, admissible=e < 2.5)
        for e in (1.0, 1.5, 2.0, 3, 3.5)
    ]
    assert next_settings({"rate": (1e-4, 1e-1)}, runs)["rate"] > 1e-3


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"optuna and scipy and torch.*\[tune\]"):
        next_settings(SPACE, [])
