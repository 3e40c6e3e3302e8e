"""The base class of experiments: a frozen config, and the arms that it compares."""

import abc
import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

from research.engine.claims import Claim

TRIAL_SEED = 1_000_000  # Trials have seeds from here on. They are not reported.


PRESETS = ("smoke", "cpu", "paper")


def preset(cpu, **others):
    """A field of an `Experiment` with a value for each preset.

    Args:
        cpu: The default, which is also that of the presets that are not named.
        **others: The values of `smoke` and of `paper`.
    """
    return dataclasses.field(default=cpu, metadata=others)


class Job(NamedTuple):
    """One training run of an arm.

    Args:
        seed: The seed of all random numbers of the run.
        settings: A dict of the values that are tuned.
    """

    seed: int
    settings: dict[str, Any]

    @property
    def is_trial(self):
        """True for a run of tuning, which is not reported."""
        return self.seed >= TRIAL_SEED


@dataclasses.dataclass(frozen=True)
class Arm:
    """A model that an experiment compares with others.

    Args:
        gate: The gate: a name, or a function that makes it, whose arguments the
            experiment says; `None` for a model without gates.
        architecture: The name of the architecture; see `build_multitask_model`.
        per_example: Whether the gates see the examples.
        space: The settings that are tuned, by name, with the values to try.
        decide: Whether `DecideGates` is used.
        choose: Whether `ChooseExperts` is used.
        more: What else the experiment reads of it, by name.
    """

    gate: Any = None
    architecture: str = "mmoe"
    per_example: bool = False
    space: Mapping[str, tuple] = dataclasses.field(default_factory=dict, hash=False)
    decide: bool = False
    choose: bool = False
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)


@dataclasses.dataclass(frozen=True)
class Experiment(abc.ABC):
    r"""A figure or a table: a frozen config, and the runs that it needs.

    A concrete experiment is a frozen dataclass with a `name`, a `title`, `arms`, `run`,
    `claims` and a template of its page (see `engine.template`), and fields of its
    own, such as sizes, in which its presets differ.
    It compares *arms*. Each arm is tuned first, over its `space` and with seeds that
    are not reported, and then run once for each seed. `reproduce` does both.

    Args:
        seeds: The number of seeds that are reported.
        trials: The number of settings that are tried for each arm with a `space`.
        trial_runs: The number of runs, with seeds of their own, of each setting that is
            tried; the mean of their objectives counts.
        sampler: How they are drawn: `"random"` from the grid; `"grid"`, all of it,
            whatever `trials` is; or `"gp"`, by a Gaussian process over the box around
            it.
        stand_in: Whether noise of the same shapes replaces real data, as a test that
            the experiment runs.
        data_dir: The folder with the files of real data; see `datasets.load`.

    Example:
        >>> import dataclasses
        >>> from research.engine import Claim, Experiment, Higher
        >>> from research.engine import fill_template, reproduce
        >>> @dataclasses.dataclass(frozen=True)
        ... class Coin(Experiment):
        ...     name = "coin"
        ...     title = "a coin that is thrown many times"
        ...     page = (
        ...         "| claim | hypothesis | here |\n| --- | --- | --- |\n"
        ...         "| more | It has more heads. | {heads of bent minus fair} |"
        ...     )
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
        ...     @property
        ...     def claims(self):
        ...         yield Claim("more", Higher("bent", "fair", by="heads"))
        >>> results = reproduce(Coin(seeds=3), progress=False)
        >>> fill_template(results).verdict
        'yes'
    """

    name: ClassVar[str]
    title: ClassVar[str]  # What it shows, as a caption.
    paper: ClassVar[str] = ""  # Where it is from, such as "MMoE (Ma et al., KDD 2018)".
    where: ClassVar[str] = ""  # The place in the paper, such as "Figure 5".
    tuned_by: ClassVar[str] = "validation"  # What the objective is.
    shown_runs: ClassVar[str] = ""  # Whose runs it shows, if not its own.
    # Its data, and how many numbers an example has: see `plan`.
    needs: ClassVar[tuple[str, int]] = ("data that are drawn", 20)
    scales: ClassVar[tuple[str, ...]] = ("num_train", "epochs")  # Time grows with them.
    page: ClassVar[str] = ""  # The template of its page; empty: the `.md` beside it.
    trains: ClassVar[bool] = True  # Whether it trains anything.
    # How often verdicts were read, each time with more seeds: see `engine.compare`.
    looks: ClassVar[int] = 1
    together: ClassVar[int] = 1  # Seeds or trials in one program, if not said.
    pictures: ClassVar[tuple[str, ...]] = ()  # Of a block: see `pages.write_pictures`.
    # The paper's data for which others stand in here: see `engine.template`.
    stands_in_for: ClassVar[str] = ""

    seeds: int = 1
    trials: int = 0
    trial_runs: int = 1
    sampler: str = "random"
    stand_in: bool = False
    data_dir: str | None = None

    @classmethod
    def presets(cls) -> Mapping[str, Self]:
        """The configs by name: the defaults, with what fields have in `preset`.

        Where no field has a value for another preset, `"cpu"` is the only one.
        """
        own = {f.name: f.metadata for f in dataclasses.fields(cls) if f.metadata}
        return {
            preset: cls(
                **{n: each[preset] for n, each in own.items() if preset in each}
            )
            for preset in (PRESETS if own else ("cpu",))
        }

    @property
    @abc.abstractmethod
    def arms(self) -> dict[str, Any]:
        """The arms to compare: a dict from their names to their settings."""

    def space(self, arm) -> dict[str, tuple]:
        """The settings of an arm that are tuned, by name, with the values to try."""
        settings = self.arms[arm]
        return dict(settings.space) if isinstance(settings, Arm) else {}

    @abc.abstractmethod
    def run(self, arm, jobs) -> list[dict[str, Any]]:
        """Train an arm, once for each job; all jobs together where that is faster.

        Args:
            arm: Name of an arm.
            jobs: A list of `Job`.

        Returns:
            A list with a dict of results for each job: numbers, strings, or lists of
            them. Tuning minimizes the `"objective"`. Settings for which `"admissible"`
            is false are not chosen. If the arm has no `space`, it may tune a job
            itself: `"settings"` are what it has chosen.
        """

    @property
    def claims(self) -> Iterable[Claim]:
        """A `Claim` for each row in the table of claims of its page, or several."""
        return ()

    def views(self, results):
        """The `Results` by what is read of them where a paper has several readings."""
        return {"": results}

    @property
    def fields(self) -> dict[str, Any]:
        """Names that its template has besides attributes: see `template`."""
        return {}

    def machines(self, results):
        """Backends, machines and days of the runs, as text."""
        texts = []
        for each in results.environments:
            backend = f"{each['backend']} {each.get('backend_version', '')}".strip()
            texts.append(
                ", ".join(filter(None, [backend, each["device"], each.get("date")]))
            )
        return "; ".join(texts)

    @property
    def source(self):
        """The name of the experiment whose runs are reported; by default, its own."""
        return self.shown_runs or self.name

    @property
    def config(self):
        """The settings on which the results of its runs depend, as JSON values."""
        fields = dataclasses.asdict(self)
        for left_out in ("seeds", "data_dir"):
            del fields[left_out]
        if self.trial_runs == 1:
            del fields["trial_runs"]
        return json.loads(json.dumps(fields | self.spaces))

    @property
    def spaces(self):
        """The space of each arm that is tuned, for the config; empty if none is."""
        found = {arm: self.space(arm) for arm in self.arms}
        found = {arm: space for arm, space in found.items() if space}
        return {"space": found} if found else {}
