"""Pages are filled templates."""

import dataclasses
import re

import pytest

from experiments import Experiment, Results, Run, fill_template, pages, preset
from papers import EXPERIMENTS

TEMPLATE = """
Thrown {throws} times.

| where | we expect | its number | here | holds |
| --- | --- | --- | --- | --- |
| Section 1 | More. | 6 | {mean("bent", "heads"):.1f} of 10 | bent > fair by heads |
| Section 2 | Fewer. |  | {gap("fair", "bent", "heads"):0} | mean("fair", "heads") > 9 |
| Section 3 | As many. |  | {text("lost", "heads")} | lost = fair by heads |
| Section 4 | Many more. | 40 |  | fair > bent by noise of 40 |
| Section 5 | Gold. |  |  | untestable: Ours are of {metal}. |
| Section 6 | Brass. |  | | untestable: Ours are of {metal}. But: bent > fair by heads |

## Empty

{"" if seeds else "No seeds."}

## Heads

| coin | {across(f"{word} heads" for word in ("mean", "most"))} |
| for arm, (share, sides) in arms.items(): {arm} | {text(arm, "heads")} | {sides} |

![All {len(arms)} coins.](coins)

## Protocol

| protocol | paper | here | why it differs |
| --- | --- | --- | --- |
| Throws | 1000 | {throws:,} | {both("throws")} |
| Seeds | 3 | {seeds} |  |
"""


@dataclasses.dataclass(frozen=True)
class Coin(Experiment):
    name = "coin"
    title = "a coin that is thrown"
    page = TEMPLATE

    throws: int = preset(10, paper=1_000)
    metal: str = "tin"

    @property
    def arms(self):
        return {"fair": (0.5, 2), "bent": (0.6, 2), "lost": (0.0, 0)}

    def run(self, arm, jobs):
        raise NotImplementedError

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
        "# a coin that is thrown\n\nThrown 10 times.",
        "**Partly reproduced.** 1 of 6 claims hold, 1 refuted, ",
        "1 refuted, 1 nil, 2 not testable here, 1 not run.",
        "| Section 1 | More. | 6 | 6.0 of 10 | yes |",
        "| Section 2 | Fewer. |  | -1 ± 0 | no |",
        "| Section 3 | As many. |  | not run | not run |",
        "| Section 4 | Many more. | 40 |  | nil |",
        "| Section 5 | Gold. |  |  | not testable here: Ours are of tin. |",
        "Ours are of tin. These runs alone would say: yes. |",
        "Preset `paper`, not run: 3 runs, 0.1 core-hours, 2 GB; data that are drawn.",
        "| coin | mean heads | most heads |\n| --- | --- | --- |\n",
        "| bent | 6.03 ± 0.58 | 2 |",
        "| lost | not run | 0 |",
        "![All 3 coins.](images/coin-coins.png)\n\n*All 3 coins.*",
        "| Throws | 1000 | cpu: 10; paper: 1,000 | cpu: 10; paper: 1,000 |",
        "6 runs, seeds 0 to 2; 6 min in all",
        "`python scripts/reproduce.py` on 2026-01-02",
        "| throws | `10` |",
    ):
        assert wanted in text
    assert "Empty" not in text


@pytest.mark.parametrize(
    ("tests", "verdict"),
    [
        (["True", "1 > 0"], "yes"),
        (["True", "False"], "partly"),
        (["True", "None"], "partly"),
        (["False", "None"], "no"),
        (["'nil'", "None"], "no"),
        (["None"], "open"),
        (["untestable: It is dark."], "open"),
    ],
)
def test_the_verdict_is_that_of_the_claims(results, tests, verdict):
    rows = [f"| a | {i} | c | {test} |" for i, test in enumerate(tests)]
    assert filled(results, *rows).verdict == verdict


def filled(results, *rows, **attributes):
    """A table of claims, filled, of a class with other attributes."""
    head = "| where | we expect | here | holds |\n| --- | --- | --- | --- |\n"
    own = type("Own", (Coin,), {"page": head + "\n".join(rows), **attributes})
    results.experiment = own(seeds=3)
    return fill_template(results)


def cells(found):
    """The last cells of a table of claims."""
    return [line.split(" | ")[-1] for line in found.blocks[-1].split("\n")[2:]]


@pytest.mark.parametrize(
    ("tests", "counts"),
    [
        (("True", "True"), "1 of 1 claims hold."),
        (("True", "False"), "0 of 1 claims hold, 1 undecided."),
        (("'nil'", "'nil'"), "0 of 1 claims hold, 1 nil."),
    ],
)
def test_what_the_paper_says_once_is_one_claim(results, tests, counts):
    # Only what is ours differs: the start of a rival, in the column `here`.
    rows = [f"| Table 1 | More. | start {i} | {test} |" for i, test in enumerate(tests)]
    found = filled(results, *rows)
    assert found.count == counts
    assert found.blocks[0].endswith("are one claim: undecided if they differ.")
    # Another place, or another statement, is another claim.
    found = filled(results, "| a | b | c | True |", "| a | d | c | False |")
    assert found.count == "1 of 2 claims hold, 1 refuted."
    assert "one claim" not in found.blocks[0]


