"""The gates that are compared, the settings of each, and what is done at a decision."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from dselectk_keras.callbacks import ChooseExperts
from dselectk_keras.gates import DSelectKGate, TopKGate
from gate_comparison.training import STEPS, on_host, setting

RATES = (0.01, 0.03, 0.1)
# Arms with two values of an own setting have two weight decays, others four.
DECAYS = {2: (0.0, 0.3), 1: (0.0, 0.1, 0.3, 1.0)}
ONE_SETTING = (0.03, 0.1)  # Near the middle of the grid.
NUM_CHOICES = 16
DEFAULTS = {"entropy": 0.0, "gamma": 3.0, "noise": 0.0}
MANY = 10**6
ROUNDS = 3  # Of softening and deciding again.
NOISE = 0.5  # On the bits, as a part of half of their width.


@dataclasses.dataclass(frozen=True)
class Run:
    """One training.

    Args:
        draw: The index of the draw of the data and of the initial weights.
        settings: Learning rate, weight decay, and what the gate reads.
        events: What is done to the model after a part of the epochs, by the part:
            functions of the `Trainer` and the run that return the scale of the gates'
            weights.
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
    """A kind of gate, and its grid of twelve settings.

    Args:
        program: The key in `GATES` of the model that is trained.
        events: A function of the own setting that returns the events of a `Run`.
        own: Values of the own setting of the arm.
        reads: The name of the setting that the gate reads, if it is the own one.
        fixed: Other settings that the gate reads.
        dense: Whether the gate may use all experts in every epoch.
        family: Whether the arm is compared, is a remedy for the decision, or is an arm
            with one setting for all problems.
    """

    program: str
    events: Callable[[Any], Mapping[Any, Any]] = lambda own: {}  # noqa: ARG005
    own: tuple = (None,)
    reads: str | None = None
    fixed: Mapping[str, float] = dataclasses.field(default_factory=dict)
    dense: bool = False
    family: str = "gates"

    def runs(self, draw):
        """The runs of the whole grid, or of its one setting."""
        grid = itertools.product(RATES, DECAYS[len(self.own)], self.own)
        if self.family == "untuned":
            grid = [(*ONE_SETTING, self.own[0])]
        return [self.run(draw, setting) for setting in grid]

    def run(self, draw, given, choice=0):
        """The run of one setting."""
        rate, decay, own = given
        settings = {"rate": rate, "decay": decay, **DEFAULTS, **self.fixed}
        if self.reads:
            settings[self.reads] = own
        return Run(draw, settings, self.events(own), given, choice)


def ones(trainer):
    """The scale of gates whose weights sum to one."""
    return np.ones(trainer.gate.num_gates, "float32")


def choose(weights, trainer):
    """Let all gates decide on the experts with given weights."""
    trainer.gate.assign_expert_weights(weights)
    return largest(trainer)


def largest(trainer, run=None):  # noqa: ARG001
    """Keep the largest weights of each gate, as `DecideGates` does."""
    trainer.gate.decide()
    return ones(trainer)


def by_fit(trainer, run):
    """Choose the experts that fit the labels of each task best, as `ChooseExperts`."""
    split = trainer.tables[run.draw].splits[0]
    ChooseExperts(split.x, split.y).choose(trainer.model)
    return ones(trainer)


def random_experts(trainer, run):
    """Choose experts at random, for each task."""
    rng = np.random.default_rng([trainer.seeds[run.draw], run.choice])
    gates, n = trainer.gate.num_gates, trainer.gate.num_experts
    chosen = np.argsort(rng.random((gates, n)), axis=-1) < trainer.k
    return choose(chosen / trainer.k, trainer)


def known_experts(trainer, run):
    """Choose experts of its own for each known group of tasks."""
    groups = np.asarray(trainer.tables[run.draw].groups)
    places = groups[:, None] * trainer.k + np.arange(trainer.k)
    weights = np.zeros((len(groups), trainer.gate.num_experts))
    np.put_along_axis(weights, places % weights.shape[1], 1.0 / trainer.k, axis=-1)
    return choose(weights, trainer)


def kept_mass_in_tower(trainer, run):
    """Keep the largest weights, and multiply the towers' kernels by their sum."""
    mass = trainer.gate.largest_mass()
    largest(trainer, run)
    kernel, _ = first_of_towers(trainer.model)
    kernel.assign(kernel * mass[:, None, None])
    return ones(trainer)


def kept_mass_in_gate(trainer, run):
    """Keep the largest weights as they are, so that they no longer sum to one."""
    mass = trainer.gate.largest_mass()
    largest(trainer, run)
    return mass.astype("float32")


