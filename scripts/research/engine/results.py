"""The runs of an experiment, saved in a file."""

import copy
import dataclasses
import hashlib
import json
import math
import pathlib
import re

import numpy as np

from common.files import damaged, numbers, to_json, write_whole
from common.run_folder import differing
from research.engine.compare import NOT_RUN, Gap, gap_of, mean_and_error


class NotRunError(LookupError):
    """An arm has no runs."""


BREAK = r"\n *"  # No string of JSON has one.
HEAD = ("experiment", "preset", "config", "environments")


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run.

    Args:
        arm: Name of its arm.
        seed: Its seed.
        settings: A dict of the settings that were tuned.
        numbers: A dict of the results.
        seconds: The time it took.
        tuning: Whether it was a trial, which is not reported.
        environment: The index of the environment in which it ran.
    """

    arm: str
    seed: int
    settings: dict
    numbers: dict
    seconds: float
    tuning: bool = False
    environment: int = 0


class Results:
    """The runs of one experiment at one preset, each saved when it ends.

    Args:
        experiment: An `Experiment`.
        preset: The name of its preset.
        folder: The folder of the file; `None` keeps the runs in memory only.
        fresh: Whether to discard runs that are in the file already.
    """

    def __init__(self, experiment, preset, folder=None, fresh=False):
        self.experiment = experiment
        self.preset = preset
        self.path = results_path(experiment, preset, folder)
        self.runs = []
        self.environments = []
        self.spaces = {}  # Those of the file: another experiment may share it.
        if self.path and self.path.exists() and not fresh:
            self._read(self.path)

    def add(self, run, environment):
        """Keep a run, also in the file, with the number of its environment.

        It takes the place of a reported run of its arm and seed. Of an arm with trials,
        reported runs of other settings, which were the best ones before, are dropped.
        """
        if environment not in self.environments:
            self.environments.append(environment)
        number = self.environments.index(environment)
        numbers = _plain(run.numbers)
        if not run.tuning:
            is_tuned = bool(self.of(run.arm, tuning=True))

            def is_stale(other):
                if other.tuning or other.arm != run.arm:
                    return False
                settings = text_of(other.settings)
                differs = is_tuned and settings != text_of(run.settings)
                return other.seed == run.seed or differs

            self.runs = [each for each in self.runs if not is_stale(each)]
        self.runs.append(dataclasses.replace(run, environment=number, numbers=numbers))
        if self.path:
            self._write(self.path)

    @property
    def complete(self):
        """True if every arm has a run to report."""
        return all(self.of(arm) for arm in self.experiment.arms)

    def of(self, arm, tuning=False):
        """List the reported runs of an arm by seed, or with `tuning` its trials."""
        runs = [run for run in self.runs if run.arm == arm and run.tuning == tuning]
        return runs if tuning else sorted(runs, key=lambda run: run.seed)

    def values(self, arm, number):
        """A number of each reported run of an arm: an array, with NaN if missing."""
        found = [run.numbers.get(number) for run in self.ran(arm)]
        return np.array(found, dtype="float64")

    def mean(self, arm, number):
        """The mean of a number over the reported runs of an arm that have it."""
        return self._mean_and_error(arm, number)[0]

    def error(self, arm, number):
        """The standard error of that mean: NaN for a single run."""
        return self._mean_and_error(arm, number)[1]

    def _mean_and_error(self, arm, number):
        values = self.values(arm, number)
        return mean_and_error(values[~np.isnan(values)])

    def within_rules(self):
        """A copy that reports only the runs that are admissible."""
        kept = copy.copy(self)
        kept.runs = [
            run
            for run in self.runs
            if run.tuning or run.numbers.get("admissible", True)
        ]
        return kept

    def gap(self, arm, other, number="loss", scale=1.0) -> Gap:
        """The mean of `differences` and its error: a `Gap`. `scale` is a factor."""
        return gap_of(scale * self.differences(arm, other, number))

    def differences(self, arm, other, number="loss"):
        """The differences of a number between two arms, seed by seed.

        Args:
            arm: Name of an arm.
            other: Name of the arm whose numbers are subtracted.
            number: Name of the number.

        Returns:
            An array, over the seeds for which both arms have the number.
        """
        mine, theirs = self.pairs(arm, other, number)
        found = mine - theirs
        return found[~np.isnan(found)]

    def pairs(self, arm, other, number):
        """A number of two arms, over the seeds of both: two arrays, NaN if missing."""
        mine, theirs = ({run.seed: run for run in self.ran(a)} for a in (arm, other))
        seeds = [seed for seed in mine if seed in theirs]
        runs = ([each[seed] for seed in seeds] for each in (mine, theirs))
        found = [[run.numbers.get(number) for run in each] for each in runs]
        return np.array(found, dtype="float64")

    def ran(self, arm):
        """The reported runs of an arm; a `NotRunError` if there are none."""
        if not (runs := self.of(arm)):
            raise NotRunError(arm)
        return runs

    def text(self, arm, number, digits=3, scale=1.0):
        """The mean of a number and its standard error, such as `"0.0153 ± 0.0002"`.

        Of an arm without runs, "not run".

        Args:
            arm: Name of the arm.
            number: Name of the number.
            digits: The number of significant digits of the mean.
            scale: A factor of both.
        """
        if not self.of(arm):
            return NOT_RUN
        mean, error = self._mean_and_error(arm, number)
        return format_mean(scale * mean, scale * error, digits)

    def texts(self, arm, *numbers, digits=3, scale=1.0):
        """List the `text` of some numbers of an arm."""
        return [self.text(arm, number, digits, scale) for number in numbers]

    def spread(self, arm, number, decimals=3):
        """The mean and the standard deviation over the runs, as text.

        A single run has no deviation, and nothing is said of a number that it lacks.
        """
        values = self.values(arm, number)
        if np.isnan(values).all():
            return ""
        text = f"{values.mean():.{decimals}f}"
        if len(values) < 2:
            return text
        return f"{text} ± {values.std(ddof=1):.{decimals}f}"

    def _read(self, path):
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            # Files that were committed before there were checksums have none.
            checksum = kept.pop("checksum", None)
            complete = kept.keys() == {*HEAD, "runs"}
            if checksum not in {None, _checksum(kept)} or not complete:
                raise ValueError("its checksum differs from its content")
            runs = [
                Run(
                    **{
                        **run,
                        "settings": _tuples(run["settings"]),
                        # Runs converted from other files have no time.
                        "seconds": numbers(run["seconds"]),
                    }
                )
                for run in kept["runs"]
            ]
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise damaged(path, error) from error
        if differs := self._differing(kept["config"], runs):
            raise ValueError(
                f"{path} holds runs of another config: {', '.join(differs)} "
                "differ. Throw them away with --fresh, or write elsewhere with --out."
            )
        self.environments = kept["environments"]
        self.spaces = kept["config"].get("space", {})
        self.runs = runs

    def _differing(self, config, runs):
        """What differs from the config: of the spaces, those of arms that have runs.

        An arm with trials may have more values now: it lacks the trials of these.
        """
        config, own = dict(config), dict(self.experiment.config)
        before, now = config.pop("space", {}), own.pop("space", {})
        for arm in {run.arm for run in runs} & {*self.experiment.arms}:
            has_trials = any(run.tuning for run in runs if run.arm == arm)
            if not (has_trials and _grown(before.get(arm, {}), now.get(arm, {}))):
                config[f"the space of {arm}"] = before.get(arm)
                own[f"the space of {arm}"] = now.get(arm)
        return differing(config, own)

    def _write(self, path):
        experiment = self.experiment
        config = experiment.config
        if spaces := {**self.spaces, **config.get("space", {})}:
            config["space"] = spaces
        values = experiment.source, self.preset, config, self.environments
        head = dict(zip(HEAD, values, strict=True))
        runs = [dataclasses.asdict(run) for run in self.runs]
        # Without blanks, of which tables of small numbers would have one for each.
        lines = ",\n  ".join(to_json(run, separators=(",", ":")) for run in runs)
        text = _one_line_each(to_json(head, indent=1))[:-2]
        text += f',\n "runs": [\n  {lines}\n ],\n'
        checksum = _checksum({**head, "runs": runs})
        text += f' "checksum": "{checksum}"\n}}\n'
        write_whole(path, text)


def results_path(experiment, preset, folder):
    """The path of the file of an experiment's results; `None` without a folder."""
    name = f"{experiment.source}_{preset}.json"
    return pathlib.Path(folder) / name if folder else None


