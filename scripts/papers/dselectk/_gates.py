"""The gates that the paper compares, and what it counts of them."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

from dselectk_keras.gates import DSelectKGate, GumbelSoftmaxGate, SoftmaxGate, TopKGate
from dselectk_keras.layers import MMoE
from dselectk_keras.metrics import active_experts

JUMP = 0.1  # A larger change of a weight in one step is a jump.


class Method(NamedTuple):
    """A way to share experts.

    Args:
        gate: A name in `new_gate`; a function as in the `gates` of an `Experiment`; or
            `None` for one network that all tasks share.
        per_example: Whether the gates look at the examples.
    """

    gate: str | Callable | None
    per_example: bool = False


METHODS = {
    "DSelect-k, static": Method("dselect_k"),
    "Top-k, static": Method("top_k"),
    "Gumbel-softmax, static": Method("gumbel_softmax"),
    "DSelect-k, per-example": Method("dselect_k", True),
    "Top-k, per-example": Method("top_k", True),
    "softmax, per-example": Method("softmax", True),
    "shared bottom": Method(None),
}
SPARSE = ("dselect_k", "top_k")  # Gates that are told how many experts to choose.
MOST_EXPECTED = 4  # Experts of the Gumbel-softmax gate (Appendices D.1 and D.2).


def own_methods(gates, num_nonzeros):
    """The methods, static and per-example, of the `gates` of an `Experiment`."""
    methods = {}
    for name, make in gates.items():
        if not make(num_nonzeros, 1).per_example_only:
            methods[f"{name}, static"] = Method(make)
        methods[f"{name}, per-example"] = Method(make, per_example=True)
    return methods


def new_gate(gate, num_nonzeros, steps, entropy=0.1, gamma=1.0, sparsity=0.01):
    """A gate that is not built, or `None`.

    Args:
        gate: As in `Method`.
        num_nonzeros: How many experts a sparse gate may choose, k.
        steps: How many steps the run has.
        entropy: Weight of DSelect-k's entropy term.
        gamma: Width of DSelect-k's smooth step.
        sparsity: Weight of the Gumbel-softmax gate's penalty.
    """
    if gate is None:
        return None
    if callable(gate):
        return gate(num_nonzeros, steps)
    known = {
        "dselect_k": lambda: DSelectKGate(
            num_nonzeros, gamma, entropy, reduction="mean"
        ),
        "top_k": lambda: TopKGate(num_nonzeros, use_bias=True),
        "gumbel_softmax": lambda: GumbelSoftmaxGate(sparsity_reg=sparsity),
        "softmax": lambda: SoftmaxGate(use_bias=True),
    }
    if gate not in known:
        raise ValueError(
            f"There is no gate {gate!r} here. Known: {', '.join(known)}. Pass a gate "
            'of your own to the experiment: `gates={"mine": make}`.'
        )
    return known[gate]()


def search_space(experiment, method):
    """What there is to choose from for a method: fields of the experiment, by name."""
    space = {"learning_rate": experiment.learning_rates, "epochs": experiment.epochs}
    if method.gate in SPARSE or callable(method.gate):
        space["num_nonzeros"] = experiment.num_nonzeros
    if method.gate == "dselect_k":
        space |= {"entropy": experiment.entropies, "gamma": experiment.gammas}
    if method.gate == "gumbel_softmax":
        space |= {"sparsity": experiment.sparsities}
    return space


def choices(space):
    """The settings of a space that have more than one value."""
    return {name: values for name, values in space.items() if len(values) > 1}


def grouped(jobs, space, names):
    """Jobs whose models have the same shape, which can be trained in one program.

    Args:
        jobs: A list of `Job`.
        space: The values of each setting; a job that lacks one has the first.
        names: Names of the settings that change a model's shape, or a run's length.

    Returns:
        A list of pairs: a dict of the settings `names`, and a list of pairs of an index
        and a `Job` with the other settings.
    """
    groups, fixed = {}, {name: each[0] for name, each in space.items()}
    for number, job in enumerate(jobs):
        settings = fixed | job.settings
        shape = {name: settings.pop(name) for name in names if name in settings}
        own = groups.setdefault(tuple(shape.items()), (shape, []))
        own[1].append((number, job._replace(settings=settings)))
    return list(groups.values())


def look_at(model, x, chunk=4096):
    """What a model predicts, and what its gates do meanwhile.

    Args:
        model: A `MultitaskModel`.
        x: Its inputs, an array.
        chunk: How many examples are evaluated at a time.

    Returns:
        A dict of predictions `(samples, outputs)` by task name, and a dict of numbers,
        empty without gates: `"experts"`, which a task uses for an example on average;
        `"binary"`, the share of the selectors that have decided, if there are any; and
        `"expected"`, the expected experts of a static Gumbel-softmax gate.
    """
    gated = [layer for layer in model.layers if isinstance(layer, MMoE)]
    found = _with_gate_inputs(model).predict(x, batch_size=chunk, verbose=0)
    means = {}
    for layer, inputs in zip(gated, found["gated"], strict=True):
        report = layer.gate.report(**layer.gate_inputs(inputs))
        weights = keras.ops.convert_to_numpy(report["weights"])
        means["experts"] = float(active_experts(weights).mean())
        if "binary" in report["selectors"]:
            decided = keras.ops.convert_to_numpy(report["selectors"]["binary"])
            means["binary"] = float(decided.mean())
        if isinstance(layer.gate, GumbelSoftmaxGate) and not layer.gate.per_example:
            expected = keras.ops.convert_to_numpy(layer.gate.expected_nonzeros())
            means["expected"] = float(expected.mean())
    return found["tasks"], means


@functools.lru_cache(maxsize=16)
def _with_gate_inputs(model):
    """A model that also outputs what its gates look at: what their layer is called on.

    It is kept, because JAX compiles it.
    """
    gated = [layer.input for layer in model.layers if isinstance(layer, MMoE)]
    return keras.Model(model.input, {"tasks": model.output, "gated": gated})


def is_admissible(numbers, method, num_nonzeros):
    """Whether the paper's rules let a solution count, by numbers of `look_at`.

    A static DSelect-k gate must have decided; no sparse gate may use more than k
    experts for an example on average; a Gumbel-softmax gate may expect four.
    """
    if method.gate in {None, "softmax"}:
        return True
    if method.gate == "gumbel_softmax":
        return numbers["expected"] <= MOST_EXPECTED
    if method.gate == "dselect_k" and not method.per_example and numbers["binary"] < 1:
        return False
    return numbers["experts"] <= num_nonzeros


def within_rules(results, arm):
    """For each run of an arm, whether it keeps the paper's rules, as an array."""
    return results.values(arm, "admissible") == 1


