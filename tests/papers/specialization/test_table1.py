"""Gates that are frozen, and fresh experts: what is frozen when, and the claims."""

import keras
import numpy as np
import pytest

from experiments import Job, Results, Run
from papers.specialization._splits import JOINT, SPLIT, arm_of, parts_of
from papers.specialization.table1 import Table1

# A few steps of many models: TensorFlow would trace graphs most of the time.
NAME = "fmnist_mnist"


def weights_of(part):
    # A gate counts its steps where it is frozen as well.
    weights = [weight for weight in part.weights if weight.name != "step"]
    return [keras.ops.convert_to_numpy(weight) for weight in weights]


def same(part, other):
    pairs = zip(weights_of(part), weights_of(other), strict=True)
    return [bool(np.array_equal(ours, theirs)) for ours, theirs in pairs]


def test_each_stage_keeps_what_was_learned():
    experiment = Table1.presets()["smoke"]
    data, jobs = experiment.data(NAME), [Job(0, {})]
    (experts,) = experiment.learn_experts(NAME, data, jobs)
    (gate,) = experiment.learn_rest(NAME, data, [experts], jobs, "gate")
    (fresh,) = experiment.learn_rest(NAME, data, [gate], jobs, "experts")
    first, second, third = (parts_of(model) for model in (experts, gate, fresh))
    for name in ("filters", "experts"):
        assert all(same(first[name], second[name]))
        assert not any(same(second[name], third[name]))
    for name in ("routing", "gate"):
        assert all(same(second[name], third[name]))


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ((0.08, 0.05), [True, True]),
        ((0.05, 0.08), [False, False]),
        ((0.05, 0.05), [None, None]),
    ],
)
def test_claims(errors, expected):
    experiment = Table1(seeds=3, datasets=("mnist",))
    results = Results(experiment, "test")
    for row, (kind, error) in enumerate(zip((JOINT, SPLIT), errors, strict=True)):
        for seed, shift in enumerate(np.roll((0.0, 0.001, 0.002), row)):
            numbers = {
                "error": error + shift,
                "train_loss": 2 * error + shift,
                "gate_error": error,
            }
            results.add(Run(arm_of("mnist", kind), seed, {}, numbers, 1.0), {})
    report = experiment.report(results)
    assert [claim.holds for claim in report.claims] == expected
    assert [claim.paper for claim in report.claims] == [
        "0.08 against 0.12",
        "0.05 against 0.19",
    ]
    theirs = [["0.12", "0.19"], ["0.08", "0.05"]]
    assert [row[3::2] for row in report.tables[0].rows] == theirs


def test_the_preset_is_the_papers_protocol():
    preset = Table1.presets()["cpu"]
    assert preset.config == Table1.presets()["paper"].config
    facts = {fact.what: fact for fact in preset.protocol()}
    for fact in ("Training images", "Split of the digits"):
        assert facts[fact].paper.startswith(f"{facts[fact].here} (")
