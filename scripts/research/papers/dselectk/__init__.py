"""Figures and tables of the paper on DSelect-k."""

from research.papers.dselectk.fig2_7_8 import Fig278
from research.papers.dselectk.fig3 import Fig3
from research.papers.dselectk.fig4 import Fig4
from research.papers.dselectk.fig5 import Fig5
from research.papers.dselectk.fig6 import Fig6
from research.papers.dselectk.table1_5 import Table1And5
from research.papers.dselectk.table2 import Table2
from research.papers.dselectk.table4 import Table4

EXPERIMENTS = (Fig278, Fig3, Fig4, Fig5, Fig6, Table1And5, Table2, Table4)

# Each figure and table of the paper: the name of its experiment, or why there is none.
COVERAGE: dict[str, str] = {
    "Figure 1": "A diagram of two architectures, which are `MoE` and `MMoE`.",
    "Figure 2": "dselectk-fig2-7-8",
    **{f"Figure {number}": f"dselectk-fig{number}" for number in range(3, 7)},
    **dict.fromkeys(("Figure 7", "Figure 8"), "dselectk-fig2-7-8"),
    "Table 1": "dselectk-table1-5",
    "Table 2": "dselectk-table2",
    "Table 3": "dselectk-fig3",
    "Table 4": "dselectk-table4",  # Its last two columns: dselectk-table2.
    "Table 5": "dselectk-table1-5",
}
