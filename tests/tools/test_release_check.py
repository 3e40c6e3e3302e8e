"""A release has one version, and names only what is tested."""

import pathlib
import re
import shutil
import tomllib

import pytest

from tools.release_check import wrong_files, wrong_metadata, wrong_versions

pytestmark = pytest.mark.backend_independent
ROOT = pathlib.Path(__file__).parents[2]
FILES = ("pyproject.toml", "CITATION.cff", "CHANGELOG.md", "README.md")


@pytest.fixture
def copy(tmp_path):
    """A copy of the files that have a version."""
    for name in (*FILES, "dselectk_keras/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_all_files_have_the_version_of_the_package():
    assert wrong_versions(ROOT) == []


@pytest.mark.parametrize("name", ["CITATION.cff", "README.md", "CHANGELOG.md"])
def test_a_file_with_another_version_is_named(copy, name):
    replace(copy / name, "0.1.0", "0.2.0")
    (problem,) = wrong_versions(copy)
    assert problem == f"{name} has the version 0.2.0, the package 0.1.0."


def test_a_release_needs_its_tag_a_date_and_an_owner(copy):
    changelog = (copy / "CHANGELOG.md").read_text()
    undated = re.sub(r"(?m)^## \[0\.1\.0\].*$", "## [0.1.0]", changelog)
    (copy / "CHANGELOG.md").write_text(undated)
    urls = re.sub(
        r"github\.com/\w+/", "github.com/OWNER/", (copy / "pyproject.toml").read_text()
    )
    (copy / "pyproject.toml").write_text(urls)
    tag, date, owner = wrong_versions(copy, "v0.1.1")
    assert tag == "The tag has the version 0.1.1, the package 0.1.0."
    assert date == "CHANGELOG.md needs a date: ## [0.1.0] - YYYY-MM-DD."
    assert owner.endswith("the owner of the repository, for OWNER.")
    replace(copy / "CHANGELOG.md", "## [0.1.0]", "## [0.1.0] - 2030-01-31")
    replace(copy / "pyproject.toml", "/OWNER/", "/someone/")
    assert wrong_versions(copy, "v0.1.0") == []


def test_packages_with_missing_or_foreign_files_are_refused(tmp_path):
    import tarfile
    import zipfile

    wheel, sdist = tmp_path / "a.whl", tmp_path / "a.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("dselectk_keras/py.typed", "")
        archive.writestr("tests/test_one.py", "")
        archive.writestr("a-1.dist-info/METADATA", "Metadata-Version: 2.4\nName: a\n")
    with tarfile.open(sdist, "w:gz") as archive:
        for name in ("LICENSE", "README.md", "CHANGELOG.md"):
            archive.add(ROOT / name, f"a-1/{name}")
    problems = wrong_files(wheel, sdist)
    assert "tests/test_one.py is installed." in problems
    assert "The wheel lacks dselectk_keras/datasets/files.csv." in problems
    assert problems[-1] == "The sdist lacks tests/conftest.py."
    assert any("version" in text for text in wrong_metadata(wheel))


def test_the_workflow_tests_what_the_package_claims():
    yaml = pytest.importorskip("yaml")
    text = (ROOT / ".github/workflows/tests.yml").read_text()
    matrix = yaml.safe_load(text)["jobs"]["test"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = " ".join(project["classifiers"])
    pythons = re.findall(r"Python :: (3\.\d+)", claimed)
    assert matrix["python"] == pythons
    assert project["requires-python"] == f">={pythons[0]}"
    assert set(matrix["backend"]) <= set(project["optional-dependencies"])
    assert len(matrix["os"]) == len(re.findall("Operating System", claimed))
    assert matrix["keras"] == ["oldest", "newest"]


def test_only_one_target_installs_packages_of_the_system():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.split(r"(?m)^(?=[\w$(])", makefile)
    installing = [text for text in targets if "apt-get install" in text]
    assert [text.partition(":")[0] for text in installing] == ["system-packages"]
    assert "make system-packages\n" in (ROOT / ".ci/run").read_text()
