"""Figures and tables of the paper on improving expert specialization."""

EXPERIMENTS = ()
