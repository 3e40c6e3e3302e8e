"""Experiments: a frozen config, tuned and run seed by seed, and a page of results."""

from research.engine.claims import (
    Claim,
    Equal,
    Fact,
    Higher,
    Untestable,
    WithinRules,
    not_run,
)
from research.engine.compare import NOT_RUN, Gap, gap_of
from research.engine.experiment import Arm, Experiment, Job, preset
from research.engine.judging import (
    INADMISSIBLE,
    NIL,
    UNTESTABLE,
    Judged,
    all_hold,
    all_positive,
    most,
)
from research.engine.pages import write_page
from research.engine.reproduce import reproduce
from research.engine.results import Results, Run
from research.engine.stand_in import stand_in
from research.engine.template import fill_template
from research.engine.train_jobs import by_group, train_jobs

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
    "stand_in",
    "train_jobs",
    "write_page",
]
