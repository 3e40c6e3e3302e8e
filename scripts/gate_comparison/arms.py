"""The gates that are compared, the settings of each, and what is done at a decision."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops
from pruned_bottom import BETWEEN, NUM_CUTS, prune, units_at

from dselectk_keras.callbacks import ChooseExperts
from dselectk_keras.gates import ChosenGate, DSelectKGate, TopKGate
from dselectk_keras.ops import keep_top_k
from gate_comparison.rivals import BalancedGate, ReLUGate, TreeGate
from gate_comparison.training import FIRST, Form

RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
DECAYS = (0.0, 0.3, 1.0, 3.0, 10.0)
ONE_SETTING = (0.03, 0.3)  # In the middle of the grid.
NUM_CHOICES = 16
MANY = 10**6


@dataclasses.dataclass(frozen=True)
class Run:
    """One training.

    Args:
        draw: The index of the draw of the data and of the initial weights.
        settings: Learning rate, weight decay, and what the gate reads.
        events: What is done to the model after a part of the epochs, by the part:
            functions of the `Trainer` and the run.
        given: The whole setting, to be reported.
        choice: The number of a random choice of experts.
    """

    draw: int
    settings: Mapping[str, float]
    events: Mapping[Any, Callable[..., Any]]
    given: tuple
    choice: int = 0


@dataclasses.dataclass(frozen=True)
class Arm:
    """A kind of gate, and its grid of settings.

    Args:
        form: The key in `FORMS` of the model that is trained.
        events: A function of the own setting that returns the events of a `Run`.
        own: Values of the own setting of the arm. The last one is that of the arm
            without tuning.
        reads: The name of the setting that the gate reads, if it is the own one.
        fixed: Other settings that the gate reads.
        dense: Whether a task may read more than k experts in every epoch.
    """

    form: str
    events: Callable[[Any], Mapping[Any, Any]] = lambda own: {}  # noqa: ARG005
    own: tuple = (None,)
    reads: str | None = None
    fixed: Mapping[str, float] = dataclasses.field(default_factory=dict)
    dense: bool = False

    def runs(self, draw, rates=None, decays=None):
        """The runs of a grid: of the whole one, or of some rates and decays.

        AdamW multiplies weights by 1 - rate x decay in a step, which must be positive.
        """
        grid = itertools.product(rates or RATES, decays or DECAYS, self.own)
        return [self.run(draw, given) for given in grid if given[0] * given[1] < 1]

    def run(self, draw, given, choice=0):
        """The run of one setting."""
        rate, decay, own = given
        settings = {"rate": rate, "decay": decay, **FIRST, "gamma": 3.0, **self.fixed}
        if self.reads:
            settings[self.reads] = own
        return Run(draw, settings, self.events(own), given, choice)


def decide(trainer, run):  # noqa: ARG001
    """Keep the largest weights of each gate, as `DecideGates` does."""
    trainer.gate.decide()


def keep_k(trainer, run):  # noqa: ARG001
    """Keep the k largest weights of each gate, as far as its class allows."""
    weights = trainer.gate.expert_weights()
    kept = ops.where(keep_top_k(weights, trainer.k) > 0, weights, 0.0)
    total = ops.sum(weights, axis=-1, keepdims=True)
    kept = kept * total / ops.maximum(ops.sum(kept, axis=-1, keepdims=True), 1e-9)
    trainer.gate.assign_expert_weights(kept)


def first_l1(own):
    """The penalty begins with this coefficient."""

    def start(trainer, run):  # noqa: ARG001
        coefficient = trainer.gate.coefficient
        coefficient.assign(np.full(coefficient.shape, own))

    return {0: start, 1.0: keep_k}


def by_fit(trainer, run):
    """Choose the experts that fit the labels of each task best, as `ChooseExperts`."""
    split = trainer.tables[run.draw].splits[0]
    ChooseExperts(split.x, split.y).choose(trainer.model)


def random_choice(trainer, run, number):
    """Experts that are drawn for each task, booleans (tasks, n)."""
    rng = np.random.default_rng([trainer.seeds[run.draw], number])
    gates, n = trainer.gate.num_gates, trainer.gate.num_experts
    return np.argsort(rng.random((gates, n)), axis=-1) < trainer.k


def random_experts(trainer, run):
    """Choose experts at random, for each task."""
    choose(random_choice(trainer, run, run.choice) / trainer.k, trainer)


def random_places(trainer, run):
    """The same for a gate whose experts stand side by side."""
    chosen = random_choice(trainer, run, run.choice)
    trainer.gate.choose(np.argsort(~chosen, axis=-1, kind="stable")[:, : trainer.k])


def other_experts(trainer, run):
    """Choose one of the random choices, with other experts in place of its own.

    Tasks share experts as before: only the initial weights of the experts differ.
    """
    chosen = random_choice(trainer, run, 0)
    rng = np.random.default_rng([trainer.seeds[run.draw], run.choice, 1])
    choose(chosen[:, rng.permutation(chosen.shape[1])] / trainer.k, trainer)


def known_experts(trainer, run):
    """Choose experts of its own for each known group of tasks."""
    groups = np.asarray(trainer.tables[run.draw].groups)
    places = groups[:, None] * trainer.k + np.arange(trainer.k)
    trainer.gate.choose(places % trainer.gate.num_experts)


def choose(weights, trainer):
    """Let all gates decide on the experts with given weights."""
    trainer.gate.assign_expert_weights(weights)
    trainer.gate.decide()


def cut_units(part):
    """Prune the units of each task to those of a part of the training."""

    def cut(trainer, run):
        problem = trainer.problem
        total = problem.num_experts * problem.units
        left = units_at(part, trainer.k * problem.units, total)
        prune(trainer.model, trainer.tables[run.draw].splits[0].x, left)

    return cut


def steps_left(own):
    """The first `own` part of the steps is dense; `None` is all of them."""

    def start(trainer, run):  # noqa: ARG001
        # The gate is dense up to its step MANY.
        problem, left = trainer.problem, MANY
        if own is not None:
            left = round(own * problem.epochs) * problem.steps
        trainer.gate.step.assign(MANY - left)

    return {0: start}


def always(events):
    """The same events for all own settings."""
    return lambda own: events  # noqa: ARG005


def top_k(wide=False, **options):
    """A gate whose logits begin near zero, or as wide as Keras' default."""

    def make(k, n, settings):
        start = keras.initializers.RandomUniform(-((3 / n) ** 0.5), (3 / n) ** 0.5)
        return TopKGate(
            k,
            kernel_initializer=start if wide else None,
            noise=settings.schedule("noise"),
            dense_steps=MANY,
        )

    return Form(make, **options)