def test_a_verdict_on_a_stand_in_has_its_own_word(results):
    found = filled(
        results,
        "| a | 1 | c | bent > fair by heads |",
        "| a | 2 | c | fair > bent by heads |",
        "| a | 3 | c | fact: 1 > 0 |",
        "| a | 4 | c | untestable: Why. |",
        "| a | 5 | c | None |",
        stands_in_for="gold",
    )
    words = ["yes, on a stand-in", "no, on a stand-in", "yes"]
    assert cells(found)[:3] == [f"{word} |" for word in words]
    counts = "1 of 5 claims hold, 1 hold on a stand-in, 1 refuted on a stand-in, "
    assert found.count == f"{counts}1 not testable here, 1 undecided."
    assert found.words == "Partly reproduced, on a stand-in"


def test_the_papers_difference_makes_nothing_nil_on_a_stand_in(results):
    row = "| a | 1 | c | fair > bent by noise of 40 |"
    assert filled(results, row).count == "0 of 1 claims hold, 1 nil."
    found = filled(results, row, stands_in_for="gold")
    assert found.count == "0 of 1 claims hold, 1 undecided."
    assert found.words == "Open"


def test_a_page_without_training_says_so(results):
    words = filled(results, "| a | 1 | c | True |", trains=False).words
    assert words == "Reproduced, untrained"
    assert filled(results, "| a | 1 | c | None |", trains=False).words == "Open"


def test_claims_within_the_rules_are_of_admissible_runs(results):
    runs = results.runs
    for i, run in enumerate(runs):
        if run.arm == "bent":
            run.numbers["admissible"] = run.seed > 0
            runs[i] = dataclasses.replace(run)
    page = '| a | {} | c | within rules: values("{}", "heads").min() {} |'.format
    rows = page(1, "bent", "== 6.1"), page(2, "fair", "== 4"), page(3, "lost", "== 0")
    found = filled(results, *rows)
    # Of the heads of bent, 5, 6.1 and 7, the first do not count.
    assert cells(found) == ["yes |", "yes |", "not run |"]
    # Others as well as this test see all runs.
    every = filled(results, '| a | 1 | c | values("bent", "heads").min() == 5 |')
    assert cells(every) == ["yes |"]
    for run in runs:
        run.numbers["admissible"] = run.arm != "bent"
    assert cells(filled(results, rows[0])) == ["inadmissible |"]


def test_seeds_within_the_rules_are_some_of_all(results):
    row = "| a | 1 | c | within rules: most(values('fair', 'heads') > 0) |"
    for run in results.runs:
        run.numbers["admissible"] = run.seed > 0 or run.arm != "fair"
    # Two of two are true, six would decide, and one in three is lost.
    assert "about 9 seeds would decide" in cells(filled(results, row))[0]


def test_what_is_not_run_has_a_reason_and_what_there_is(results):
    row = "| a | 1 | c | not run: Of {metal}. But: bent > fair by heads |"
    found = filled(results, row)
    text = "not run: Of tin. These runs alone would say: yes. |"
    assert cells(found) == [text]
    assert found.count == "0 of 1 claims hold, 1 not run."


def test_what_would_decide_may_be_something_else(results):
    row = "| a | 1 | c | Judged(None, why='a longer rope would decide') |"
    assert cells(filled(results, row)) == ["undecided: a longer rope would decide |"]


def test_a_page_says_what_would_decide(results):
    row = cells(filled(results, "| a | b | c | fair > bent by noise |"))[0]
    found = re.search(r"undecided; about (\d+) seeds would decide, in (\d+) h", row)
    assert found, row
    # Two runs of a minute for each seed.
    assert int(found[2]) == round(2 * int(found[1]) / 60)


def test_a_page_and_its_pictures_are_written(tmp_path):
    experiment = EXPERIMENTS["dselectk-fig4"]()
    results = Results(experiment, "cpu")
    for arm in experiment.arms:
        numbers = {"x": [-1.0, 1.0], "y": [0.0, 1.0], "exact": 0.5}
        results.add(Run(arm, 0, {}, numbers, 60.0), {"command": ""} | AROUND)
    assert pages.write_page(results, tmp_path) == tmp_path / "dselectk-fig4.md"
    assert (tmp_path / "images/dselectk-fig4-functions.png").stat().st_size > 1000
    text = (tmp_path / "dselectk-fig4.md").read_text()
    assert text.startswith("<!-- Generated")
    assert "# DSelect-k, Figure 4: the smooth step" in text


AROUND = dict.fromkeys(
    ("date", "device", "keras", "backend", "backend_version", "numpy", "python"), "x"
)


def test_a_table_in_markdown():
    rows = [["a|b", 0.12345], [None, 7]]
    wanted = "| x | y |\n| --- | --- |\n| a\\|b | 0.123 |\n|  | 7 |"
    assert pages.table(["x", "y"], rows) == wanted


def test_the_index_links_to_every_page(results):
    reasons = {"Figure 4": "coin", "Table 9": "It needs private data."}
    reasons |= dict.fromkeys(("Figure 5", "Figure 6", "Table 10"), "A diagram.")
    text = pages.index([results], "", {"": reasons})
    assert "**Pages: 1. Partly reproduced: 1.** 1 of 6 claims hold" in text
    assert "| Table 9 | It needs private data. |  |  |" in text
    assert "| Figures 5 and 6, Table 10 | A diagram. |  |  |" in text
    assert "[coin](coin.md)" in text
    assert "`python scripts/reproduce.py coin`" in text
    assert text.rstrip().endswith("coin\n```")
