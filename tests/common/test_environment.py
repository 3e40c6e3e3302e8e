"""The machine of a run is what the run may use."""

import os

import pytest

from common.environment import num_cores


@pytest.mark.backend_independent
def test_only_cores_that_may_be_used_are_counted(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert num_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")  # Not on every system.
    assert num_cores() == 8
