"""The code is counted as it is."""

import pytest

from dselectk_keras.schedules import Ramp, value_at
from tools import count_code

pytestmark = pytest.mark.backend_independent


def test_calls_are_counted_by_name_and_files_that_write_pages_are_found(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("len(x)\nx.len()\nlen(y)  # len(z)\n")
    assert count_code.calls_of(path) == ["len", "len"]
    assert count_code.lines([path, path]) == 6
    assert not count_code.writes_pages(path)
    path.write_text('(folder / "a.md").write_text(page)\n')
    assert count_code.writes_pages(path)


def test_a_model_overrides_what_keras_has_too():
    own = "class MultitaskModel(\n    def __init__(\n    def fit(\n    def own(\n"
    assert count_code.overridden(f"{own}\n\n\n    def call(") == 1


def test_a_way_counts_calls_of_the_package_and_moves_between_its_files():
    assert count_code.walk(lambda: len("a")) == (0, 0)
    calls, moves = count_code.walk(lambda: value_at(Ramp(1.0, 0.5, end=2), 1))
    assert calls >= 3
    assert 1 <= moves < calls
