"""Gates of papers since DSelect-k's, written on the public contract of `Gate`."""

from gate_comparison.rivals.balanced import BalancedGate
from gate_comparison.rivals.relu import ReLUGate
from gate_comparison.rivals.tree import TreeGate

__all__ = ["BalancedGate", "ReLUGate", "TreeGate"]
