"""The Python of the pages that a newcomer copies from runs as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Blocks fenced as ```py are other people's code, and not run.
PAGES = [
    "README.md",
    "docs/quickstart.md",
    "docs/choosing.md",
    "docs/migration.md",
]


def blocks(page):
    """The Python blocks of a page, each at its own lines of an empty file."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield "\n" * text.count("\n", 0, match.start(1)) + match[1]


@pytest.mark.parametrize("page", PAGES)
def test_python_of_the_page_runs(page, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    found = list(blocks(page))
    assert found
    namespace = {"__name__": "__main__"}
    for block in found:
        exec(compile(block, ROOT / page, "exec"), namespace)


def test_first_model_is_short_and_ends_in_a_picture(tmp_path, monkeypatch):
    first = next(blocks("README.md"))
    lines = [line for line in first.splitlines() if line.strip()]
    assert len(lines) < 20
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    exec(compile(first, "README.md", "exec"), {})
    assert [path.suffix for path in tmp_path.iterdir()] == [".png"]
