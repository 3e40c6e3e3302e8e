"""A module of a user, with experiments or gates."""

import importlib.util
import inspect
import pathlib
import sys
from typing import Any

from dselectk_keras.gates.gate import Gate
from research.engine.experiment import Experiment

K = "num_nonzeros"  # What the constructor of a gate may be given.


def read_module(name):
    """Import a module, or a .py file."""
    path = pathlib.Path(name).resolve()
    wrong = f"--module must name a .py file, or a module. Received: {name}."
    if path.suffix != ".py":
        if not all(map(str.isidentifier, name.split("."))):
            raise ValueError(wrong)
        sys.path.insert(0, str(pathlib.Path.cwd()))
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if f"{name}.".startswith(f"{error.name}."):
                raise ValueError(wrong) from error
            raise  # The module imports what is not there.
    if not path.exists():
        raise ValueError(wrong)
    sys.path.insert(0, str(path.parent))
    # By its path, since another module may have its name.
    spec: Any = importlib.util.spec_from_file_location(str(path), path)
    module = sys.modules[str(path)] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def experiments_of(module):
    """The experiments of a module, by name."""
    found = _classes(module, Experiment)
    return {kind.name: kind for kind in found}


def gates_of(module):
    """Functions of the number of experts and of steps that make gates, by name.

    They are the dict `GATES` of the module, or make the one gate of its own.
    """
    if hasattr(module, "GATES"):
        return dict(module.GATES)
    found = _classes(module, Gate)
    if len(found) != 1:
        names = ", ".join(kind.__name__ for kind in found) or "none"
        raise ValueError(
            f"{module.__file__} must have one subclass of `Gate`, or a dict of gates: "
            'GATES = {"mine": lambda num_nonzeros, steps: MyGate()}. '
            f"Received: {names}."
        )
    (kind,) = found
    arguments = inspect.signature(kind.__init__).parameters
    needed = [
        name
        for name, each in arguments.items()
        if each.default is each.empty
        and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        and name not in ("self", K)
    ]
    if needed:
        raise ValueError(
            f"{kind.__name__} needs arguments: {', '.join(needed)}. Give them in "
            f"{module.__file__}: GATES = {{{kind.__name__!r}: lambda num_nonzeros, "
            f"steps: {kind.__name__}(...)}}."
        )

    def make(num_nonzeros, steps):  # noqa: ARG001
        return kind(**({K: num_nonzeros} if K in arguments else {}))

    return {kind.__name__: make}


def _classes(module, parent) -> list[Any]:
    """The concrete subclasses of a class that a module defines."""
    return [
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, parent)
        and kind.__module__ == module.__name__
        and not inspect.isabstract(kind)
    ]
