"""The comparison of static gates on one problem."""

import dataclasses
import functools
import itertools
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from research.benches.bench import Bench
from research.benches.gates.arms import CHOICES, FEW_ARMS, GATES, KNOWN, NORMALIZED
from research.benches.gates.problems import PROBLEMS
from research.benches.gates.training import GateTrainer
from research.benches.training import best_epoch
from research.engine import Arm, Job

# What the results of a problem depend on, beside its data and its epochs.
SIZES = "num_experts num_nonzeros units tower layers batch_size steps rates decays"
SIZES = *SIZES.split(), "first_seed"
ARMS = {**GATES, **CHOICES}
# In the middle of the grid, for the arms without tuning.
ONE_SETTING = {"rate": 0.03, "decay": 0.3}


@dataclasses.dataclass(frozen=True)
class Gates(Bench):
    """Gates on one problem. Each is tuned on each draw, by the validation loss there.

    Args:
        compared: A dict of `Arm`, by name.
    """

    name: ClassVar[str] = "gates"
    title: ClassVar[str] = "gates on one problem"
    scales: ClassVar[tuple[str, ...]] = ("epochs",)
    problems: ClassVar[Mapping[str, Any]] = PROBLEMS

    compared: Mapping[str, Arm] = dataclasses.field(default_factory=lambda: ARMS)

    @property
    def epochs(self):
        """The number of epochs."""
        return self.problem.epochs

    @property
    def config(self):
        """The settings on which the results depend, as JSON values."""
        sizes = {name: getattr(self.problem, name) for name in SIZES}
        config = {"problem": self.problem.name, "epochs": self.epochs, "sizes": sizes}
        return json.loads(json.dumps(config | self.spaces))

    @classmethod
    def of_config(cls, config):
        """The bench on the problem of a config, with its epochs."""
        return cls.of(config["problem"], epochs=config["epochs"])

    @classmethod
    def of(cls, name, draws=None, epochs=None, data_dir=None):
        """The bench on a problem by the options of the command."""
        problem = PROBLEMS[name]
        draws = min(draws or problem.draws, problem.draws)
        problem = dataclasses.replace(problem, epochs=epochs or problem.epochs)
        return cls(problem=problem, seeds=draws, data_dir=data_dir)

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
        tables, trainer = tables_of(*data), trainer_of(*data, *form_of(compared))
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
        found = trainer.train(compared, tables, asked)
        for job, history in zip(asked, found, strict=True):
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
    """A trainer with its compiled program, which arms share."""
    table = tables_of(problem, draws, folder)[draws[0]]
    return GateTrainer(problem, table, gate, architecture)


@functools.lru_cache(maxsize=1)
def tables_of(problem, draws, folder):
    """The data of a problem, by draw."""
    return {draw: problem.load(problem.first_seed + draw, folder) for draw in draws}


def summarize(trainer, job, history, dense=False):
    """The best epoch of a job, among those in which a task reads k experts at most.

    Args:
        trainer: A `GateTrainer`.
        job: A `Job`.
        history: Errors on validation and test, and the mean and the largest number of
            units that a task reads, arrays `(epochs,)`.
        dense: Whether a task may read more.
    """
    validation, test, units, most = history
    counts = dense | (most <= trainer.k * trainer.problem.units)
    best, *errors = best_epoch(validation, test, counts)
    return {
        "settings": job.settings,
        "epoch": best,
        **dict(zip(("validation", "test"), errors, strict=True)),
        "multiplications": trainer.multiplications(float(units[best])),
    }
