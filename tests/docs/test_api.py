"""The pages of the API have everything public."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
from helpers import PUBLIC_MODULES

PAGES = Path(__file__).parents[2] / "docs" / "api"


@pytest.mark.parametrize("path", PUBLIC_MODULES)
def test_every_public_class_and_function_has_an_entry(path):
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
    entries = re.findall(r"auto(?:class|function):: (\S+)", text)
    documented = {entry.rpartition(".")[2] for entry in entries}
    module = importlib.import_module(path)
    public = {
        name
        for name in module.__all__
        if inspect.isclass(getattr(module, name))
        or inspect.isfunction(getattr(module, name))
    }
    assert public
    assert not public - documented, "Add them to docs/api."
