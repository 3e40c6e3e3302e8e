"""Runs: a frozen config, and what it gives; and the papers' figures and tables."""

from dselectk_keras.experiments.experiment import Experiment, Job
from dselectk_keras.experiments.registry import EXPERIMENTS
from dselectk_keras.experiments.report import Claim, Picture, Report, Table
from dselectk_keras.experiments.reproduce import reproduce
from dselectk_keras.experiments.results import Results, Run
from dselectk_keras.experiments.training_run import TrainingRun

__all__ = [
    "EXPERIMENTS",
    "Claim",
    "Experiment",
    "Job",
    "Picture",
    "Report",
    "Results",
    "Run",
    "Table",
    "TrainingRun",
    "reproduce",
]
