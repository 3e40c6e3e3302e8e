"""Experiments: a frozen config, tuned and run seed by seed, and a page of results."""

from experiments.compare import (
    NOT_RUN,
    Gap,
    all_hold,
    format_gap,
    gap_of,
    mean_and_error,
    most,
    standard_error,
)
from experiments.environment import environment
from experiments.experiment import Experiment, Job, preset
from experiments.pages import write_page
from experiments.reproduce import reproduce
from experiments.results import Results, Run, format_mean
from experiments.retrained import Retrained
from experiments.scores import area_under_curve
from experiments.search import (
    best_run,
    best_settings,
    next_settings,
    random_settings,
)
from experiments.set_fields import set_fields
from experiments.stand_in import stand_in
from experiments.template import Claim, fill_template
from experiments.train_jobs import best_epoch, gate_history, train_jobs
from experiments.training_run import TrainingRun

__all__ = [
    "NOT_RUN",
    "Claim",
    "Experiment",
    "Gap",
    "Job",
    "Results",
    "Retrained",
    "Run",
    "TrainingRun",
    "all_hold",
    "area_under_curve",
    "best_epoch",
    "best_run",
    "best_settings",
    "environment",
    "fill_template",
    "format_gap",
    "format_mean",
    "gap_of",
    "gate_history",
    "mean_and_error",
    "most",
    "next_settings",
    "preset",
    "random_settings",
    "reproduce",
    "set_fields",
    "stand_in",
    "standard_error",
    "train_jobs",
    "write_page",
]
