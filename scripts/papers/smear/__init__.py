"""Figures and tables of the paper on SMEAR."""

from papers.smear.fig3 import Fig3
from papers.smear.table3_small import Table3Small

EXPERIMENTS = (Fig3, Table3Small)

# Each figure and table of the paper: the name of its experiment, or why there is none.
COVERAGE: dict[str, str] = {}
