"""Figures and tables of the paper on SMEAR."""

from research.papers.smear.fig2 import Fig2
from research.papers.smear.fig3 import Fig3
from research.papers.smear.table1 import Table1
from research.papers.smear.table2_small import Table2Small
from research.papers.smear.table3_small import Table3Small

EXPERIMENTS = (Fig2, Fig3, Table1, Table2Small, Table3Small)

_OF_T5 = (
    "Routing in the 60 blocks of T5 on GLUE, for which our text encoder is "
    "too small. The claims on T5-GLUE are in smear-table2-small."
)
_ON_DOMAINS = (3, 4, 8, 12, 16, 20, 24, 25)
# Each figure and table of the paper: the name of its experiment, or why there is none.
COVERAGE = {
    "Figure 1": "A diagram of the method.",
    "Figure 2": "smear-fig2",
    **{
        f"Figure {number}": "smear-fig3" if number in _ON_DOMAINS else _OF_T5
        for number in range(3, 29)
    },
    "Table 1": "smear-table1",
    "Table 2": "smear-table2-small",
    "Table 3": "smear-table3-small",
}
