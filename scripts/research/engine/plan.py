"""The cost of an experiment before it has run."""

import dataclasses
import math
import re
from typing import NamedTuple

import numpy as np

from research.engine.reproduce import in_words, lacking
from research.engine.results import Results

PROGRAM = 1.5  # GB of Keras and a backend.
HOW = f"""\
Time: the mean of the recorded runs of each arm, times the runs, times the ratios of
examples and of epochs; networks that are wider than in the preset cpu take longer.
Core-hours: that time on all processor cores of the recorded machine. Memory: {PROGRAM}
GB for the program, and the training data twice, in float32."""


class Cost(NamedTuple):
    """The runs, memory in GB, and seconds of an experiment, also times cores.

    The seconds are NaN if they are not known.
    """

    runs: int
    gigabytes: int
    seconds: float = math.nan
    core_seconds: float = math.nan

    def __str__(self):
        return f"{self.runs:,} runs, {self.core_hours}, {self.gigabytes} GB"

    @property
    def core_hours(self):
        """The core-hours, as text."""
        hours = self.core_seconds / 3600
        if math.isnan(hours):
            return "time not known"
        return f"{hours:,.{int(hours < 10)}f} core-hours"


def cost(experiment, recorded, done=None):
    """Compute the `Cost` of an experiment by the `Results` of a smaller preset.

    Runs that are in the `Results` `done` need not be run again.
    """
    _, numbers = experiment.needs
    gigabytes = PROGRAM + 8e-9 * numbers * _size(experiment, "num_train")
    runs, times = 0, np.zeros(2)
    for arm in experiment.arms:
        trials, seeds = lacking(experiment, done or Results(experiment, ""), arm)
        own = [run for run in recorded.runs if run.arm == arm] or recorded.runs
        runs += trials + len(seeds)
        if own:
            pairs = [(run.seconds, run.seconds * _cores(recorded, run)) for run in own]
            times += (trials + len(seeds)) * np.mean(pairs, axis=0)
    for field in experiment.scales:
        times *= _size(experiment, field) / _size(recorded.experiment, field)
    times = times.tolist() if recorded.runs else [math.nan, math.nan]
    return Cost(runs, math.ceil(gigabytes), *times)


def price(results, **changes):
    """The cost of the experiment of some `Results` with other fields, as text.

    Where only `seeds` is another, its runs need not be run again.
    """
    changed = dataclasses.replace(results.experiment, **changes)
    done = results if changes.keys() == {"seeds"} else None
    return str(cost(changed, results, done))


def plan(experiment, recorded):
    """The runs, data, memory and time of an experiment, as text; see `cost`."""
    if experiment.source != experiment.name:
        return f"the runs of {experiment.source}"
    needed, (data, _) = cost(experiment, recorded), experiment.needs
    time = "time not known"
    if not math.isnan(needed.seconds):
        time = f"{in_words(needed.seconds)}; {needed.core_hours}"
    return f"{needed.runs:,} runs; {data}; {needed.gigabytes} GB; {time}"


def _cores(recorded, run):
    """The number of processor cores of the machine of a run."""
    device = "1 CPU core"
    if recorded.environments:
        device = recorded.environments[run.environment].get("device", device)
    found = re.match(r"(\d+) CPU core", device)
    return int(found[1]) if found else 1


def _size(experiment, field):
    """A number of an experiment; the mean of those that are tuned, 1 without it."""
    value = getattr(experiment, field, 1)
    return experiment.all_train if value is None else float(np.mean(value))
