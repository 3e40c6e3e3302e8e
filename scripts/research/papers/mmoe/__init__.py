"""Figures and tables of the paper on MMoE."""

from research.papers.mmoe.fig2 import Fig2
from research.papers.mmoe.fig3 import Fig3
from research.papers.mmoe.fig4 import Fig4
from research.papers.mmoe.fig5 import Fig5
from research.papers.mmoe.fig6 import Fig6
from research.papers.mmoe.table1 import Table1
from research.papers.mmoe.table2 import Table2
from research.papers.mmoe.table3 import Table3

EXPERIMENTS = (Fig2, Fig3, Fig4, Fig5, Table1, Table2, Table3, Fig6)

# Each figure and table of the paper: the name of its experiment, or why there is none.
COVERAGE: dict[str, str] = {
    "Figure 1": "A diagram of three architectures: `shared_bottom`, `omoe` and `mmoe` "
    "of `build_multitask_model`.",
    **{f"Figure {number}": f"mmoe-fig{number}" for number in range(2, 7)},
    **{f"Table {number}": f"mmoe-table{number}" for number in range(1, 4)},
    "Table 4": "Experiments with live traffic of a recommender.",
}
