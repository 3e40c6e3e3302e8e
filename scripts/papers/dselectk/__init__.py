"""Figures and tables of the paper on DSelect-k."""

from papers.dselectk.fig2_7_8 import Fig278
from papers.dselectk.fig3 import Fig3
from papers.dselectk.fig4 import Fig4
from papers.dselectk.fig5 import Fig5
from papers.dselectk.fig6 import Fig6
from papers.dselectk.table1_5 import Table1And5
from papers.dselectk.table2 import Table2
from papers.dselectk.table4 import Table4

EXPERIMENTS = (Fig278, Fig3, Fig4, Fig5, Fig6, Table1And5, Table2, Table4)

# Each figure and table of the paper: the name of its experiment, or why there is none.
COVERAGE: dict[str, str] = {}
