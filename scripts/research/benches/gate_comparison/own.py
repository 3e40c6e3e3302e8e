"""Gates of a user as arms, and what the page says about them first."""

import inspect
import math
import pathlib
import runpy
import sys
import traceback

import keras
import numpy as np

from dselectk_keras.gates import Gate
from dselectk_keras.gates.selector_gate import SelectorGate
from research.benches.gate_comparison.arms import CHOICES, GATES, decide, static
from research.benches.gate_comparison.statistics import errors, mean_ratio, ratio
from research.engine.pages import table

KNOWN = {*GATES, *CHOICES}
SHOWN = "chosen by fit", "DSelect-k, recipe", "Top-k, noisy", "softmax", "random"
CHECKED = 2, 4, 300  # Experts to choose, experts, and steps.
K = "num_nonzeros"  # What the constructor of a gate may be given.

FIRST = """\
**{arm}**, your gate, has {error} times the test error of experts chosen by fit, and
takes {cost:.0%} of the multiplications of a softmax gate."""
TABLE = (
    "Its error over that of others, with an interval of 95 %, and its cost over theirs:"
)
NEVER = """\
**{arm}**, your gate, has no result in {count} of {all} runs: in no epoch did each task
use as few experts as its `max_experts` says. Without that, every epoch counts."""


def gates_of(file):
    """Functions of the number of experts and of steps that make gates, by name.

    They are the dict `GATES` of a .py file, or make the one gate of its own.
    """
    if not file.endswith(".py") or not pathlib.Path(file).exists():
        raise ValueError(f"--module must name a .py file. Received: {file}.")
    sys.path.insert(0, str(pathlib.Path(file).resolve().parent))
    names = runpy.run_path(file, run_name=file)
    if "GATES" in names:
        return dict(names["GATES"])
    kinds = [
        each
        for each in names.values()
        if inspect.isclass(each) and issubclass(each, Gate) and each.__module__ == file
    ]
    if len(kinds) != 1:
        raise ValueError(
            f"{file} must have one subclass of `Gate`, or a dict of gates: "
            'GATES = {"mine": lambda num_nonzeros, steps: MyGate()}. Received: '
            f"{', '.join(kind.__name__ for kind in kinds) or 'none'}."
        )
    (kind,) = kinds
    takes_k = K in inspect.signature(kind.__init__).parameters
    return {kind.__name__: lambda k, _: kind(**({K: k} if takes_k else {}))}


def read_arms(file):
    """The gates of a .py file as arms, by name, after a check of each."""
    arms = {}
    for arm, make in gates_of(file).items():
        if arm in KNOWN:
            raise ValueError(
                f"GateBench has an arm {arm!r}. Received: a gate of this name in "
                f"{file}. Give it another one."
            )
        gate = check(arm, make, file)
        most = gate.max_experts(once_decided=True)
        arms[arm] = static(
            lambda k, _, settings, make=make: make(k, settings.num_steps),
            events={0.5: decide} if isinstance(gate, SelectorGate) else {},
            dense=most is None or most > CHECKED[0],
        )
    return arms


def check(name, make, file):
    """Call a gate as GateBench does; return it, or say what it does not keep to."""
    k, n, steps = CHECKED
    try:
        gate = make(k, steps)
        if not isinstance(gate, Gate):
            raise TypeError(f"it must be a `Gate`, and is {gate!r}")
        if gate.per_example_only:
            raise TypeError("it must be static, as all gates of GateBench are")
        gate = gate.with_num_gates(2)
        gate.build((None, n))
        for training in (True, False):
            # Not by a call, in which Keras would add to the text of an error.
            weights = keras.ops.convert_to_numpy(gate.route(None, training).weights)
            if weights.shape != (2, n):
                raise ValueError(
                    f"weights of 2 gates over {n} experts must have the shape {2, n}, "
                    f"and have {weights.shape}"
                )
            if not (np.isfinite(weights).all() and (weights >= 0).all()):
                raise ValueError(
                    "weights must be finite and not negative, and one is "
                    f"{weights[~(weights >= 0)].tolist() or weights.max()}"
                )
    except Exception as error:  # A user's code may raise anything.
        frames = traceback.extract_tb(error.__traceback__)
        places = [
            f" (line {frame.lineno} of {pathlib.Path(frame.filename).name})"
            for frame in frames
            if pathlib.Path(frame.filename).parent == pathlib.Path(file).parent
        ]
        raise ValueError(
            f"The gate {name!r} of {file} does not keep to the contract of gates "
            f"(docs/own_gate.md): {type(error).__name__}: {error}{(places or [''])[-1]}"
        ) from error
    return gate


def names_of(rows):
    """The names of the arms that are a user's gates."""
    found = dict.fromkeys(row["arm"] for row in rows)
    return [name for name in found if name not in KNOWN]


def sentences(rows):
    """Parts of a page about a user's gates; none without such gates."""
    parts = []
    for arm in names_of(rows):
        own = errors(rows, arm)
        if never := sum(map(math.isinf, own.values())):
            parts.append(NEVER.format(arm=arm, count=never, all=len(own)))
            continue
        cost, lines = errors(rows, arm, "multiplications"), []
        for other in SHOWN:
            if others := errors(rows, other):
                costs = mean_ratio(cost, errors(rows, other, "multiplications"))
                lines.append([other, str(ratio(own, others)), f"{costs:.0%}"])
        if not lines:
            continue
        error = ratio(own, errors(rows, SHOWN[0]))
        soft = mean_ratio(cost, errors(rows, "softmax", "multiplications"))
        parts.append(FIRST.format(arm=arm, error=error, cost=soft))
        parts += [TABLE, table([f"{arm} over", "error", "cost"], lines)]
    return parts
