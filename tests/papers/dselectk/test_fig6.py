"""Figure 6: how weights move."""

import numpy as np
import pytest

from dselectk_keras.experiments import Job, Results, Run
from papers.dselectk.fig6 import Fig6, movement

# A few steps of many models: TensorFlow would trace graphs most of the time.
pytestmark = pytest.mark.usefixtures("eagerly")


def test_movement_counts_swaps_and_jumps():
    # The first task swaps its choice of two once, at the last but one record; in the
    # second the order of the two chosen changes, which is no swap.
    first = [[0.5, 0.4, 0.1], [0.5, 0.4, 0.1], [0.5, 0.1, 0.4], [0.5, 0.0, 0.5]]
    second = [[0.6, 0.4, 0.0], [0.4, 0.6, 0.0], [0.4, 0.6, 0.0], [0.3, 0.7, 0.0]]
    found = movement(np.stack([first, second], axis=1), num_nonzeros=2)
    assert found["jump"] == pytest.approx(0.3)
    assert found["swaps"] == 0.5
    assert found["last_swap"] == pytest.approx((2 / 3 + 0) / 2)
    assert found["experts"] == 2.0


def test_still_weights_do_not_move():
    found = movement(np.full((3, 2, 4), 0.25), num_nonzeros=2)
    assert found == {"jump": 0.0, "swaps": 0.0, "last_swap": 0.0, "experts": 4.0}


@pytest.mark.parametrize(
    ("jumps", "experts", "verdict"),
    [
        ({"DSelect-k": [0.01, 0.02], "Top-k": [0.5, 0.6]}, 2.0, "yes"),
        ({"DSelect-k": [0.5, 0.6], "Top-k": [0.01, 0.02]}, 2.5, "no"),
        ({"DSelect-k": [0.5, 0.6], "Top-k": [0.01, 0.02]}, 1.5, "partly"),
    ],
)
def test_claims(jumps, experts, verdict):
    results = Results(Fig6(), "made-up")
    for arm, values in jumps.items():
        for seed, jump in enumerate(values):
            numbers = {
                "jump": jump,
                "experts": experts,
                "steps": [0, 1],
                "weights": np.full((2, 2, 8), 0.125),
            }
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    report = results.experiment.report(results)
    assert report.verdict == verdict
    assert [picture.name for picture in report.pictures] == ["dselect-k", "top-k"]


def test_kept_records_span_the_run():
    experiment = Fig6.presets()["smoke"]
    (numbers,) = experiment.run("Top-k", [Job(0, {})])
    assert numbers["steps"].tolist() == [0, 2, 3]
    assert np.shape(numbers["weights"]) == (3, 2, 8)
