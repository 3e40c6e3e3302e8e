"""Figure 6: how weights move."""

import numpy as np
import pytest

from experiments import Job, Results, Run
from papers.dselectk._gates import decided, movement
from papers.dselectk.fig6 import Fig6

# A few steps of many models: TensorFlow would trace graphs most of the time.


def test_movement_counts_jumps():
    # The first task jumps at the last but one record, the second never does.
    first = [[0.5, 0.4, 0.1], [0.5, 0.4, 0.1], [0.5, 0.1, 0.4], [0.5, 0.05, 0.45]]
    second = [[0.6, 0.4, 0.0], [0.55, 0.45, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]
    found = movement(np.stack([first, second], axis=1))
    assert found["largest"] == pytest.approx(0.3)
    assert found["jumps"] == 0.5
    assert found["last_jump"] == pytest.approx((2 / 3 + 0) / 2)
    assert found["experts"] == 2.5


def test_still_weights_do_not_move():
    found = movement(np.full((3, 2, 4), 0.25))
    assert found == {"largest": 0.0, "jumps": 0.0, "last_jump": 0.0, "experts": 4.0}


def test_selectors_decide_for_good():
    # Five records of one task with two selectors.
    binary = np.array([[0, 0], [1, 1], [1, 0], [1, 1], [1, 1]])[:, None]
    assert decided(binary) == 0.75
    assert decided(binary[::-1]) is None
    assert decided(np.ones((3, 1, 2))) == 0.0


@pytest.mark.parametrize(
    ("ours", "theirs", "last", "holds"),
    [
        ((1, 0.01), (90, 0.5), 0.99, [True, True, True]),
        ((90, 0.5), (1, 0.01), 0.5, [False, False, False]),
        ((1, 0.5), (90, 0.01), 0.5, [True, False, False]),
    ],
)
def test_claims(ours, theirs, last, holds):
    results = Results(Fig6(), "made-up")
    for arm in results.experiment.arms:
        jumps, largest = ours if arm.startswith("DSelect-k") else theirs
        for seed in range(2):
            numbers = {
                "jumps": jumps + seed,
                "largest": largest + seed / 1000,
                "last_jump": last,
                "experts": 2.0,
                "admissible": True,
                "steps": [0, 1],
                "weights": np.full((2, 2, 8), 0.125),
            }
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    report = results.experiment.report(results)
    assert [claim.holds for claim in report.claims] == holds
    assert [picture.name for picture in report.pictures] == ["dselect-k", "top-k"]


@pytest.mark.parametrize("kept", [(False, False), (True, False)])
def test_gates_that_have_not_decided_are_not_called_smooth(kept):
    results = Results(Fig6(), "made-up")
    for arm in results.experiment.arms:
        ours = arm.startswith("DSelect-k")
        for seed in range(2):
            numbers = {"jumps": 1.0, "largest": 0.01 if ours else 0.5, "last_jump": 1.0}
            numbers |= {"admissible": kept[seed] or not ours}
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    *_, smooth = results.experiment.report(results).claims
    assert smooth.holds is None
    assert f"{sum(kept)} of 2 runs" in smooth.ours


def test_kept_records_span_the_run():
    experiment = Fig6.presets()["smoke"]
    (numbers,) = experiment.run("Top-k, alpha 0.5", [Job(0, {"num_nonzeros": 4})])
    assert numbers["steps"].tolist() == [0, 2, 3]
    assert np.shape(numbers["weights"]) == (3, 2, 8)
    assert numbers["experts"] == 4.0
    assert numbers["decided"] is None