def calibrated(trainer, run):
    """Keep the largest weights, and map each unit of a mixture to what it was."""
    soft = trainer.gate_weights()
    largest(trainer, run)
    x = trainer.tables[run.draw].splits[0].x
    outputs = on_host(trainer.model.get_layer("mmoe").experts(x))
    old, new = (
        np.einsum("bnu,tn->btu", outputs, weights)
        for weights in (soft, trainer.gate_weights())
    )
    centered = new - new.mean(axis=0)
    variance = (centered**2).mean(axis=0)
    slope = (centered * old).mean(axis=0) / np.where(variance > 0, variance, 1.0)
    slope = np.where(variance > 0, slope, 1.0)
    offset = old.mean(axis=0) - slope * new.mean(axis=0)
    kernel, bias = first_of_towers(trainer.model)
    before = on_host(kernel)
    kernel.assign(before * slope[:, :, None])
    bias.assign(bias + np.einsum("tu,tuo->to", offset, before))
    return ones(trainer)


def soften(trainer, run):
    """Let gates that have decided be soft again, with noise on their bits.

    Without noise, the logits of the bits are half-way between the middle of the smooth
    step and the end that they had chosen.
    """
    gate = trainer.gate
    step = int(keras.ops.convert_to_numpy(gate.step))
    weights = trainer.gate_weights()
    gate.assign_expert_weights(weights / weights.sum(-1, keepdims=True), slack=0.5)
    z = gate.trainable_variables[0]
    half = run.settings["gamma"] / 2
    rng = np.random.default_rng([trainer.seeds[run.draw], step])
    z.assign(z + NOISE * half * rng.standard_normal(z.shape))
    gate.choices.assign(np.full(gate.choices.shape, -1))
    return ones(trainer)


def again(own):
    """Decide; then let gates be soft again, and decide again, some times."""
    length = (0.8 - own) / ROUNDS
    events = {own: largest}
    for start in own + length * np.arange(ROUNDS):
        events |= {start + length / 2: soften, start + length: largest}
    return events


def first_of_towers(model):
    """The kernels (tasks, units, outputs) and biases of the towers' first layer."""
    towers = next(each for each in model.layers if each.name.startswith("towers"))
    by_name = {variable.name: variable for variable in towers.variables}
    return by_name["kernel_0"], by_name["bias_0"]


def steps_left(own):
    """The first `own` part of the steps is dense; `None` is all of them."""

    def start(trainer, run):  # noqa: ARG001
        # The gate is dense up to its step MANY.
        left = MANY if own is None else round(own * trainer.problem.epochs) * STEPS
        trainer.gate.step.assign(MANY - left)
        return ones(trainer)

    return {0: start}


def at(action):
    """Do something after a part of the training."""
    return lambda own: {own: action}


def at_start(action):
    """Do something before the training."""
    return lambda own: {0: action}  # noqa: ARG005


GATES: dict[str, Any] = {
    "selectors": lambda k: DSelectKGate(
        k, gamma=setting("gamma"), entropy_reg=setting("entropy")
    ),
    "top_k": lambda k: TopKGate(k, noise=setting("noise"), dense_steps=MANY),
    "none": None,
}
PARTS = (0.2, 0.5)
RECIPE = "DSelect-k, recipe"

ARMS = {
    "softmax": Arm("top_k", lambda own: steps_left(None), dense=True),  # noqa: ARG005
    "shared bottom": Arm("none", dense=True),
    RECIPE: Arm("selectors", at(largest), PARTS),
    "DSelect-k, entropy": Arm(
        "selectors",
        # Before the last epoch, gates that are not sparse keep their largest weights.
        lambda own: {1.0: largest},  # noqa: ARG005
        (0.01, 0.1),
        reads="entropy",
        fixed={"gamma": 1.0},
    ),
    "Top-k": Arm("top_k", lambda own: steps_left(0.0)),  # noqa: ARG005
    "Top-k, noisy": Arm(
        "top_k",
        lambda own: steps_left(0.0),  # noqa: ARG005
        fixed={"noise": 1.0},
    ),
    "Top-k, dense first": Arm("top_k", steps_left, PARTS),
    "random": Arm("selectors", at_start(random_experts)),
    "soft, then random": Arm("selectors", at(random_experts), PARTS),
    "chosen by fit": Arm(
        "selectors",
        # As by default: after each part of 0.05 of the training, until the half of it.
        lambda own: dict.fromkeys(np.arange(0, 0.51, 0.05), by_fit),  # noqa: ARG005
    ),
    "known groups": Arm("selectors", at_start(known_experts)),
    "kept mass in the tower": Arm(
        "selectors", at(kept_mass_in_tower), PARTS, family="remedies"
    ),
    "kept mass in the gate": Arm(
        "selectors", at(kept_mass_in_gate), PARTS, family="remedies"
    ),
    "affine map": Arm("selectors", at(calibrated), PARTS, family="remedies"),
    "noise, decide again": Arm("selectors", again, PARTS, family="remedies"),
}
ARMS |= {
    f"{name}, untuned": dataclasses.replace(ARMS[name], own=own, family="untuned")
    for name, own in (
        ("softmax", (None,)),
        (RECIPE, (0.5,)),
        ("chosen by fit", (None,)),
    )
}
