"""How long the same work takes in different forms, on one machine and backend."""

from benchmarks.report import write_page
from benchmarks.run import gather, merge, other_parts, parts, run_part
from benchmarks.workload import WORKLOADS, Workload

__all__ = [
    "WORKLOADS",
    "Workload",
    "gather",
    "merge",
    "other_parts",
    "parts",
    "run_part",
    "write_page",
]
