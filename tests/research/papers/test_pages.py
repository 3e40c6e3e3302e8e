"""The committed pages are what the committed results say."""

import functools
import re
from pathlib import Path

import pytest
from helpers import overlapping
from matplotlib import pyplot as plt

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
    found = [results.mean(arm, "found") for arm in ("Top-k", "Top-k, Keras' start")]
    sparse = results.within_rules()
    assert (len(sparse.of("DSelect-k")), len(results.of("DSelect-k"))) == (4, 10)
    found = [f"{number:.1f}" for number in (*found, sparse.mean("DSelect-k", "found"))]
    text = (
        "Top-k finds {} of 4 from small initial logits and {} from Keras' default. "
        "DSelect-k finds {} in the four of ten runs in which it became sparse"
    )
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
        figure = picture.draw()
        assert not overlapping(figure)
        plt.close(figure)
    for arm in experiment.arms:
        seeds = [run.seed for run in results.of(arm)]
        # Some arms may have more.
        assert seeds == list(range(max(experiment.seeds, len(seeds)))), (arm, seeds)
    rows = (page.parent / "index.md").read_text(encoding="utf-8").splitlines()
    row = next(row for row in rows if f"]({name}.md) |" in row)
    assert f"| {report.words}. {report.count} |" in row, remedy
