"""Experiments: a frozen config, tuned and run seed by seed, and a page of results."""

from experiments.compare import (
    NOT_RUN,
    Gap,
    format_gap,
    gap_of,
    mean_and_error,
    standard_error,
)
from experiments.environment import environment
from experiments.experiment import Experiment, Job, preset
from experiments.judging import (
    INADMISSIBLE,
    NIL,
    UNTESTABLE,
    Judged,
    all_hold,
    all_positive,
    bootstrap_gap,
    holm,
    most,
    trimmed_gap,
)
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
from experiments.settings import Settings
from experiments.stand_in import stand_in
from experiments.template import Claim, fill_template
from experiments.train_jobs import best_epoch, gate_history, train_jobs
from experiments.training_run import TrainingRun

__all__ = [
    "INADMISSIBLE",
    "NIL",
    "NOT_RUN",
    "UNTESTABLE",
    "Claim",
    "Experiment",
    "Gap",
    "Job",
    "Judged",
    "Results",
    "Retrained",
    "Run",
    "Settings",
    "TrainingRun",
    "all_hold",
    "all_positive",
    "area_under_curve",
    "best_epoch",
    "best_run",
    "best_settings",
    "bootstrap_gap",
    "environment",
    "fill_template",
    "format_gap",
    "format_mean",
    "gap_of",
    "gate_history",
    "holm",
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
    "trimmed_gap",
    "write_page",
]
