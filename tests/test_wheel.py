"""The wheel is built the same twice, and works without the sources."""

import os
import pathlib
import shutil

import pytest
from jobs import run_python

pytestmark = pytest.mark.backend_independent
ROOT = pathlib.Path(__file__).parents[1]
# Tests that train, save and reload.
SMOKE = ("gates/test_chosen.py", "test_registry.py")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "_build", ".*")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Two folders with packages that are built from two copies of the sources."""
    pytest.importorskip("hatchling")
    folders = []
    for name in ("first", "second"):
        folder = tmp_path_factory.mktemp(name)
        copy = folder / "sources"
        copy.mkdir()
        for path in ("dselectk_keras", "tests", "scripts"):
            shutil.copytree(ROOT / path, copy / path, ignore=LEFT_OUT)
        for path in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
            shutil.copy(ROOT / path, copy)
        # As another check-out has other times.
        for path in copy.rglob("*"):
            os.utime(path, (1e9, 1e9 + len(folders)))
        run_python("-m", "hatchling", "build", "-d", folder / "dist", cwd=copy)
        folders.append(folder / "dist")
    return folders


def test_wheel_and_sdist_are_built_the_same_twice(packages):
    first, second = (sorted(folder.iterdir()) for folder in packages)
    assert [path.suffix for path in first] == [".whl", ".gz"]
    for one, other in zip(first, second, strict=True):
        assert one.name == other.name
        assert one.read_bytes() == other.read_bytes()


def test_the_installed_wheel_passes_tests_in_a_folder_of_its_own(packages, tmp_path):
    pytest.importorskip("torch")
    (wheel,) = packages[0].glob("*.whl")
    site = tmp_path / "site"
    options = ["--quiet", "--no-deps", "--no-index", "--target", site]
    run_python("-m", "pip", "install", *options, wheel)
    # Keras would import it, for nothing.
    (site / "tensorflow.py").write_text("raise ImportError")
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=LEFT_OUT)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "test_origin.py").write_text(
        f"""
import sys

def test_every_module_is_from_the_wheel():
    files = [m.__file__ for n, m in sys.modules.items() if n[:9] == "dselectk_"]
    assert len(files) > 50
    assert all(file.startswith({str(site)!r}) for file in files)
"""
    )
    names = [f"tests/{name}" for name in (*SMOKE, "test_origin.py")]
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    env = {**own, "PYTHONPATH": str(site), "KERAS_BACKEND": "torch"}
    options = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
    run_python(*options, *names, cwd=tmp_path, env=env)
