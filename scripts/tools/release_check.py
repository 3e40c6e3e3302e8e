"""Build the packages, check them, and run the README's first example with the wheel.

    python scripts/tools/release_check.py [--tag v0.1.0]

The packages are written into dist/. The example runs in an environment that has only
the wheel and its extras, in an empty folder. With --tag, what a release needs besides
is checked too: a date in the changelog, and the owner of the repository.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from typing import Any

sys.path.append(str(pathlib.Path(__file__).parents[1]))

from common.command_line import make_parser

ROOT = pathlib.Path(__file__).parents[2]
DIST = ROOT / "dist"


def main(arguments=None):
    """Check everything, and end with an error that lists what is wrong."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--tag", help="tag of the release, such as v0.1.0")
    add("--backend", default="tensorflow", help="extra of the README's example")
    options = parser.parse_args(arguments)
    report(wrong_versions(ROOT, options.tag))
    wheel, sdist = build()
    report([*wrong_metadata(wheel), *wrong_files(wheel, sdist)])
    run_example(wheel, options.backend)
    print(f"{wheel.name} and {sdist.name} are in {DIST}.")


def report(problems):
    """End with an error if there are problems."""
    if problems:
        raise SystemExit("\n".join(["Not ready to be released:", *problems]))


def wrong_versions(root, tag=None):
    """List what disagrees with the package's version, and what a release lacks."""

    def found(path, pattern):
        match = re.search(
            pattern, (root / path).read_text(encoding="utf-8"), re.MULTILINE
        )
        return match[1] if match else None

    version: Any = found("dselectk_keras/__init__.py", r'^__version__ = "(.+)"')
    named = {
        "CITATION.cff": found("CITATION.cff", r"^version: (\S+)"),
        "CHANGELOG.md": found("CHANGELOG.md", r"^## \[(\d.*?)\]"),
        "README.md": found("README.md", r"^  version = \{(\S+)\}"),
    }
    if tag:
        named["The tag"] = tag.removeprefix("v")
    problems = [
        f"{place} has the version {other}, the package {version}."
        for place, other in named.items()
        if other != version
    ]
    dated = rf"^## \[({re.escape(version)})\] - \d{{4}}-\d\d-\d\d$"
    if tag and not found("CHANGELOG.md", dated):
        problems.append(f"CHANGELOG.md needs a date: ## [{version}] - YYYY-MM-DD.")
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    if tag and any("/OWNER/" in url for url in project["urls"].values()):
        problems.append("pyproject.toml needs the owner of the repository, for OWNER.")
    return problems


def build():
    """Build the wheel and the source distribution, alone in dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(DIST)]
    subprocess.run(command, check=True, cwd=ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def wrong_metadata(wheel):
    """List what is wrong with the metadata of a wheel, by the rules of the index."""
    from packaging.metadata import Metadata

    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        text = archive.read(name)
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as group:
        return [str(error) for error in group.exceptions]
    wanted = ("description", "license_expression", "project_urls", "requires_python")
    return [f"The metadata lack {key}." for key in wanted if not getattr(metadata, key)]


def wrong_files(wheel, sdist):
    """List files that packages lack, or should not have."""
    with zipfile.ZipFile(wheel) as archive:
        installed = archive.namelist()
    with tarfile.open(sdist) as archive:
        sources = [name.partition("/")[2] for name in archive.getnames()]
    allowed = r"dselectk_keras(/|-[^/]+\.dist-info/)"
    problems = [f"{n} is installed." for n in installed if not re.match(allowed, n)]
    needed = [f"dselectk_keras/{name}" for name in ("py.typed", "datasets/files.csv")]
    problems += [f"The wheel lacks {n}." for n in needed if n not in installed]
    needed = ("LICENSE", "README.md", "CHANGELOG.md", "tests/conftest.py")
    return problems + [f"The sdist lacks {n}." for n in needed if n not in sources]


def run_example(wheel, backend):
    """Install the wheel in a new environment, and run the README's first example."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.search(r"(?ms)^```python\n(.*?)^```$", text)[1]
    with tempfile.TemporaryDirectory() as folder:
        python = pathlib.Path(folder) / "venv" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "-c"]
        install += [ROOT / "constraints.txt", f"{wheel}[{backend},plots]"]
        subprocess.run(install, check=True)
        empty = pathlib.Path(folder) / "empty"
        empty.mkdir()
        environment = {"KERAS_BACKEND": backend, "MPLBACKEND": "agg", "HOME": folder}
        subprocess.run([python, "-c", example], check=True, cwd=empty, env=environment)
        made = [path.name for path in empty.iterdir()]
        report([] if made == ["gates.png"] else [f"The example made {made}."])


if __name__ == "__main__":
    main()
