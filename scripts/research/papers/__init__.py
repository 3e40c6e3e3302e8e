"""The papers' figures and tables, by name."""

import pathlib

from research.engine.headlines import read_headlines
from research.papers import dselectk, mmoe, smear, specialization

__all__ = ["ABSTRACTS", "COVERAGE", "EXPERIMENTS", "INTRODUCTION", "PAPERS"]

PAPERS = dselectk, mmoe, specialization, smear
EXPERIMENTS = {kind.name: kind for paper in PAPERS for kind in paper.EXPERIMENTS}
# For each paper: the experiment of each figure and table, or why there is none.
FOLDER = pathlib.Path(__file__).parent
ABSTRACTS = read_headlines(FOLDER / "abstracts.md")
INTRODUCTION = (FOLDER / "introduction.md").read_text(encoding="utf-8").strip()
COVERAGE = {paper.EXPERIMENTS[0].paper: paper.COVERAGE for paper in PAPERS}
