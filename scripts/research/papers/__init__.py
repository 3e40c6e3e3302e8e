"""The papers' figures and tables, by name."""

import pathlib

from research.engine.headlines import read_headlines
from research.papers import dselectk, mmoe, smear, specialization

__all__ = ["ABSTRACTS", "COVERAGE", "EXPERIMENTS", "PAPERS"]

PAPERS = dselectk, mmoe, specialization, smear
EXPERIMENTS = {kind.name: kind for paper in PAPERS for kind in paper.EXPERIMENTS}
# For each paper: the experiment of each figure and table, or why there is none.
ABSTRACTS = read_headlines(pathlib.Path(__file__).with_name("abstracts.md"))
COVERAGE = {paper.EXPERIMENTS[0].paper: paper.COVERAGE for paper in PAPERS}
