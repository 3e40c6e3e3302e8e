"""The tasks of Appendix C.1: what Figure 5 trains, and how."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from dselectk_keras.baselines import SoftmaxSelectorGate
from dselectk_keras.gates import DSelectKGate, TopKGate
from dselectk_keras.metrics import active_experts, jaccard_index
from dselectk_keras.schedules import Ramp

POINTS = 50  # Of the curve that is kept of each run.
K = 4  # The experts that made the labels of a task, and as many may a gate use.
UNITS = 4  # The ReLU units whose sum is an expert.
# A softmax never gives an exact zero: what is below counts as none. The other gates
# have exact zeros, and any weight counts.
SOFTMAX_ZERO = 1e-3


@dataclasses.dataclass(frozen=True)
class Method:
    """How the gates of a method are made and tuned.

    Args:
        make: A function of the steps of a run, a seed, and the settings by name that
            gives a gate.
        space: What is tuned beside the learning rate.
        rates: The learning rates to choose from.
        decides: Whether `DecideGates` is used.
        zero: The largest weight that counts as none.
        paper: Whether the paper has it. Our own are tried for the largest number of
            tasks only.
    """

    make: Callable
    space: dict = dataclasses.field(default_factory=dict)
    rates: tuple[float, ...] = (0.001, 0.01, 0.1)
    decides: bool = False
    zero: float = 0.0
    paper: bool = True

    @property
    def settings(self):
        """Everything that is tuned."""
        return {"learning_rate": self.rates, **self.space}


def _annealing(steps, _, temperature):
    falling = Ramp(temperature, 1e-16, end=1.0, num_steps=steps)
    return SoftmaxSelectorGate(K, temperature=falling)


def _restarts(*_):
    raise ValueError(
        "`DecideGates` restarts no selectors any more: the runs with restarts are of "
        "an earlier version. Received: the method 'DSelect-k, restarts'. Leave it out "
        "of `methods`."
    )


def _ours(make, *rates):
    """A recipe of ours, with gates that decide."""
    options: dict[str, Any] = {"rates": rates} if rates else {}
    return Method(make, decides=True, paper=False, **options)


TEMPERATURES = 1e-6, 1e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 7.5e-4, 1e-3, 5e-3, 1e-2
# The ranges of Appendix D.4.
METHODS = {
    "DSelect-k": Method(
        lambda *_, gamma, entropy: DSelectKGate(K, gamma=gamma, entropy_reg=entropy),
        {"gamma": (5.0, 10.0, 15.0), "entropy": (0.001, 0.005, 0.01, 0.1)},
    ),
    "Top-k": Method(lambda *_: TopKGate(K)),
    "Ablation (annealing)": Method(_annealing, {"temperature": TEMPERATURES}),
    "Ablation (entropy)": Method(
        lambda *_, entropy: SoftmaxSelectorGate(K, entropy_reg=entropy),
        {"entropy": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 100.0)},
        zero=SOFTMAX_ZERO,
    ),
    "noisy Top-k": Method(
        lambda _, seed: TopKGate(K, noise=True, seed=seed), paper=False
    ),
    "Top-k, dense first": Method(
        lambda steps, _: TopKGate(K, dense_steps=steps // 5), paper=False
    ),
    "DSelect-k, recipe": _ours(lambda *_: DSelectKGate(K, gamma=3.0), 0.01),
    "DSelect-k, recipe, gamma 1": _ours(lambda *_: DSelectKGate(K), 0.01),
    "DSelect-k, restarts": Method(_restarts, paper=False),
    "softmax selectors, recipe": _ours(lambda *_: SoftmaxSelectorGate(K)),
}


def error(model, split):
    """The mean squared error, over examples and tasks."""
    found = ops.convert_to_numpy(model(ops.convert_to_tensor(split.x)))
    return float(np.square(found - split.y).mean())


def look(weights, groups, zero=0.0):
    """Which experts the tasks of a run ended with.

    Args:
        weights: Array `(tasks, n)`, the gates' weights.
        groups: The group of each task.
        zero: The largest weight that counts as none.

    Returns:
        A dict of numbers: `"experts"` of a task, on average, and `"most_experts"`;
        how many are `"used"` by any; and the Jaccard index of `"related"` and of
        `"unrelated"` pairs of tasks.
    """
    experts = active_experts(weights, zero)
    shared = jaccard_index(weights, groups, zero)
    return {
        "experts": float(experts.mean()),
        "most_experts": int(experts.max()),
        "used": int(active_experts(weights.max(axis=0), zero)),
        "related": shared.related,
        "unrelated": shared.unrelated,
    }


def follow(binary, steps):
    """When the selectors of a run were binary.

    Args:
        binary: Array `(epochs + 1, tasks, k)`: which selectors were; `None` if the
            gates have no selectors.
        steps: Of an epoch.

    Returns:
        A dict of numbers: the share of selectors that are `"binary"` at the end; the
        step from which on all are, for good (`"decided"`), or `None`; the share of
        the run in which not all were (`"open"`), and in which not all of a task were,
        on average over the tasks (`"task_open"`); and a curve of the share over the
        `"steps"`. Empty without selectors.
    """
    if binary is None:
        return {}
    by_task = binary.all(axis=2)
    every = by_task.all(axis=1)
    share = binary.mean(axis=(1, 2))
    opened = np.flatnonzero(~every)
    decided = opened[-1] + 1 if len(opened) else 0
    kept = np.unique(np.linspace(0, len(share) - 1, POINTS).round().astype(int))
    return {
        "binary": float(share[-1]),
        "decided": int(decided * steps) if every[-1] else None,
        # Until the end of an epoch is what its begin was.
        "open": float(1.0 - every[:-1].mean()),
        "task_open": float(1.0 - by_task[:-1].mean()),
        "steps": kept * steps,
        "share": share[kept].round(4),
    }
