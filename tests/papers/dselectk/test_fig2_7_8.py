"""Experts are counted right, problems do not touch each other, claims are judged."""

import numpy as np
import pytest

from dselectk_keras.experiments import Results, Run
from papers.dselectk._recovery import Problems, recovered
from papers.dselectk._recovery_grid import Cell
from papers.dselectk.fig2_7_8 import Fig278

# A few steps of many models: TensorFlow would trace graphs most of the time.
pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([0.4, 0.3, 0.2, 0.1, 0, 0], (4, 0)),
        ([0.4, 0.3, 0, 0, 0.2, 0.1], (2, 2)),
        ([0.5, 0.495, 0.005, 0, 0, 0], (2, 0)),  # What is not used is not found.
        ([0.11, 0.1, 0.1, 0.1, 0.3, 0.29], (2, 2)),  # Nor what five others exceed.
        ([0, 0, 0, 0, 0.5, 0.5], (0, 2)),
    ],
)
def test_true_experts_are_counted(weights, expected):
    assert recovered(np.array(weights), [0, 1, 2, 3]) == expected


def test_a_cell_counts_a_seed_that_finds_all_four_and_nothing_else():
    found, others = np.array([4, 4, 3, 1]), np.array([0, 2, 0, 3])
    cell = Cell("Top-k", "known", "Adam", 0.1, 50, "start 1", found, others)
    assert cell.mean == 3
    assert cell.share == 0.25
    assert cell.text() == "3.0 ± 0.7"
    assert cell.training == ("known", "Adam", 0.1, 50)


def sgd(rate):
    import keras

    return keras.optimizers.SGD(rate)


@pytest.mark.parametrize("learn_unit", [False, True])
def test_a_problem_does_not_notice_those_beside_it(learn_unit):
    found = []
    for seeds in ([3], [2, 3]):
        problems = Problems(seeds, 60, 20)
        model = problems.dselect_k(sgd(0.5), steps=4, learn_unit=learn_unit)
        found.append(problems.follow(model, epochs=2, batch_size=30)[-1])
    alone, beside = found
    assert alone["true_experts"] == beside["true_experts"]
    assert alone["loss"] == pytest.approx(beside["loss"], rel=1e-3)
    np.testing.assert_allclose(alone["weights"], beside["weights"], atol=1e-5)
    assert not np.allclose(alone["weights"][0], alone["weights"][-1])


def test_the_true_gate_has_the_lowest_loss():
    problems = Problems([0], 10, 2000)
    model = problems.top_k(sgd(0.1))
    gate = model.get_layer("recover").gate
    logits = np.full((1, 16), -1.0)
    logits[0, list(problems.true_experts[0])] = 1.0
    gate.set_weights([logits])
    right = problems._judge(model)
    assert (right["found"], right["others"]) == ([4], [0])
    gate.set_weights([np.roll(logits, 1, axis=1)])
    assert problems._judge(model)["loss"][0] > right["loss"][0]


def test_settings_share_a_program_and_keep_their_order():
    problems = Problems([0, 1], 60, 20)
    settings = [{"rate": 0.0, "start": 2.0}, {"rate": 0.5, "start": 0.1}]
    runs = problems.search(
        lambda rate, start: problems.top_k(sgd(rate), start=start),
        settings,
        epochs=1,
        batch_size=30,
    )
    assert [len(run["found"]) for run in runs] == [2, 2]
    # At a rate of nothing the gate stays where it was.
    start = problems._judge(problems.top_k(sgd(0.0), start=2.0))
    assert [run["found"][0] for run in runs] == start["found"]
    assert [run["loss"][0] for run in runs] == pytest.approx(start["loss"], rel=1e-3)


def made_up(top_k, dselect_k, jumps):
    """Results in which each gate has found as many experts, whatever the setting."""
    experiment = Fig278(
        seeds=2,
        units=("known",),
        rates=(("Adam", (0.02,)),),
        batch_sizes=(100,),
        starts=(0.05,),
        dselect_k=((1.0, 0.1, 0.01),),
    )
    results = Results(experiment, "test")
    for name, arm in experiment.arms.items():
        found = dselect_k if arm.gate == "DSelect-k" else top_k
        for seed in range(2):
            numbers = {"found": [found], "others": [4 - found], "loss": [0.3]}
            if arm.followed is not None:
                jump = jumps[arm.gate == "DSelect-k"]
                numbers = {"found": found, "jump": jump, "loss": 0.3}
            results.add(Run(name, seed, {}, numbers, 1.0), {})
    return experiment.report(results)


def test_the_papers_picture_is_recognized():
    report = made_up(top_k=1, dselect_k=4, jumps=(0.5, 0.1))
    assert [claim.holds for claim in report.claims] == [True] * 5
    assert "100% of 2 seeds" in report.claims[0].ours
    assert "0.50 for Top-k and 0.10 for DSelect-k" in report.claims[4].ours
    summary = report.tables[0].rows
    assert summary[0][:4] == ["Top-k", "known", 1, "1.00 (0%)"]
    assert summary[2][:4] == ["DSelect-k", "known", 4, "4.00 (100%)"]
    assert report.tables[1].rows[0][-1] == "1.0 (0%)"


def test_another_picture_is_not_taken_for_it():
    report = made_up(top_k=4, dselect_k=3, jumps=(0.1, 0.1))
    assert [claim.holds for claim in report.claims] == [False] * 5
    assert report.claims[2].ours == "With none that was tried."
