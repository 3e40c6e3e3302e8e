"""Times of the same work in different forms, on one machine and backend."""

from research.speed import forms
from research.speed.tokens import TokenWorkload
from research.speed.workload import WORKLOADS, Workload

__all__ = ["FORMS", "WORKLOADS", "Workload"]

FORMS = tuple(dict.fromkeys([*forms.FORMS, *TokenWorkload.forms]))
