"""What Figure 5 makes of its runs."""

import math

import numpy as np
import pytest
from keras.ops import convert_to_numpy
from matplotlib import pyplot as plt

from dselectk_keras.gates import DSelectKGate
from dselectk_keras.models import Task, build_multitask_model
from experiments import Job, Results, Run
from papers.dselectk._synthetic import error, follow, look, name_arm
from papers.dselectk._synthetic_methods import METHODS, SumExperts
from papers.dselectk.fig5 import Fig5, random_jaccard

# A few steps of many models: TensorFlow would trace graphs most of the time.

TINY = {
    "tasks": (32,),
    "num_train": 64,
    "num_evaluated": 32,
    "epochs": 2,
    "batch_size": 32,
}


def made_up(changes=None):
    """Results in which DSelect-k is best, and the more so for more tasks."""
    experiment = Fig5(seeds=2)
    results = Results(experiment, "cpu")
    for arm, (method, count) in experiment.arms.items():
        place = list(METHODS).index(method)
        numbers = {
            "objective": 0.1 + 0.1 * place,
            "mse": 0.1 + place * count / 640,
            "experts": 2.0 if method == "Ablation (entropy)" else 4.0,
            "most_experts": 4,
            "related": 0.9 - count / 1280 - 0.5 * (place > 0) * count / 128,
            "unrelated": 0.3 - count / 1280 - 0.02 * (place == 0) * count / 128,
            "admissible": True,
        }
        if count == 16:
            numbers["unrelated"] = math.nan
        if "DSelect-k" in method:
            numbers["binary"] = 1.0
        numbers |= (changes or {}).get(method, {})
        settings = {"learning_rate": 0.01}
        results.add(Run(arm, 1_000_000, settings, numbers, 1.0, tuning=True), {})
        for seed in range(2):
            found = {**numbers, "mse": numbers["mse"] + 0.01 * seed}
            results.add(Run(arm, seed, settings, found, 1.0), {})
    return results


def claims(results):
    return results.experiment.report(results).claims


def test_every_claim_can_hold():
    found = claims(made_up())
    assert [claim.holds for claim in found] == [True] * 13
    assert all(claim.source for claim in found)
    # 0.105 and 0.305; 0.8 and 0.3.
    assert found[6].ours == "66% below: 0.105 ± 0.005 against 0.305 ± 0.005."
    assert found[7].ours == "+167%: 0.800 ± 0.000 against 0.300 ± 0.000."


@pytest.mark.parametrize(
    ("method", "numbers", "fail"),
    [
        ("DSelect-k", {"mse": 0.5}, [0, 3, 6, 8]),
        ("DSelect-k", {"related": 0.1}, [1, 4, 7, 9, 11]),
        ("DSelect-k", {"unrelated": 0.9}, [2, 10, 11]),
        ("Top-k", {"mse": 0.16}, [6]),
        ("Top-k", {"experts": 3.0}, [12]),
        ("DSelect-k", {"experts": 22.4}, [12]),
        ("Ablation (annealing)", {"mse": 0.01}, [8]),
        ("Ablation (annealing)", {"related": 1.0}, [9]),
        ("Ablation (entropy)", {"unrelated": 0.0}, [10]),
        ("Ablation (entropy)", {"experts": 4.0}, [12]),
    ],
)
def test_claims_fail(method, numbers, fail):
    found = claims(made_up({method: numbers}))
    failed = [i for i, claim in enumerate(found) if claim.holds is not True]
    assert set(fail) <= set(failed)
    assert found[fail[0]].holds is False


def test_success_outside_of_the_rules_cannot_be_judged():
    found = claims(made_up({"DSelect-k": {"admissible": False}}))
    assert [claim.holds for claim in found] == [None] * 13


def test_nothing_is_above_a_jaccard_index_of_1_among_16_tasks():
    results = made_up()
    for run in results.runs:
        if "16 tasks" in run.arm:
            run.numbers["related"] = 1.0
    assert claims(results)[1].holds is True
    for run in results.of(name_arm("DSelect-k", 16)):
        run.numbers["related"] = 0.9
    assert claims(results)[1].holds is False


def test_what_was_not_run_fails():
    results = Results(Fig5(), "cpu")
    assert {claim.holds for claim in claims(results)} == {False}


def test_our_methods_are_questions():
    report = (results := made_up()).experiment.report(results)
    assert len(report.questions) == 6
    assert all("128 tasks" in question.asks for question in report.questions)


