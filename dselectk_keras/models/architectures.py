"""The architectures: functions that compute the inputs of the towers.

The arguments of an architecture are the features, the tasks, a bank of experts, a gate,
and whether the gate is per-example. Its options are keyword arguments. If it has gates,
the features may be a pair, with the routing inputs second. The result is a tensor
`(batch, tasks, ...)`; or a pair, with a function second that wraps a bank of towers.

`dselectk_keras.baselines` registers more of them.
"""

import inspect

from keras import ops

from dselectk_keras.initializers import copy_layer
from dselectk_keras.layers import CGC, MMoE, SmearExperts
from dselectk_keras.registry import Registry
from dselectk_keras.utils import check_count

ARCHITECTURES = Registry("architecture")

# Offset between the fixed seeds of the levels, so that their seeds differ.
LEVEL_SEEDS = 2_000_003


@ARCHITECTURES.register("single_task")
def single_task(features, tasks, experts, *_):
    """One network per task, without shared parameters.

    Reference:
        Ma et al., "MMoE" (KDD 2018), Section 6.3.2.
    """
    return experts.resized(len(tasks))(features)


@ARCHITECTURES.register("shared_bottom")
def shared_bottom(features, tasks, experts, *_):
    """One network for all tasks.

    Reference:
        Caruana, "Multitask Learning" (1997); Ma et al., "MMoE" (KDD 2018), Equation 1.
    """
    return ops.repeat(experts.resized(1)(features), len(tasks), axis=1)


@ARCHITECTURES.register("omoe")
def omoe(
    features,
    tasks,
    experts,
    gate,
    per_example,
    *,
    routing_network=None,
    dispatch="auto",
):
    """Shared experts, with one gate for all tasks.

    Reference:
        Ma et al., "MMoE" (KDD 2018), Section 4.2 and Figure 1 (b).
    """
    gate = gate.with_num_gates(1)
    options = {"routing_network": routing_network, "dispatch": dispatch}
    return mmoe(features, tasks, experts, gate, per_example, **options)


@ARCHITECTURES.register("mmoe")
def mmoe(
    features,
    tasks,
    experts,
    gate,
    per_example,
    *,
    routing_network=None,
    dispatch="auto",
):
    """Shared experts, with one gate per task.

    Reference:
        Ma et al., "MMoE" (KDD 2018), Equations 6 to 8.
    """
    names = [task.name for task in tasks]
    settings = names, per_example, routing_network, dispatch
    return MMoE(experts, gate, *settings, stacked=True, name="mmoe")(features)


@ARCHITECTURES.register("cgc")
def cgc(features, tasks, experts, gate, per_example, *, num_task_experts=1):
    """Shared experts and experts of each task, mixed by one gate per task.

    The argument `experts` is the bank of the shared experts.

    Reference:
        Tang et al., "PLE" (RecSys 2020), Section 4.1.
    """
    names = [task.name for task in tasks]
    layer = CGC(experts, gate, names, num_task_experts, per_example, name="cgc")
    return layer(features)


@ARCHITECTURES.register("ple")
def ple(features, tasks, experts, gate, per_example, *, num_task_experts=1, levels=2):
    """Several levels of shared experts and experts of each task.

    Every level has new experts and gates, with the settings of `experts` and `gate`.

    Reference:
        Tang et al., "PLE" (RecSys 2020), Section 4.2.
    """
    check_count("levels", levels)
    names = [task.name for task in tasks]
    x, routing = features if isinstance(features, tuple) else (features, None)
    layers = []
    for level in range(levels):
        offset, last = LEVEL_SEEDS * level, level == levels - 1
        bank, level_gate = experts, gate
        if level:
            bank = experts.resized(experts.num_experts, shared_input=False)
            bank = copy_layer(bank, offset)
            level_gate = copy_layer(gate, offset, num_gates=None)
        shared_gate = None if last else copy_layer(gate, offset + 1, num_gates=None)
        # Above the first level, each gate has its own input.
        by_gate = per_example and level and routing is None
        per_level = "by_gate" if by_gate else per_example
        settings = names, num_task_experts, per_level, shared_gate
        layers.append(CGC(bank, level_gate, *settings, name=f"cgc_{level}"))
    # A copy of a built `Sequential` would take no inputs of another size.
    for layer in layers:
        x = layer(x if routing is None else (x, routing))
    return x


@ARCHITECTURES.register("smear")
def smear(features, tasks, experts, gate, per_example):
    """One merged expert per task: its gate averages the parameters of all experts.

    With per-example gates, experts are merged for each example, as in the paper.

    Reference:
        Muqeeth et al., "SMEAR" (2023), Section 3, with one router per task.
    """
    gate = gate.with_num_gates(len(tasks))
    return SmearExperts(experts, gate, per_example, name="smear")(features)


def has_gate(architecture):
    """Check whether an architecture has gates."""
    return "gate" in inspect.signature(ARCHITECTURES[architecture]).parameters


def read_options(architecture, options):
    """Check the options of an architecture, and add the defaults."""
    function = ARCHITECTURES.find(architecture)
    parameters = inspect.signature(function).parameters.values()
    known = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"The options of the architecture {architecture!r} are: "
            f"{', '.join(known) or 'none'}. "
            f"Received: {', '.join(map(repr, unknown))}."
        )
    return {**known, **options}
