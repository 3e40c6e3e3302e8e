"""Splits that are given: what is frozen when, and the claims."""

import keras
import numpy as np
import pytest

from dselectk_keras.experiments import Job, Results, Run
from papers.specialization.table1 import (
    EQUITABLE,
    INEQUITABLE,
    ORIGINAL,
    SPLITS,
    Table1,
    _parts,
)

# A few steps of many models: TensorFlow would trace graphs most of the time.
pytestmark = pytest.mark.usefixtures("eagerly")


def test_splits_have_five_experts():
    for split in SPLITS.values():
        assert sorted(set(split)) == [0, 1, 2, 3, 4]
    assert np.bincount(SPLITS[EQUITABLE]).tolist() == [2] * 5
    assert np.bincount(SPLITS[INEQUITABLE]).tolist() == [6, 1, 1, 1, 1]


def weights_of(part):
    # A gate counts its steps where it is frozen as well.
    weights = [weight for weight in part.weights if weight.name != "step"]
    return [keras.ops.convert_to_numpy(weight) for weight in weights]


def same(part, other):
    pairs = zip(weights_of(part), weights_of(other), strict=True)
    return [bool(np.array_equal(ours, theirs)) for ours, theirs in pairs]


def test_each_stage_keeps_what_was_learned():
    experiment = Table1.presets()["smoke"]
    data, jobs = experiment.data("mnist"), [Job(0, {})]
    (experts,) = experiment._learn_experts(data, SPLITS[EQUITABLE], jobs)
    (gate,) = experiment._learn_rest(data, [experts], jobs, "gate")
    (fresh,) = experiment._learn_rest(data, [gate], jobs, "experts")
    first, second, third = (_parts(model) for model in (experts, gate, fresh))
    for name in ("filters", "experts"):
        assert all(same(first[name], second[name]))
        assert not any(same(second[name], third[name]))
    for name in ("routing", "gate"):
        assert all(same(second[name], third[name]))


def report_of(errors, information=(1.0, 2.0)):
    experiment = Table1(seeds=3)
    results = Results(experiment, "test")
    for row, (arm, error) in enumerate(errors.items()):
        for seed, shift in enumerate(np.roll((0.0, 0.001, 0.002), row)):
            own = {
                "error": error + shift,
                "mutual_information": information[0],
                "sample_entropy": 0.5,
                "utilization_entropy": 1.5,
            }
            gates = {f"gate_{name}": value for name, value in own.items()}
            gates["gate_mutual_information"] = information[1]
            numbers = own if arm == ORIGINAL else own | gates
            results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return experiment.report(results)


@pytest.mark.parametrize(
    ("errors", "information", "expected"),
    [
        ((0.08, 0.05, 0.1), (1.0, 2.0), [True, True, True]),
        ((0.03, 0.05, 0.04), (2.1, 2.0), [False, False, False]),
        ((0.05, 0.05, 0.05), (1.0, 2.0), [True, None, True]),
    ],
)
def test_claims(errors, information, expected):
    arms = ORIGINAL, EQUITABLE, INEQUITABLE
    report = report_of(dict(zip(arms, errors, strict=True)), information)
    assert [claim.holds for claim in report.claims] == expected
    assert [row[0] for row in report.tables[0].rows][1] == "equitable: frozen experts"
