"""The methods that are compared on the tasks of Appendix C.1, and what is tuned."""

import dataclasses
from collections.abc import Callable

import numpy as np
from keras import ops

from dselectk_keras.experts import DenseExperts, ExpertBank
from dselectk_keras.gates import DSelectKGate, SoftmaxSelectorGate, TopKGate
from dselectk_keras.schedules import Ramp

K = 4  # The experts that made the labels of a task, and as many may a gate use.
UNITS = 4  # The ReLU units whose sum is an expert.
# A smaller share of a task does not hold its expert: the selector is restarted.
WEAK = 0.1
FRESH = 0.02  # The new logits are uniform in plus and minus this.
# A softmax never gives an exact zero: what is below counts as none. The other gates
# have exact zeros, and any weight counts.
SOFTMAX_ZERO = 1e-3
RATES = (0.001, 0.01, 0.1)


@dataclasses.dataclass(frozen=True)
class Method:
    """How the gates of a method are made, tuned and restarted.

    Args:
        make: A function of the steps of a stage, a seed, and the settings by name
            that gives a gate.
        space: What is tuned beside the learning rate.
        rates: The learning rates to choose from.
        restart: A function of a gate and a random generator that is called between
            the stages of a run; `None` makes it one stage.
        zero: The largest weight that counts as none.
        paper: Whether the paper has it. Our own are tried for the largest number of
            tasks only.
    """

    make: Callable
    space: dict = dataclasses.field(default_factory=dict)
    rates: tuple[float, ...] = RATES
    restart: Callable | None = None
    zero: float = 0.0
    paper: bool = True

    @property
    def settings(self):
        """Everything that is tuned."""
        return {"learning_rate": self.rates, **self.space}


class SumExperts(ExpertBank):
    """Experts that are sums of ReLU units, as those that made the labels.

    `DenseExperts` and a tower that sums come to the same. Summed first, there is one
    number for each expert to be mixed for every task, and not one for each unit.

    Args:
        num_experts: The number of experts.
        **kwargs: The arguments of `keras.Layer`.
    """

    def __init__(self, num_experts, **kwargs):
        super().__init__(**kwargs)
        self.num_experts = num_experts
        self.shared_input = True
        self._units = DenseExperts(num_experts, [UNITS], dtype=self.dtype_policy)

    def build(self, input_shape):
        """Build the units."""
        self._units.build(input_shape)
        self.built = True

    def call(self, inputs, select=None, return_hidden=False, as_list=False):
        """See `ExpertBank`."""
        return ops.sum(self._units(inputs, select=select), axis=-1, keepdims=True)

    def get_config(self):
        """The arguments of `__init__`."""
        return {**super().get_config(), "num_experts": self.num_experts}


def restart_selectors(gate, rng):
    """Start the selectors anew that hold no expert for their task.

    Those are the ones on an expert that a selector of the same task with a larger
    share is on as well, and those whose share is below `WEAK`.

    Args:
        gate: A gate with selectors, static and built.
        rng: A NumPy generator.
    """
    selection = gate.selection()
    lost = idle(selection.choices, selection.logits)
    z, *others = gate.get_weights()
    fresh = rng.uniform(-FRESH, FRESH, z.shape)
    lost = lost.reshape(*lost.shape, *[1] * (z.ndim - lost.ndim))
    gate.set_weights([np.where(lost, fresh, z), *others])


def idle(choices, logits):
    """Which selectors hold no expert for their task.

    Args:
        choices: The expert of each selector, `(tasks, k)`.
        logits: Those of its share, of the same shape.

    Returns:
        An array of bools of the same shape.
    """
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    same = choices[:, :, None] == choices[:, None, :]
    # Of those with equal shares the first one stays.
    order = np.argsort(np.argsort(-shares, axis=1, kind="stable"), axis=1)
    behind = order[:, :, None] > order[:, None, :]
    return (same & behind).any(axis=2) | (shares < WEAK)


def _dselect_k(steps, seed, gamma, entropy):  # noqa: ARG001
    return DSelectKGate(K, gamma=gamma, entropy_reg=entropy)


def _staged(steps, seed, gamma, entropy):  # noqa: ARG001
    ramp = Ramp(1e-6, entropy, end=0.5, num_steps=steps)
    return DSelectKGate(K, gamma=gamma, entropy_reg=ramp)


def _top_k(steps, seed):  # noqa: ARG001
    return TopKGate(K)


def _noisy(steps, seed):  # noqa: ARG001
    return TopKGate(K, noise=True, seed=seed)


def _dense_first(steps, seed):  # noqa: ARG001
    return TopKGate(K, dense_steps=steps // 5)


def _annealing(steps, seed, temperature):  # noqa: ARG001
    falling = Ramp(temperature, 1e-16, end=1.0, num_steps=steps)
    return SoftmaxSelectorGate(K, temperature=falling)


def _entropy(steps, seed, entropy):  # noqa: ARG001
    return SoftmaxSelectorGate(K, entropy_reg=entropy)


# The ranges of Appendix D.4.
METHODS = {
    "DSelect-k": Method(
        _dselect_k,
        {"gamma": (5.0, 10.0, 15.0), "entropy": (0.001, 0.005, 0.01, 0.1)},
    ),
    "Top-k": Method(_top_k),
    "Ablation (annealing)": Method(
        _annealing,
        {
            "temperature": (
                *(1e-6, 1e-5, 5e-5, 1e-4, 2.5e-4),
                *(5e-4, 7.5e-4, 1e-3, 5e-3, 1e-2),
            )
        },
    ),
    "Ablation (entropy)": Method(
        _entropy,
        {"entropy": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 100.0)},
        zero=SOFTMAX_ZERO,
    ),
    "noisy Top-k": Method(_noisy, paper=False),
    "Top-k, dense first": Method(_dense_first, paper=False),
    "DSelect-k, in stages": Method(
        _staged,
        {"gamma": (1.0, 2.0), "entropy": (1.0, 10.0)},
        rates=(0.002, 0.005, 0.01, 0.02),
        restart=restart_selectors,
        paper=False,
    ),
}
