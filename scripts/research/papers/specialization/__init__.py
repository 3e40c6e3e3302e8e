"""Figures and tables of the paper on improving expert specialization."""

from research.papers.specialization.fig2_3 import Fig2And3
from research.papers.specialization.fig6_7 import Fig6And7
from research.papers.specialization.table1 import Table1
from research.papers.specialization.table2 import Table2
from research.papers.specialization.table3 import Table3
from research.papers.specialization.table7 import Table7

EXPERIMENTS = (Fig2And3, Table1, Table2, Table3, Fig6And7, Table7)

# Each figure and table of the paper: the name of its experiment, or why there is none.
COVERAGE = {
    "Figure 1": "A diagram of the mixture: `MoE`.",
    **dict.fromkeys(("Figure 2", "Figure 3"), "specialization-fig2-3"),
    "Figure 4": "A diagram of the experiment of Table 1.",
    "Figure 5": "A diagram of the attentive gate: `AttentiveGate`.",
    **dict.fromkeys(("Figure 6", "Figure 7"), "specialization-fig6-7"),
    **{f"Table {number}": f"specialization-table{number}" for number in range(1, 4)},
    "Table 4": "A definition: the counts behind I(E;Y), as `metrics.SelectionTable`.",
    "Table 5": "A definition: the probabilities behind `metrics.MutualInformation`.",
    "Table 6": "Hyperparameters: the grids of Tables 2, 3 and 7.",
    "Table 7": "specialization-table7",
}
