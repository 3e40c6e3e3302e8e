"""Comparisons of gates: those of tasks, and routers, which choose for each example."""
