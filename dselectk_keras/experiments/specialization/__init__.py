"""Figures and tables of the paper on improving expert specialization."""

from dselectk_keras.experiments.specialization.fig2_3 import Fig2And3
from dselectk_keras.experiments.specialization.fig6_7 import Fig6And7
from dselectk_keras.experiments.specialization.table1 import Table1
from dselectk_keras.experiments.specialization.table2 import Table2
from dselectk_keras.experiments.specialization.table7 import Table7

EXPERIMENTS = (Fig2And3, Table1, Table2, Table7, Fig6And7)
