"""Texts become values of the types of the fields, or errors that say what they are."""

import dataclasses

import pytest

from common.set_fields import set_fields


@dataclasses.dataclass(frozen=True)
class Config:
    size: int = 1
    rate: float = 0.1
    name: str = "a"
    on: bool = False
    most: int | None = 3
    folder: str | None = None
    widths: tuple[int, ...] = (1,)
    pair: tuple[str, float] = ("a", 1.0)
    nested: tuple[tuple[str, int], ...] = ()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("size=7", 7),
        ("rate=2", 2.0),
        ("rate=1e-3", 0.001),
        ("name=1", "1"),
        ("name=a=b", "a=b"),
        ("on=True", True),
        ("most=None", None),
        ("most=4", 4),
        ("folder=None", None),
        ("folder=x", "x"),
        ("widths=16,8", (16, 8)),
        ("widths=(16,)", (16,)),
        ("pair=('b', 2)", ("b", 2.0)),
        ("nested=(('a', 1), ('b', 2))", (("a", 1), ("b", 2))),
    ],
)
def test_a_text_is_read_by_the_type_of_the_field(text, value):
    found = getattr(set_fields(Config(), [text]), text.partition("=")[0])
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    ["size=1.5", "size=True", "rate=fast", "on=1", "most=x", "widths=3", "pair=('b',)"],
)
def test_a_text_that_does_not_fit_is_refused(text):
    name = text.partition("=")[0]
    with pytest.raises(ValueError, match=rf"{name}: must be of the type .*Received: "):
        set_fields(Config(), [text])


def test_several_fields_are_set_and_unknown_ones_named():
    assert set_fields(Config(), ["size=2", "on=True"]) == Config(size=2, on=True)
    assert set_fields(Config(), []) == Config()
    with pytest.raises(ValueError, match=r"Config has no field 'sise'. It has: size"):
        set_fields(Config(), ["sise=2"])
