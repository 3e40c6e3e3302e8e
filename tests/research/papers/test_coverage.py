"""Every figure and table of a paper is covered."""

import pytest

from research.papers import COVERAGE, EXPERIMENTS, PAPERS, citations

# The number of figures and of tables in each paper, in its own numbering.
SIZES = {
    citations.MMOE: (6, 4),
    citations.SPECIALIZATION: (7, 7),
    citations.SMEAR: (28, 3),
    citations.DSELECT_K: (8, 5),
}


@pytest.mark.parametrize(("paper", "sizes"), SIZES.items())
def test_every_figure_and_table_is_covered(paper, sizes):
    covered = COVERAGE[paper]
    assert list(covered) == [
        f"{kind} {number}"
        for kind, size in zip(("Figure", "Table"), sizes, strict=True)
        for number in range(1, size + 1)
    ]
    # Either the name of an experiment, or a sentence that says why there is none.
    names = {name for name in covered.values() if " " not in name}
    assert names == {kind.name for kind in EXPERIMENTS.values() if kind.paper == paper}
    assert all(why.endswith(".") for why in covered.values() if " " in why)


def test_experiments_name_their_paper():
    assert {kind.paper for kind in EXPERIMENTS.values()} == set(COVERAGE)
    assert len(PAPERS) == len(COVERAGE)
