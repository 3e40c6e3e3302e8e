"""Every figure and table of a paper has an experiment, or a reason why not."""

import pytest

from papers import COVERAGE, EXPERIMENTS, citations

# The figures and tables of each paper, in its order.
PLACES = {
    citations.SPECIALIZATION: [
        *(f"Figure {number}" for number in range(1, 8)),
        *(f"Table {number}" for number in range(1, 8)),
    ],
}


@pytest.mark.parametrize("paper", PLACES)
def test_all_figures_and_tables_are_covered(paper):
    assert sorted(COVERAGE[paper]) == sorted(PLACES[paper])
    for place, what in COVERAGE[paper].items():
        # The name of an experiment, or a sentence.
        assert what in EXPERIMENTS or what.endswith("."), place
    named = {what for what in COVERAGE[paper].values() if what in EXPERIMENTS}
    own = {name for name, kind in EXPERIMENTS.items() if kind.paper == paper}
    assert own == named
