"""What an experiment needs before it has run."""

import dataclasses
import math

import numpy as np

from experiments.reproduce import in_words, lacking
from experiments.results import Results

PROGRAM = 1.5  # GB of Keras and a backend.
HOW = f"""\
Time: the mean of the recorded runs, times the runs, times the ratios of examples and of
epochs; networks that are wider than in the preset cpu take longer. Memory: {PROGRAM} GB
for the program, and the training data twice, in float32."""


def plan(experiment, recorded):
    """The runs, data, memory and time of an experiment, as text.

    Args:
        experiment: An `Experiment`.
        recorded: The `Results` of a smaller preset, which may be empty.
    """
    if experiment.source != experiment.name:
        return f"the runs of {experiment.source}"
    data, numbers = experiment.needs
    gigabytes = PROGRAM + 8e-9 * numbers * _size(experiment, "num_train")
    empty = dataclasses.replace(experiment, gates={})
    parts = [lacking(empty, Results(empty, ""), arm) for arm in empty.arms]
    runs = sum(trials + len(seeds) for trials, seeds in parts)
    time = "time not known"
    if recorded.runs:
        seconds = runs * np.mean([run.seconds for run in recorded.runs])
        for field in ("num_train", "epochs"):
            seconds *= _size(experiment, field) / _size(recorded.experiment, field)
        time = in_words(seconds)
    return f"{runs:,} runs; {data}; {math.ceil(gigabytes)} GB; {time}"


def _size(experiment, field):
    """A number of an experiment; the mean of those that are tuned, 1 without it."""
    value = getattr(experiment, field, 1)
    return experiment.all_train if value is None else float(np.mean(value))
