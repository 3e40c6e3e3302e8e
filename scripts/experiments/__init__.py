"""Experiments: a frozen config, tuned and run seed by seed, and a page of results."""

from experiments.claims import (
    Claim,
    Equal,
    Fact,
    Higher,
    Untestable,
    WithinRules,
    not_run,
)
from experiments.compare import NOT_RUN, Gap, gap_of
from experiments.experiment import Arm, Experiment, Job, preset
from experiments.judging import (
    INADMISSIBLE,
    NIL,
    UNTESTABLE,
    Judged,
    all_hold,
    all_positive,
    most,
)
from experiments.pages import write_page
from experiments.reproduce import reproduce
from experiments.results import Results, Run
from experiments.set_fields import set_fields
from experiments.stand_in import stand_in
from experiments.template import fill_template
from experiments.train_jobs import by_group, train_jobs
from experiments.training_run import TrainingRun

__all__ = [
    "INADMISSIBLE",
    "NIL",
    "NOT_RUN",
    "UNTESTABLE",
    "Arm",
    "Claim",
    "Equal",
    "Experiment",
    "Fact",
    "Gap",
    "Higher",
    "Job",
    "Judged",
    "Results",
    "Run",
    "TrainingRun",
    "Untestable",
    "WithinRules",
    "all_hold",
    "all_positive",
    "by_group",
    "fill_template",
    "gap_of",
    "most",
    "not_run",
    "preset",
    "reproduce",
    "set_fields",
    "stand_in",
    "train_jobs",
    "write_page",
]
