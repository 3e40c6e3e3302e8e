"""The methods that are compared on the tasks of Appendix C.1, and what is tuned."""

import dataclasses
from collections.abc import Callable

from keras import ops

from dselectk_keras.experts import DenseExperts, ExpertBank
from dselectk_keras.gates import DSelectKGate, SoftmaxSelectorGate, TopKGate
from dselectk_keras.schedules import Ramp

K = 4  # The experts that made the labels of a task, and as many may a gate use.
UNITS = 4  # The ReLU units whose sum is an expert.
# A softmax never gives an exact zero: what is below counts as none. The other gates
# have exact zeros, and any weight counts.
SOFTMAX_ZERO = 1e-3
RATES = (0.001, 0.01, 0.1)


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
    rates: tuple[float, ...] = RATES
    decides: bool = False
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


def _annealing(steps, _, temperature):
    falling = Ramp(temperature, 1e-16, end=1.0, num_steps=steps)
    return SoftmaxSelectorGate(K, temperature=falling)


def _recipe(*_):
    return DSelectKGate(K, gamma=3.0)


def _restarts(*_):
    raise ValueError(
        "`DecideGates` restarts no selectors any more: the runs with restarts are of "
        "an earlier version. Received: the method 'DSelect-k, restarts'. Leave it out "
        "of `methods`."
    )


# The ranges of Appendix D.4.
METHODS = {
    "DSelect-k": Method(
        lambda *_, gamma, entropy: DSelectKGate(K, gamma=gamma, entropy_reg=entropy),
        {"gamma": (5.0, 10.0, 15.0), "entropy": (0.001, 0.005, 0.01, 0.1)},
    ),
    "Top-k": Method(lambda *_: TopKGate(K)),
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
    "DSelect-k, recipe": Method(_recipe, rates=(0.01,), decides=True, paper=False),
    "DSelect-k, recipe, gamma 1": Method(
        lambda *_: DSelectKGate(K), rates=(0.01,), decides=True, paper=False
    ),
    "DSelect-k, restarts": Method(_restarts, paper=False),
    "softmax selectors, recipe": Method(
        lambda *_: SoftmaxSelectorGate(K), decides=True, paper=False
    ),
}
