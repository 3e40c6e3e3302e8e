"""Experiments: a frozen config, tuned and run seed by seed, and a page of results."""

from experiments.area_under_curve import area_under_curve
from experiments.compare import (
    Gap,
    all_hold,
    count_lower,
    difference,
    format_gap,
    gap_of,
    is_positive,
    mean_and_error,
    most,
    standard_error,
)
from experiments.environment import environment
from experiments.experiment import Experiment, Job, preset
from experiments.pages import write_page
from experiments.report import (
    Claim,
    Fact,
    Picture,
    Question,
    Report,
    Table,
)
from experiments.reproduce import reproduce
from experiments.results import Results, Run, format_mean
from experiments.search import (
    best_run,
    best_settings,
    next_settings,
    random_settings,
)
from experiments.set_fields import set_fields
from experiments.stand_in import stand_in
from experiments.train_jobs import best_epoch, gate_history, train_jobs
from experiments.training_run import TrainingRun

__all__ = [
    "Claim",
    "Experiment",
    "Fact",
    "Gap",
    "Job",
    "Picture",
    "Question",
    "Report",
    "Results",
    "Run",
    "Table",
    "TrainingRun",
    "all_hold",
    "area_under_curve",
    "best_epoch",
    "best_run",
    "best_settings",
    "count_lower",
    "difference",
    "environment",
    "format_gap",
    "format_mean",
    "gap_of",
    "gate_history",
    "is_positive",
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
