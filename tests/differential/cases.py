"""Cases of the differential tests: combinations of features, as plain values."""

import dataclasses

from hypothesis import strategies as st

BATCH, LENGTH, DIM, NUM_EXPERTS, NUM_GATES = 6, 3, 5, 4, 3

# Arguments of gates, by their name in the registry; each gate has `seed=0` too.
GATES = {
    "AttentiveGate": ("units=3", "units=3, expert_dropout=0.2"),
    "DSelectKGate": (
        "2",
        "1, gamma=0.5, entropy_reg=0.1",
        "2, entropy_reg=EntropyRegularizer(0.1, 'bits'), reduction='mean'",
        "2, weights_regularizer=SampleSimilarityRegularizer(0.3, 0.1)",
    ),
    "GumbelSoftmaxGate": ("0.5, sparsity_reg=0.1", "use_bias=True, reduction='sum'"),
    "HashGate": ("", "salt=3"),
    "LatentSkillsGate": ("num_tasks=3", "num_tasks=3, temperature=0.5"),
    "RandomGate": ("2", "1, fixed=True"),
    "ReinforceGate": ("", "0.1, baseline_units=2, use_bias=True"),
    "SoftmaxGate": (
        "",
        "min_weight=0.2, use_bias=True",
        "normalize=True, z_reg=0.1",
        "weights_regularizer=LoadRegularizer(0.1)",
        "weights_regularizer=SampleSimilarityRegularizer(0.3, 0.1)",
    ),
    "SoftmaxSelectorGate": ("1, temperature=0.5", "2, entropy_reg=0.1"),
    "STGumbelGate": ("0.5", "use_bias=True"),
    "SwitchGate": ("", "weights_regularizer=SwitchLoadRegularizer(0.1)", "z_reg=0.1"),
    "TagGate": ("", "[0, [1, 2], 3]"),
    "TopKGate": (
        "2",
        "1, noise=True, load_reg=0.1",
        "2, dense_steps=2, use_bias=True",
        "2, weights_regularizer=ImportanceRegularizer(0.1)",
    ),
}
IDS = ("HashGate", "LatentSkillsGate", "TagGate")
BANKS = (
    "DenseExperts(4, [3])",
    "DenseExperts(4, [3, 2], 'tanh')",
    "Experts(keras.layers.Dense(3), 4)",
    (
        "Experts(keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, 'tanh'), "
        "keras.layers.Dense(2)]), 4, hidden_layer=0)"
    ),
    "TuckerExperts(4, [3], ranks=(2, 2, 2))",
)
LAYERS = ("MoE", "MMoE", "CGC", "SmearExperts")
ARCHITECTURES = ("omoe", "mmoe", "cgc", "ple", "smear")
ROUTING = ("none", "features", "per gate", "dense", "pool")
OPTIMIZERS = (
    "SGD(0.1)",
    "SGD(0.1, momentum=0.9)",
    "Adam(0.1)",
    "Adam(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2)",
    "SGD(0.1, momentum=0.9, gradient_accumulation_steps=2)",
)
ORACLES = (
    "mixture",
    "dispatch",
    "tokens",
    "padding",
    "permutation",
    "config",
    "saved",
    "weights_file",
    "compiled",
    "copied",
    "distilled",
    "decided",
    "per_task",
    "torch_parameters",
    "steps_per_execution",
    "sample_weight",
)


@dataclasses.dataclass(frozen=True)
class Case:
    """One combination of features, and the oracle that judges it.

    `gate` and `bank` are Python. `layer` is a layer, or an architecture of
    `build_multitask_model`. `tokens` and `masked` say what the inputs are, and
    `routing` what the gate sees.
    """

    oracle: str
    gate: str
    bank: str
    layer: str
    per_example: bool = True
    tokens: bool = False
    masked: bool = False
    routing: str = "none"
    dispatch: object = False
    dtype: str = "float32"
    optimizer: str = "SGD(0.1)"
    labels: str = "complete"


