"""The guide has no words that only authors of the package know."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = (
    r"stand-ins?",
    r"nil",
    r"hold as a count",
    r"recipe",
    r"dense[- ]first",
    r"(?:the|wide|another|keras') start(?! of)",
    r"within the rules",
    r"made here",
    r"added later",
    r"arms?",
    r"no interval",
    r"intervals? tells?",
    r"w\d(?:-\w+)*",
    # The original TensorFlow code.
    r"the(?: original)? release(?:'s)?",
)
# Where a word is what the page is about.
ALLOWED = {"recipes.md": "recipe", "experiments.md": "arms?"}
# Not a guide: what one has to know to change the package.
PAGES = [path for path in ROOT.glob("docs/*.md") if path.stem != "architecture"]
PAGES += [ROOT / "README.md", *ROOT.glob("notebooks/*.ipynb")]


def prose(path):
    """The text of a page or of a notebook without code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        chosen = [cell for cell in cells if cell["cell_type"] == "markdown"]
        text = "\n".join("".join(cell["source"]) for cell in chosen)
    return re.sub(r"(?s)```.*?```|`[^`]*`", "", text)


def private(text, allowed=None):
    """The private words of a text."""
    words = "|".join(word for word in WORDS if word != allowed)
    text = " ".join(text.split())
    return re.findall(rf"(?i)(?<![\w-])(?:{words})(?![\w-])", text)


@pytest.mark.parametrize("path", sorted(PAGES), ids=lambda path: path.stem)
def test_a_guide_has_no_private_words(path):
    assert not private(prose(path), ALLOWED.get(path.name))
