"""Pages stay short."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
LONGER = {"architecture"}  # What one has to know to change the package.


@pytest.mark.parametrize(
    "page", sorted(path.stem for path in DOCS.glob("*.md") if path.stem not in LONGER)
)
def test_a_page_has_900_words_or_fewer(page):
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    words = re.sub(r"(?s)```\{toctree\}.*?```", "", text).split()
    assert len(words) <= 900
