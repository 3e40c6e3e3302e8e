"""Waits of torch for a GPU, copies to it, and breaks of its graphs."""

import collections
from functools import partial

import keras
import numpy as np
import pytest
from accelerators.parts import BANKS, NUM_EXPERTS, calls, data
from helpers import numbers
from keras import ops

import dselectk_keras as dk
from dselectk_keras.gates import Gate, dispatch
from dselectk_keras.layers import moe

pytestmark = pytest.mark.backends("torch", reason="Others compile steps as a whole.")
# What reads numbers of the device on the host.
WAITS = "_local_scalar_dense", "repeat_interleave", "nonzero", "masked_select", "unique"
# Each draw of random numbers waits for the counter of Keras' `SeedGenerator`. Ids are
# checked if they are on the host. Dispatch without a capacity reads the largest load.
DRAWS = ("Gumbel", "random", "noisy", "with load", "after dense", "skills", "REINFORCE")
# Numbers that go from the host to the device in a step of a part, and of one that draws
# or follows a schedule. Make them smaller.
MOST_CONSTANTS, MOST_OF_OTHERS = 4, 12
# Parts that break graphs: these experts have Keras' `BatchNormalization`, which does.
BREAKS = ("copies",)


def counted(function):
    """Count the operations of a function, their waits, and the bytes that they make."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counts(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = function.overloadpacket.__name__
            counts.update([name, *["waits"] * (name in WAITS)])
            found = function(*args, **(kwargs or {}))
            tensors = [x for x in args if isinstance(x, torch.Tensor)]
            known = {x.untyped_storage().data_ptr() for x in tensors}
            for made in found if isinstance(found, tuple) else (found,):
                if isinstance(made, torch.Tensor):
                    storage = made.untyped_storage()
                    is_new = storage.data_ptr() not in known
                    counts["bytes"] += storage.nbytes() * is_new
            return found

    counts = collections.Counter()
    with Counts():
        function()
    return counts


def step_counts(layer, arguments):
    """Count the operations of a training step."""

    def step():
        outputs = keras.tree.flatten(layer(*arguments, training=True))
        loss = sum([ops.sum(each * each) for each in outputs] + layer.losses)
        if loss.requires_grad:
            loss.backward()

    layer(*arguments)
    return counted(step)


def counts_of_training(x, y, tasks=None, **settings):
    """Count what a step of `fit` does."""
    model = dk.build_multitask_model(x.shape[1], tasks or y.shape[1], **settings)
    model.compile(keras.optimizers.SGD(0.1))
    data = ops.convert_to_tensor(x), ops.convert_to_tensor(y)
    model.train_step(data)
    return counted(lambda: model.train_step(data))


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Dispatch as on a GPU."""
    for module in (moe, dispatch):
        monkeypatch.setattr(module, "is_on_cpu", lambda _: False)


def test_a_dispatched_step_waits_once_and_makes_less(as_on_a_gpu):
    x = numbers((1024, 256))
    dense, sparse = (
        counts_of_training(
            *(x, x[:, :4]),
            experts=dk.DenseExperts(64, [512]),
            gate=dk.TopKGate(2),
            per_example=True,
            dispatch=dispatch,
        )
        for dispatch in (False, True)
    )
    # Keras reads the step of the optimizer.
    assert (dense["waits"], sparse["waits"]) == (1, 1)
    assert sparse["bytes"] <= 0.85 * dense["bytes"]


@pytest.mark.parametrize(
    ("gate", "settings"),
    [
        (partial(dk.TopKGate, 2), {"per_example": True, "dispatch": True}),
        (partial(dk.DSelectKGate, 2, entropy_reg=1e-3), {"per_example": True}),
        (partial(dk.DSelectKGate, 2, entropy_reg=1e-3), {}),
        (dk.SwitchGate, {"per_example": True}),
        (dk.SoftmaxGate, {}),
    ],
)
def test_an_ordinary_step_copies_few_numbers(gate, settings, as_on_a_gpu):
    x = numbers((64, 8))
    bank = dk.DenseExperts(7, [8])
    found = counts_of_training(x, x[:, :4], experts=bank, gate=gate(), **settings)
    assert found["lift_fresh"] <= 3, found


@pytest.mark.parametrize("kinds", ["aabb", "abab", "baab"])
def test_a_step_of_several_kinds_of_tasks_copies_few_numbers(kinds):
    x = numbers((64, 8))
    forms = {"a": "regression", "b": "binary"}
    tasks = [dk.Task(f"t{i}", forms[kind]) for i, kind in enumerate(kinds)]
    found = counts_of_training(x, x[:, :4] > 0, tasks, stacked=True)
    # The order of the tasks, in the losses, their counts and the predictions.
    assert found["lift_fresh"] <= (3 if kinds == "aabb" else 6), found


def test_the_choices_are_listed_without_an_array_of_choices_by_experts():
    weights = drawn_choices(rows=1024, n=256, chosen=8)
    counts = counted(lambda: dispatch.choices_of(weights, 8))
    # An array of integers `(rows, 8, 256)` would be 16 times as large as the weights.
    assert counts["bytes"] <= 4 * 1024 * 256 * 4


def drawn_choices(rows, n, chosen):
    """Equal weights of experts that are drawn for each row."""
    weights = np.zeros((rows, n), "float32")
    drawn = np.random.default_rng(0).random((rows, n)).argsort()[:, :chosen]
    np.put_along_axis(weights, drawn, 1 / chosen, axis=1)
    return ops.convert_to_tensor(weights)


def test_steps_wait_and_copy_no_more_than_they_must():
    too_often, too_many = [], {}
    for name, layer, arguments in calls():
        counts = step_counts(layer, arguments)
        draws = any(each in name for each in DRAWS) and "fixed" not in name
        most = draws + name.endswith(("ids", "dispatch True"))
        if counts["waits"] > most:
            too_often.append(name)
        most = MOST_OF_OTHERS if draws or "schedules" in name else MOST_CONSTANTS
        if counts["lift_fresh"] > most:
            too_many[name] = counts["lift_fresh"]
    assert too_often == []
    assert too_many == {}


def breaks_graph(function, arguments):
    """Check whether `torch.compile` needs several graphs, but for random numbers."""
    import torch

    torch._dynamo.reset()
    try:
        torch.compile(function, fullgraph=True, backend="eager")(*arguments)
    except torch._dynamo.exc.TorchDynamoException as error:
        return "torch_seed_generator" not in str(error)
    return False


@pytest.mark.filterwarnings("ignore:Dynamo detected:UserWarning")
def test_gates_and_banks_compile_without_a_graph_break():
    broken = []
    for name, gate, (_, *looks) in calls():
        if isinstance(gate, Gate):
            gate.build((None, NUM_EXPERTS), looks[0].shape if looks else None)
            gate.rewarded = True  # Else REINFORCE warns, which breaks a graph.
            route = partial(gate.route, training=True)
            if breaks_graph(lambda *looks, route=route: route(*looks).weights, looks):
                broken.append(name)
    x = ops.convert_to_tensor(data(8)["x"])
    for name, make in BANKS.items():
        bank = make()
        bank(x)
        if breaks_graph(partial(bank, training=True), [x]):
            broken.append(name)
    assert [name for name in broken if not name.startswith(BREAKS)] == []
