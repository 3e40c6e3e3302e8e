"""The gates that are compared, the settings of each, and what is done at a decision."""

import dataclasses
import functools

import keras
import numpy as np

from dselectk_keras.callbacks import ChooseExperts
from dselectk_keras.gates import ChosenGate, DSelectKGate, TopKGate
from research.benches.bench import MANY
from research.benches.other_gates import BalancedGate, ReLUGate, TreeGate
from research.benches.pruned_bottom import BETWEEN, NUM_CUTS, prune, units_at
from research.benches.training import keep
from research.engine import Arm

NUM_CHOICES = 16


def static(gate=None, architecture="mmoe", events=None, dense=False, **space):
    """An arm with a static gate.

    Args:
        gate: A function of k, n and `Settings` that returns a gate.
        architecture: One of those of `Trainer`.
        events: What is done to the model before an epoch, by the part of the epochs
            that has passed, or by the name of the setting that says the part: functions
            of the `Trainer` and the `Job`.
        dense: Whether a task may read more than k experts in every epoch.
        **space: The values of its own settings. The last ones are those of the arm
            without tuning. Gates read those of `Settings`.
    """
    more = {"events": events or {}, "dense": dense}
    return Arm(gate, architecture, space=space, more=more)


def decide(trainer, job):  # noqa: ARG001
    """Keep the largest weights of each gate, as `DecideGates` does."""
    trainer.gate.decide()


def keep_k(trainer, job):  # noqa: ARG001
    """Keep the k largest weights of each gate, as far as its class allows."""
    weights = keep(trainer.gate.expert_weights(), trainer.k)
    trainer.gate.assign_expert_weights(weights)


def first_l1(trainer, job):
    """Set the first coefficient of the penalty to that of the settings."""
    coefficient = trainer.gate.coefficient
    coefficient.assign(np.full(coefficient.shape, job.settings["l1"]))


def by_fit(trainer, job):
    """Choose the experts that fit the labels of each task best, as `ChooseExperts`."""
    split = trainer.tables[job.seed].splits[0]
    ChooseExperts(split.x, split.y).choose(trainer.model)


def random_choice(trainer, job, number):
    """Experts that are drawn for each task, booleans (tasks, n)."""
    rng = np.random.default_rng([job.seed, number])
    gates, n = trainer.gate.num_gates, trainer.gate.num_experts
    return np.argsort(rng.random((gates, n)), axis=-1) < trainer.k


def random_experts(trainer, job):
    """Choose experts at random, for each task."""
    chosen = random_choice(trainer, job, job.settings.get("choice", 0))
    choose(chosen / trainer.k, trainer)


def random_places(trainer, job):
    """The same for a gate whose experts stand side by side."""
    chosen = random_choice(trainer, job, job.settings.get("choice", 0))
    trainer.gate.choose(np.argsort(~chosen, axis=-1, kind="stable")[:, : trainer.k])


def other_experts(trainer, job):
    """Choose one of the random choices, with other experts in place of its own.

    Tasks share experts as before: only the initial weights of the experts differ.
    """
    chosen = random_choice(trainer, job, 0)
    rng = np.random.default_rng([job.seed, job.settings["choice"], 1])
    choose(chosen[:, rng.permutation(chosen.shape[1])] / trainer.k, trainer)


def known_experts(trainer, job):
    """Choose experts of its own for each known group of tasks."""
    groups = np.asarray(trainer.tables[job.seed].groups)
    places = groups[:, None] * trainer.k + np.arange(trainer.k)
    trainer.gate.choose(places % trainer.gate.num_experts)


def choose(weights, trainer):
    """Make all gates decide on the experts with given weights."""
    trainer.gate.assign_expert_weights(weights)
    trainer.gate.decide()


def cut_units(part):
    """Prune the units of each task to those of a part of the training."""

    def cut(trainer, job):
        problem = trainer.problem
        total = problem.num_experts * problem.units
        left = units_at(part, trainer.k * problem.units, total)
        prune(trainer.model, trainer.tables[job.seed].splits[0].x, left)

    return cut


def dense_first(trainer, job):
    """Make the steps up to a part of the training dense; all without the setting."""
    problem, part, left = trainer.problem, job.settings.get("dense_until"), MANY
    if part is not None:
        left = round(part * problem.epochs) * problem.steps
    # The gate is dense up to its step MANY.
    trainer.gate.step.assign(MANY - left)


