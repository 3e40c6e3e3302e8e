"""Experiments: a frozen config, tuned and run seed by seed, and a page of results."""

from dselectk_keras.experiments.area_under_curve import area_under_curve
from dselectk_keras.experiments.compare import (
    all_hold,
    count_lower,
    difference,
    format_gap,
    is_positive,
    mean_and_error,
    standard_error,
)
from dselectk_keras.experiments.environment import environment
from dselectk_keras.experiments.experiment import Experiment, Job
from dselectk_keras.experiments.pages import write_page
from dselectk_keras.experiments.report import (
    Claim,
    Fact,
    Picture,
    Question,
    Report,
    Table,
)
from dselectk_keras.experiments.reproduce import reproduce
from dselectk_keras.experiments.results import Results, Run, format_mean
from dselectk_keras.experiments.search import (
    best_run,
    best_settings,
    next_settings,
    random_settings,
)
from dselectk_keras.experiments.set_fields import set_fields
from dselectk_keras.experiments.stand_in import stand_in
from dselectk_keras.experiments.train_jobs import train_jobs
from dselectk_keras.experiments.training_run import TrainingRun

__all__ = [
    "Claim",
    "Experiment",
    "Fact",
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
    "best_run",
    "best_settings",
    "count_lower",
    "difference",
    "environment",
    "format_gap",
    "format_mean",
    "is_positive",
    "mean_and_error",
    "next_settings",
    "random_settings",
    "reproduce",
    "set_fields",
    "stand_in",
    "standard_error",
    "train_jobs",
    "write_page",
]
