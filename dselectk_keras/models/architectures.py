"""How tasks share experts: an architecture is a function from features to mixtures.

Each takes the features, the tasks, a bank of experts, a gate and whether the gate is
per-example, and its own options by keyword. Features may be a pair, the second for the
gates, in architectures that have gates. It returns what the towers see, a tensor
`(batch, tasks, ...)`.
"""

import inspect

import keras

from dselectk_keras.experts import DenseExperts, TuckerExperts
from dselectk_keras.initializers import clone_initializer
from dselectk_keras.layers import (
    CGC,
    CrossStitch,
    L2Constrained,
    MMoE,
    SmearExperts,
)
from dselectk_keras.models.task_layers import RepeatTasks
from dselectk_keras.registry import Registry
from dselectk_keras.utils import check_count, copy_layer

ARCHITECTURES = Registry("architecture")

# Fixed seeds of the levels of one model must not meet.
LEVEL_SEEDS = 2_000_003


@ARCHITECTURES.register("single_task")
def single_task(features, tasks, experts, *_):
    """One network for each task, and nothing shared.

    Reference:
        Ma et al., "Modeling Task Relationships in Multi-task Learning with
        Multi-gate Mixture-of-Experts" (KDD 2018), Section 6.
    """
    return experts.resized(len(tasks))(features)


@ARCHITECTURES.register("shared_bottom")
def shared_bottom(features, tasks, experts, *_):
    """One network for all tasks.

    Reference:
        Caruana, "Multitask Learning" (1997); Ma et al., "Modeling Task Relationships
        in Multi-task Learning with Multi-gate Mixture-of-Experts" (KDD 2018),
        Equation 1.
    """
    return RepeatTasks(len(tasks))(experts.resized(1)(features))


@ARCHITECTURES.register("l2_constrained")
def l2_constrained(features, tasks, experts, *_, strength=1e-3):
    """One network for each task, held together by an L2 penalty on all parameters.

    The penalty covers the towers of like tasks as well. Its strength has to be tuned,
    as the papers do.

    Reference:
        Duong et al., "Low Resource Dependency Parsing: Cross-lingual Parameter Sharing
        in a Neural Network Parser" (ACL 2015), for any number of tasks; Ma et al.,
        "Modeling Task Relationships in Multi-task Learning with Multi-gate
        Mixture-of-Experts" (KDD 2018), Section 6.1.
    """
    networks = experts.resized(len(tasks))
    return L2Constrained(networks, strength, name="l2_constrained")(features)


@ARCHITECTURES.register("cross_stitch")
def cross_stitch(features, tasks, experts, *_, initial_share=0.1):
    """One network for each task, which exchange outputs after every layer.

    A layer that drops out does so before the exchange.

    Reference:
        Misra et al., "Cross-stitch Networks for Multi-task Learning" (CVPR 2016),
        Equation 1.
    """
    check_dense(experts, "cross_stitch")
    x = features
    for layer, units in enumerate(experts.units):
        x = experts.resized(
            len(tasks),
            units=[units],
            activation=[experts.activation[layer]],
            kernel_initializer=clone_initializer(
                experts.kernel_initializer, 1000 * layer
            ),
            shared_input=layer == 0,
        )(x)
        if experts.dropout and layer < len(experts.units) - 1:
            x = keras.layers.Dropout(experts.dropout, name=f"dropout_{layer}")(x)
        x = CrossStitch(initial_share, name=f"cross_stitch_{layer}")(x)
    return x


@ARCHITECTURES.register("tensor_factorization")
def tensor_factorization(features, tasks, experts, *_, ranks=None):
    """One network for each task, with the kernels of a layer in one Tucker form.

    The default for the ranks is that of `TuckerExperts`.

    Reference:
        Yang and Hospedales, "Deep Multi-task Representation Learning: A Tensor
        Factorisation Approach" (ICLR 2017), Section 3; Ma et al., "Modeling Task
        Relationships in Multi-task Learning with Multi-gate Mixture-of-Experts"
        (KDD 2018), Section 6.1.
    """
    check_dense(experts, "tensor_factorization")
    return TuckerExperts(
        len(tasks),
        experts.units,
        ranks,
        experts.activation,
        experts.dropout,
        experts.use_bias,
        dtype=experts.dtype_policy,
    )(features)


