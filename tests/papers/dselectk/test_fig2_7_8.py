"""Experts are counted right, problems do not touch each other, claims are judged."""

import numpy as np
import pytest

from experiments import Results, Run
from papers.dselectk._recovery import Problems, recovered
from papers.dselectk.fig2_7_8 import Fig278, _best, parameters

# A few steps of many models: TensorFlow would trace graphs most of the time.


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


def test_a_problem_does_not_notice_those_beside_it():
    found = []
    for seeds in ([3], [2, 3]):
        problems = Problems(seeds, 60, 20)
        model = problems.dselect_k(0.1, gamma=5.0, entropy=0.1)
        found.append(problems.follow(model, epochs=2, batch_size=30)[-1])
    alone, beside = found
    assert alone["true_experts"] == beside["true_experts"]
    assert alone["loss"] == pytest.approx(beside["loss"], rel=1e-3)
    np.testing.assert_allclose(alone["weights"], beside["weights"], atol=1e-5)
    assert not np.allclose(alone["weights"][0], alone["weights"][-1])


def test_the_true_gate_has_the_lowest_loss():
    problems = Problems([0], 10, 2000)
    model = problems.top_k(0.1)
    gate = model.get_layer("recover").gate
    logits = np.full((1, 16), -1.0)
    logits[0, list(problems.true_experts[0])] = 1.0
    gate.set_weights([logits])
    (right,) = problems._judge(model)
    assert (right["found"], right["others"]) == (4, 0)
    gate.set_weights([np.roll(logits, 1, axis=1)])
    assert problems._judge(model)[0]["loss"] > right["loss"]


def test_a_gate_that_has_not_decided_is_not_admissible():
    problems = Problems([0, 1], 10, 10)
    model = problems.dselect_k(0.1, gamma=5.0, entropy=0.1)
    gate = model.get_layer("recover").gate
    z, w, *_ = gate.get_weights()
    z[0] = 2.5
    gate.set_weights([z, w])
    assert [each["admissible"] for each in problems._judge(model)] == [True, False]


def test_the_best_setting_has_decided():
    tried = [
        {"admissible": False, "loss": 0.1},
        {"admissible": True, "loss": 0.3},
        {"admissible": True, "loss": 0.2},
    ]
    assert _best(tried) == 2
    assert _best(tried[:1] * 2) == 0
    diverged = {"admissible": True, "loss": float("nan")}
    assert _best([diverged, *tried]) == 3


def test_settings_share_a_program_and_keep_their_order():
    problems = Problems([0, 1], 60, 20)
    settings = [{"learning_rate": 0.0}, {"learning_rate": 0.5}]
    runs = problems.search(problems.top_k, settings, epochs=1, batch_size=30)
    assert [len(run) for run in runs] == [2, 2]
    # At a rate of nothing the gate stays where it was.
    start = problems._judge(problems.top_k(0.0))
    assert [run[0]["found"] for run in runs] == [each["found"] for each in start]
    assert [run[0]["loss"] for run in runs] == pytest.approx(
        [each["loss"] for each in start], rel=1e-3
    )


def test_parameters_of_built_gates():
    assert parameters(4, 16) == (20, 16)
    assert parameters(2, 1024) == (22, 1024)


def made_up(top_k, dselect_k, jumps, binary=(True, True, True)):
    """Results in which each gate has found as many experts on all problems."""
    experiment = Fig278(seeds=3)
    results = Results(experiment, "test")
    for arm in experiment.arms:
        ours = arm == "DSelect-k"
        settings = experiment._settings(arm)
        for seed in range(3):
            found = dselect_k if ours else top_k
            numbers = {
                "found": found,
                "others": 4 - found,
                "jumps": jumps[ours] + seed,
                "largest": jumps[ours] / 10,
                "experts": 4,
                "admissible": binary[seed] or not ours,
                "tried": [found] * len(settings),
                "setting": "learning_rate 0.1",
            }
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return experiment.report(results)


def test_the_papers_picture_is_recognized():
    report = made_up(top_k=1, dselect_k=4, jumps=(50, 2))
    assert [claim.holds for claim in report.claims] == [True] * 6
    assert "in 100%" in report.claims[0].ours
    assert "51.0 ± 0.6 with Top-k, 3.00 ± 0.58 with" in report.claims[3].ours
    summary = report.tables[0].rows
    assert summary[0][:4] == ["Top-k", 1, "1.00 ± 0.00", "3.00 ± 0.00"]
    assert report.tables[1].rows[0] == ["Top-k", "learning_rate 0.1", 1.0, 3]


@pytest.mark.parametrize("binary", [(False, False, False), (True, True, False)])
def test_solutions_that_are_not_binary_are_no_success(binary):
    report = made_up(top_k=1, dselect_k=4, jumps=(50, 2), binary=binary)
    judged = [claim.holds for claim in report.claims]
    assert judged == [None, True, None, True, None, True]
    assert f"binary on {sum(binary)} of 3 problems" in report.claims[0].ours
    assert f"kept by {sum(binary)} of the 3 runs" in report.notes[-1]
    report = made_up(top_k=1, dselect_k=3, jumps=(50, 20), binary=binary)
    judged = [claim.holds for claim in report.claims]
    assert judged == [False, True, False, True, None, True]
    report = made_up(top_k=1, dselect_k=3, jumps=(2, 50), binary=binary)
    assert report.claims[4].holds is False


def test_another_picture_is_not_taken_for_it():
    report = made_up(top_k=4, dselect_k=3, jumps=(1, 20))
    # What is counted in built gates holds in any case.
    assert [claim.holds for claim in report.claims] == [False] * 5 + [True]
