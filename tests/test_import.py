"""Importing the package imports Keras, NumPy and the backend in use: no more."""

import importlib.resources
import importlib.util
import os
import pathlib
import re

import pytest
from jobs import run_python

BACKENDS = ("tensorflow", "jax", "torch")
EXTRAS = ("importlib_resources", "matplotlib", "optuna", "pandas")
EXTRAS += ("tensorflow_datasets",)
# Runs in a process of its own: argv holds the modules that are not to be found.
# Keras and its backend may look for some of them and do without; the package may
# not even look.
PROGRAM = """
import importlib, pkgutil, sys

looked_for = []


class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            looked_for.append(name)
            return None
        return self.finder.find_spec(name, path, target)


sys.meta_path[:] = map(Hiding, sys.meta_path)

import keras

looked_for.clear()

import dselectk_keras

for module in pkgutil.walk_packages(dselectk_keras.__path__, "dselectk_keras."):
    importlib.import_module(module.name)
assert not looked_for, f"import dselectk_keras looked for {looked_for}"
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_import_needs_no_extra_and_no_other_backend(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    blocked = [*EXTRAS, *(other for other in BACKENDS if other != backend)]
    run_python("-c", PROGRAM, *blocked, env=os.environ | {"KERAS_BACKEND": backend})


def test_importing_every_public_name_replaces_no_module_of_keras_and_is_typed():
    import keras

    import dselectk_keras

    names = {}
    exec("from keras import ops\nfrom dselectk_keras import *", names)
    assert names["ops"] is keras.ops
    assert set(dselectk_keras.__all__).isdisjoint(dir(keras))
    assert dselectk_keras.ops.smooth_step is not None
    assert (importlib.resources.files("dselectk_keras") / "py.typed").is_file()


def test_private_modules_are_imported_in_their_own_folder_only():
    root = pathlib.Path(__file__).parents[1]
    for folder in ("dselectk_keras", "scripts"):
        for path in (root / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            owners = set(re.findall(r"from dselectk_keras\.(\w+)\._\w+ import", text))
            assert owners <= {path.parent.name}, path


def test_the_core_names_no_baseline():
    from dselectk_keras import baselines
    from dselectk_keras.gates import GATES
    from dselectk_keras.models import ARCHITECTURES

    root = pathlib.Path(baselines.__file__).parents[1]
    own = [*GATES.items(), *ARCHITECTURES.items()]
    names = {name for name, each in own if ".baselines." in each.__module__}
    names = {*baselines.__all__, *(f'"{name}"' for name in names)}
    core = [path for path in root.rglob("*.py") if path.parent.name != "baselines"]
    for path in core:
        text = path.read_text(encoding="utf-8")
        assert not [name for name in names if name in text], path
    assert len(core) > 50
    assert {"RoutedModel", '"reinforce"', '"cross_stitch"'} <= names


def test_few_names_are_public():
    import dselectk_keras

    assert len(dselectk_keras.__all__) <= 42
