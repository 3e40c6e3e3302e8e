"""The gates that are compared, and what is tuned for each."""

import dataclasses
from collections.abc import Callable
from typing import Any

from dselectk_keras.baselines import HashGate, ReinforceGate, STGumbelGate
from dselectk_keras.gates import (
    DSelectKGate,
    GumbelSoftmaxGate,
    RandomGate,
    SoftmaxGate,
    SoftmaxSelectorGate,
    SwitchGate,
    TopKGate,
)
from dselectk_keras.schedules import Ramp

ENTROPIES = {"entropy": (0.001, 0.01, 0.1, 1.0)}


@dataclasses.dataclass(frozen=True)
class Method:
    """A gate, or an architecture without one.

    Args:
        make: A function of k, the number of steps and the tuned settings that returns a
            gate; `None` for an architecture without gates.
        space: What is tuned beside the learning rate.
        per_example: Whether the gates depend on the features.
        decides: Whether `DecideGates` is used.
        tuned: Whether anything is tuned, the learning rate included.
        rewarded: Whether the gates learn from the losses of the examples.
        architecture: Name of the architecture.
        settled: The part of the training after which an epoch may be the best one.
    """

    make: Callable[..., Any] | None
    space: dict = dataclasses.field(default_factory=dict)
    per_example: bool = False
    decides: bool = False
    tuned: bool = True
    rewarded: bool = False
    architecture: str = "mmoe"
    settled: float = 0.5


def _decided(k, steps):  # noqa: ARG001
    return DSelectKGate(k, gamma=3.0, unreachable="assign", reduction="mean")


def _entropy(k, steps, entropy):  # noqa: ARG001
    return DSelectKGate(k, entropy_reg=entropy, reduction="mean")


def _ramped(k, steps, entropy):
    ramp = Ramp(1e-5, entropy, end=0.9, num_steps=steps)
    return DSelectKGate(k, entropy_reg=ramp, reduction="mean")


METHODS = {
    "DSelect-k, untuned recipe": Method(_decided, decides=True, tuned=False),
    "DSelect-k, recipe": Method(_decided, decides=True),
    "DSelect-k, entropy": Method(_entropy, ENTROPIES),
    "DSelect-k, entropy ramp": Method(_ramped, ENTROPIES, settled=0.9),
    "Top-k": Method(lambda k, steps: TopKGate(k)),  # noqa: ARG005
    "Top-k, noisy": Method(
        lambda k, steps: TopKGate(
            k, noise=Ramp(1.0, 0.0, end=0.5, num_steps=steps, kind="linear")
        )
    ),
    "Top-k, dense first": Method(lambda k, steps: TopKGate(k, dense_steps=steps // 2)),
    "softmax selectors, recipe": Method(
        lambda k, steps: SoftmaxSelectorGate(k),  # noqa: ARG005
        decides=True,
    ),
    "softmax selectors, entropy": Method(
        lambda k, steps, entropy: SoftmaxSelectorGate(  # noqa: ARG005
            k, entropy_reg=entropy
        ),
        ENTROPIES,
    ),
    "softmax selectors, annealed": Method(
        lambda k, steps: SoftmaxSelectorGate(
            k, temperature=Ramp(1.0, 1e-16, end=0.9, num_steps=steps)
        ),
        settled=0.9,
    ),
    "Gumbel-softmax": Method(
        lambda k, steps, sparsity: GumbelSoftmaxGate(sparsity_reg=sparsity),  # noqa: ARG005
        {"sparsity": (0.001, 0.01, 0.1, 1.0)},
    ),
    "random, fixed": Method(lambda k, steps: RandomGate(k, fixed=True)),  # noqa: ARG005
    "softmax, static": Method(lambda k, steps: SoftmaxGate()),  # noqa: ARG005
    "DSelect-k, per-example recipe": Method(_decided, per_example=True, decides=True),
    "Top-k, per-example": Method(
        lambda k, steps: TopKGate(k, use_bias=True),  # noqa: ARG005
        per_example=True,
    ),
    "Switch": Method(lambda k, steps: SwitchGate(), per_example=True),  # noqa: ARG005
    "ST-Gumbel": Method(lambda k, steps: STGumbelGate(), per_example=True),  # noqa: ARG005
    "REINFORCE": Method(
        lambda k, steps: ReinforceGate(),  # noqa: ARG005
        per_example=True,
        rewarded=True,
    ),
    "hash": Method(lambda k, steps: HashGate(salt=0), per_example=True),  # noqa: ARG005
    "softmax, per-example": Method(
        lambda k, steps: SoftmaxGate(use_bias=True),  # noqa: ARG005
        per_example=True,
    ),
    "shared bottom": Method(None, architecture="shared_bottom"),
    "single task": Method(None, architecture="single_task"),
}
