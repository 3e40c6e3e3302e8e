"""Cases of the differential tests: combinations of features, as plain values."""

import dataclasses
from fractions import Fraction

from hypothesis import strategies as st

LENGTH, DIM, NUM_GATES = 3, 5, 3
BITS = "EntropyRegularizer(0.1, 'bits')"
SIMILARITY = "SampleSimilarityRegularizer(0.3, 0.1)"
# Arguments of gates, by their name in the registry; each gate has `seed=0` too.
GATES = {
    "ChosenGate": ("2, 'random'", "1, 'random', trainable=False"),
    "AttentiveGate": ("units=3", "units=3, expert_dropout=0.2"),
    "DSelectKGate": (
        "2, unreachable=1e-4",  # It is in the millions, and training would diverge.
        "1, gamma=0.5, entropy_reg=0.1, unreachable='assign'",
        f"2, entropy_reg={BITS}, reduction='mean', unreachable=1e-4",
        f"2, weights_regularizer={SIMILARITY}, unreachable=1e-4",
    ),
    "GumbelSoftmaxGate": ("0.5, sparsity_reg=0.1", "use_bias=True, reduction='sum'"),
    "HashGate": ("", "salt=3"),
    "LatentSkillsGate": ("num_tasks=3", "num_tasks=3, temperature=0.5"),
    "RandomGate": ("2", "1"),
    "ReinforceGate": ("", "0.1, baseline_units=2, use_bias=True"),
    "SoftmaxGate": (
        "",
        "use_bias=True",
        "normalize=True, z_reg=0.1",
        "weights_regularizer=ImportanceRegularizer(0.1, True)",
        f"weights_regularizer={SIMILARITY}",
    ),
    "SoftmaxSelectorGate": ("1, temperature=0.5", "2, entropy_reg=0.1"),
    "STGumbelGate": ("0.5", "use_bias=True"),
    "SwitchGate": ("", "weights_regularizer=SwitchLoadRegularizer(0.1)", "z_reg=0.1"),
    "TagGate": ("", "[0, 2, 3]"),
    "TopKGate": (
        "2",
        "1, noise=True, load_reg=0.1",
        "2, dense_steps=2, use_bias=True",
        "2, scores='sigmoid'",
        "2, scores='sigmoid', bias_rate=0.3, use_bias=True",
        "2, weights_regularizer=ImportanceRegularizer(0.1)",
    ),
}
IDS = ("HashGate", "LatentSkillsGate", "TagGate")
DECIDE = ("DSelectKGate", "SoftmaxSelectorGate")
# Their weights at inference are drawn, for each row of a batch.
DRAWN = ("RandomGate(2",)
# Gates that choose few experts from the first step on, and those that do later.
SPARSE = ("HashGate", "ReinforceGate", "STGumbelGate")
SPARSE += ("SwitchGate", "TagGate", "TopKGate")
LIMITED = (*SPARSE, "DSelectKGate")
# Gates and banks that draw numbers in training.
DRAWING = ("Gumbel", "Random", "Reinforce", "noise", "dropout")
# Arguments that only a gate per example takes.
OF_EXAMPLES = ("SampleSimilarityRegularizer", "normalize=True")
DENSE, STACK = "keras.layers.Dense", "keras.Sequential"
NORMALIZED = "keras.layers.BatchNormalization()"
# With `n` experts.
BANKS = (
    "DenseExperts(n, [3])",
    "DenseExperts(n, [3, 2], 'tanh')",
    "DenseExperts(n, [3, 2], dropout=0.3)",
    "DenseExperts(n, [3, 2], ['silu', None], gated=True)",
    f"Experts({DENSE}(3), n)",
    f"Experts({STACK}([{DENSE}(3, 'tanh'), {DENSE}(2)]), n)",
    f"Experts({STACK}([keras.Input((5,)), {DENSE}(3, 'tanh'), {DENSE}(2)]), n)",
    # A bias in front of it has a gradient of rounding errors.
    f"Experts({STACK}([{DENSE}(3, use_bias=False), {NORMALIZED}]), n)",
    "TuckerExperts(n, [3], ranks=(2, 2, 2))",
)
LAYERS = ("MoE", "MMoE", "CGC", "SmearExperts")
ARCHITECTURES = ("omoe", "mmoe", "cgc", "ple", "smear", "attentive")
ROUTING = ("none", "features", "per gate", "dense", "pool")
OPTIMIZERS = (
    "SGD(0.1)",
    "SGD(0.1, momentum=0.9)",
    "Adam(0.1)",
    "Adam(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2)",
    "SGD(0.1, momentum=0.9, gradient_accumulation_steps=2)",
)
# These oracles look at one layer, whose weights are given.
OF_LAYERS = ("mixture", "dispatch", "capacity", "tokens", "all_tokens", "padding")
ORACLES = (*OF_LAYERS, "permutation", "saved", "compiled", "copied", "distilled")
ORACLES += ("decided", "per_task", "apart")


