"""The tasks of Appendix C.1: what Figure 5 trains, and how."""

import dataclasses
from collections.abc import Callable

import numpy as np
from keras import ops

from dselectk_keras.baselines import SoftmaxSelectorGate
from dselectk_keras.gates import DSelectKGate, TopKGate
from dselectk_keras.schedules import Ramp

K = 4  # The experts that made the labels of a task, and as many may a gate use.
UNITS = 4  # The ReLU units whose sum is an expert.
# A softmax never gives an exact zero: what is below counts as none. The other gates
# have exact zeros, and any weight counts.
SOFTMAX_ZERO = 1e-3


@dataclasses.dataclass(frozen=True)
class Method:
    """How the gates of a method are made and tuned."""

    make: Callable  # Of the steps of a run, a seed, and the settings by name.
    space: dict = dataclasses.field(default_factory=dict)  # Beside the learning rate.
    rates: tuple[float, ...] = (0.001, 0.01, 0.1)  # Learning rates.
    decides: bool = False  # Whether `DecideGates` is used.
    zero: float = 0.0  # The largest weight that counts as none.
    paper: bool = True  # Our own are tried for the largest number of tasks only.

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


def _ours(make, rates=Method.rates):
    """A recipe of ours, with gates that decide."""
    return Method(make, rates=rates, decides=True, paper=False)


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
    "DSelect-k, recipe": _ours(lambda *_: DSelectKGate(K, gamma=3.0), (0.01,)),
    "DSelect-k, recipe, gamma 1": _ours(lambda *_: DSelectKGate(K), (0.01,)),
    "DSelect-k, restarts": Method(_restarts, paper=False),
    "softmax selectors, recipe": _ours(lambda *_: SoftmaxSelectorGate(K)),
}


def error(model, split):
    """The mean squared error, over examples and tasks."""
    found = ops.convert_to_numpy(model(ops.convert_to_tensor(split.x)))
    return float(np.square(found - split.y).mean())
