"""A bench: a table of arms and a table of problems, as experiments that are run."""

import abc
import dataclasses
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import keras

from common.files import numbers, read_json
from research.engine import Experiment, Results

COMMITTED = pathlib.Path(__file__).parents[3] / "docs" / "gatebench"
MANY = 10**6


@dataclasses.dataclass(frozen=True)
class Bench(Experiment):
    """All arms of a bench on one problem.

    A bench has `arms`, `problems` and a method `run`. Its results are files in a folder
    with its name.

    Args:
        problem: One of its problems.
    """

    problems: ClassVar[Mapping[str, Any]]
    together: ClassVar[int] = MANY

    problem: Any = None

    @property
    def preset(self):
        """The name of the problem, as it is in the name of a file."""
        return re.sub(r"\W+", "-", self.problem.name)

    @classmethod
    @abc.abstractmethod
    def of_config(cls, config) -> Self:
        """The bench on the problem of a config."""

    @classmethod
    def read(cls, folder):
        """The `Results` of the problems that a folder has, by the name of the problem.

        They need not be of today's config: they are shown, and not continued.
        """
        every = {}
        for path in sorted(
            (pathlib.Path(folder) / cls.name).glob(f"{cls.name}_*.json")
        ):
            bench = cls.of_config(read_json(path)["config"])
            every[bench.problem.name] = Results(bench, bench.preset, path.parent)
        return {name: every[name] for name in cls.problems if name in every}

    @classmethod
    def committed(cls):
        """The committed `Results`."""
        return cls.read(COMMITTED)

    def results(self, folder, fresh=False):
        """The `Results` that a folder has; an error if they are of another backend."""
        found = Results(self, self.preset, folder, fresh)
        backend = keras.backend.backend()
        if others := {each["backend"] for each in found.environments} - {backend}:
            raise ValueError(
                f"{found.path} has results of the backend {', '.join(others)}. "
                f"Received: {backend}. Pass another --out, or the same --backend."
            )
        return found


def rows_of(every):
    """The reported runs of some `Results` as dicts, with infinity for null."""
    found = []
    for results in every:
        problem = results.experiment.problem
        names = "family", "kind", "overlap"
        about = {name: getattr(problem, name) for name in names}
        about["problem"] = problem.name
        for run in results.runs:
            own = {"arm": run.arm, "draw": run.seed, "settings": run.settings}
            if not run.tuning:
                found.append({**about, **own, **numbers(run.numbers, math.inf)})
    return found
