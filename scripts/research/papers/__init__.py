"""The papers' figures and tables, by name."""

from research.papers import dselectk, mmoe, smear, specialization
from research.papers.headlines import ABSTRACTS

__all__ = ["ABSTRACTS", "COVERAGE", "EXPERIMENTS", "PAPERS"]

PAPERS = dselectk, mmoe, specialization, smear
EXPERIMENTS = {kind.name: kind for paper in PAPERS for kind in paper.EXPERIMENTS}
# For each paper: the experiment of each figure and table, or why there is none.
COVERAGE = {paper.EXPERIMENTS[0].paper: paper.COVERAGE for paper in PAPERS}
