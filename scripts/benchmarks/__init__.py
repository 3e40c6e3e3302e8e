"""Times of the same work in different forms, on one machine and backend."""

from benchmarks.workload import WORKLOADS, Workload

__all__ = ["WORKLOADS", "Workload"]
