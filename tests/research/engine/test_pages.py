"""Pages are filled templates."""

import dataclasses
import re

import pytest

from research.engine import (
    NIL,
    Claim,
    Equal,
    Experiment,
    Fact,
    Higher,
    Judged,
    Results,
    Run,
    Untestable,
    WithinRules,
    fill_template,
    most,
    not_run,
    pages,
    preset,
)
from research.papers import EXPERIMENTS

TEMPLATE = """
Thrown {throws} times, {throws:,} or {paper.throws:,}; shares {shares}. {{As it is.}}

| claim | where | the paper says | its number | here |
| --- | --- | --- | --- | --- |
| more | Section 1 | More. | 6 | {heads of bent:.1f} of 10 |
| fewer | Section 2 | Fewer. |  | {heads of fair minus bent:0} |
| as-many | Section 3 | As many. |  | {heads of lost} |
| many-more | Section 4 | Many more. | 40 |  |
| gold | Section {section} | {metal}. |  | {metal} {coins of fair, 2}, {many of fair} |
| gone | Section 9 | Gone. |  |  |

## Empty

{no_seeds}

None of {nothing} is left out.

Heads of {lost_heads}.

## Heads

{table_heads}

{table_empty}

![All {count} coins.](coins)

![No coin is fair.](coins "Of {count} coins.")

## Questions

| question | here |
| --- | --- |
| Which? | {lost_heads} |
| How many? | {most_heads:.1f} |

## Protocol

| protocol | paper | here | why it differs |
| --- | --- | --- | --- |
| Throws | 1000 | {throws:,} | {both.throws} |
| Seeds | 3 | {seeds} |  |
"""


def many(results, arm):
    return results.values(arm, "heads") > 4


def coins(results, arm, count):
    return f"{count} {arm} coins"


@dataclasses.dataclass(frozen=True)
class Coin(Experiment):
    name = "coin"
    title = "a coin that is thrown"
    paper = "Coins"
    page = TEMPLATE

    throws: int = preset(10, paper=1_000)
    metal: str = "tin"
    shares: tuple = (0.5, 0.25)

    @property
    def arms(self):
        return {"fair": (0.5, 2), "bent": (0.6, 2), "lost": (0.0, 0)}

    def run(self, arm, jobs):
        raise NotImplementedError

    @property
    def claims(self):
        metal = f"Ours are of {self.metal}."
        more = Higher("bent", "fair", by="heads")
        yield Claim("more", more)
        yield Claim("fewer", lambda results: results.mean("fair", "heads") > 9)
        yield Claim("as-many", Equal("lost", "fair", by="heads", within=0))
        yield Claim("many-more", Higher("fair", "bent", "noise", 40))
        for section, (word, but) in enumerate((("Gold", ""), ("Brass", more)), 5):
            names = {"section": section, "metal": word}
            yield Claim(f"gold {word}", Untestable(metal, but), names)

    @property
    def fields(self):
        return {
            "count": len(self.arms),
            "no_seeds": "" if self.seeds else "No seeds.",
            "nothing": None,
            "lost_heads": lambda results: f"{results.mean('lost', 'heads'):.1f}",
        }

    def most_heads(self, results):
        return results.values("bent", "heads").max()

    def table_heads(self, results):
        yield "coin | mean heads | most heads | share"
        for arm, (share, sides) in self.arms.items():
            yield [arm, results.text(arm, "heads"), sides, share]

    def table_empty(self, results):
        return ["none"]

    def draw_coins(self, results):
        return EXPERIMENTS["dselectk-fig4"]().draw_functions(results)


@pytest.fixture
def results():
    results = Results(Coin(seeds=3), "cpu")
    around = {"command": "python scripts/reproduce.py", "date": "2026-01-02"}
    around |= dict.fromkeys(("device", "keras", "backend", "numpy", "python"), "x")
    around |= {"backend_version": "1.2"}
    for arm, heads in (("fair", (4, 5, 6)), ("bent", (5, 6.1, 7))):
        for seed, count in enumerate(heads):
            numbers = {"heads": count, "noise": count * (-1) ** seed}
            results.add(Run(arm, seed, {}, numbers, 60.0), around)
    return results


