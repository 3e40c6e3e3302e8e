"""The claims of a paper's abstract, and their verdicts."""

from typing import NamedTuple

from research.engine.claims import STAND_IN, count
from research.engine.compare import NOT_RUN
from research.engine.judging import INADMISSIBLE, NIL, UNTESTABLE, all_hold

WORDS = {
    True: "holds",
    False: "refuted",
    NIL: NIL,
    None: "undecided",
    INADMISSIBLE: INADMISSIBLE,
    UNTESTABLE: UNTESTABLE,
    NOT_RUN: NOT_RUN,
}
COLUMNS = ["the abstract says", "we found", "by these claims"]


class Headline(NamedTuple):
    """A statement of an abstract, and the claims that it rests on.

    Args:
        says: The statement, in our words.
        claims: For the name of each experiment, how its claims begin.
        why: What is to be known of the verdict; without claims, why there are none.
    """

    says: str
    claims: dict[str, tuple[str, ...]]
    why: str = ""


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
    word = WORDS[holds] + (f" {STAND_IN}" if decide and all(decide) else "")
    links = ", ".join(f"[{places[name]}]({name}.md)" for name in own)
    found = f"{count(every)} {links}." if every else ""
    return [headline.says, f"**{word}**", " ".join(filter(None, [found, headline.why]))]


def _found(claims, headline, name):
    """The claims of an experiment that begin as they should; each has to be there."""
    found = []
    for begin in headline.claims[name]:
        own = [claim for claim in claims if claim.said[1].startswith(begin)]
        if not own:
            raise ValueError(f"{name} has no claim that begins with {begin!r}.")
        found += own
    return found
