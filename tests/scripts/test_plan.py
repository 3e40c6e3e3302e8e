"""The plan of a large model is right for small ones."""

import dataclasses
import math
import pathlib

import plan
import pytest
from plan import Plan

from benchmarks import WORKLOADS
from benchmarks.flops import forward_flops, training_flops
from dselectk_keras import (
    DenseExperts,
    DSelectKGate,
    Task,
    TopKGate,
    build_multitask_model,
)
from dselectk_keras.utils import num_trained

pytestmark = pytest.mark.backend_independent
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "plan.md"
SMALL = Plan(features=6, experts=10, units=(5, 4), tasks=3, tower=(2,), batch=7)


@pytest.mark.parametrize("gate", ["dselect_k", "top_k"])
@pytest.mark.parametrize("per_example", [False, True])
def test_parameters_and_state_are_those_of_a_model(gate, per_example):
    small = dataclasses.replace(SMALL, gate=gate, per_example=per_example)
    model = build_multitask_model(
        small.features,
        [Task(f"task_{i}", tower=small.tower) for i in range(small.tasks)],
        experts=DenseExperts(small.experts, small.units),
        gate={"dselect_k": DSelectKGate, "top_k": TopKGate}[gate](small.nonzeros),
        per_example=per_example,
    )
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    parameters = num_trained(model)
    assert small.expert_parameters + small.other_parameters == parameters
    # Parameters, gradients and both moments; the optimizer counts its steps besides.
    kept = sum(math.prod(v.shape) for v in model.optimizer.variables if len(v.shape))
    assert small.state_bytes == 4 * (2 * parameters + kept)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("W1-static-128", "bank"),
        ("W1-per-example-128", "bank"),
        ("W4", "bank"),
        ("W4", "dispatched"),
    ],
)
def test_operations_are_those_that_the_benchmark_counts(name, form):
    workload = WORKLOADS[name]
    same = Plan(
        features=workload.num_features,
        experts=workload.num_experts,
        units=(workload.units,),
        tasks=workload.num_tasks,
        tower=workload.tower,
        nonzeros=workload.num_nonzeros,
        gate=workload.gate,
        per_example=workload.per_example,
        dispatch=form == "dispatched",
        batch=workload.batch_size,
    )
    assert same.forward_flops == forward_flops(workload, form)
    assert same.training_flops == training_flops(workload, form)


def test_devices_share_experts_batch_and_work():
    one, several = SMALL, dataclasses.replace(SMALL, devices=(2, 5))
    others = SMALL.other_parameters
    assert several.state_bytes == 16 * (SMALL.expert_parameters / 5 + others)
    assert one.sent_bytes == 0
    # By hand: gradients of 2 experts to one other device; mixtures of 3 tasks among
    # five, and half as often the gradients of their 10 weights.
    gradients = 2 * (7 * 5 + 6 * 4) + others
    mixtures = 3.5 * 3 * (4 + 10 / 2)
    assert several.sent_bytes == pytest.approx(4 * (gradients + 1.6 * mixtures))
    # Two layers of 2 experts for half of the batch, and three mixtures, with gradients.
    assert several.activation_bytes == 8 * (3.5 * 2 * 9 + 3.5 * 3 * 4)
    assert one.epoch_seconds(70, 1.0) == 10 * one.training_flops
    assert several.epoch_seconds(70, 1.0) == one.training_flops


def test_dispatched_work_is_split_by_the_batch_if_experts_are_not_split():
    sparse = dataclasses.replace(SMALL, dispatch=True, devices=(2, 1))
    assert sparse.epoch_seconds(7, 1.0) == sparse.training_flops / 2
    assert sparse.activation_bytes == 8 * (1.5 * 3.5 * 6 * 15 + 3.5 * 3 * 4)
    assert sparse.sent_bytes == dataclasses.replace(sparse, dispatch=False).sent_bytes


def test_dispatched_work_of_split_experts_is_not_split_by_the_batch():
    sparse = dataclasses.replace(SMALL, dispatch=True, devices=(2, 5))
    assert sparse.epoch_seconds(7, 1.0) == sparse.training_flops / 5
    # Slots for 6 choices, of 6 features and 9 units, over five devices.
    slots = 1.5 * 7 * 6 / 5
    assert sparse.activation_bytes == pytest.approx(8 * (slots * 15 + 3.5 * 3 * 4))
    # Their inputs, and the gradients of their outputs, besides those of parameters.
    gradients = 2 * (7 * 5 + 6 * 4) + SMALL.other_parameters + slots * (6 + 4)
    mixtures = 3.5 * (6 * 4 + 3 * 10 / 2)
    assert sparse.sent_bytes == pytest.approx(4 * (gradients + 1.6 * mixtures))


def test_the_page_has_the_examples():
    assert "\n".join(plan.table()) in PAGE.read_text(encoding="utf-8")


def test_the_command_line_prints_a_plan(capsys):
    plan.main(["--experts", "10", "--no-per-example", "--devices", "1", "5"])
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == list(SMALL.needs())
