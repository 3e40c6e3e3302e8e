"""Figures and tables of the paper on DSelect-k."""

from dselectk_keras.experiments.dselectk.fig4 import Fig4

EXPERIMENTS = (Fig4,)
