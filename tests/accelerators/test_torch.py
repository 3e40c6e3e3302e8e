"""Waits of torch for a GPU, copies to it, and breaks of its graphs."""

import collections
import functools

import keras
import pytest
from accelerators.parts import BANKS, NUM_EXPERTS, calls, data
from keras import ops

from dselectk_keras.gates import Gate

pytestmark = pytest.mark.backends("torch", reason="Others compile steps as a whole.")
# Each draw of random numbers waits for the counter of Keras' `SeedGenerator`. Ids are
# checked if they are on the host. Dispatch without a capacity reads the largest load.
DRAWS = ("Gumbel", "random", "noisy", "with load", "after dense", "skills", "REINFORCE")
# Numbers that go from the host to the device in a step. Make them smaller.
MOST_CONSTANTS = 390
# Parts that break graphs: these experts have Keras' `BatchNormalization`, which does.
BREAKS = ("copies",)


def step_counts(layer, arguments):
    """Count the operations of a training step."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counts(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            counts[function.overloadpacket.__name__] += 1
            return function(*args, **(kwargs or {}))

    counts = collections.Counter()
    layer(*arguments)
    with Counts():
        outputs = keras.tree.flatten(layer(*arguments, training=True))
        loss = sum([ops.sum(each * each) for each in outputs] + layer.losses)
        if loss.requires_grad:
            loss.backward()
    return counts


def test_steps_wait_and_copy_no_more_than_they_must():
    constants, too_often = 0, []
    for name, layer, arguments in calls():
        counts = step_counts(layer, arguments)
        constants += counts["lift_fresh"]
        draws = any(each in name for each in DRAWS) and "fixed" not in name
        most = draws + name.endswith(("ids", "dispatch True"))
        if counts["_local_scalar_dense"] > most:
            too_often.append(name)
    assert too_often == []
    assert constants <= MOST_CONSTANTS, constants


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
            route = functools.partial(gate.route, training=True)
            if breaks_graph(lambda *looks, route=route: route(*looks).weights, looks):
                broken.append(name)
    x = ops.convert_to_tensor(data(8)["x"])
    for name, make in BANKS.items():
        bank = make()
        bank(x)
        if breaks_graph(functools.partial(bank, training=True), [x]):
            broken.append(name)
    assert [name for name in broken if not name.startswith(BREAKS)] == []
