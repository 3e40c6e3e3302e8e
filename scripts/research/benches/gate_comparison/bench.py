"""The comparison of gates on one problem, as an experiment that `reproduce` runs."""

import dataclasses
import functools
import itertools
import json
import math
import pathlib
import re
from collections.abc import Mapping
from typing import ClassVar

import keras
import numpy as np

from common.files import numbers, read_json
from research.benches.gate_comparison.arms import (
    CHOICES,
    FEW_ARMS,
    GATES,
    KNOWN,
    MANY,
    NORMALIZED,
)
from research.benches.gate_comparison.problems import PROBLEMS, Problem
from research.benches.gate_comparison.training import Trainer
from research.engine import Arm, Experiment, Job, Results

COMMITTED = pathlib.Path(__file__).parents[4] / "docs" / "gatebench" / "gates"
# What the results of a problem depend on, beside its data and its epochs.
SIZES = (
    "num_experts",
    "num_nonzeros",
    "units",
    "tower",
    "layers",
    "batch_size",
    "steps",
    "rates",
    "decays",
    "first_seed",
)
ARMS = {**GATES, **CHOICES}
# In the middle of the grid, for the arms without tuning.
ONE_SETTING = {"rate": 0.03, "decay": 0.3}


@dataclasses.dataclass(frozen=True)
class Gates(Experiment):
    """Gates on one problem. Each is tuned on each draw, by the validation loss there.

    Args:
        problem: A `Problem`.
        compared: A dict of `Arm`, by name: those of GateBench, or a user's.
    """

    name: ClassVar[str] = "gates"
    title: ClassVar[str] = "gates on one problem"
    scales: ClassVar[tuple[str, ...]] = ("epochs",)
    together: ClassVar[int] = MANY

    problem: Problem = PROBLEMS["adult"]
    compared: Mapping[str, Arm] = dataclasses.field(default_factory=lambda: ARMS)

    @property
    def preset(self):
        """The name of the problem, as it is in the name of a file."""
        return re.sub(r"\W+", "-", self.problem.name)

    @property
    def epochs(self):
        """The number of epochs."""
        return self.problem.epochs

    @property
    def own(self):
        """The names of a user's gates."""
        return [name for name in self.compared if name not in ARMS]

    @property
    def config(self):
        """The settings on which the results depend, as JSON values."""
        own = {"gates": self.own} if self.own else {}
        sizes = {name: getattr(self.problem, name) for name in SIZES}
        config = {"problem": self.problem.name, "epochs": self.epochs, "sizes": sizes}
        return json.loads(json.dumps(config | self.spaces | own))

    @property
    def arms(self):
        """The arms that suit the problem, those that share a program side by side."""
        problem, left_out = self.problem, set()
        if problem.few:
            left_out = set(ARMS).difference(FEW_ARMS)
        if not problem.grouped:
            left_out |= {name for name in GATES if name.startswith(KNOWN)}
        if problem.expert:
            left_out |= set(NORMALIZED)
        every = self.compared
        forms = list(map(form_of, every.values()))
        order = sorted(every, key=lambda name: forms.index(form_of(every[name])))
        return {name: every[name] for name in order if name not in left_out}

    def grid(self, arm):
        """The settings that are tried; of random choices, beside those of `random`.

        AdamW multiplies weights by 1 - rate x decay in a step, which must be positive.
        """
        space = {"rate": self.problem.rates, "decay": self.problem.decays}
        if arm in CHOICES:
            space = {}
        space |= self.arms[arm].space
        points = itertools.product(*space.values())
        grid = [dict(zip(space, point, strict=True)) for point in points]
        return [each for each in grid if each.get("rate", 0) * each.get("decay", 0) < 1]

    def run(self, arm, jobs):
        """Train an arm with its grid of settings on each draw; keep the best of each.

        Choices need the best settings of `random`, which is run if it has not been.
        """
        compared, draws = self.arms[arm], tuple(job.seed for job in jobs)
        data = self.problem, draws, self.data_dir or "."
        trainer = trainer_of(*data, *form_of(compared))
        bases = [{}] * len(jobs)
        if arm in CHOICES:
            if "random" not in trainer.best:
                self.run("random", jobs)
            bases = trainer.best["random"]
        asked = [
            Job(draw, base | own)
            for draw, base in zip(draws, bases, strict=True)
            for own in self.grid(arm)
        ]
        rows = {draw: [] for draw in draws}
        for job, history in zip(asked, trainer.train(compared, asked), strict=True):
            row = summarize(trainer, job, history, compared.more["dense"])
            rows[job.seed].append(row)
        found = [self.best(arm, each) for each in rows.values()]
        trainer.best[arm] = [row["settings"] for row in found]
        return found

    def best(self, arm, rows):
        """The row with the lowest validation loss, and test errors of other rows."""
        found = min(rows, key=lambda row: row["validation"])
        if arm in CHOICES:
            return found | {"choices": [row["test"] for row in rows]}
        one = ONE_SETTING | {key: own[-1] for key, own in self.arms[arm].space.items()}
        # A small grid may not have the setting.
        untuned = [row["test"] for row in rows if row["settings"] == one]
        return found | ({"untuned": untuned[0]} if untuned else {})


