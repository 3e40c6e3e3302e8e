"""Figures and tables of the paper on MMoE."""

from papers.mmoe.fig2 import Fig2
from papers.mmoe.fig3 import Fig3
from papers.mmoe.fig4 import Fig4
from papers.mmoe.fig5 import Fig5
from papers.mmoe.fig6 import Fig6
from papers.mmoe.table1 import Table1
from papers.mmoe.table2 import Table2

EXPERIMENTS = (Fig2, Fig3, Fig4, Fig5, Table1, Table2, Fig6)

# Each figure and table of the paper: the name of its experiment, or why there is none.
COVERAGE: dict[str, str] = {}
