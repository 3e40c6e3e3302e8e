"""Figures and tables of the paper on SMEAR."""

from dselectk_keras.experiments.smear.fig3 import Fig3
from dselectk_keras.experiments.smear.table3_small import Table3Small

EXPERIMENTS = (Fig3, Table3Small)
