"""Figures and tables of the paper on SMEAR."""

from papers.smear.fig3 import Fig3
from papers.smear.table3_small import Table3Small

EXPERIMENTS = (Fig3, Table3Small)
