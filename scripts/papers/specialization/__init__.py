"""Figures and tables of the paper on improving expert specialization."""

from papers.specialization.fig2_3 import Fig2And3
from papers.specialization.fig6_7 import Fig6And7
from papers.specialization.table1 import Table1
from papers.specialization.table2 import Table2
from papers.specialization.table7 import Table7

EXPERIMENTS = (Fig2And3, Table1, Table2, Table7, Fig6And7)

# Each figure and table of the paper: the name of its experiment, or why there is none.
COVERAGE: dict[str, str] = {}
