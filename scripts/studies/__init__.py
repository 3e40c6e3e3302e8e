"""Experiments of our own, whose results are blocks in the pages of docs/."""

from studies.census import Census
from studies.choice import Choice
from studies.collapse import Collapse
from studies.demo import Demo
from studies.libraries import Libraries
from studies.ranking import Ranking

KINDS = (Census, Choice, Collapse, Demo, Libraries, Ranking)
STUDIES = {kind.name: kind for kind in KINDS}
