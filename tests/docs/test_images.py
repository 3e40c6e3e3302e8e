"""Each picture says in words what one sees."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = {"_build", "notebooks"}  # Below docs: copies.
PAGES = [
    ROOT / "README.md",
    *(
        path
        for folder, ending in (("docs", "md"), ("scripts", "md"), ("notebooks", "py"))
        for path in sorted((ROOT / folder).rglob(f"*.{ending}"))
        if not (folder == "docs" and BUILT & {*path.relative_to(ROOT / "docs").parts})
    ),
]
IMAGE = re.compile(r"(?<!`)!\[([^\]]*)\]\(([^\s)]+)")
TAG = re.compile(r"<img\b[^>]*>|(?:```|:::)\{(?:image|figure)\}[^`:]*")


def short_texts(page):
    """The images of a page whose text has fewer than five words."""
    found = [(len(text.split()), path, text) for text, path in IMAGE.findall(page)]
    # Chinese has no spaces between words.
    short = [
        path
        for words, path, text in found
        if words < 5 and len(re.findall("[\u4e00-\u9fff]", text)) < 10
    ]
    for tag in TAG.findall(page):
        text = re.search(r"alt[=:]\s*[\"']?([^\"'>\n]*)", tag)
        if text is None or len(text[1].split()) < 5:
            short.append(tag)
    return short


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_text_of_an_image_has_five_words(page):
    assert not short_texts(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_the_text_of_a_picture_of_a_notebook_has_five_words(path):
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if any("image/png" in each.get("data", ()) for each in cell.get("outputs", ())):
            alt = cell["metadata"]["mystnb"]["image"]["alt"]
            assert len(alt.split()) >= 5
