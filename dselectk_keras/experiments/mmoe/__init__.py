"""Figures and tables of the paper on MMoE."""

from dselectk_keras.experiments.mmoe.fig2 import Fig2
from dselectk_keras.experiments.mmoe.fig3 import Fig3
from dselectk_keras.experiments.mmoe.fig4 import Fig4
from dselectk_keras.experiments.mmoe.fig5 import Fig5
from dselectk_keras.experiments.mmoe.fig6 import Fig6
from dselectk_keras.experiments.mmoe.table1 import Table1
from dselectk_keras.experiments.mmoe.table2 import Table2

EXPERIMENTS = (Fig2, Fig3, Fig4, Fig5, Table1, Table2, Fig6)