def top_k(k, n, settings, wide=False):
    """A gate whose logits begin near zero, or as wide as Keras' default."""
    start = keras.initializers.RandomUniform(-((3 / n) ** 0.5), (3 / n) ** 0.5)
    return TopKGate(
        k,
        kernel_initializer=start if wide else None,
        noise=settings.schedule("noise"),
        dense_steps=MANY,
    )


def selectors(k, n, settings, gate=DSelectKGate):  # noqa: ARG001
    """A gate of selectors, which arms use for its choices, too."""
    schedules = settings.schedule("gamma"), settings.schedule("entropy")
    return gate(k, gamma=schedules[0], entropy_reg=schedules[1])


def chosen(k, *_):
    """A gate that learns no choice."""
    return ChosenGate(k)


PARTS = (0.2, 0.5)
RECIPE = "DSelect-k, recipe"
KNOWN = "known groups"
FIT, SIDE_BY_SIDE = "chosen by fit", "chosen, side by side"
# As by default: after each part of 0.05 of the training, until the half of it.
BY_FIT = dict.fromkeys(np.arange(0, 0.51, 0.05), by_fit)

GATES = {
    "softmax": static(top_k, events={0: dense_first}, dense=True),
    "shared bottom": static(architecture="shared_bottom", dense=True),
    "shared bottom, wide": static(architecture="wide_bottom", dense=True),
    "shared bottom, pruned": static(
        architecture="pruned_bottom",
        events={part: cut_units(part) for part in np.linspace(*BETWEEN, NUM_CUTS)},
    ),
    RECIPE: static(selectors, events={"by": decide}, by=PARTS),
    "DSelect-k, entropy": static(
        selectors,
        # Before the last epoch, gates that are not sparse keep their largest weights.
        events={1.0: decide},
        entropy=(0.01, 0.1),
        gamma=(1.0,),
    ),
    "Top-k": static(top_k, events={0: dense_first}, dense_until=(0.0,)),
    "Top-k, wide start": static(
        functools.partial(top_k, wide=True),
        events={0: dense_first},
        dense_until=(0.0,),
    ),
    "Top-k, noisy": static(
        top_k, events={0: dense_first}, dense_until=(0.0,), noise=(1.0,)
    ),
    "Top-k, dense first": static(top_k, events={0: dense_first}, dense_until=PARTS),
    # With the factor of the paper, 1.2, most tasks lose all experts in so few steps.
    "ReMoE": static(
        lambda k, *_: ReLUGate(k, growth=1.02),
        events={0: first_l1, 1.0: keep_k},
        l1=(0.01, 0.1),
    ),
    "COMET": static(
        functools.partial(selectors, gate=TreeGate),
        events={1.0: keep_k},
        gamma=(3.0, 1.0),
        entropy=(0.01,),
    ),
    "loss-free balancing": static(
        lambda k, _, settings: BalancedGate(k, settings.schedule("bias_rate")),
        bias_rate=(0.001, 0.01),
    ),
    "random": static(selectors, events={0: random_experts}),
    FIT: static(selectors, events=BY_FIT),
    SIDE_BY_SIDE: static(chosen, "side_by_side", BY_FIT),
    "Top-k, side by side": static(top_k, "apart", {0: dense_first}, dense_until=PARTS),
    "random, side by side": static(chosen, "side_by_side", {0: random_places}),
    KNOWN: static(selectors, events={0: known_experts}),
    f"{KNOWN}, side by side": static(chosen, "side_by_side", {0: known_experts}),
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
    FIT,
    SIDE_BY_SIDE,
    "Top-k, side by side",
    "random, side by side",
    KNOWN,
    f"{KNOWN}, side by side",
)
# Gates of later papers.
OTHER_GATES = "ReMoE", "COMET", "loss-free balancing"
# With HoME's normalization of the experts' outputs, and by default.
NORMALIZED = {f"{name}, normalized": name for name in ("softmax", "Top-k, noisy", FIT)}
GATES |= {
    new: dataclasses.replace(GATES[old], architecture="normalized")
    for new, old in NORMALIZED.items()
}
# Many trainings with the settings of `random`: what differs between them.
CHOICES = {
    f"best of {NUM_CHOICES} {which}": static(
        selectors, events={0: event}, choice=tuple(range(NUM_CHOICES))
    )
    for which, event in (
        ("random choices", random_experts),
        ("with one choice", other_experts),
    )
}
BEST, CONTROL = CHOICES
