"""The plan of a large model is right for small ones."""

import math

import plan
import pytest

from dselectk_keras import (
    DenseExperts,
    DSelectKGate,
    Task,
    TopKGate,
    build_multitask_model,
)
from dselectk_keras.utils import num_trained
from research.speed import WORKLOADS
from research.speed.measure import flops

pytestmark = pytest.mark.backend_independent
SMALL = "--features 6 --experts 10 --units 5 4 --tasks 3 --tower 2 --batch 10"
# By hand: layers of an expert; three towers, and gates of ten logits.
EXPERT, OTHERS = 7 * 5 + 6 * 4, 3 * (5 * 2 + 3) + 3 * 6 * 10


def needs(*more, sizes=SMALL):
    return plan.plan(plan.parse([*sizes.split(), *more]))


@pytest.mark.parametrize("gate", ["dselect_k", "top_k"])
@pytest.mark.parametrize("more", [[], ["--static"]])
def test_parameters_and_state_are_those_of_a_model(gate, more):
    model = build_multitask_model(
        6,
        [Task(f"task_{i}", tower=(2,)) for i in range(3)],
        experts=DenseExperts(10, (5, 4)),
        gate={"dselect_k": DSelectKGate, "top_k": TopKGate}[gate](2),
        per_example=not more,
    )
    model.compile("adam")
    model.optimizer.build(model.trainable_variables)
    parameters = num_trained(model)
    found = needs("--gate", gate, *more)
    assert found["parameters"] == parameters
    # Parameters, gradients and both moments; the optimizer counts its steps besides.
    kept = sum(math.prod(v.shape) for v in model.optimizer.variables if len(v.shape))
    assert found["state, B"] == 4 * (2 * parameters + kept)
    assert needs("--gate", gate, "--slots", "0", *more)["state, B"] == 8 * parameters


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
    work = WORKLOADS[name]
    sizes = (
        f"--features {work.num_features} --experts {work.num_experts} --units "
        f"{work.units} --tasks {work.num_tasks} --nonzeros {work.num_nonzeros} "
        f"--gate {work.gate} --batch {work.batch_size} --tower "
    )
    more = [*map(str, work.tower), *["--static"] * (not work.per_example)]
    found = needs(*more, *["--dispatch"] * (form == "dispatched"), sizes=sizes)
    assert found["operations, forward"] == flops(work, form)["forward_flops"]
    assert found["operations"] == flops(work, form)["training_flops"]


def test_devices_share_experts_batch_and_work():
    one, several = needs(), needs("--devices", "2", "5", "--rows=1e3", "--speed=10")
    assert one["parameters"] == 10 * EXPERT + OTHERS
    assert one["sent, B"] == 0
    assert several["state, B"] == 16 * (2 * EXPERT + OTHERS)
    # Gradients of 2 experts to one other device; mixtures of 3 tasks among five, and
    # half as often the gradients of their 10 weights.
    gradients, mixtures = 2 * EXPERT + OTHERS, 5 * 3 * (4 + 10 / 2)
    assert several["sent, B"] == pytest.approx(4 * (gradients + 1.6 * mixtures))
    # Two layers of 2 experts for half of the batch, and three mixtures, with gradients.
    assert several["activations, B"] == 8 * (5 * 2 * 9 + 5 * 3 * 4)
    # A hundred steps, on ten devices with ten operations a second.
    assert several["minutes"] == pytest.approx(one["operations"] / 60)


def test_dispatched_work_is_split_by_the_batch_if_experts_are_not_split():
    dense = needs("--devices", "2", "1")
    sparse = needs("--devices", "2", "1", "--dispatch", "--rows=10", "--speed=1")
    assert sparse["minutes"] == sparse["operations"] / 2 / 60
    assert sparse["activations, B"] == 8 * (1.5 * 5 * 6 * 15 + 5 * 3 * 4)
    assert sparse["sent, B"] == dense["sent, B"]


def test_dispatched_work_of_split_experts_is_not_split_by_the_batch():
    sparse = needs("--devices", "2", "5", "--dispatch", "--rows=10", "--speed=1")
    assert sparse["minutes"] == sparse["operations"] / 5 / 60
    # Slots for 6 choices, of 6 features and 9 units, over five devices.
    slots = 1.5 * 10 * 6 / 5
    assert sparse["activations, B"] == pytest.approx(8 * (slots * 15 + 5 * 3 * 4))
    # Their inputs, and the gradients of their outputs, besides those of parameters.
    gradients = 2 * EXPERT + OTHERS + slots * (6 + 4)
    mixtures = 5 * (6 * 4 + 3 * 10 / 2)
    assert sparse["sent, B"] == pytest.approx(4 * (gradients + 1.6 * mixtures))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("--gate soft", "invalid choice: 'soft'"),
        ("--experts 0", "must be a positive integer, received 0"),
        ("--rows 1.5", "must be a positive integer, received 1.5"),
        ("--speed nan", "must be a positive integer, received nan"),
        ("--units", "expected at least one argument"),
        ("--experts 4 --nonzeros 5", "--nonzeros must be at most --experts"),
        ("--static --dispatch", "needs per-example gates"),
        ("--experts 9 --devices 1 2", "--experts must be a multiple"),
        ("--batch 9 --devices 2 1", "--batch must be a multiple"),
    ],
)
def test_what_cannot_be_built_is_refused(capsys, given, text):
    with pytest.raises(SystemExit):
        plan.parse(given.split())
    assert text in capsys.readouterr().err


def test_numbers_are_printed_with_three_digits(capsys):
    plan.main(SMALL.split())
    shown = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert shown["parameters"] == str(10 * EXPERT + OTHERS)
    texts = {0: "0", 0.225: "0.225", 999: "999", 999_999: "1 M", 4.29e9: "4.29 G"}
    assert {number: plan.readable(number) for number in texts} == texts