def test_a_page_has_everything(results):
    text = pages.page(results)
    for wanted in (
        "# Coins: a coin that is thrown\n\nThrown 10 times, 10 or 1,000; ",
        "; shares 0.5, 0.25. {As it is.}",
        "| where | the paper says | its number | here | holds |",
        "**Partly reproduced.** 1 of 6 claims hold, 1 refuted, ",
        f"1 refuted, 1 {NIL}, 2 not testable here, 1 not run.",
        "| Section 1 | More. | 6 | 6.0 of 10 | yes |",
        "| Section 2 | Fewer. |  | -1 ± 0 | no |",
        "| Section 3 | As many. |  | not run | not run |",
        "| Section 4 | Many more. | 40 |  | below half of the paper's difference |",
        "| Section 5 | Gold. |  | Gold 2 fair coins, 2 of 3 | not testable",
        "Ours are of tin. These runs alone would say: yes. |",
        "Preset `paper`, not run: 3 runs, 0.1 core-hours, 2 GB; data that are drawn.",
        "| coin | mean heads | most heads | share |\n| --- | --- | --- | --- |\n",
        "| bent | 6.03 ± 0.58 | 2 | 0.600 |",
        "| lost | not run | 0 | 0.00 |",
        "| Which? | not run |\n| How many? | 7.0 |",
        "![All 3 coins.](images/coin-coins.png)\n\n*All 3 coins.*",
        "![No coin is fair.](images/coin-coins.png)\n\n*Of 3 coins.*",
        "| Throws | 1000 | cpu: 10; paper: 1,000 | cpu: 10; paper: 1,000 |",
        "6 runs, seeds 0 to 2; 6 min in all",
        "`python scripts/reproduce.py` on 2026-01-02",
        "| throws | `10` |",
    ):
        assert wanted in text
    for left_out in ("Empty", "left out", "Heads of", "| none |"):
        assert left_out not in text


MORE = Higher("bent", "fair", by="heads")  # Of 5, 6.1 and 7 heads to 4, 5 and 6.
FEWER = Higher("fair", "bent", by="heads")


@pytest.mark.parametrize(
    ("tests", "verdict"),
    [
        ([True, lambda results: True], "yes"),
        ([True, False], "partly"),
        ([True, None], "partly"),
        ([False, None], "no"),
        ([NIL, None], "no"),
        ([None], "open"),
        ([Untestable("It is dark.")], "open"),
        # Facts decide only if there is nothing else.
        ([Fact(True), None], "open"),
        ([Fact(True)], "yes"),
    ],
)
def test_the_verdict_is_that_of_the_claims(results, tests, verdict):
    claims = [claim("a", str(i), "c", test) for i, test in enumerate(tests)]
    assert filled(results, *claims).verdict == verdict


ROW = """
| claim | where | the paper says | its number | here |
| --- | --- | --- | --- | --- |
| one | {where} | {says} | {number} | {here} |"""


def claim(where, says, here, test, number=""):
    """A claim of the one row."""
    names = {"where": where, "says": says, "here": here, "number": number}
    return Claim("one", test, names)


def filled(results, *claims, **attributes):
    """A table of claims, filled, of a class with other attributes."""
    own = type("Own", (Coin,), {"page": ROW, "claims": claims, **attributes})
    results.experiment = own(seeds=3)
    return fill_template(results)


def cells(found):
    """The last cells of a table of claims."""
    lines = found.blocks[-1].split("\n")[2:]
    return [line.removesuffix(" |").split(" | ")[-1] for line in lines]


def judged(results, *tests, **attributes):
    """The last cells of a table of claims with these tests."""
    claims = (claim("a", str(i), "c", test) for i, test in enumerate(tests))
    return cells(filled(results, *claims, **attributes))


@pytest.mark.parametrize(
    ("test", "word"),
    [
        (MORE, "yes"),
        (FEWER, "no"),
        (Higher(["bent", "fair"], "fair", by="heads"), "undecided"),
        # The smallest difference is 1.03 on average.
        (Higher("fair", "bent", by="heads", within=2), "yes"),
        (Higher("fair", "bent", by="heads", within=0.5), "no"),
        (Equal("fair", "bent", by="heads", within=2), "yes"),
        (Equal("fair", ("bent", "fair"), by="heads", within=0.5), "no"),
        (Equal("lost", "fair", by="heads", within=2), "not run"),
    ],
)
def test_arms_are_compared_seed_by_seed(results, test, word):
    assert judged(results, test)[0].split(";")[0] == word


@pytest.mark.parametrize(
    ("tests", "counts"),
    [
        ((True, True), "1 of 1 claims hold."),
        ((True, False), "0 of 1 claims hold, 1 undecided."),
        ((NIL, NIL), f"0 of 1 claims hold, 1 {NIL}."),
    ],
)
def test_what_the_paper_says_once_is_one_claim(results, tests, counts):
    # Only what is ours differs: the start of a rival, in the column `here`.
    claims = [claim("Table 1", "More.", f"start {i}", t) for i, t in enumerate(tests)]
    found = filled(results, *claims)
    assert found.count == counts
    assert found.blocks[0].endswith("are one claim: undecided if they differ.")
    # Another place, statement or number is another claim.
    others = claim("a", "b", "c", True), claim("a", "d", "c", False)
    found = filled(results, *others, claim("a", "b", "c", False, "9"))
    assert found.count == "1 of 3 claims hold, 2 refuted."
    assert "one claim" not in found.blocks[0]


