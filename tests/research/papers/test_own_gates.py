"""Gates of one's own are compared beside those of an experiment."""

import dataclasses

import pytest

from dselectk_keras import TopKGate
from dselectk_keras.baselines import AttentiveGate
from research.engine import Job
from research.papers import EXPERIMENTS
from research.papers.dselectk._gates import new_gate

KINDS = ("static", "per-example")
# A check of the numbers of a run.
REPORTED = {
    "dselectk-fig5": lambda numbers: numbers["most_experts"] == 4,
    "dselectk-table2": lambda numbers: numbers["experts"] == 2,
    "smear-table3-small": lambda numbers: len(numbers["routing"][0]) == 6,
}


def with_gates(name, **gates):
    return dataclasses.replace(EXPERIMENTS[name].presets()["smoke"], gates=gates)


def mine(num_nonzeros, num_steps):
    assert num_steps > 0
    return TopKGate(num_nonzeros)


@pytest.mark.parametrize(
    ("name", "arms"),
    [
        ("dselectk-fig3", ["mine"]),
        ("dselectk-fig5", ["mine, 32 tasks"]),
        ("dselectk-table1-5", [f"mine, {kind}, alpha 0.5" for kind in KINDS]),
        ("dselectk-table2", [f"Multi-MNIST: mine, {kind}" for kind in KINDS]),
        ("smear-table3-small", ["mine"]),
    ],
)
def test_gates_of_ones_own_have_arms_beside_the_others(name, arms):
    plain, own = with_gates(name), with_gates(name, mine=mine)
    assert list(own.arms) == [*plain.arms, *arms]
    before, after = dict(plain.config), dict(own.config)
    if tried := before.pop("space", None):  # Not all are tuned.
        spaces = after.pop("space")
        assert {arm: spaces[arm] for arm in tried} == tried
    assert after == {**before, "gates": ["mine"]}


@pytest.mark.parametrize("name", REPORTED)
def test_gates_of_ones_own_are_trained_and_reported(name):
    experiment = with_gates(name, mine=mine)
    for arm in set(experiment.arms) - set(with_gates(name).arms):
        settings = {key: tried[0] for key, tried in experiment.space(arm).items()}
        (numbers,) = experiment.run(arm, [Job(0, settings)])
        assert REPORTED[name](numbers)


def test_gates_without_an_arm_are_refused():
    with pytest.raises(ValueError, match=r"mmoe-fig3 has no arms for the gates mine: "):
        with_gates("mmoe-fig3", mine=mine)
    with pytest.raises(ValueError, match=r"for the gates Top-k: .* compares Top-k, DS"):
        with_gates("dselectk-fig3", **{"Top-k": mine})


def test_gates_that_look_at_examples_have_no_static_arm():
    arms = with_gates("dselectk-table2", mine=lambda *_: AttentiveGate()).arms
    assert not any("mine, static" in arm for arm in arms)


def test_an_unknown_name_of_a_gate_is_refused():
    with pytest.raises(ValueError, match=r"no gate 'mine' here. Known: dselect_k, top"):
        new_gate("mine", 2, 10)
    assert new_gate(None, 2, 10) is None
