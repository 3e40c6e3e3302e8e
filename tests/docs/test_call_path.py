"""The page about the architecture follows a batch as it is."""

from jobs import page_module


def test_functions_are_entered_in_the_order_of_the_page():
    module = page_module("call_path")
    text = module.PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- path: ") == 2
    assert module.filled(text) == text, "Run python docs/call_path.py."
