"""What every reproduced figure or table is."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from dselectk_keras.experiments.report import Report

PAPERS = {
    "dselectk": "DSelect-k (Hazimeh et al., NeurIPS 2021)",
    "mmoe": "MMoE (Ma et al., KDD 2018)",
    "specialization": "Improving Expert Specialization in Mixture of Experts "
    "(Krishnamurthy et al., 2023)",
    "smear": "SMEAR (Muqeeth et al., 2023)",
}


class Job(NamedTuple):
    """One training run of an arm.

    Args:
        seed: Of whatever the run draws.
        settings: A dict of the values that are tuned.
    """

    seed: int
    settings: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Experiment(abc.ABC):
    """A figure or a table of a paper: a frozen config, and the runs that fill it.

    A concrete one has the class attributes below, `presets`, `arms`, `run` and
    `report`, and fields of its own: the sizes that tell a preset from another. What is
    compared are its *arms*. Each arm is tuned first, over its `space` and on seeds
    that are not reported, and then run once for each seed.

    Args:
        seeds: How many seeds are reported.
        trials: How many settings are tried for each arm that has a `space`.
        sampler: How they are drawn: `"random"` from the grid, or `"gp"`, by a Gaussian
            process over the box around it.
        stand_in: Whether real data are replaced by noise of the same shapes, which
            only shows that the experiment runs.
        data_dir: The folder with the files of real data; see `datasets.load`.
    """

    name: ClassVar[str]
    title: ClassVar[str]  # What is seen, as a caption.
    where: ClassVar[str]  # The place in the paper, such as "Figure 5".
    about: ClassVar[str]  # What is trained and measured, in Markdown.

    seeds: int = 1
    trials: int = 0
    sampler: str = "random"
    stand_in: bool = False
    data_dir: str | None = None

    @classmethod
    @abc.abstractmethod
    def presets(cls) -> "Mapping[str, Experiment]":
        """The configs, by name: `"smoke"`, `"cpu"` and `"paper"`.

        Returns:
            A dict of experiments.
        """

    @property
    @abc.abstractmethod
    def arms(self) -> dict[str, Any]:
        """What is compared: a dict from the arms' names to what `run` knows of them."""

    def space(self, arm) -> dict[str, tuple]:
        """What is tuned.

        Args:
            arm: Name of an arm.

        Returns:
            A dict from the names of settings to the values to try; empty if nothing
            is.
        """
        return {}

    @abc.abstractmethod
    def run(self, arm, jobs) -> list[dict[str, Any]]:
        """Train an arm, once for each job; all jobs together where that is faster.

        Args:
            arm: Name of an arm.
            jobs: A list of `Job`.

        Returns:
            A list with a dict of results for each job: numbers, strings, or lists of
            them. For arms that are tuned, `"objective"` is what is to be low, and
            `"admissible"` may say that the paper's rules disregard the run.
        """

    @abc.abstractmethod
    def report(self, results) -> Report:
        """What came out.

        Args:
            results: A `Results`, of any number of seeds.

        Returns:
            A `Report`.
        """

    @property
    def paper(self):
        """The paper that the experiment is from."""
        return PAPERS[self.name.split("-", maxsplit=1)[0]]

    @property
    def source(self):
        """The name of the experiment whose runs this one reports: mostly its own."""
        return self.name

    @property
    def config(self):
        """What makes its runs what they are, as JSON has it."""
        left_out = ("seeds", "data_dir")
        return {
            name: _plain(value)
            for name, value in dataclasses.asdict(self).items()
            if name not in left_out
        }


def _plain(value):
    """Tuples as lists, as they come back from a file."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
