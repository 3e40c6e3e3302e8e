"""The architectures: functions that compute the inputs of the towers.

An architecture gets a list of inputs, the tasks, a bank of experts, a gate, and whether
the gate is per-example. Its options are keyword arguments. The inputs are the features
and, if a per-example gate has others, its routing inputs. The result is a tensor
`(batch, tasks, ...)`; or a pair, with a function second that wraps a bank of towers.

`dselectk_keras.baselines` registers more of them.
"""

from keras import ops

from dselectk_keras.initializers import copy_layer
from dselectk_keras.layers import CGC, MMoE, SmearExperts
from dselectk_keras.registry import Registry
from dselectk_keras.utils import check_count

ARCHITECTURES = Registry("architecture")

# Offset between the fixed seeds of the levels, so that their seeds differ.
LEVEL_SEEDS = 2_000_003


def mixtures_of(layer, inputs):
    """Call a layer with gates, whose outputs must be `(batch, tasks, ...)`."""
    outputs = layer(*inputs)
    if layer.num_routed_axes > 1:
        raise ValueError(
            "Towers predict for examples, so that per-example gates need routing "
            f"inputs (batch, features). Received: {tuple(inputs[-1].shape)}, of which "
            f"{layer.name!r} would route each token. Pool them in the encoder that you "
            "pass as `inputs`, whose second output may be for the gates alone; or set "
            'routing_network=keras.layers.GlobalAveragePooling1D() of "mmoe".'
        )
    return outputs


@ARCHITECTURES.register("single_task")
def single_task(inputs, tasks, experts, *_):
    """One network per task, without shared parameters.

    Reference:
        Ma et al., "MMoE" (KDD 2018), Section 6.3.2.
    """
    return experts.resized(len(tasks))(inputs[0])


@ARCHITECTURES.register("shared_bottom")
def shared_bottom(inputs, tasks, experts, *_):
    """One network for all tasks.

    Reference:
        Caruana, "Multitask Learning" (1997); Ma et al., "MMoE" (KDD 2018), Equation 1.
    """
    return ops.repeat(experts.resized(1)(inputs[0]), len(tasks), axis=1)


@ARCHITECTURES.register("omoe")
def omoe(inputs, tasks, experts, gate, *per_example, **options):
    """Shared experts, with one gate for all tasks, and the options of `"mmoe"`.

    Reference:
        Ma et al., "MMoE" (KDD 2018), Section 4.2 and Figure 1 (b).
    """
    one_gate = gate.with_num_gates(1)
    return mmoe(inputs, tasks, experts, one_gate, *per_example, **options)


@ARCHITECTURES.register("mmoe")
def mmoe(
    inputs,
    tasks,
    experts,
    gate,
    per_example,
    *,
    routing_network=None,
    dispatch="auto",
    side_by_side=False,
):
    """Shared experts, with one gate per task.

    Reference:
        Ma et al., "MMoE" (KDD 2018), Equations 6 to 8.
    """
    names = [task.name for task in tasks]
    # In half precision, the sums of the towers are more accurate.
    sums = all(task.tower == "sum" for task in tasks)
    sums = sums and experts.compute_dtype == "float32"
    settings = names, per_example, routing_network, dispatch, sums, side_by_side
    return mixtures_of(
        MMoE(experts, gate, *settings, stacked=True, name="mmoe"), inputs
    )


@ARCHITECTURES.register("cgc")
def cgc(inputs, tasks, experts, gate, per_example, *, num_task_experts=1):
    """Shared experts and experts of each task, mixed by one gate per task.

    The argument `experts` is the bank of the shared experts.

    Reference:
        Tang et al., "PLE" (RecSys 2020), Section 4.1.
    """
    names = [task.name for task in tasks]
    layer = CGC(experts, gate, names, num_task_experts, per_example, name="cgc")
    return mixtures_of(layer, inputs)


@ARCHITECTURES.register("ple")
def ple(inputs, tasks, experts, gate, per_example, *, num_task_experts=1, levels=2):
    """Several levels of shared experts and experts of each task.

    Every level has new experts and gates, with the settings of `experts` and `gate`.

    Reference:
        Tang et al., "PLE" (RecSys 2020), Section 4.2.
    """
    check_count("levels", levels)
    names = [task.name for task in tasks]
    x, *routing_inputs = inputs
    layers = []
    for level in range(levels):
        offset = LEVEL_SEEDS * level
        bank, level_gate, shared_gate = experts, gate, None
        if level:
            bank = experts.resized(experts.num_experts, shared_input=False)
            bank = copy_layer(bank, offset)
            level_gate = copy_layer(gate, offset, num_gates=None)
        if level < levels - 1:
            shared_gate = copy_layer(gate, offset + 1, num_gates=None)
        # Above the first level, each gate has its own input.
        by_gate = per_example and level and not routing_inputs
        settings = num_task_experts, "by_gate" if by_gate else per_example, shared_gate
        layers.append(CGC(bank, level_gate, names, *settings, name=f"cgc_{level}"))
    # A copy of a built `Sequential` would take no inputs of another size.
    for layer in layers:
        x = mixtures_of(layer, [x, *routing_inputs])
    return x


@ARCHITECTURES.register("smear")
def smear(inputs, tasks, experts, gate, per_example):
    """One merged expert per task: its gate averages the parameters of all experts.

    With per-example gates, experts are merged for each example, as in the paper.

    Reference:
        Muqeeth et al., "SMEAR" (2023), Section 3, with one router per task.
    """
    gate = gate.with_num_gates(len(tasks))
    return SmearExperts(experts, gate, per_example, name="smear")(*inputs)