@ARCHITECTURES.register("moe")
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
    """Experts that one gate mixes for all tasks.

    Reference:
        Ma et al., "Modeling Task Relationships in Multi-task Learning with
        Multi-gate Mixture-of-Experts" (KDD 2018), Equation 5.
    """
    return mmoe(
        features,
        tasks,
        experts,
        gate.with_num_gates(1),
        per_example,
        routing_network=routing_network,
        dispatch=dispatch,
    )


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
    """Experts that a gate of each task's own mixes.

    Reference:
        Ma et al., "Modeling Task Relationships in Multi-task Learning with
        Multi-gate Mixture-of-Experts" (KDD 2018), Equation 6.
    """
    names = [task.name for task in tasks]
    layer = MMoE(
        experts,
        gate,
        names,
        per_example,
        routing_network,
        dispatch,
        stacked=True,
        name="mmoe",
    )
    return layer(features)


@ARCHITECTURES.register("cgc")
def cgc(features, tasks, experts, gate, per_example, *, num_task_experts=1):
    """Shared experts and experts of each task's own, mixed by a gate of its own.

    The experts given are the shared ones.

    Reference:
        Tang et al., "Progressive Layered Extraction (PLE): A Novel Multi-Task Learning
        (MTL) Model for Personalized Recommendations" (RecSys 2020), Section 4.1.
    """
    names = [task.name for task in tasks]
    layer = CGC(experts, gate, names, num_task_experts, per_example, name="cgc")
    return layer(features)


@ARCHITECTURES.register("ple")
def ple(features, tasks, experts, gate, per_example, *, num_task_experts=1, levels=2):
    """Levels of shared experts and experts of each task's own, one upon another.

    Every level has experts and gates of its own, of the form of those given.

    Reference:
        Tang et al., "Progressive Layered Extraction (PLE): A Novel Multi-Task Learning
        (MTL) Model for Personalized Recommendations" (RecSys 2020), Section 4.2.
    """
    check_count("levels", levels)
    names = [task.name for task in tasks]
    x, routing = features if isinstance(features, tuple) else (features, None)
    for level in range(levels):
        offset, last = LEVEL_SEEDS * level, level == levels - 1
        bank, level_gate = experts, gate
        if level:
            bank = experts.resized(experts.num_experts, shared_input=False)
            bank = copy_layer(bank, offset)
            level_gate = copy_layer(gate, offset, num_gates=None)
        shared_gate = None if last else copy_layer(gate, offset + 1, num_gates=None)
        layer = CGC(
            bank,
            level_gate,
            names,
            num_task_experts,
            per_example,
            shared_gate,
            name=f"cgc_{level}",
        )
        x = layer(x if routing is None else (x, routing))
    return x


@ARCHITECTURES.register("smear")
def smear(features, tasks, experts, gate, per_example):
    """One expert for each task, merged from the parameters of all by the task's gate.

    With `per_example=True` each example has merged experts of its own, as in the paper.

    Reference:
        Muqeeth et al., "Soft Merging of Experts with Adaptive Routing", Section 3, with
        a router for each task.
    """
    gate = gate.with_num_gates(len(tasks))
    return SmearExperts(experts, gate, per_example, name="smear")(features)


# Layers around the towers of like tasks, which take the options of the architecture.
AROUND_TOWERS = {"l2_constrained": L2Constrained}


def has_gate(architecture):
    """Whether an architecture has gates at all.

    Args:
        architecture: A name in `ARCHITECTURES`.

    Returns:
        A boolean.
    """
    return "gate" in inspect.signature(ARCHITECTURES[architecture]).parameters


def read_options(architecture, options):
    """The options of an architecture, with its defaults.

    Args:
        architecture: A name in `ARCHITECTURES`.
        options: A dict of those that are given.

    Returns:
        A dict.
    """
    parameters = inspect.signature(ARCHITECTURES[architecture]).parameters.values()
    known = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"The architecture {architecture!r} has no option of the name "
            f"{', '.join(map(repr, unknown))}. "
            f"Its options: {', '.join(known) or 'none'}."
        )
    return {**known, **options}


def check_dense(experts, architecture):
    """Refuse a bank that is not of dense layers.

    Args:
        experts: A bank.
        architecture: The name of the architecture, for the error.
    """
    if not isinstance(experts, DenseExperts):
        raise ValueError(
            f"The architecture {architecture!r} is made of the layers of "
            f"`DenseExperts`. Received: experts={experts!r}."
        )
