"""The comparison of routers on one problem, as an experiment that `reproduce` runs.

`Experiment` and `reproduce` tune, repeat, resume and save with no code of its own here.
`Program` trains the settings of an arm side by side, as in the comparison of static
gates, of which this uses the statistics, the other gates and the tables.
"""

import dataclasses
import functools
import pathlib
import re
from typing import ClassVar

from research.benches.router_comparison.arms import (
    DECAYS,
    KNOWN,
    RATES,
    ROUTERS,
    UNITS,
)
from research.benches.router_comparison.problems import PROBLEMS
from research.benches.router_comparison.training import BATCH_SIZE, STEPS, train
from research.engine import Experiment, Results
from research.engine.results import results_path

COMMITTED = pathlib.Path(__file__).parents[4] / "docs" / "gatebench" / "routers"
# Of a problem.
SIZES = "num_experts", "hidden", "classes"


@dataclasses.dataclass(frozen=True)
class Routers(Experiment):
    """All arms on one problem; trials are on a draw that is not reported.

    Args:
        problem: The name of a `Problem`.
        stages: The number of stages of a training, of `STEPS` steps.
        rows: `"apart"`: no trial has seen a row of a reported test.
    """

    name: ClassVar[str] = "routers"
    title: ClassVar[str] = "routers on one problem"
    scales: ClassVar[tuple[str, ...]] = ("stages",)
    together: ClassVar[int] = 10**6

    seeds: int = 4
    sampler: str = "grid"
    problem: str = "tag"
    stages: int = 12
    rows: str = "apart"

    @property
    def preset(self):
        """The name of the problem, as it is in the name of a file."""
        return re.sub(r"\W+", "-", self.problem)

    @property
    def arms(self):
        """The arms; where regions are not known, without those of known regions."""
        has_regions = PROBLEMS[self.problem].kind in ("regions", "images")
        return {
            name: arm for name, arm in ROUTERS.items() if has_regions or name != KNOWN
        }

    @property
    def config(self):
        """The settings on which the results depend, the sizes of the problem too."""
        problem = PROBLEMS[self.problem]
        sizes = {name: getattr(problem, name) for name in SIZES}
        sizes |= {"units": UNITS, "steps": STEPS, "batch_size": BATCH_SIZE}
        return {**super().config, "sizes": sizes}

    def space(self, arm):
        """The rates and decays that all arms share, and the own setting."""
        return {"rate": RATES, "decay": DECAYS, **super().space(arm)}

    def run(self, arm, jobs):
        """Train an arm, once for each job."""
        tables = {job.seed: self.load(job.seed) for job in jobs}
        return train(PROBLEMS[self.problem], arm, tables, jobs, self.stages)

    def load(self, seed):
        """The data of a seed."""
        return load(self.problem, seed, self.data_dir or ".")


def of_problem(name, options, _):
    """The `Routers` of a problem by the options of the command."""
    draws = options.draws or Routers.seeds
    return Routers(problem=name, seeds=draws, data_dir=options.data_dir)


def open_results(bench, folder, fresh=False):
    """The `Results` of a bench that are in a folder."""
    return Results(bench, bench.preset, folder, fresh)


def committed(name):
    """The committed `Results` of a problem, without runs if there are none of it."""
    bench = Routers(problem=name)
    return read(COMMITTED).get(name, Results(bench, bench.preset))


def read(folder):
    """The `Results` of a folder by problem."""
    every = {}
    for name in PROBLEMS:
        bench = Routers(problem=name)
        if results_path(bench, bench.preset, folder).exists():
            every[name] = Results(bench, bench.preset, folder)
    return every


@functools.lru_cache(maxsize=8)
def load(problem, seed, folder):
    """The data of a problem and a seed."""
    return PROBLEMS[problem].load(seed, folder)


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
