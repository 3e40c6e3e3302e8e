"""Things of one kind, registered beside their definitions."""

import keras
import pytest

import dselectk_keras as dk
from dselectk_keras.registry import Registry


@pytest.fixture
def shapes():
    registry = Registry("shape")

    @registry.register("circle")
    class TestedCircle(keras.layers.Layer):
        pass

    @registry.register("square")
    def tested_square():
        pass

    return registry


def test_what_was_registered_is_found_by_its_name(shapes):
    assert list(shapes) == ["circle", "square"]
    assert shapes.find("circle").__name__ == "TestedCircle"
    assert shapes.find("square") is shapes["square"]


def test_a_name_is_a_string_that_is_known_and_given_once(shapes):
    first = shapes["circle"]
    for call, name, text in [
        (shapes.find, "oval", r"no shape of the name 'oval'\. .*: circle, square\.$"),
        (shapes.register("circle"), object, r"a shape 'circle' already\. Use anoth"),
        (shapes.register, ["oval"], r"`name` must be a string\. .*\['oval'\]"),
    ]:
        with pytest.raises(ValueError, match=text):
            call(name)
    assert shapes["circle"] is first


def test_classes_are_registered_with_keras_and_functions_are_not(shapes):
    name = "dselectk_keras>TestedCircle"
    assert keras.saving.get_registered_object(name) is shapes["circle"]
    assert keras.saving.get_registered_name(shapes["circle"]) == name
    square = shapes["square"]
    assert keras.saving.get_registered_name(square) == square.__name__


def test_every_registered_gate_is_public():
    for cls in dk.gates.GATES.values():
        if cls.__module__.startswith("dselectk_keras."):  # Other tests register more.
            is_baseline = ".baselines." in cls.__module__
            public = dk.baselines if is_baseline else dk
            assert cls.__name__ in public.__all__, f"Add it to `__init__.py`: {cls}."
            assert getattr(public, cls.__name__) is cls
