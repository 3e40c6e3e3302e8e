"""Short versions of notebooks run to the end, and their figures are drawn."""

import os

import pytest

from tools import quick_notebooks

pytestmark = pytest.mark.backend_independent

GOOD = """
import matplotlib.pyplot as plt
WORDS = "the long version"
# quick: WORDS = "the short version"
print(WORDS)
plt.plot([1, 2])
"""
# Its figure is wrong in a way that only drawing it shows.
WRONG = """
import matplotlib.pyplot as plt
plt.title(r"$\\no_such_symbol$")
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a notebook with a text."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", dict(os.environ))

    def run(text):
        (tmp_path / "notebook.py").write_text(text)
        out = str(tmp_path / "out")
        quick_notebooks.main([str(tmp_path / "notebook.py"), "--out", out])

    return run


def test_the_short_version_runs(run, capsys):
    run(GOOD)
    said = capsys.readouterr().out
    assert "\nthe short version\n" in said
    assert "the long version" not in said


def test_figures_are_drawn(run):
    with pytest.raises(ValueError, match="no_such_symbol"):
        run(WRONG)


def test_a_notebook_that_fails_ends_the_run(run):
    with pytest.raises(NameError, match="no_such_name"):
        run("x = no_such_name")
