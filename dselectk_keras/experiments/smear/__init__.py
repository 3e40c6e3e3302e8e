"""Figures and tables of the paper on SMEAR."""

EXPERIMENTS = ()
