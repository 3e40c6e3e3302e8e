"""The comparison of all gates that select experts."""

from gate_comparison.experiment import GateComparison
from gate_comparison.gates import METHODS
from gate_comparison.problems import PROBLEMS

__all__ = ["METHODS", "PROBLEMS", "GateComparison"]
