"""The table of methods is complete, and is what the registries say."""

import pytest
from jobs import page_module


@pytest.fixture
def methods():
    """The module that writes the page."""
    return page_module("methods")


def test_the_page_is_up_to_date(methods):
    written = methods.PAGE.read_text(encoding="utf-8")
    assert written == methods.page(), "Run python docs/methods.py."


def test_gates_and_architectures_have_a_paper(methods):
    tables = dict(methods.tables())
    rows = [row for name in ("Gates", "Architectures") for row in tables[name]]
    assert len(rows) == len(methods.GATES) + len(methods.ARCHITECTURES)
    assert all(paper and test for _, _, paper, test in rows)
