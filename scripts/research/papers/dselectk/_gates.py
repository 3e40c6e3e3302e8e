"""The gates that the paper compares, and what it counts of them."""

import functools
from typing import Any

import keras
import numpy as np

import dselectk_keras as dk
from research.engine import INADMISSIBLE, Arm, all_positive

JUMP = 0.1  # A larger change of a weight in one step is a jump.
STATIC, TOP_K = "DSelect-k, static", "Top-k, static"  # Those that are followed.
TOP_K_KERAS = "Top-k, static, Keras' start"
STARTS = {TOP_K: "Top-k starts in ±0.05", TOP_K_KERAS: "Top-k has Keras' start"}
# Keras' default for the logits of one gate, uniform in ±sqrt(3 / n) for n experts. The
# paper does not say how Top-k starts; ours is ±0.05, and COMET's repository has this.
KERAS_START = keras.initializers.VarianceScaling(1.0, "fan_out", "uniform")


# Ways to share experts: gates of `new_gate`, or one network.
METHODS = {
    STATIC: Arm("dselect_k"),
    TOP_K: Arm("top_k"),
    TOP_K_KERAS: Arm("top_k_keras"),
    "Gumbel-softmax, static": Arm("gumbel_softmax"),
    "DSelect-k, per-example": Arm("dselect_k", per_example=True),
    "Top-k, per-example": Arm("top_k", per_example=True),
    "softmax, per-example": Arm("softmax", per_example=True),
    "shared bottom": Arm(),
}
MOST_EXPECTED = 4  # Experts of the Gumbel-softmax gate (Appendices D.1 and D.2).


def is_sparse(method):
    """Check whether the gate has an argument for the number of chosen experts."""
    return method.gate in {"dselect_k", "top_k", "top_k_keras"}


def is_followed(method):
    """Check whether the weights are recorded during training."""
    return is_sparse(method) and not method.per_example


def new_gate(gate, num_nonzeros, entropy=0.1, gamma=1.0, sparsity=0.01) -> Any:
    """A gate by name, not built; or `None`."""
    known = {
        None: lambda: None,
        "dselect_k": lambda: dk.DSelectKGate(
            num_nonzeros, gamma, entropy, reduction="mean"
        ),
        "top_k": lambda: dk.TopKGate(num_nonzeros, use_bias=True),
        "top_k_keras": lambda: dk.TopKGate(
            num_nonzeros, kernel_initializer=KERAS_START
        ),
        "gumbel_softmax": lambda: dk.GumbelSoftmaxGate(sparsity_reg=sparsity),
        "softmax": lambda: dk.SoftmaxGate(use_bias=True),
    }
    return known[gate]()


def with_start(names, start):
    """Some methods, with Top-k of one start only."""
    return [name for name in names if name not in STARTS or name == start]


def search_space(experiment, method):
    """The values to try for a method: fields of the experiment, by name."""
    space = {"learning_rate": experiment.learning_rates, "epochs": experiment.epochs}
    if is_sparse(method):
        space["num_nonzeros"] = experiment.num_nonzeros
    if method.gate == "dselect_k":
        space |= {"entropy": experiment.entropies, "gamma": experiment.gammas}
    if method.gate == "gumbel_softmax":
        space |= {"sparsity": experiment.sparsities}
    return space


def choices(space):
    """The settings of a space that have more than one value."""
    return {name: values for name, values in space.items() if len(values) > 1}


def divided(job, space, names):
    """The settings `names` of a job, and the `Job` with the others.

    What the job lacks has the first of the values in the space.
    """
    settings = {name: values[0] for name, values in space.items()} | job.settings
    shape = {name: settings.pop(name) for name in names if name in settings}
    return shape, job._replace(settings=settings)


def look_at(model, x, chunk=4096):
    """Predict the tasks, and measure the gates: predictions by task, and a dict.

    `"experts"` are what a task uses for an example on average, `"binary"` is the share
    of the selectors that have decided, and `"expected"` are the expected experts of a
    static Gumbel-softmax gate.
    """
    gated = [layer for layer in model.layers if isinstance(layer, dk.MMoE)]
    found = _with_gate_inputs(model).predict(x, batch_size=chunk, verbose=0)
    seen = {}
    for layer, inputs in zip(gated, found["gated"], strict=True):
        report = layer.gate.report(layer.gate_inputs(inputs))
        seen["experts"] = dk.metrics.active_experts(
            keras.ops.convert_to_numpy(report["weights"])
        )
        if "binary" in report["selectors"]:
            seen["binary"] = report["selectors"]["binary"]
        if isinstance(layer.gate, dk.GumbelSoftmaxGate) and not layer.gate.per_example:
            seen["expected"] = layer.gate.expected_nonzeros()
    arrays = {name: keras.ops.convert_to_numpy(each) for name, each in seen.items()}
    return found["tasks"], {name: float(each.mean()) for name, each in arrays.items()}


