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
    """A way to share experts: a gate of `new_gate`, or `None` for one network."""

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


def methods_of(experiment):
    """The methods of an experiment, and of its `gates`, static and per-example."""
    methods = {name: METHODS[name] for name in experiment.methods}
    for name, make in experiment.gates.items():
        if not make(experiment.num_nonzeros[0], 1).per_example_only:
            methods[f"{name}, static"] = Method(make)
        methods[f"{name}, per-example"] = Method(make, per_example=True)
    return methods


def new_gate(gate, num_nonzeros, steps, entropy=0.1, gamma=1.0, sparsity=0.01):
    """A gate by name, or of the `gates` of an `Experiment`, not built; or `None`."""
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
    """Jobs that share the settings `names`, so that one program can train them.

    A list of pairs: these settings, and pairs of an index and a `Job` with the others.
    A job that lacks a setting of the space has the first of its values.
    """
    groups, fixed = {}, {name: each[0] for name, each in space.items()}
    for number, job in enumerate(jobs):
        settings = fixed | job.settings
        shape = {name: settings.pop(name) for name in names if name in settings}
        own = groups.setdefault(tuple(shape.items()), (shape, []))
        own[1].append((number, job._replace(settings=settings)))
    return list(groups.values())


def look_at(model, x, chunk=4096):
    """What a model predicts by task, and a dict of what its gates do meanwhile.

    `"experts"` are what a task uses for an example on average, `"binary"` is the share
    of the selectors that have decided, and `"expected"` are the expected experts of a
    static Gumbel-softmax gate.
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
    """A model that also outputs what its gates see. It is kept: JAX compiles it."""
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


def lower(results, mine, other, number="loss", scale=1, under=0.0):
    """Whether a number of an arm, times a factor, is lower than that of another.

    `None` is not known, also where all runs of an arm break the paper's rules.
    """
    holds = results.gap(mine, other, number, scale).is_negative(under)
    ruled = (within_rules(results, arm).any() for arm in (mine, other))
    return holds if all(ruled) else None


def if_within_rules(results, arm, holds):
    """Whether a claim on an arm holds; `None` for what the paper's rules leave open.

    A success outside of the rules does not count. If no run keeps them, the paper would
    have taken none of the settings that were tried, and nothing is refuted either.
    """
    kept = within_rules(results, arm)
    return holds if kept.all() or (kept.any() and not holds) else None


def movement(weights):
    """How the weights of gates, `(records, tasks, n)`, moved over training.

    `"largest"` is the largest change between two records. The others are means over the
    tasks: how many `"jumps"` some weight makes, at what fraction of the run the
    `"last_jump"` is, and how many `"experts"` have a weight at the end.
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

    `binary` is `(records, tasks, k)`, from before the first step to the end, or `None`.
    """
    if binary is None:
        return None
    every = binary.all(axis=(1, 2))
    if not every[-1]:
        return None
    opened = np.flatnonzero(~every)
    return float((opened[-1] + 1) / (len(every) - 1)) if len(opened) else 0.0


def listed(values):
    """Numbers, as text."""
    return ", ".join(f"{value:g}" for value in values)
