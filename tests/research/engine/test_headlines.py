"""The verdict on an abstract, by hand."""

import pytest

from research import engine
from research.engine.claims import Found
from research.engine.headlines import Headline, cells, read_headlines

PLACES = {"one": "Table 1", "other": "Figure 2"}


def claims(*kinds):
    """Claims whose ids are their numbers."""
    return [
        Found(f"{i} so", [], holds, stand_in=stand_in)
        for i, (holds, stand_in) in enumerate(kinds, start=1)
    ]


YES, ON_STAND_IN, NO = (True, False), (True, True), (False, False)
UNKNOWN, NIL = (None, False), (engine.NIL, False)
BEYOND, NOT_RUN = ("not testable here", False), ("not run", False)


@pytest.mark.parametrize(
    ("kinds", "word"),
    [
        ([YES], "holds"),
        ([ON_STAND_IN], "holds on a stand-in"),
        ([YES, ON_STAND_IN], "holds"),
        ([ON_STAND_IN, UNKNOWN], "undecided"),
        ([YES, NO], "refuted"),
        ([(False, True), YES], "refuted on a stand-in"),
        ([UNKNOWN, NIL], engine.NIL),
        # Testable claims decide.
        ([ON_STAND_IN, BEYOND], "holds on a stand-in"),
        ([YES, NOT_RUN], "holds"),
        ([BEYOND], "not testable here"),
        ([NOT_RUN], "not run"),
    ],
)
def test_a_headline_has_the_word_of_its_claims(kinds, word):
    begin = tuple(map(str, range(1, len(kinds) + 1)))
    headline = Headline("All is well.", {"one": begin})
    says, found, by = cells(headline, {"one": claims(*kinds)}, PLACES)
    assert (says, found) == ("All is well.", f"**{word}**")
    assert f" of {len(kinds)} claims hold" in by
    assert by.endswith(" [Table 1](one.md).")


def test_claims_of_several_pages_count_together():
    headline = Headline("So.", {"one": ("1",), "other": ("2",)}, "In short.")
    found = {"one": claims(YES, NO), "other": claims(NO, UNKNOWN)}
    text = "1 of 2 claims hold, 1 undecided. [Table 1](one.md), [Figure 2](other.md)."
    assert cells(headline, found, PLACES)[1:] == ["**undecided**", f"{text} In short."]


def test_a_headline_without_claims_has_a_reason():
    row = cells(Headline("So.", {}, "It is private."), {}, PLACES)
    assert row == ["So.", "**not testable here**", "It is private."]


def test_a_claim_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="one has no claims 3"):
        cells(Headline("So.", {"one": ("1", "3")}), {"one": claims(YES, NO)}, PLACES)


def test_headlines_are_read_from_a_table(tmp_path):
    path = tmp_path / "abstracts.md"
    rows = "| It is so. | one: a, b 2; other: c |  |\n| Not so. | one: d | Why. |\n"
    path.write_text(
        f"# Abstracts\n\n## A paper\n\n| x | y | z |\n| - | - | - |\n{rows}"
    )
    found = read_headlines(path)["A paper"]
    assert found[0] == Headline("It is so.", {"one": ("a", "b 2"), "other": ("c",)})
    assert found[1] == Headline("Not so.", {"one": ("d",)}, "Why.")