@functools.lru_cache(maxsize=16)
def _with_gate_inputs(model):
    """A model that also outputs what its gates see. It is kept: JAX compiles it."""
    gated = [layer.input for layer in model.layers if isinstance(layer, dk.MMoE)]
    return keras.Model(model.input, {"tasks": model.output, "gated": gated})


def is_admissible(numbers, method, settings):
    """Check a solution against the paper's rules, by numbers of `look_at`.

    A static DSelect-k gate must have decided; no sparse gate may use more than k
    experts for an example on average; a Gumbel-softmax gate may expect four.
    """
    if method.gate in {None, "softmax"}:
        return True
    if method.gate == "gumbel_softmax":
        return numbers["expected"] <= MOST_EXPECTED
    if method.gate == "dselect_k" and not method.per_example and numbers["binary"] < 1:
        return False
    return numbers["experts"] <= settings["num_nonzeros"]


def within_rules(results, *arms, tuning=False):
    """For each run of arms, or each trial, whether it keeps the paper's rules."""
    runs = functools.partial(results.of, tuning=True) if tuning else results.ran
    kept = [
        run.numbers["admissible"] and (tuning or uses_experts(run))
        for arm in arms
        for run in runs(arm)
    ]
    return np.array(kept, dtype=bool)


def uses_experts(run):
    """Whether some task uses an expert: a Gumbel-softmax may close all."""
    return run.numbers.get("experts") != 0


def lower(results, comparisons, effects=None, among=1):
    """Judge whether numbers of arms are lower than those of others, by `all_positive`.

    By the runs within the paper's rules that use an expert: inadmissible, or refuted,
    if an arm has none. Comparisons are tuples of an arm, the arm that should be higher,
    the number, and if they are not 1 and 0, a factor and by how much it may be higher.
    """
    kept, gaps, ruled = results.within_rules(), [], True
    kept.runs = [run for run in kept.runs if run.tuning or uses_experts(run)]
    for mine, other, number, scale, under in (
        (*each, *(1, 0.0)[len(each) - 3 :]) for each in comparisons
    ):
        for arm in (mine, other):
            results.ran(arm)  # Not run is not inadmissible.
        if kept.of(mine) and kept.of(other):
            gaps.append(kept.gap(other, mine, number, scale).above(-under))
        else:
            ruled = False
    judged = all_positive(gaps, effects, among=among)
    return judged if ruled or judged.holds is False else INADMISSIBLE


def is_binary_by(results, arm, percent):
    """Check whether S(Z) is binary after `percent` % of the steps, in every run."""
    return bool((100 * results.values(arm, "decided") <= percent).all())


def binary_after(results, arm):
    """After what share of the steps S(Z) is binary, as text; nothing if it is not."""
    text = results.text(arm, "decided", scale=100)
    return text and f", after {text} % of the steps"


def movement(steps, weights, seed, points):
    """Changes of the weights of gates, `(records, n)` or `(records, tasks, n)`.

    `"largest"` is the largest change between two records. The others are means over the
    tasks: how many `"jumps"` some weight makes, at what fraction of the run the
    `"last_jump"` is, and how many `"experts"` have a weight at the end. Of seed 0,
    `"steps"` and `"weights"` are so many points of the trajectory.
    """
    changes = np.abs(np.diff(weights, axis=0)).max(axis=-1)
    jumps = (changes > JUMP).T
    places = np.arange(1, len(weights)) / (len(weights) - 1)
    found = {
        "largest": float(changes.max()),
        "jumps": float(jumps.sum(axis=-1).mean()),
        "last_jump": float((jumps * places).max(axis=-1).mean()),
        "experts": float(dk.metrics.active_experts(weights[-1]).mean()),
    }
    if seed:
        return found
    kept = np.unique(np.linspace(0, len(steps) - 1, points).round().astype(int))
    shown = weights[kept].astype("float64").round(4)
    return found | {"steps": steps[kept], "weights": shown}


def cost(weights, binary):
    """The numbers of Table 4, of static gates that are recorded during training.

    `"evaluated"` are the experts that any task uses, on average over the records.
    `"decided"` is the fraction of the run after which all selectors stay binary; `None`
    if they do not. `binary` is `(records, tasks, k)`, or `None` without selectors.
    """
    used = (weights > 0).any(axis=1).sum(axis=1)
    found: dict[str, Any] = {"evaluated": float(used.mean()), "decided": None}
    if binary is not None and binary[-1].all():
        opened = np.flatnonzero(~binary.all(axis=(1, 2)))
        found["decided"] = float((opened.max(initial=-1) + 1) / (len(binary) - 1))
    return found


def words(settings):
    """Settings, as text."""
    return ", ".join(f"{name} {value:g}" for name, value in settings.items())


def listed(values):
    """Numbers, as text."""
    return ", ".join(f"{value:g}" for value in values)