def form_of(arm):
    """The gate and the architecture: arms with the same ones share a program."""
    return arm.gate, arm.architecture


# One, since arms of a form come one after another.
@functools.lru_cache(maxsize=1)
def trainer_of(problem, draws, folder, gate, architecture):
    """A `Trainer` with its compiled program, which arms share."""
    return Trainer(problem, tables_of(problem, draws, folder), gate, architecture)


@functools.lru_cache(maxsize=1)
def tables_of(problem, draws, folder):
    """The data of a problem, by draw."""
    return {draw: problem.load(problem.first_seed + draw, folder) for draw in draws}


def summarize(trainer, job, history, dense=False):
    """The best epoch of a job, among those in which a task reads k experts at most."""
    admissible = np.isfinite(history.validation)
    if not dense:
        admissible &= history.most <= trainer.k * trainer.problem.units
    losses = np.where(admissible, history.validation, np.inf)
    best = int(losses.argmin())
    return {
        "settings": job.settings,
        "epoch": best,
        "validation": float(losses[best]),
        "test": float(history.test[best]) if admissible.any() else np.inf,
        "multiplications": trainer.multiplications(float(history.units[best])),
    }


def of_problem(name, options, gates):
    """The `Gates` of a problem by the options of the command, or a user's `gates`."""
    problem = PROBLEMS[name]
    epochs = options.epochs or problem.epochs
    return Gates(
        problem=dataclasses.replace(problem, epochs=epochs),
        compared=gates or ARMS,
        seeds=min(options.draws or problem.draws, problem.draws),
        data_dir=options.data_dir,
    )


def open_results(bench, folder, fresh=False):
    """The `Results` of a bench that are in a folder; an error if of another backend."""
    found = Results(bench, bench.preset, folder, fresh or bool(bench.own))
    backend = keras.backend.backend()
    if others := {each["backend"] for each in found.environments} - {backend}:
        raise ValueError(
            f"{found.path} has results of the backend {', '.join(others)}. "
            f"Received: {backend}. Pass another --out, or the same --backend."
        )
    return found


def committed(name):
    """The committed `Results` of a problem, without runs if there are none of it."""
    gates = Gates(problem=PROBLEMS[name])
    for results in read(COMMITTED):
        if results.experiment.config == gates.config:
            return results
    return Results(gates, gates.preset)


def read(folder):
    """The `Results` of the problems that a folder has, a list."""
    every = []
    for path in sorted(pathlib.Path(folder).glob(f"{Gates.name}_*.json")):
        config = read_json(path)["config"]
        problem = PROBLEMS[config["problem"]]
        # Results that were made with other rows are shown, and not continued.
        seed = config["sizes"]["first_seed"]
        problem = dataclasses.replace(problem, epochs=config["epochs"], first_seed=seed)
        spaces = config.get("space", {})
        own = {
            name: Arm(space=spaces.get(name, {})) for name in config.get("gates", ())
        }
        bench = Gates(problem=problem, compared=own or ARMS)
        every.append(Results(bench, bench.preset, folder))
    return every


def rows_of(every):
    """The runs of some `Results`, as dicts, with infinity where JSON has none."""
    return [
        {
            "problem": results.experiment.problem.name,
            "arm": run.arm,
            "draw": run.seed,
            "settings": run.settings,
            **numbers(run.numbers, math.inf),
        }
        for results in every
        for run in results.runs
    ]
