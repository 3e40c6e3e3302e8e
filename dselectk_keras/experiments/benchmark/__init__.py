"""How long the same work takes in different forms, on one machine and backend."""

from dselectk_keras.experiments.benchmark.report import write_page
from dselectk_keras.experiments.benchmark.run import gather, merge, parts, run_part
from dselectk_keras.experiments.benchmark.workload import WORKLOADS, Workload

__all__ = [
    "WORKLOADS",
    "Workload",
    "gather",
    "merge",
    "parts",
    "run_part",
    "write_page",
]
