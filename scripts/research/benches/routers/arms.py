"""The routers that are compared, and the settings of each."""

import numpy as np

from dselectk_keras.baselines import TagGate
from dselectk_keras.gates import DSelectKGate, SoftmaxGate, SwitchGate, TopKGate
from dselectk_keras.regularizers import ImportanceRegularizer, SwitchLoadRegularizer
from research.benches.bench import MANY
from research.benches.other_gates import BalancedGate, ReLUGate
from research.engine import Arm

RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
DECAYS = (0.0, 0.1, 1.0, 5.0)
PARTS = (0.3, 0.6)  # Of the training, until something has changed.
STRENGTHS = (0.01, 0.1)  # Of a penalty, relative to the loss.
CHOICE = 1 / 6  # The part of the training that a warm start takes.
STEPS, BATCH_SIZE = 150, 100  # Of a stage, after which the model is evaluated.
UNITS = 16  # Of an expert.
# What arms may set, at first.
FIRST = {
    "balance": 0.0,
    "bias_rate": 0.0,
    "gamma": 1.0,
    "noise": 0.0,
    "temperature": 1.0,  # Of a softmax.
    "sharpness": 0.0,  # 1 / T of the losses of single experts, over its first value.
    "choice": 0.0,  # Whether each example trains the expert that fits it best.
}


def router(
    make,
    k: int | None = 1,
    own=(None,),
    change=lambda *_: {},
    start=None,
    tag=None,
    architecture="mixture",
    dense=0.0,
    shared=None,
    units=UNITS,
):
    """An arm with a router.

    Args:
        make: A function of `Settings` that returns a gate.
        k: The number of experts at serving: the others' weights go to the k largest.
            `None` is all.
        own: The values of its own setting.
        change: A function of the own setting and the part of the training that has
            passed that returns settings by name.
        start: What is done to the model at first: a function of the `Trainer` and the
            `Job`.
        tag: What the gate reads instead of inputs: `"region"`, `"hash"` or `"none"`.
        architecture: `"mixture"`, `"annealed"` with a softmax whose temperature falls,
            `"merged"` experts, `"losses"` of single experts, or a single expert,
            `"one"` or `"wide"`.
        dense: The part of the training in which all experts run; it counts for the
            cost alone.
        shared: What the experts share beside their own kernels: `"expert"`, one that is
            always on, or `"kernel"`, from which theirs are deviations.
        units: The units of an expert.
    """
    events = {0: start} if start else {}
    more = {"k": k, "change": change, "events": events, "tag": tag}
    more |= {"dense": dense, "shared": shared, "units": units}
    return Arm(make, architecture, per_example=True, space={"own": own}, more=more)


def fixed(tag, **options):
    """An arm whose router is not trained."""
    return router(lambda _: TagGate(), tag=tag, **options)


def setting(name, others=None):
    """The own setting is that of this name."""
    return lambda own, _: {name: own, **(others or {})}


def balanced(settings):
    """A penalty on unequal loads."""
    return ImportanceRegularizer(settings.schedule("balance"))


def first_steps(trainer, job):
    """Make the steps up to a part of the training dense."""
    dense = round(job.settings["own"] * trainer.epochs * STEPS)
    # The gate is dense up to its step MANY.
    trainer.gate.step.assign(MANY - dense)


def dense_first(k):
    """Top-k that is a softmax over all experts in the first part of the training."""

    def make(settings):
        gate = {"dense_steps": MANY, "weights_regularizer": balanced(settings)}
        return TopKGate(k, **gate)

    def change(*_):
        return {"balance": STRENGTHS[0]}

    dense = float(np.mean(PARTS))
    return router(make, k, PARTS, change, first_steps, dense=dense)


def narrowing(own, done):
    """The width of the smooth step falls to 1 % in the half before the decision."""
    return {"gamma": 3 * 0.01 ** np.clip(2 * done / own - 1, 0, 1)}


def by_losses(k, until=0.0, shared=None):
    """The temperature of the losses rises to infinity, after a warm start by choice."""

    def change(own, done):
        return {"sharpness": max(0.0, 1 - done / own), "choice": float(done < until)}

    options = {"architecture": "losses", "dense": 1.0, "shared": shared}
    return router(lambda _: SoftmaxGate(), k, PARTS, change, **options)


def first_l1(trainer, job):
    """The penalty begins with this coefficient."""
    trainer.gate.coefficient.assign(job.settings["own"])


ONE, WIDE, KNOWN = "one expert", "one wide expert", "known regions"
SWITCH, SMEAR = "Switch", "SMEAR"
# One expert with other units, which costs as much as routers of one and of two.
DENSE = {
    f"one expert, {units} units": fixed("none", architecture="one", units=units)
    for units in (24, 40)
}
ROUTERS = {
    ONE: fixed("none", architecture="one"),
    WIDE: fixed("none", architecture="wide"),
    **DENSE,
    KNOWN: fixed("region"),
    "hash": fixed("hash"),
    "softmax": router(lambda _: SoftmaxGate(), k=None),
    "softmax, annealed": router(
        lambda _: SoftmaxGate(),
        own=PARTS,
        change=lambda own, done: {"temperature": 0.02 ** min(1.0, done / own)},
        architecture="annealed",
        dense=1.0,
    ),
    SWITCH: router(
        lambda settings: SwitchGate(
            weights_regularizer=SwitchLoadRegularizer(settings.schedule("balance"))
        ),
        own=STRENGTHS,
        change=setting("balance"),
    ),
    "Top-1, dense first": dense_first(1),
    SMEAR: router(lambda _: SoftmaxGate(normalize=True), k=None, architecture="merged"),
    "Top-2": router(
        lambda settings: TopKGate(2, weights_regularizer=balanced(settings)),
        2,
        STRENGTHS,
        setting("balance"),
    ),
    "Top-2, noisy": router(
        lambda settings: TopKGate(
            2, settings.schedule("noise"), load_reg=settings.schedule("balance")
        ),
        2,
        STRENGTHS,
        setting("balance", {"noise": 1.0}),
    ),
    "Top-2, dense first": dense_first(2),
    "DSelect-2, recipe": router(
        lambda settings: DSelectKGate(
            2, gamma=settings.schedule("gamma"), reduction="mean"
        ),
        2,
        PARTS,
        narrowing,
        dense=1.0,
    ),
    # With the factor of the paper, 1.2, all experts are lost in so few steps.
    "ReMoE": router(
        lambda _: ReLUGate(2, growth=1.01, balanced=True),
        2,
        (1e-8, 1e-5),
        start=first_l1,
        dense=1.0,
    ),
    "loss-free balancing": router(
        lambda settings: BalancedGate(2, settings.schedule("bias_rate")),
        2,
        (0.001, 0.01),
        setting("bias_rate"),
    ),
    "by losses, 1": by_losses(1),
    "by losses, 2": by_losses(2),
}
# Of `by losses, 1`.
VARIANTS = {
    "by losses, 1, expert always on": by_losses(1, shared="expert"),
    "by losses, 1, shared kernel": by_losses(1, shared="kernel"),
    "by losses, 1, warm start": by_losses(1, until=CHOICE),
}
ROUTERS |= VARIANTS
