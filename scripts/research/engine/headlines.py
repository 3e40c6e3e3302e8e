"""The claims of a paper's abstract, and their verdicts."""

from typing import NamedTuple

from research.engine.claims import STAND_IN, count
from research.engine.compare import NOT_RUN
from research.engine.judging import UNTESTABLE, all_hold
from research.engine.template import cells_of

WORDS = {True: "holds", False: "refuted", None: "undecided"}  # Others are words.
COLUMNS = ["the abstract says", "we found", "by these claims"]


class Headline(NamedTuple):
    """A statement of an abstract, and the claims that it rests on.

    Args:
        says: The statement, in our words.
        claims: For the name of each experiment, the ids of claims.
        why: What is to be known of the verdict; without claims, why there are none.
    """

    says: str
    claims: dict[str, tuple[str, ...]]
    why: str = ""


def read_headlines(path):
    """The `Headline`s of a Markdown file by its headings, the names of papers.

    In the second column is, for each experiment, `name: id, id`, with semicolons.
    """
    found = {}
    for part in path.read_text(encoding="utf-8").split("\n## ")[1:]:
        paper, _, _, _, *lines = part.strip().split("\n")
        for says, asked, why in map(cells_of, lines):
            pairs = [each.split(": ") for each in asked.split("; ")]
            claims = {name: tuple(ids.split(", ")) for name, ids in pairs}
            found.setdefault(paper, []).append(Headline(says, claims, why))
    return found


def cells(headline, claims, places):
    """The cells of a `Headline`, by `Found` claims and titles of pages by experiment.

    It holds if all of its claims do that can be tested here.
    """
    own = {name: _found(claims[name], headline, name) for name in headline.claims}
    every = [claim for each in own.values() for claim in each]
    beyond = (UNTESTABLE, NOT_RUN)
    tested = [claim for claim in every if claim.holds not in beyond] or every
    holds = all_hold(claim.holds for claim in tested) if every else UNTESTABLE
    decide = [claim.kind[1] for claim in tested if claim.holds is holds]
    word = str(WORDS.get(holds, holds)) + (
        f" {STAND_IN}" if decide and all(decide) else ""
    )
    links = ", ".join(f"[{places[name]}]({name}.md)" for name in own)
    found = f"{count(every)} {links}." if every else ""
    return [headline.says, f"**{word}**", " ".join(filter(None, [found, headline.why]))]


def _found(claims, headline, name):
    """The claims of an experiment with some ids; each has to be there."""
    asked, ids = headline.claims[name], {claim.id for claim in claims}
    if lost := {*asked} - ids - {each.split()[0] for each in ids}:
        raise ValueError(f"{name} has no claims {', '.join(sorted(lost))}.")
    return [claim for claim in claims if {claim.id, claim.id.split()[0]} & {*asked}]
