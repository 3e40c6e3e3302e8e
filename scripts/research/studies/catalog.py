"""All studies by name, and those that the page of another experiment shows.

One study is imported alone: each needs other packages.
"""

from research.papers.dselectk._gumbel import Gumbel
from research.papers.smear.fig2 import Copied
from research.studies.collapse import Collapse
from research.studies.demo import Demo
from research.studies.ranking import Ranking
from research.studies.tables import Tables, UnseenTables

KINDS = Collapse, Copied, Demo, Gumbel, Ranking, Tables, UnseenTables
STUDIES = {kind.name: kind for kind in KINDS}
