"""Figures and tables of the paper on MMoE."""

EXPERIMENTS = ()