@dataclasses.dataclass(frozen=True)
class Case:
    """One combination of features, and the oracle that judges it.

    `gate` and `bank` are Python. `layer` is a layer, or an architecture of
    `build_multitask_model`. `tokens` and `masked` say what the inputs are, and
    `routing` what the gate sees. A mask with `mask_axes` axes is of tokens or of
    examples. If `decides`, the gates have decided before the oracle looks at the model.
    With `jit`, TensorFlow compiles steps with XLA.
    """

    oracle: str
    gate: str
    bank: str
    layer: str
    per_example: bool = True
    tokens: bool = False
    masked: bool = False
    mask_axes: int = 2
    routing: str = "none"
    dispatch: object = False
    sum_features: bool = False
    side_by_side: bool = False
    dtype: str = "float32"
    optimizer: str = "SGD(0.1)"
    labels: str = "complete"
    decides: bool = False
    jit: bool = False
    experts: int = 4
    task_experts: int = 1
    batch: int = 6


@st.composite
def cases(draw, oracles=ORACLES):
    """Draw a case. Each choice depends on those before it, so that all are valid."""

    def one(values):
        return draw(st.sampled_from(tuple(values)))

    oracle = one(oracles)
    layer = one(_layers(oracle))
    gate = one(_gates(oracle, layer))
    name = gate.partition("(")[0]
    per_example = one(_per_example(oracle, gate, layer))
    model = layer in ARCHITECTURES
    tokens = one(_tokens(oracle, model))
    routing = one(_routing(oracle, layer, name, per_example, tokens))
    bank = one(_banks(oracle, layer, name, per_example and routing != "pool", tokens))
    experts, dispatch, batch = 4, False, 6
    if oracle == "capacity":
        experts = one(range(4 if name == "TagGate" else 2, 13))
        dispatch = one(CAPACITIES)
        batch = one(_batches(experts, dispatch))
    elif layer in ("MoE", "MMoE"):
        dispatch = one(_dispatch(oracle, gate, bank, per_example, routing))
    if oracle != "capacity" and name != "TagGate":
        experts = one((4, 4, 3, 5, 9))
    return Case(
        oracle=oracle,
        gate=f"{gate[:-1]}{'' if gate.endswith('()') else ', '}seed=0)",
        bank=bank,
        layer=layer,
        per_example=per_example,
        tokens=tokens,
        masked=_can_mask(oracle, tokens, model)
        and (oracle == "padding" or one((False, True))),
        mask_axes=2 if oracle in OF_LAYERS and oracle != "padding" else one((2, 1)),
        routing=routing,
        dispatch=dispatch,
        sum_features=layer in ("MoE", "MMoE") and one((False, False, True)),
        side_by_side=layer in ("MoE", "MMoE")
        and name == "ChosenGate"
        and one((False, True)),
        dtype=one(("float32",) * 4 + ("mixed_float16",)),
        optimizer=one(OPTIMIZERS),
        labels=one(("complete", "missing") if model else ("complete",)),
        decides=name in DECIDE and oracle not in OF_LAYERS and one((False, True)),
        jit=oracle not in OF_LAYERS
        # On TensorFlow, XLA draws other numbers than eager operations.
        and not (oracle == "compiled" and any(d in gate + bank for d in DRAWING))
        and one((False, False, True)),
        experts=experts,
        task_experts=one((1, 2)) if layer in ("CGC", "cgc", "ple") else 1,
        batch=batch,
    )


def _layers(oracle):
    if oracle in ("mixture", "dispatch", "capacity"):
        return ("MoE", "MMoE")
    if oracle == "tokens":
        return ("MoE", "MMoE", "CGC")  # A sequence is merged as a whole.
    if oracle == "padding":
        return LAYERS
    if oracle == "all_tokens":
        return ("omoe", "mmoe", "cgc", "ple", "smear")
    if oracle == "per_task":
        return ("omoe", "mmoe")
    if oracle == "apart":
        return ("MMoE", "SmearExperts", "mmoe", "cgc", "ple")
    return LAYERS + ARCHITECTURES


# Gates of these oracles, if not all.
GATES_OF = {
    "capacity": SPARSE,
    "all_tokens": ("SoftmaxGate",),  # It ignores no expert.
    "decided": DECIDE,
    "per_task": ("ChosenGate", "DSelectKGate", "TopKGate"),
}
# Gates that cannot have routing inputs for each, or draw their weights.
NOT_APART = (*IDS, "ChosenGate", "RandomGate")
# Arguments of gates that an oracle does not take.
NOT_OF = {
    "capacity": ("dense_steps",),
    # It needs static gates.
    "per_task": (*OF_EXAMPLES, "dense_steps", "bias_rate"),
}


