"""The notebooks open alike."""

import re
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.py")), ids=lambda p: p.stem)
def test_the_first_cell_says_how_to_install_and_sets_the_backend(path):
    first = re.findall(r"(?ms)^# %%\n(.*?)(?=^# %%)", path.read_text())[0]
    assert re.fullmatch(
        r'# In a copy of the repository: pip install "\.\[tensorflow,(data,)?plots\]"\n'
        r"import os\n\n"
        r'os\.environ\["KERAS_BACKEND"\] = "tensorflow"(  # or "jax", "torch")?\n+',
        first,
    )
