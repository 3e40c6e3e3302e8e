"""The committed pages are what the committed results say."""

import collections
import functools
import re
from pathlib import Path

import pytest

from research.engine import Results, pages
from research.engine.headlines import cells
from research.engine.template import fill_template
from research.papers import ABSTRACTS, COVERAGE, EXPERIMENTS

ROOT = Path(__file__).parents[3]
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
COMMITTED = [
    name
    for name, kind in EXPERIMENTS.items()
    if (ROOT / f"docs/results/{kind.presets()['cpu'].source}_cpu.json").exists()
]


def test_the_readme_has_the_counts_of_the_index():
    index = (ROOT / "docs/reproduction/index.md").read_text(encoding="utf-8")
    line = next(line for line in index.splitlines() if line.startswith("**Pages:"))
    found = re.fullmatch(
        r"\*\*Pages: (\d+)\. (.*)\.\*\* (\d+) of (\d+) claims (.*)", line
    )
    pages, words, hold, total, others = found.groups()
    # README says how many of those that hold are formulas or counts.
    text = re.sub(r" \(12 of them formulas or counts\)", "", README)
    assert f"Of {total} claims {hold} {others}" in text
    count = collections.Counter()
    count.update({k: int(n) for k, n in re.findall(r"([A-Z][^:]*): (\d+)", words)})
    nothing = count["Not reproduced"] + count["Not reproduced on a stand-in"]
    expected = (
        f"Of {pages} pages, {count['Reproduced']} reproduces all it trains, "
        f"{count['Reproduced on a stand-in']} all on a stand-in, and "
        f"{count['Reproduced untrained']} all, but train nothing; "
        f"{count['Partly reproduced']} reproduce a part, "
        f"{count['Partly reproduced on a stand-in']} a part on a stand-in, {nothing} "
        f"nothing; {count['Open']} are open."
    )
    assert expected in README
    assert count.total() == int(pages)


@functools.cache
def filled(name):
    """The results of an experiment, and its page as they fill it."""
    experiment = EXPERIMENTS[name].presets()["cpu"]
    results = Results(experiment, "cpu", ROOT / "docs/results")
    return results, fill_template(results)


@pytest.mark.parametrize("paper", COVERAGE)
def test_the_index_has_what_became_of_each_abstract(paper):
    text = (ROOT / "docs/reproduction/index.md").read_text(encoding="utf-8")
    (part,) = (part for part in text.split("\n## ") if part.startswith(paper))
    for headline in ABSTRACTS[paper]:
        claims = {name: filled(name)[1].counted for name in headline.claims}
        places = {name: EXPERIMENTS[name].where for name in headline.claims}
        row = " | ".join(cells(headline, claims, places))
        assert f"\n| {row} |\n" in part, "Run python scripts/reproduce.py --pages-only."


def test_the_readme_has_what_ten_problems_say():
    experiment = EXPERIMENTS["dselectk-fig2-7-8"].presets()["cpu"]
    results = Results(experiment, "cpu", ROOT / "docs/results")
    arms = ("Top-k", "Top-k, Keras' start", "DSelect-k")
    found = [f"{results.mean(arm, 'found'):.2f}" for arm in arms]
    text = "Top-k finds {} of 4, or {} with Keras' start, and DSelect-k {}, or"
    assert text.format(*found) in README


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_pages_are_what_the_results_say(name):
    results, report = filled(name)
    experiment = results.experiment
    page = ROOT / f"docs/reproduction/{name}.md"
    remedy = f"Run python scripts/reproduce.py {name} --pages-only."
    text = page.read_text(encoding="utf-8")
    assert text == pages.page(results, report), remedy
    assert "| protocol | paper | here |" in text
    assert report.claims
    for claim in report.claims:
        source, says, _, ours = claim.cells
        assert all((source, says, ours)), claim
        # A place in the paper itself.
        for place in source.split("; "):
            kind = r"(Abstract|Section|Appendix|Figures?|Tables?)\b"
            assert re.match(kind, place), place
    for picture in report.pictures:
        assert (page.parent / picture.path).exists(), remedy
    for arm in experiment.arms:
        seeds = [run.seed for run in results.of(arm)]
        assert seeds == list(range(experiment.seeds)), (arm, seeds)
    rows = (page.parent / "index.md").read_text(encoding="utf-8").splitlines()
    row = next(row for row in rows if f"]({name}.md) |" in row)
    assert f"| {report.words}. {report.count} |" in row, remedy
