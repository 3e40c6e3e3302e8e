"""A frozen config, the arms it compares, and the runs that fill it."""

import abc
import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from dselectk_keras.experiments.report import Report

TRIAL_SEED = 1_000_000  # Trials have the seeds from here on, which nothing reports.


class Job(NamedTuple):
    """One training run of an arm.

    Args:
        seed: Of whatever the run draws.
        settings: A dict of the values that are tuned.
    """

    seed: int
    settings: dict[str, Any]

    @property
    def is_trial(self):
        """Whether the run is one of tuning, and is not reported."""
        return self.seed >= TRIAL_SEED


@dataclasses.dataclass(frozen=True)
class Experiment(abc.ABC):
    """A figure or a table: a frozen config, and the runs that fill it.

    A concrete experiment is a frozen dataclass with a `name`, a `title`, `arms`, `run`
    and `report`, and fields of its own: the sizes that tell one preset from another.
    It compares *arms*. Each arm is tuned first, over its `space` and with seeds that
    are not reported, and then run once for each seed. `reproduce` does both.

    Args:
        seeds: How many seeds are reported.
        trials: How many settings are tried for each arm that has a `space`.
        sampler: How they are drawn: `"random"` from the grid; `"grid"`, all of it,
            whatever `trials` is; or `"gp"`, by a Gaussian process over the box around
            it.
        stand_in: Whether noise of the same shapes replaces real data, which only
            shows that the experiment runs.
        data_dir: The folder with the files of real data; see `datasets.load`.
        gates: Gates to compare beside the experiment's own: a dict from their names to
            functions that return a new gate. A function is given the number of experts
            that a sparse gate may choose, and the number of training steps of a run.

    Example:
        >>> import dataclasses
        >>> from dselectk_keras.experiments import Claim, Experiment, Report, reproduce
        >>> @dataclasses.dataclass(frozen=True)
        ... class Coin(Experiment):
        ...     name = "coin"
        ...     title = "a coin that is thrown many times"
        ...     throws: int = 1_000
        ...
        ...     @property
        ...     def arms(self):
        ...         return {"fair": 0.5, "bent": 0.6}
        ...
        ...     def run(self, arm, jobs):
        ...         rngs = [np.random.default_rng(job.seed) for job in jobs]
        ...         found = [rng.binomial(self.throws, self.arms[arm]) for rng in rngs]
        ...         return [{"heads": heads} for heads in found]
        ...
        ...     def report(self, results):
        ...         more = results.mean("bent", "heads") > results.mean("fair", "heads")
        ...         return Report([Claim("Bent: more heads.", "", more, "Table 1")])
        >>> results = reproduce(Coin(seeds=3), progress=False)
        >>> results.experiment.report(results).verdict
        'yes'
    """

    name: ClassVar[str]
    title: ClassVar[str]  # What it shows, as a caption.
    paper: ClassVar[str] = ""  # Where it is from, such as "MMoE (Ma et al., KDD 2018)".
    where: ClassVar[str] = ""  # The place in the paper, such as "Figure 5".
    about: ClassVar[str] = ""  # What is trained and measured, in Markdown.
    tuned_by: ClassVar[str] = "validation"  # What the objective is.

    seeds: int = 1
    trials: int = 0
    sampler: str = "random"
    stand_in: bool = False
    data_dir: str | None = None
    gates: Mapping[str, Callable] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        """Refuse gates for which there are no arms."""
        if not self.gates:
            return
        known = dataclasses.replace(self, gates={}).arms
        added = [arm for arm in self.arms if arm not in known]
        if lost := [name for name in self.gates if not any(name in a for a in added)]:
            raise ValueError(
                f"{self.name} has no arms for the gates {', '.join(lost)}: either it "
                "does not compare gates, or its own arms have these names. It compares "
                f"{', '.join(known)}."
            )

    @classmethod
    def presets(cls) -> "Mapping[str, Experiment]":
        """The configs, by name; unless overridden, `"cpu"` with the defaults.

        Returns:
            A dict of experiments.
        """
        return {"cpu": cls()}

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
            `"admissible"` may say that the run breaks a rule, and may not be chosen.
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
    def source(self):
        """The name of the experiment whose runs this one reports: mostly its own."""
        return self.name

    @property
    def config(self):
        """What makes its runs what they are, as JSON has it."""
        fields = dataclasses.asdict(self)
        for left_out in ("seeds", "data_dir", "gates"):
            del fields[left_out]
        if self.gates:
            fields["gates"] = list(self.gates)
        return json.loads(json.dumps(fields))
