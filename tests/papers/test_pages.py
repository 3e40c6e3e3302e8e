"""The committed pages are what the committed results say."""

import re
from pathlib import Path

import pytest

from experiments import Results, pages
from experiments.template import VERDICTS, fill_template
from papers import EXPERIMENTS

ROOT = Path(__file__).parents[2]
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
COMMITTED = [
    (name, path)
    for name, kind in EXPERIMENTS.items()
    for path in [ROOT / f"docs/results/{kind.presets()['cpu'].source}_cpu.json"]
    if path.exists()
]


def test_the_readme_has_the_counts_of_the_index():
    index = (ROOT / "docs/reproduction/index.md").read_text(encoding="utf-8")
    line = next(line for line in index.splitlines() if line.startswith("**Pages:"))
    pages, every, some, none, left, hold, total, *_ = re.findall(r"\d+", line)
    words = "refuted|nil|not testable here|inadmissible|undecided"
    others = [" ".join(each) for each in re.findall(rf"(\d+) ({words})", line)]
    expected = (
        f"Of {total} claims {hold} hold, {', '.join(others)}. Of {pages} pages, "
        f"{every} reproduce all they train, {some} a part, {none} nothing; {left} are "
        "open."
    )
    assert "not run" not in line
    assert expected in README


def test_the_readme_has_what_ten_problems_say():
    experiment = EXPERIMENTS["dselectk-fig2-7-8"].presets()["cpu"]
    results = Results(experiment, "cpu", ROOT / "docs/results")
    arms = ("Top-k", "Top-k, Keras' start", "DSelect-k")
    found = [f"{results.mean(arm, 'found'):.2f}" for arm in arms]
    text = "Top-k finds {} of 4, or {} with Keras' start, and DSelect-k {} ("
    assert text.format(*found) in README


@pytest.mark.parametrize(("name", "path"), COMMITTED)
def test_committed_pages_are_what_the_results_say(name, path):
    experiment = EXPERIMENTS[name].presets()["cpu"]
    results = Results(experiment, "cpu", path.parent)
    report = fill_template(results)
    page = ROOT / f"docs/reproduction/{name}.md"
    remedy = f"Run python scripts/reproduce.py {name} --pages-only."
    text = page.read_text(encoding="utf-8")
    assert text == pages.page(results, report), remedy
    assert "| protocol | paper | here |" in text
    assert report.claims
    for claim in report.claims:
        source, says, _, ours = claim.cells
        assert all((source, says, ours)), claim
    for picture in report.pictures:
        assert (page.parent / picture.path).exists(), remedy
    for arm in experiment.arms:
        seeds = [run.seed for run in results.of(arm)]
        assert seeds == list(range(experiment.seeds)), (arm, seeds)
    rows = (page.parent / "index.md").read_text(encoding="utf-8").splitlines()
    row = next(row for row in rows if f"]({name}.md) |" in row)
    assert f"| {VERDICTS[report.verdict]} {report.count} |" in row, remedy
