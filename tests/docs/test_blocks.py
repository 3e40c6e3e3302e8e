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


@pytest.mark.parametrize("page", ["docs/choosing.md", "docs/performance.md"])
def test_a_page_has_no_measured_number_outside_of_its_blocks(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(page_module("blocks").BLOCK, "", text)
    text = re.sub(r"(?s)```.*?```|`[^`]*`|\$[^$]*\$", "", text)  # Settings.
    assert not re.findall(r"\d+\.\d+|\d+ ?%|±", text)
