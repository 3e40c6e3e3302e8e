"""The table of methods is complete, and is what the registries say."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def methods():
    """The module that writes the page."""
    spec = importlib.util.spec_from_file_location("methods", ROOT / "docs/methods.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(methods):
    written = methods.PAGE.read_text(encoding="utf-8")
    assert written == methods.page(), "Run python docs/methods.py."


def test_gates_and_architectures_have_a_paper(methods):
    tables = dict(methods.tables())
    rows = [row for name in ("Gates", "Architectures") for row in tables[name]]
    assert len(rows) == len(methods.GATES) + len(methods.ARCHITECTURES)
    assert all(paper and test for _, _, paper, test in rows)


def test_a_test_that_is_not_there_is_noticed(methods):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        methods.link("tests/nowhere.py")