def test_a_verdict_on_a_stand_in_has_its_own_word_and_no_half_of_a_difference(results):
    tests = MORE, FEWER, Fact(True), Untestable("Why."), None
    claims = [claim("a", str(i), "c", test) for i, test in enumerate(tests)]
    found = filled(results, *claims, stands_in_for="gold")
    assert cells(found)[:3] == ["yes, on a stand-in", "no, on a stand-in", "yes"]
    counts = "1 of 5 claims hold, 1 hold on a stand-in, 1 refuted on a stand-in, "
    assert found.count == f"{counts}1 not testable here, 1 undecided."
    assert found.words == "Partly reproduced, on a stand-in"
    more = claim("a", "1", "c", Higher("fair", "bent", by="noise", effect=40))
    assert filled(results, more).count == f"0 of 1 claims hold, 1 {NIL}."
    found = filled(results, more, stands_in_for="gold", trains=False)
    assert found.count == "0 of 1 claims hold, 1 undecided."
    assert found.words == "Open"
    assert filled(results, claim("a", "1", "c", True), trains=False).words == (
        "Reproduced, untrained"
    )


def fewest_heads(arm, wanted):
    """A test of the fewest heads of an arm."""
    return lambda results: results.values(arm, "heads").min() == wanted


def test_claims_within_the_rules_are_of_admissible_runs(results):
    for run in results.runs:
        if run.arm == "bent":
            run.numbers["admissible"] = run.seed > 0
    pairs = (("bent", 6.1), ("fair", 4), ("lost", 0))
    tests = [WithinRules(fewest_heads(*pair)) for pair in pairs]
    # Of the heads of bent, 5, 6.1 and 7, the first do not count.
    assert judged(results, *tests) == ["yes", "yes", "not run"]
    # Others as well as this test see all runs.
    assert judged(results, fewest_heads("bent", 5)) == ["yes"]
    for run in results.runs:
        run.numbers["admissible"] = run.arm != "bent"
    assert judged(results, tests[0], WithinRules(MORE)) == ["inadmissible"] * 2


def test_what_is_not_run_has_a_reason_and_what_there_is(results):
    found = filled(results, claim("a", "1", "c", not_run("Of tin.", but=MORE)))
    assert cells(found) == ["not run: Of tin. These runs alone would say: yes."]
    assert found.count == "0 of 1 claims hold, 1 not run."
    # Without the runs, nothing would be said.
    assert judged(results, not_run("Why.", but=fewest_heads("lost", 0))) == ["not run"]


def test_a_page_says_what_would_decide(results):
    cell = judged(results, Higher("fair", "bent", by="noise"))[0]
    found = re.search(r"undecided; about (\d+) seeds would decide, in (\d+) h", cell)
    assert found, cell
    # Two runs of a minute for each seed.
    assert int(found[2]) == round(2 * int(found[1]) / 60)
    # Two of two are true, six would decide, and one in three is lost by the rules.
    test = WithinRules(lambda kept: most(kept.values("fair", "heads") > 0))
    for run in results.runs:
        run.numbers["admissible"] = run.seed > 0 or run.arm != "fair"
    assert "about 9 seeds would decide" in judged(results, test)[0]
    undecided = Judged(None, why="a longer rope would decide")
    assert judged(results, undecided) == ["undecided: a longer rope would decide"]


def test_a_claim_without_a_row_and_an_unknown_name_are_errors(results):
    with pytest.raises(ValueError, match="Received: two without one"):
        filled(results, Claim("two", True))
    with pytest.raises(AttributeError, match="has no attribute 'thrown'"):
        filled(results, page="{thrown} times.")


def test_a_table_in_markdown():
    rows = [["a|b", 0.12345], [None, 7]]
    wanted = "| x | y |\n| --- | --- |\n| a\\|b | 0.123 |\n|  | 7 |"
    assert pages.table(["x", "y"], rows) == wanted
    wanted = "| x | y |\n| --- | ---: |\n| a | 1 |"
    assert pages.table(["x", "y:"], [["a", 1]]) == wanted


def test_the_index_links_to_every_page(results):
    reasons = {"Figure 4": "coin", "Table 9": "It needs private data."}
    reasons |= dict.fromkeys(("Figure 5", "Figure 6", "Table 10"), "A diagram.")
    text = pages.index([results], "", {"Coins": reasons})
    assert "**Pages: 1. Partly reproduced: 1.** 1 of 6 claims hold" in text
    assert "| Table 9 | It needs private data. |  |  |" in text
    assert "| Figures 5 and 6, Table 10 | A diagram. |  |  |" in text
    assert "[coin](coin.md)" in text
    assert "`python scripts/reproduce.py coin`" in text
    assert text.rstrip().endswith("coin\n```")
