"""Times of the same work in different forms, on one machine and backend."""

from research.speed.forms import FORMS
from research.speed.workload import WORKLOADS, Workload

__all__ = ["FORMS", "WORKLOADS", "Workload"]