def selectors(k, n, settings, gate=DSelectKGate):  # noqa: ARG001
    """A gate of selectors, which arms use for its choices, too."""
    schedules = settings.schedule("gamma"), settings.schedule("entropy")
    return gate(k, gamma=schedules[0], entropy_reg=schedules[1])


FORMS: dict[str, Form] = {
    "selectors": Form(selectors),
    "selectors, normalized": Form(selectors, normalized=True),
    "top_k": top_k(),
    "top_k, wide": top_k(wide=True),
    "top_k, normalized": top_k(normalized=True),
    "top_k, side by side": top_k(apart=True),
    "side by side": Form(
        lambda k, *_: ChosenGate(k),
        options={"side_by_side": True},
    ),
    "shared bottom": Form(),
    "wide bottom": Form(wide=True),
    "pruned": Form(wide=True, pruned=True),
    # With the factor of the paper, 1.2, most tasks lose all experts in so few steps.
    "relu": Form(lambda k, *_: ReLUGate(k, growth=1.02)),
    "tree": Form(functools.partial(selectors, gate=TreeGate)),
    "balanced": Form(
        lambda k, n, settings: BalancedGate(k, settings.schedule("bias_rate"))  # noqa: ARG005
    ),
}
PARTS = (0.2, 0.5)
RECIPE = "DSelect-k, recipe"
KNOWN = "known groups"
# As by default: after each part of 0.05 of the training, until the half of it.
BY_FIT = dict.fromkeys(np.arange(0, 0.51, 0.05), by_fit)

ARMS = {
    "softmax": Arm("top_k", always(steps_left(None)), dense=True),
    "shared bottom": Arm("shared bottom", dense=True),
    "shared bottom, wide": Arm("wide bottom", dense=True),
    "shared bottom, pruned": Arm(
        "pruned",
        always({part: cut_units(part) for part in np.linspace(*BETWEEN, NUM_CUTS)}),
    ),
    RECIPE: Arm("selectors", lambda own: {own: decide}, PARTS),
    "DSelect-k, entropy": Arm(
        "selectors",
        # Before the last epoch, gates that are not sparse keep their largest weights.
        always({1.0: decide}),
        (0.01, 0.1),
        reads="entropy",
        fixed={"gamma": 1.0},
    ),
    "Top-k": Arm("top_k", always(steps_left(0.0))),
    "Top-k, wide start": Arm("top_k, wide", always(steps_left(0.0))),
    "Top-k, noisy": Arm("top_k", always(steps_left(0.0)), fixed={"noise": 1.0}),
    "Top-k, dense first": Arm("top_k", steps_left, PARTS),
    "ReMoE": Arm("relu", first_l1, (0.01, 0.1)),
    "COMET": Arm(
        "tree",
        always({1.0: keep_k}),
        (3.0, 1.0),
        reads="gamma",
        fixed={"entropy": 0.01},
    ),
    "loss-free balancing": Arm("balanced", own=(0.001, 0.01), reads="bias_rate"),
    "random": Arm("selectors", always({0: random_experts})),
    "chosen by fit": Arm("selectors", always(BY_FIT)),
    "chosen, side by side": Arm("side by side", always(BY_FIT)),
    "Top-k, side by side": Arm("top_k, side by side", steps_left, PARTS),
    "random, side by side": Arm("side by side", always({0: random_places})),
    KNOWN: Arm("selectors", always({0: known_experts})),
    f"{KNOWN}, side by side": Arm("side by side", always({0: known_experts})),
}
# What is trained where training takes long.
FEW_ARMS = (
    "softmax",
    "shared bottom, wide",
    "shared bottom, pruned",
    RECIPE,
    "Top-k, noisy",
    "Top-k, dense first",
    "random",
    "chosen by fit",
    "chosen, side by side",
    "Top-k, side by side",
    "random, side by side",
    KNOWN,
    f"{KNOWN}, side by side",
)
# Gates of later papers.
RIVALS = "ReMoE", "COMET", "loss-free balancing"
# With HoME's normalization of the experts' outputs, and by default.
NORMALIZED = {
    f"{name}, normalized": name for name in ("softmax", "Top-k, noisy", "chosen by fit")
}
ARMS |= {
    new: dataclasses.replace(ARMS[old], form=f"{ARMS[old].form}, normalized")
    for new, old in NORMALIZED.items()
}
# Many trainings with the setting of `random`: what differs between them.
CHOICES = {
    "of 16 random choices": random_experts,
    "of 16 with one choice": other_experts,
}
