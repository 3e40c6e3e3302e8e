"""Rows of results as tests invent them, and shorter runs."""

import dataclasses

import pytest

from research.benches.gates import arms, bench


@pytest.fixture
def two_choices(monkeypatch):
    """Compare two random choices, to save time."""
    for name, arm in arms.CHOICES.items():
        few = dataclasses.replace(arm, space={"choice": (0, 1)})
        for known in (arms.CHOICES, bench.ARMS):
            monkeypatch.setitem(known, name, few)


@pytest.fixture(scope="session")
def row():
    """Make a row of a problem, of a family and a kind of its own if left out."""

    def make(problem, arm, draw, test, **others):
        about = {"problem": problem, "family": problem, "kind": problem}
        about |= {"arm": arm, "draw": draw, "test": test, "overlap": 0.0}
        return about | others

    return make
