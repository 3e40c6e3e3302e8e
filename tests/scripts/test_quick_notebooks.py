"""Short versions of notebooks run to the end, or say what has failed."""

import subprocess
import sys

import pytest
import quick_notebooks

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
print("the end of the wrong one")
"""


def ended(tmp_path, **texts):
    """Run notebooks with these texts, without importing TensorFlow for them."""
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    code = (
        "import quick_notebooks as q, sys; q.IMPORTED = (); "
        "q.main([*sys.argv[2:], '--workers', '2', '--out', sys.argv[1]])"
    )
    paths = [str(tmp_path / f"{name}.py") for name in texts]
    return subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out"), *paths],
        cwd=quick_notebooks.ROOT / "scripts",
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.backend_independent
def test_the_short_version_runs_and_all_that_fail_are_named(tmp_path):
    done = ended(tmp_path, wrong=WRONG, good=GOOD, broken="x = no_such_name")
    assert "the short version\n" in done.stdout
    assert "the long version" not in done.stdout
    assert f"{tmp_path / 'good.py'}: passed, " in done.stdout
    # What a notebook says is shown, and where it has failed.
    assert "the end of the wrong one\n" in done.stdout
    assert "Unknown symbol: \\no" in done.stdout
    assert "NameError: name 'no_such_name' is not defined" in done.stdout
    assert done.returncode == 1
    (last,) = done.stderr.strip().splitlines()
    assert last.startswith("Failed: ")
    assert "wrong.py" in last
    assert "broken.py" in last
    assert "good.py" not in last


@pytest.mark.backend_independent
def test_a_run_without_failures_ends_well(tmp_path):
    done = ended(tmp_path, good=GOOD)
    assert (done.returncode, done.stderr) == (0, "")
