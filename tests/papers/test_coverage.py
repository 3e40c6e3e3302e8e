"""Every figure and table of a paper is covered, and every claim has a place in it."""

from pathlib import Path

import pytest

from experiments import Results, pages
from experiments.template import fill_template
from papers import COVERAGE, EXPERIMENTS, PAPERS, citations

RESULTS = Path(__file__).parents[2] / "docs/results"

# All figures and tables of each paper, in its own numbering.
PLACES = {
    citations.MMOE: [
        *(f"Figure {number}" for number in range(1, 7)),
        *(f"Table {number}" for number in range(1, 5)),
    ],
    citations.SPECIALIZATION: [
        *(f"Figure {number}" for number in range(1, 8)),
        *(f"Table {number}" for number in range(1, 8)),
    ],
    citations.SMEAR: [
        *(f"Figure {number}" for number in range(1, 29)),
        *(f"Table {number}" for number in range(1, 4)),
    ],
    citations.DSELECT_K: [
        *(f"Figure {number}" for number in range(1, 9)),
        *(f"Table {number}" for number in range(1, 6)),
    ],
}
CHECKED = [
    name
    for name, kind in EXPERIMENTS.items()
    if kind.paper in PLACES
    and (RESULTS / f"{kind.presets()['cpu'].source}_cpu.json").exists()
]


@pytest.mark.parametrize("paper", PLACES)
def test_every_figure_and_table_is_covered(paper):
    covered = COVERAGE[paper]
    assert list(covered) == PLACES[paper]
    # What is not the name of an experiment is a sentence that says why there is none.
    names = {name for name in covered.values() if " " not in name}
    assert names == {kind.name for kind in EXPERIMENTS.values() if kind.paper == paper}
    assert all(why.endswith(".") for why in covered.values() if " " in why)


def test_experiments_name_their_paper():
    assert {kind.paper for kind in EXPERIMENTS.values()} == set(COVERAGE)
    assert len(PAPERS) == len(COVERAGE)


@pytest.mark.parametrize("name", CHECKED)
def test_claims_of_committed_pages_have_a_source(name):
    experiment = EXPERIMENTS[name].presets()["cpu"]
    results = Results(experiment, "cpu", RESULTS)
    report = fill_template(results)
    assert report.claims
    for claim in report.claims:
        source, says, _, ours = claim.cells
        assert source, claim
        assert says, claim
        assert ours, claim
    assert "| protocol | paper | here |" in pages.page(results, report)
