"""The list of pages for language models has every page of the site."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


# Pages that list the pages below them in a table.
WITH_A_TABLE = {"reproduction/index", "api"}
CAPTIONS = ["User's guide", "Papers and results", "Inside"]


def toctrees(page):
    """The tables of contents of a page: pairs of a caption and a list of pages."""
    path = DOCS / f"{page}.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for block in re.findall(r"(?s)```\{toctree\}\n(.*?)```", text):
        options, _, names = block.partition("\n\n")
        caption = re.search(r":caption: (.*)", options)
        yield caption and caption[1], names.split()


def pages_of(names):
    """Pages in order, each before those below it."""
    for name in names:
        if name == "notebooks/*":
            notebooks = sorted((DOCS.parent / "notebooks").glob("*.ipynb"))
            yield from (f"notebooks/{notebook.stem}" for notebook in notebooks)
            continue
        yield name
        for _, below in toctrees(name) if name not in WITH_A_TABLE else ():
            yield from pages_of(below)


def test_the_guide_is_short():
    contents = dict(toctrees("index"))
    assert list(contents) == CAPTIONS
    assert all(len(names) <= 15 for names in contents.values())


def test_llms_txt_has_the_table_of_contents():
    contents = {caption: [*pages_of(names)] for caption, names in toctrees("index")}
    listed = {}
    for part in (DOCS / "llms.txt").read_text().split("\n## ")[1:]:
        links = re.findall(r"(?m)^- \[[^\]]+\]\((\S+)\.html\): \S.*$", part)
        listed[part.split("\n", 1)[0]] = links
    assert listed == contents