@st.composite
def cases(draw, oracles=ORACLES):
    """Draw a case without a known reason against it."""
    name = draw(st.sampled_from(sorted(GATES)))
    arguments = draw(st.sampled_from(GATES[name]))
    tokens = draw(st.booleans())
    ids = name in IDS
    case = Case(
        oracle=draw(st.sampled_from(oracles)),
        gate=f"{name}({arguments}{', ' if arguments else ''}seed=0)",
        bank=draw(st.sampled_from(BANKS)),
        layer=draw(st.sampled_from(LAYERS + ARCHITECTURES)),
        per_example=draw(st.booleans()),
        tokens=tokens,
        masked=tokens and draw(st.booleans()),
        routing="ids" if ids else draw(st.sampled_from(ROUTING)),
        dispatch=draw(st.sampled_from((False, "auto", True, 4.0))),
        dtype=draw(st.sampled_from(("float32",) * 4 + ("mixed_float16",))),
        optimizer=draw(st.sampled_from(OPTIMIZERS)),
        labels=draw(st.sampled_from(("complete", "missing"))),
    )
    case = dataclasses.replace(case, **_nearest(case))
    from hypothesis import assume

    assume(why_not(case) is None)
    return case


def _nearest(case):
    """Changes that make most drawn cases valid ones."""
    changes = {}
    model = case.layer in ARCHITECTURES
    if case.oracle in ("tokens", "padding") and not model:
        changes.update(tokens=True, per_example=True, masked=case.oracle == "padding")
    if model:
        changes.update(tokens=False, masked=False, dispatch=False)
        if case.routing in ("features", "per gate", "pool", "dense"):
            changes.update(routing="none")
    if case.layer not in ("MoE", "MMoE"):
        changes["dispatch"] = False
    if case.routing == "ids":
        changes["per_example"] = True
    elif not case.per_example and case.oracle not in ("tokens", "padding"):
        changes["routing"] = "none"
    if case.oracle == "tokens":
        changes["routing"] = "ids" if case.routing == "ids" else "none"
    if case.routing == "pool" and not changes.get("tokens", case.tokens):
        changes["routing"] = "dense"
    if not changes.get("per_example", case.per_example):
        changes["dispatch"] = False
    if not model:
        changes["labels"] = "complete"
    return changes


def why_not(case):
    """The reason why a case has no answer that a test could compare; None if it has."""
    model, name = case.layer in ARCHITECTURES, case.gate.partition("(")[0]
    if name == "AttentiveGate" and case.bank.endswith(("[3])", "Dense(3), 4)", "2))")):
        return "an attentive gate needs hidden outputs"
    if name == "AttentiveGate" and case.layer in ("CGC", "cgc", "ple", "SmearExperts"):
        return "an attentive gate sees one bank"
    if name == "AttentiveGate" and (case.layer == "smear" or case.routing != "none"):
        return "an attentive gate needs hidden outputs, and sees the inputs"
    if case.layer in ("cgc", "ple", "CGC") and "Dense" not in case.bank:
        return "CGC copies dense experts"
    if case.layer in ("SmearExperts", "smear") and "Tucker" in case.bank:
        return "Tucker experts do not merge"
    if case.routing == "ids" and model:
        return "an architecture takes ids from an encoder"
    if case.routing == "per gate" and case.layer != "MMoE":
        return "one gate has one input"
    if case.dispatch and (not case.bank.startswith("Dense") or case.routing == "pool"):
        return "only dense experts dispatch"
    if case.oracle in ("tokens", "padding") and model:
        return "an architecture has no tokens here"
    if case.oracle == "mixture" and case.layer not in ("MoE", "MMoE"):
        return "the layer is no plain mixture"
    if case.oracle == "dispatch" and not case.dispatch:
        return "nothing is dispatched"
    if case.oracle == "padding" and case.layer == "SmearExperts" and "Emb" in case.bank:
        return "no mask"
    if case.oracle == "decided" and name not in ("DSelectKGate", "SoftmaxSelectorGate"):
        return "the gate does not decide"
    if case.oracle == "per_task" and (case.layer != "mmoe" or case.per_example):
        return "only static gates of MMoE split by task"
    if case.oracle == "per_task" and name not in ("DSelectKGate", "TopKGate"):
        return "the gate is not binary"
    return None