def _gates(oracle, layer):
    for name in sorted(GATES):
        if name == "AttentiveGate" and layer not in ("MoE", "attentive"):
            continue  # It sees the hidden outputs of one bank.
        if layer in ARCHITECTURES and name in (*IDS, "ReinforceGate"):
            continue  # An architecture asks for no ids, and gives no rewards.
        if name not in GATES_OF.get(oracle, GATES):
            continue
        if name == "ChosenGate" and oracle in ("dispatch", "capacity", "tokens"):
            continue  # It is static.
        if oracle == "apart" and layer not in ARCHITECTURES and name in NOT_APART:
            continue
        for arguments in GATES[name]:
            gate = f"{name}({arguments})"
            if oracle == "distilled" and _draws_routing(gate, layer):
                continue
            if any(each in arguments for each in NOT_OF.get(oracle, ())):
                continue
            if oracle in ("permutation", "tokens") and gate.startswith(DRAWN):
                continue
            yield gate


def _draws_routing(gate, layer):
    """Check whether a new gate of these arguments routes unlike that of the layer."""
    return gate == "HashGate()" or (gate.startswith("RandomGate") and layer == "ple")


def _per_example(oracle, gate, layer):
    if oracle == "apart" and layer not in ARCHITECTURES:
        return (True,)
    if oracle == "per_task" or gate.startswith("ChosenGate"):
        return (False,)
    if oracle in ("dispatch", "capacity", "tokens"):
        return (True,)
    if gate.startswith((*IDS, "AttentiveGate")) or "bias_rate" in gate:
        return (True,)
    return (True,) if any(each in gate for each in OF_EXAMPLES) else (False, True)


def _tokens(oracle, model):
    if oracle in ("tokens", "all_tokens", "padding"):
        return (True,)
    return (False, False, False, True) if model else (False, True)


def _can_mask(oracle, tokens, model):
    return oracle == "capacity" or (tokens and not model)


def _routing(oracle, layer, name, per_example, tokens):
    if name in IDS:
        return ("ids",)
    if not per_example or layer in ARCHITECTURES or name == "AttentiveGate":
        return ("none",)
    if oracle == "apart":
        return ("per gate",)
    known = {"none", "features"}
    if layer != "CGC":  # It has no routing network.
        known.add("dense")
    if layer in ("MMoE", "SmearExperts"):
        known.add("per gate")
    if layer != "CGC" and tokens and oracle not in ("tokens", "dispatch", "capacity"):
        known.add("pool")
    return sorted(known)


def _banks(oracle, layer, name, by_token, tokens):
    for bank in BANKS:
        if name == "AttentiveGate" and "[3, 2]" not in bank and "tanh" not in bank:
            continue  # It looks at the outputs of another layer.
        if oracle in ("dispatch", "capacity") and not bank.startswith("DenseExperts"):
            continue
        if oracle == "capacity" and "dropout" in bank:
            continue
        if "Tucker" in bank and (
            oracle == "per_task" or layer not in ("MoE", "MMoE", "omoe", "mmoe")
        ):
            continue  # They are not sliced, merged or copied.
        if "Batch" in bank and layer in ("SmearExperts", "smear"):
            continue  # Experts with a state are not merged.
        if "dropout" in bank and oracle == "tokens":
            continue
        if "Input" in bank and layer == "ple":
            continue  # The second level has inputs of another size.
        whole = not by_token or layer in ("CGC", "SmearExperts", *ARCHITECTURES)
        if "Input" in bank and tokens and whole:
            continue
        yield bank


def _dispatch(oracle, gate, bank, per_example, routing):
    found = ["auto"] if oracle == "dispatch" else ["auto", False]
    known = bank.startswith("DenseExperts") and "dropout" not in bank
    if per_example and known and routing != "pool":
        if gate.startswith(LIMITED):
            found.append(True)
        if gate.startswith(SPARSE) and "dense_steps" not in gate:
            found.append(100.0)  # All examples fit in each expert.
    return found


CAPACITIES = (1.1, 1.2, 1.25, 1.3, 1.5, 1.6, 1.7, 2.3, 3.3)


def num_padded(batch):
    """The examples of a masked batch that are padding."""
    return batch % 3


def _batches(n, factor):
    """Sizes of batches whose capacity is an integer, where a rounding error shows."""
    share = Fraction(str(factor)) / n
    for size in range(4, 130):
        if share * size % 1 == 0 or share * (size - num_padded(size)) % 1 == 0:
            yield size
