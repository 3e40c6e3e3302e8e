"""Pages show the paper beside ours."""

import pytest

from experiments import (
    Claim,
    Fact,
    Picture,
    Question,
    Report,
    Results,
    Run,
    Table,
    pages,
)
from papers import EXPERIMENTS


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [
        ([True, True], "yes"),
        ([True, False], "partly"),
        ([True, None], "partly"),
        ([False, None], "no"),
        ([None], "open"),
        ([], "open"),
    ],
)
def test_the_verdict_is_that_of_the_claims(holds, verdict):
    assert Report([Claim("a", "b", held, "c") for held in holds]).verdict == verdict


def test_a_table_in_markdown():
    rows = [["a|b", 0.12345], [None, 7]]
    wanted = "| x | y |\n| --- | --- |\n| a\\|b | 0.123 |\n|  | 7 |"
    assert pages.table(["x", "y"], rows) == wanted


@pytest.fixture
def results():
    results = Results(EXPERIMENTS["dselectk-fig4"](), "cpu")
    around = {"command": "python scripts/reproduce.py", "date": "2026-01-02"}
    around |= dict.fromkeys(("device", "keras", "backend", "numpy", "python"), "x")
    around |= {"backend_version": "1.2"}
    for arm in results.experiment.arms:
        numbers = {"x": [0.0, 1.0], "y": [0.0, 0.5], "exact": 0.5}
        results.add(Run(arm, 0, {}, numbers, 60.0), around)
    return results


def test_a_page_has_everything(results, tmp_path):
    report = Report(
        [Claim("The sky is blue.", "It is green.", False, "Section 1", "400 nm")],
        [Table("Colours", ["what", "paper", "ours"], [["sky", "blue", "green"]])],
        [Picture("sky", "A sky.", lambda: None)],
        ["It rained."],
        [Question("Is it far?", "A mile.")],
        [Fact("Clouds", "none", "some", "It is November.")],
    )
    text = pages.page(results, report)
    for wanted in (
        "# DSelect-k, Figure 4: the smooth step",
        "**Not reproduced.**",
        "| Section 1 | The sky is blue. | 400 nm | It is green. | no |",
        "| Is it far? | A mile. |",
        "| Clouds | none | some | It is November. |",
        "| sky | blue | green |",
        "![A sky.](images/dselectk-fig4-sky.png)",
        "It rained.",
        "2 runs, one seed; 2 min in all",
        "`python scripts/reproduce.py` on 2026-01-02",
        "| gamma | `1.0` |",
    ):
        assert wanted in text
    path = pages.write_page(results, tmp_path)
    assert path == tmp_path / "dselectk-fig4.md"
    assert (tmp_path / "images/dselectk-fig4-functions.png").stat().st_size > 1000


def test_the_index_links_to_every_page(results):
    paper = results.experiment.paper
    reasons = {"Figure 4": "dselectk-fig4", "Table 9": "It needs private data."}
    reasons |= dict.fromkeys(("Figure 5", "Figure 6", "Table 10"), "A diagram.")
    text = pages.index([results], "", {paper: reasons})
    assert "**Pages: 1. " in text
    assert "| Table 9 | It needs private data. |  |  |" in text
    assert "| Figures 5 and 6, Table 10 | A diagram. |  |  |" in text
    assert "[Figure 4](dselectk-fig4.md)" in text
    assert "`python scripts/reproduce.py dselectk-fig4`" in text
    assert text.rstrip().endswith("dselectk-fig4\n```")
