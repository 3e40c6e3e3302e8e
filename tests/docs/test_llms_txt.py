"""The list of pages for language models has every page of the site."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def pages_of(toctree):
    """The pages of a table of contents, in order."""
    for line in toctree.split():
        if line == "notebooks/*":
            notebooks = sorted((DOCS.parent / "notebooks").glob("*.ipynb"))
            yield from (f"notebooks/{notebook.stem}" for notebook in notebooks)
        elif not line.startswith(":"):
            yield line


def test_llms_txt_has_the_table_of_contents():
    contents = {}
    block = r"```\{toctree\}\n:caption: ([^\n]*)\n(.*?)```"
    for caption, rest in re.findall(block, (DOCS / "index.md").read_text(), re.DOTALL):
        lines = "\n".join(line for line in rest.split("\n") if not line.startswith(":"))
        contents[caption] = list(pages_of(lines))
    listed = {}
    for part in (DOCS / "llms.txt").read_text().split("\n## ")[1:]:
        links = re.findall(r"(?m)^- \[[^\]]+\]\((\S+)\.html\): \S.*$", part)
        listed[part.split("\n", 1)[0]] = links
    assert listed == contents