def test_tables_and_pictures():
    report = (results := made_up()).experiment.report(results)
    numbers, tried = report.tables
    assert len(numbers.rows) == len(results.experiment.arms) + 4
    assert numbers.rows[0] == [
        "DSelect-k",
        16,
        "0.105 ± 0.005",
        "4.00 ± 0.00",
        "0.887 ± 0.000",
        "",
        "1.00 ± 0.00",
        "2 of 2",
    ]
    assert tried.rows[1] == ["Top-k", "learning_rate 0.01", 0.2, 4.0, None, "yes"]
    for picture in report.pictures:
        figure = picture.draw()
        assert figure.axes
        plt.close(figure)


def test_random_jaccard():
    assert random_jaccard(4) == 1.0
    rng = np.random.default_rng(0)
    chosen = rng.random((40_000, 8)).argsort(axis=1)[:, :4]
    sets = np.zeros((40_000, 8), bool)
    np.put_along_axis(sets, chosen, True, axis=1)
    first, second = sets[::2], sets[1::2]
    index = (first & second).sum(axis=1) / (first | second).sum(axis=1)
    assert random_jaccard(8) == pytest.approx(index.mean(), abs=0.005)


def test_arms():
    arms = Fig5().arms
    assert len(arms) == 4 * 4 + 6
    assert arms["noisy Top-k, 128 tasks"] == ("noisy Top-k", 128)
    assert "noisy Top-k, 64 tasks" not in arms


def test_ranges_are_those_of_appendix_d4():
    experiment = Fig5()
    space = experiment.space(name_arm("DSelect-k", 16))
    assert space == {
        "learning_rate": (0.001, 0.01, 0.1),
        "gamma": (5.0, 10.0, 15.0),
        "entropy": (0.001, 0.005, 0.01, 0.1),
    }
    assert len(experiment.space(name_arm("Ablation (entropy)", 16))["entropy"]) == 8
    annealing = experiment.space(name_arm("Ablation (annealing)", 16))
    assert len(annealing["temperature"]) == 10


def test_the_papers_gates_decide_by_themselves():
    assert not any(each.decide for each in METHODS.values() if each.paper)


def test_look():
    weights = np.array(
        [[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.999, 0.001]]
    )
    assert look(weights, [0, 0, 1]) == {
        "experts": 5 / 3,
        "most_experts": 2,
        "used": 4,
        "related": 0.5,
        "unrelated": 0.0,
    }
    found = look(weights, [0, 0, 1], zero=0.01)
    assert found["experts"] == 4 / 3
    assert found["used"] == 3


def test_follow():
    # Three records of two tasks with two selectors.
    binary = np.array(
        [
            [[0, 0], [0, 0]],
            [[1, 1], [0, 1]],
            [[1, 1], [1, 1]],
            [[1, 1], [1, 1]],
        ]
    )
    found = follow(binary, steps=10)
    assert found["binary"] == 1.0
    assert found["decided"] == 20
    # Three epochs, of which two begin with an open selector.
    assert found["open"] == pytest.approx(2 / 3)
    assert found["task_open"] == pytest.approx(1 / 2)
    assert found["steps"].tolist() == [0, 10, 20, 30]
    assert found["share"].tolist() == [0.0, 0.75, 1.0, 1.0]
    assert follow(binary[::-1], steps=10)["decided"] is None
    assert follow(None, steps=10) == {}


def test_error_and_experts():
    experts = SumExperts(2)
    tasks = [Task("a", tower="sum"), Task("b", tower="sum")]
    model = build_multitask_model(3, tasks, "mmoe", experts, DSelectKGate(2))
    x = np.ones((5, 3), "float32")
    found = np.concatenate([*model.predict(x, verbose=0).values()], axis=1)
    split = type("Split", (), {"x": x, "y": found + np.array([0.0, 2.0])})
    assert error(model, split) == pytest.approx(2.0, rel=1e-4)
    assert SumExperts.from_config(experts.get_config()).num_experts == 2
    kernel, bias = experts.get_weights()
    expected = np.maximum(np.einsum("bi,nij->bnj", x, kernel) + bias, 0.0).sum(-1)
    np.testing.assert_allclose(
        convert_to_numpy(experts(x))[..., 0], expected, atol=1e-5
    )


def test_the_recipe_decides_without_tuning():
    arm = name_arm("DSelect-k, recipe", 32)
    experiment = Fig5(**TINY)
    assert experiment.space(arm) == {"learning_rate": (0.01,)}
    (found,) = experiment.run(arm, [Job(0, {"learning_rate": 0.01})])
    assert found["share"].tolist()[-1] == 1.0
    assert found["admissible"]
    assert found["mse"] > 0


def test_restarts_are_reported_and_no_longer_run():
    arm = name_arm("DSelect-k, restarts", 32)
    assert arm in Fig5(**TINY).arms
    with pytest.raises(ValueError, match="restarts no selectors any more"):
        Fig5(**TINY).run(arm, [Job(0, {"learning_rate": 0.01})])
