"""The comparison of routers on one problem."""

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from research.benches.bench import Bench
from research.benches.routers.arms import (
    BATCH_SIZE,
    DECAYS,
    KNOWN,
    RATES,
    ROUTERS,
    STEPS,
    UNITS,
)
from research.benches.routers.problems import PROBLEMS
from research.benches.routers.training import sizes_of, trainer_of
from research.benches.training import best_epoch

FIELDS = "trials", "sampler", "stand_in", "stages"
# Of a problem.
SIZES = "num_experts", "hidden", "classes"


@dataclasses.dataclass(frozen=True)
class Routers(Bench):
    """All arms on one problem; trials are on a draw that is not reported.

    Args:
        stages: The number of stages of a training, of `STEPS` steps.
    """

    name: ClassVar[str] = "routers"
    title: ClassVar[str] = "routers on one problem"
    scales: ClassVar[tuple[str, ...]] = ("stages",)
    problems: ClassVar[Mapping[str, Any]] = PROBLEMS

    seeds: int = 4
    sampler: str = "grid"
    stages: int = 12

    @property
    def arms(self):
        """The arms; where regions are not known, without those of known regions."""
        has_regions = self.problem.kind in ("regions", "images")
        return {
            name: arm for name, arm in ROUTERS.items() if has_regions or name != KNOWN
        }

    @property
    def config(self):
        """The settings on which the results depend, the sizes of the problem too."""
        sizes = {name: getattr(self.problem, name) for name in SIZES}
        sizes |= {"units": UNITS, "steps": STEPS, "batch_size": BATCH_SIZE}
        # No trial has seen a row of a reported test.
        own = {"problem": self.problem.name, "rows": "apart", "sizes": sizes}
        fields = {name: getattr(self, name) for name in FIELDS}
        return json.loads(json.dumps(fields | own | self.spaces))

    @classmethod
    def of_config(cls, config):
        """The bench on the problem of a config, with its stages."""
        return cls(problem=PROBLEMS[config["problem"]], stages=config["stages"])

    @classmethod
    def of(cls, name, draws=None, epochs=None, data_dir=None):  # noqa: ARG003
        """The bench on a problem by the options of the command."""
        return cls(problem=PROBLEMS[name], seeds=draws or cls.seeds, data_dir=data_dir)

    def space(self, arm):
        """The rates and decays that all arms share, and the own setting."""
        return {"rate": RATES, "decay": DECAYS, **super().space(arm)}

    def run(self, arm, jobs):
        """Train an arm, once for each job; the best stage is that by validation."""
        tables = {
            job.seed: load(self.problem, job.seed, self.data_dir or ".") for job in jobs
        }
        sizes = sizes_of(self.problem, tables[jobs[0].seed])
        trainer, found = trainer_of(self.arms[arm], sizes, self.stages), []
        for history in trainer.train(self.arms[arm], tables, jobs):
            best, validation, test = best_epoch(*history)
            found.append({"objective": validation, "test": test, "stage": best + 1})
        return found


@functools.lru_cache(maxsize=8)
def load(problem, seed, folder):
    """The data of a problem and a seed."""
    return problem.load(seed, folder)


def multiplications(arm, inputs, num_experts, outputs, hidden=0, training=False):
    """The multiplications for serving an example, or for a step of training with it.

    In training, a product of a layer has two more in the backward pass, for the
    gradients of its kernel and of its inputs; those of the model need none. Experts
    without weight do not run, as with `dispatch`. Losses, penalties and the optimizer
    are left out.

    Args:
        arm: The name of an arm.
        inputs: The number of inputs.
        num_experts: The number of experts.
        outputs: The number of outputs of the last layer.
        hidden: The units of a hidden layer of the router.
        training: Whether to count training, forward and backward.
    """
    arm = ROUTERS[arm]
    # Products with the inputs of the model, and others.
    first, later = (2, 3) if training else (1, 1)
    expert, last = first * inputs * UNITS, later * UNITS * outputs
    if arm.architecture in ("one", "wide"):
        wide = num_experts if arm.architecture == "wide" else arm.more["units"] / UNITS
        return wide * (expert + last)
    if arm.more["tag"]:
        return expert + last
    router = first * inputs * num_experts
    if hidden:
        router = (first * inputs + later * num_experts) * hidden
    if arm.architecture == "merged":
        parameters = (inputs + 1) * UNITS
        return router + later * num_experts * parameters + expert + last
    run, shared = arm.more["k"] or num_experts, 0
    # A shared kernel is added to the experts' own before serving.
    if arm.more["shared"] == "expert" or (arm.more["shared"] and training):
        shared = expert
    if training:
        dense = arm.more["dense"]
        run = dense * num_experts + (1 - dense) * run
        if arm.architecture == "losses":
            return router + shared + run * (expert + last)
    return router + shared + run * (expert + later * UNITS) + last
