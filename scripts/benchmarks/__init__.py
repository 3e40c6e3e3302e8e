"""Times of the same work in different forms, on one machine and backend."""

from benchmarks import forms
from benchmarks.tokens import TokenWorkload
from benchmarks.workload import WORKLOADS, Workload

__all__ = ["FORMS", "WORKLOADS", "Workload"]

FORMS = tuple(dict.fromkeys([*forms.FORMS, *TokenWorkload.forms]))
