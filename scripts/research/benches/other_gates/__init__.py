"""Gates of papers since DSelect-k's, written on the public contract of `Gate`."""

from research.benches.other_gates.balanced import BalancedGate
from research.benches.other_gates.relu import ReLUGate
from research.benches.other_gates.tree import TreeGate

__all__ = ["BalancedGate", "ReLUGate", "TreeGate"]
