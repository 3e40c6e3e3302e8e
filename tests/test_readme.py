"""The Python of the README and of the site's pages runs, with few steps."""

import ast
import functools
import importlib.util
import inspect
import re
import sys
import tomllib
from pathlib import Path
from unittest import mock

import keras
import pytest

ROOT = Path(__file__).parents[1]
TENSORFLOW_ONLY = ("docs/serving.md", "docs/tabular.md")
EXPORTS = "TensorFlow exports models, and looks up strings."
# Of many steps, which take longer than to trace one.
TRACED = ("README.md", "docs/quickstart.md", "docs/replicate.md")
# Of commands and the framework in scripts/, which know no backend.
OF_SCRIPTS = ("docs/experiments.md", "docs/papers.md")


def blocks(page):
    """The Python blocks of a page, each at its own lines of an empty file.

    Blocks fenced as ```py are other people's code, and left out.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield "\n" * text.count("\n", 0, match.start(1)) + match[1]


def pages():
    """The pages with Python, by their paths in the repository."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    paths = sorted(path.relative_to(ROOT).as_posix() for path in found)
    return [path for path in paths if any(blocks(path))]


def shortened(method):
    """`fit` or `evaluate` of two batches: more run no other line of a page.

    Two epochs take the place of more than four.
    """

    @functools.wraps(method)  # With its signature.
    def short(*arguments, **named):
        call = inspect.signature(method).bind(*arguments, **named)
        given = call.arguments
        rows = 2 * (given.get("batch_size") or 32)
        if given.get("y") is not None:
            for name in {"x", "y", "sample_weight"} & {*given}:
                given[name] = keras.tree.map_structure(
                    lambda data: data if data is None else data[:rows], given[name]
                )
        if given.get("epochs", 1) > 4:
            given["epochs"] = 2
        return method(*call.args, **call.kwargs)

    return short


# Chinese pages have the code of the English ones, as a test below sees.
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            marks=[pytest.mark.backend_independent] * (page in OF_SCRIPTS)
            + [pytest.mark.backends("tensorflow", reason=EXPORTS)]
            * (page in TENSORFLOW_ONLY)
            + [pytest.mark.traced] * (page in TRACED),
        )
        for page in pages()
        if not page.endswith(".zh.md")
    ],
)
def test_python_of_the_page_runs(page, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    for name in ("fit", "evaluate"):
        monkeypatch.setattr(keras.Model, name, shortened(getattr(keras.Model, name)))
    if page == "docs/recipes.md":
        for module in ("optuna", "pandas", "pyarrow"):
            pytest.importorskip(module)
        if importlib.util.find_spec("wandb") is None:
            monkeypatch.setitem(sys.modules, "wandb", mock.MagicMock())
    namespace = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page)):
        if page == "README.md":  # Each of its blocks runs alone.
            namespace = {"__name__": "__main__"}
        exec(compile(block, ROOT / page, "exec"), namespace)
        if (page, number) == ("README.md", 1):
            # The first trained model ends in a picture.
            assert [path.suffix for path in tmp_path.iterdir()] == [".png"]
    if page == "docs/by_hand.md":
        assert namespace["small"].count_params() < namespace["model"].count_params()


@pytest.mark.backend_independent
@pytest.mark.parametrize("name", ["quickstart", "collapse"])
def test_chinese_pages_have_the_code_of_the_english_ones(name):
    english, chinese = (
        [ast.dump(ast.parse(block)) for block in blocks(f"docs/{name}{language}.md")]
        for language in ("", ".zh")
    )
    assert english == chinese  # But for the comments, which are no part of it.


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    "page", ["README.md", "docs/quickstart.md", "docs/quickstart.zh.md"]
)
def test_install_lines_bring_a_backend_and_what_draws_the_figures(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r'(?m)^pip install "\.\[(\S+)\]"', text)
    named = [set(extras.split(",")) for extras in found]
    assert named == [{"tensorflow", "plots"}, {"jax", "plots"}]


@pytest.mark.backend_independent
def test_extras_that_a_page_names_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        text = page.read_text(encoding="utf-8")
        for extras in re.findall(r'"(?:dselectk-keras|\.)\[([\w,]+)\]"', text):
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), page


@pytest.mark.backend_independent
def test_first_model_is_short():
    _, first, *_ = blocks("README.md")
    lines = [line for line in first.splitlines() if line.strip()]
    assert len(lines) <= 24
