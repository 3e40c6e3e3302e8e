"""The numbers of README.md and the pages are those of the committed results."""

import re
from pathlib import Path

import pytest
from jobs import page_module

ROOT = Path(__file__).parents[2]


def test_blocks_have_what_the_results_say():
    module = page_module("blocks")
    for page, blocks in module.PAGES.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert {match[1] for match in re.finditer(module.BLOCK, text)} == set(blocks)
        assert module.filled(text, blocks) == text, "Run python docs/blocks.py."


def test_times_against_other_forms_and_the_release_are_shown():
    times = page_module("blocks").times
    forms = {"stacked": {"fit_times_list": 36.09, "fit_times_plain": 0.7553}}
    release = {"release": {"fit_ms": 30.0}, "stacked": {"fit_ms": 1.5}}
    found = {
        "workloads": {"W2": {"forms": forms}},
        "release": {"W2": {"forms": release}},
    }
    shown = [
        times(found, "fit", "W2", "stacked", other)
        for other in ("list", "plain", "release", "plain+metrics")
    ]
    # 30 ms are 20 times 1.5 ms; what was not measured is not there.
    assert shown == ["36", "0.76", "20", "-"]
    assert times(found | {"release": {}}, "fit", "W2", "stacked", "release") == "-"


def test_claims_are_counted_once_each():
    from research.engine.claims import NIL, Found

    def claim(holds, fact=False, stand_in=False):
        return Found("", [], holds, fact, stand_in)

    # The second of the formulas is on a page that trains nothing.
    trained = [
        claim(True, fact=True),
        claim(True, stand_in=True),
        claim(False),
        claim(False, stand_in=True),
        claim(NIL),
        claim(None),
        claim("not run"),
        claim("not testable here"),
        claim("not testable here"),
    ]
    every = [*((each, True) for each in trained), (claim(True), False)]
    text = " ".join(page_module("blocks").sentence_of(every).split())
    assert text == (
        "Of 10 claims, 3 were not testable or not run. Of the other 7, 3 hold (1 of "
        "them on substitute data; 2 are formulas or counts), 2 are refuted, 1 differ "
        "by less than half of what the paper says, and 1 are undecided."
    )


@pytest.mark.parametrize("page", ["docs/choosing.md", "docs/performance.md"])
def test_a_page_has_no_measured_number_outside_of_its_blocks(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(page_module("blocks").BLOCK, "", text)
    text = re.sub(r"(?s)```.*?```|`[^`]*`|\$[^$]*\$", "", text)  # Settings.
    assert not re.findall(r"\d+\.\d+|\d+ ?%|±", text)
