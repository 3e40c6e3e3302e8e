"""Things of one kind, registered beside their definitions."""

import keras
import pytest

from dselectk_keras.registry import Registry, import_modules


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


def test_what_was_registered_is_found_by_its_name_or_that_of_its_class(shapes):
    assert list(shapes) == ["circle", "square"]
    assert shapes.find("circle").__name__ == "TestedCircle"
    assert shapes.find("square") is shapes["square"]
    assert shapes.classes() == {
        "TestedCircle": shapes["circle"],
        "tested_square": shapes["square"],
    }


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


def test_importing_the_modules_of_a_package_registers_what_they_define(
    tmp_path, monkeypatch
):
    package = tmp_path / "tested_package"
    package.mkdir()
    (package / "__init__.py").write_text("found = []")
    for name in ("one", "_private"):
        line = f"from tested_package import found; found.append({name!r})"
        (package / f"{name}.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    tested_package = pytest.importorskip("tested_package")
    import_modules("tested_package", tested_package.__path__)
    assert tested_package.found == ["one"]