def if_within_rules(results, arm, holds):
    """Whether a claim on an arm holds; `None` for what the paper's rules leave open.

    A success outside of the rules does not count. If no run keeps them, the paper would
    have taken none of the settings that were tried, and nothing is refuted either.
    """
    kept = within_rules(results, arm)
    return holds if kept.all() or (kept.any() and not holds) else None


def movement(weights):
    """How the weights of gates moved over training, `(records, tasks, n)`.

    Returns:
        A dict: `"largest"`, the largest change of a weight between two records;
        `"jumps"`, after how many records some weight of a task changes by more than
        `JUMP`, and `"last_jump"`, at what fraction of the run that happens for the last
        time; and `"experts"`, how many have a weight at the end. The last three are
        means over the tasks.
    """
    changes = np.abs(np.diff(weights, axis=0)).max(axis=-1)
    places = np.arange(1, len(weights))[:, None] / (len(weights) - 1)
    return {
        "largest": float(changes.max()),
        "jumps": float((changes > JUMP).sum(axis=0).mean()),
        "last_jump": float(((changes > JUMP) * places).max(axis=0).mean()),
        "experts": float(active_experts(weights[-1]).mean()),
    }


def decided(binary):
    """At what fraction of a run all selectors become binary, for good; `None` if never.

    Args:
        binary: Array `(records, tasks, k)`, from before the first step to the end.
    """
    every = binary.all(axis=(1, 2))
    if not every[-1]:
        return None
    opened = np.flatnonzero(~every)
    return float((opened[-1] + 1) / (len(every) - 1)) if len(opened) else 0.0


def listed(values):
    """Numbers, as text."""
    return ", ".join(f"{value:g}" for value in values)
