"""The page about the architecture follows a batch as it is."""

import importlib.util
from pathlib import Path

import keras
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="Elsewhere functions are traced twice."
)
def test_functions_are_entered_in_the_order_of_the_page():
    spec = importlib.util.spec_from_file_location("path", ROOT / "docs/call_path.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- path: ") == 2
    assert module.filled(text) == text, "Run python docs/call_path.py."
