"""What is installed is built the same twice."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.backend_independent
ROOT = pathlib.Path(__file__).parents[1]
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
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", str(folder / "dist")],
            check=True,
            cwd=copy,
            stdout=subprocess.DEVNULL,
        )
        folders.append(folder / "dist")
    return folders


def test_wheel_and_sdist_are_built_the_same_twice(packages):
    first, second = (sorted(folder.iterdir()) for folder in packages)
    assert [path.suffix for path in first] == [".whl", ".gz"]
    for one, other in zip(first, second, strict=True):
        assert one.name == other.name
        assert one.read_bytes() == other.read_bytes()