def _one_line_each(text):
    """Indented JSON with each list of numbers or texts in one line."""

    def joined(found):
        return f"[{re.sub(BREAK, ' ', found[1])}]"

    return re.sub(rf"\[{BREAK}([^][{{}}]*?){BREAK}\]", joined, text)


def _grown(before, now):
    """Check whether a space has the settings of another, and all their values."""
    if before.keys() != now.keys():
        return False
    return all(value in now[name] for name in before for value in before[name])


def _checksum(content):
    """The SHA-256 of the content of a file of results."""
    text = to_json(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def format_mean(mean, error, digits=3):
    """A mean, with so many digits, and its standard error, as text without NaN."""
    if math.isnan(mean):
        return ""
    size = math.floor(math.log10(abs(mean))) if mean else 0
    decimals = max(0, digits - 1 - size)
    text = f"{mean:.{decimals}f}"
    return text if math.isnan(error) else f"{text} ± {error:.{decimals}f}"


def how_many(flags):
    """Number of booleans that are true, of how many, as text."""
    return f"{np.sum(flags)} of {len(flags)}"


def text_of(settings):
    """Settings as they are in a file, where lists and tuples are the same."""
    return json.dumps(settings, sort_keys=True)


def _tuples(value):
    """The settings of a file: JSON has lists in place of their tuples."""
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _plain(value):
    """Convert NumPy values for JSON, and numbers that are not finite to null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float):
        # Seven digits are what a float32 has.
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value
