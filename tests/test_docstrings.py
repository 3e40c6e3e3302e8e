"""Docstrings tell the truth: their examples run, their arguments exist."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re

import keras
import numpy as np
import pytest
from helpers import PUBLIC_MODULES

import dselectk_keras
from dselectk_keras.experts import ExpertBank

# Shapes print differently on each backend, and as tuples in the docstrings.
SHAPE = re.compile(r"(?:TensorShape|torch\.Size)\(\[([^\]]*)\]\)")
OF_SCRIPTS = "common.set_fields", "common.training_run", "research.papers.data"
ENTRY = re.compile(r"(\*{0,2}\w+): (.*)")


def public_objects():
    """Public classes and functions by name, each with its public namespace."""
    found = {}
    for path in (*PUBLIC_MODULES, *OF_SCRIPTS):
        module = importlib.import_module(path)
        part = path.removeprefix("dselectk_keras").lstrip(".")
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                found.setdefault(value, (f"{part}.{name}".lstrip("."), vars(module)))
    return [pytest.param(value, names, id=id_) for value, (id_, names) in found.items()]


def documented(value):
    """The object, and the methods of a class that document their arguments."""
    yield value.__name__, value, inspect.getdoc(value)
    for name, member in vars(value).items() if inspect.isclass(value) else ():
        function = getattr(member, "__func__", member)
        doc = inspect.getdoc(function) or ""
        if inspect.isfunction(function) and not name.startswith("_") and "Args:" in doc:
            yield f"{value.__name__}.{name}", getattr(value, name), doc


def documented_arguments(doc):
    """The entries of the section Args: texts by argument name."""
    section = re.search(r"^Args:\n((?:(?: .*)?\n?)*)", doc, re.MULTILINE)
    entries = {}
    for line in section[1].splitlines() if section else ():
        if entry := ENTRY.fullmatch(line[4:]):
            name, entries[entry[1]] = entry[1], entry[2]
        elif line.strip():
            entries[name] += f" {line.strip()}"
    return entries


def arguments(function):
    """The parameters of a signature by name, with their stars."""
    if function is ExpertBank:  # It has no arguments of its own.
        return {}
    # Their stars are part of how parameters are printed.
    return {
        re.match(r"\*{0,2}\w+", str(parameter))[0]: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
    }


class ShapeChecker(doctest.OutputChecker):
    def check_output(self, want, got, optionflags):
        got = SHAPE.sub(
            lambda match: repr(tuple(ast.literal_eval(f"[{match[1]}]"))), got
        )
        return super().check_output(want, got, optionflags)


@pytest.mark.parametrize(("value", "namespace"), public_objects())
def test_examples_run(value, namespace):
    public = {name: getattr(dselectk_keras, name) for name in dselectk_keras.__all__}
    names = {**public, **namespace, "keras": keras, "np": np}
    runner = doctest.DocTestRunner(ShapeChecker(), optionflags=doctest.REPORT_NDIFF)
    report = []
    for test in doctest.DocTestFinder().find(value, value.__name__, globs=names):
        runner.run(test, out=report.append)
    assert not runner.summarize(verbose=False).failed, "".join(report)


@pytest.mark.backend_independent
@pytest.mark.parametrize(("value", "namespace"), public_objects())
def test_documented_arguments_are_those_of_the_signature(value, namespace):
    for name, function, doc in documented(value):
        assert doc, f"{name} has no docstring"
        entries, parameters = documented_arguments(doc), arguments(function)
        # Fields of a command line have their text in its help.
        fields = getattr(value, "__dataclass_fields__", {}).values()
        if not any("help" in field.metadata for field in fields):
            assert list(entries) == list(parameters), name
        for argument, text in entries.items():
            default = parameters[argument].default
            # The signature has the default.
            assert "Defaults to `" not in text, f"{name}: {argument}"
            if "`None` is" in text:
                assert default is None, f"{name}: {argument}"


@pytest.mark.backend_independent
def test_methods_have_a_docstring_unless_they_override_one():
    infos = pkgutil.walk_packages(dselectk_keras.__path__, "dselectk_keras.")
    modules = [importlib.import_module(info.name) for info in infos]
    classes = {
        each
        for module in modules
        for each in vars(module).values()
        if inspect.isclass(each) and each.__module__ == module.__name__
    }
    assert len(classes) > 60
    for cls in classes:
        inherited = {name for base in cls.__mro__[1:] for name in vars(base)}
        for name in vars(cls).keys() - inherited:
            member = inspect.getattr_static(cls, name)
            is_method = hasattr(member, "__get__") and not inspect.isclass(member)
            if is_method and not name.startswith("_"):
                assert inspect.getdoc(member), f"{cls.__name__}.{name}"
