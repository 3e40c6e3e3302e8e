"""The site: MyST pages, executed notebooks, and the API from the docstrings."""

import inspect
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from docutils import nodes
from sphinx.search.en import SearchEnglish
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

import dselectk_keras

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "scripts"))  # The API has the experiments.

project = "dselectk_keras"
author = "The dselectk_keras authors"
copyright = author
version = release = dselectk_keras.__version__
urls = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["urls"]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    # MathJax comes with the site: equations need no network, and no CDN.
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build", "jupyter_execute"]

html_theme = "furo"
html_title = f"{project} {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_extra_path = ["llms.txt"]  # For language models: llmstxt.org.
html_search_language = "en+zh"
pygments_dark_style = "github-dark"

myst_enable_extensions = [
    "amsmath",
    "colon_fence",
    "deflist",
    "dollarmath",
    "substitution",
]
myst_substitutions = {"repository": f"[repository]({urls['Repository']})"}
myst_heading_anchors = 3
nb_execution_mode = "off"  # The notebooks come with their output.

default_role = "code"  # Docstrings write `code` as Markdown does.
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [
    ("Call arguments", "params_style"),
    ("Reference", "References"),
]
autosummary_generate = False  # Its tables are on the pages of the API.
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    # What Keras asks of every layer says nothing about this one.
    "exclude-members": "build, build_from_config, call, compute_output_shape, "
    "from_config, get_build_config, get_config",
}


def copy_notebooks():
    """Put the notebooks, which live beside docs/, where Sphinx can see them."""
    target = HERE / "notebooks"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for notebook in sorted((HERE.parent / "notebooks").glob("*.ipynb")):
        shutil.copy(notebook, target)


def markdown_math(_app, _what, _name, _obj, _options, lines):
    """Turn the dollars around a docstring's equations into what Sphinx reads."""

    def display(match):
        indent, equation = match.groups()
        body = inspect.cleandoc(equation).replace("\n", f"\n{indent}   ")
        return f"{indent}.. math::\n\n{indent}   {body}\n"

    def inline(match):
        return f":math:`{' '.join(match[1].split())}`"

    text = "\n".join(lines)
    text = re.sub(r"(?ms)^( *)\$\$\s*(.*?)\s*\$\$$", display, text)
    text = re.sub(r"(?<![\w$])\$([^$]+?)\$(?![\w$])", inline, text)
    lines[:] = text.split("\n")


def class_signature(_app, what, _name, obj, _options, _signature, returns):
    """Show the arguments of `__init__`, which `Layer.__new__` hides."""
    if what != "class":
        return None
    parameters = list(inspect.signature(obj.__init__).parameters.values())[1:]
    return str(inspect.Signature(parameters)), returns


def tables_of_names(_app, page, content):
    """Start each page of the API with a table: every name, in one line."""

    def with_table(block):
        entry = r"(?m)^\.\. auto(?:class|function):: (?:dselectk_keras\.)?(\S+)"
        names = "".join(f"   {name}\n" for name in re.findall(entry, block[0]))
        table = f".. autosummary::\n   :nosignatures:\n\n{names}\n"
        return (
            f"```{{eval-rst}}\n.. currentmodule:: dselectk_keras\n\n{table}{block[1]}"
        )

    if page.startswith("api/"):
        block = r"(?ms)^```\{eval-rst\}\n(.*?^```)$"
        content[0] = re.sub(block, with_table, content[0])


class CodeLinks(SphinxPostTransform):
    """Links names of the package, written as inline code, to the API.

    `MoE`, `dk.MoE`, `MoE(bank, gate)` and `layer=MoE(...)` link to `MoE`. A function of
    a module is linked with its module, as in `datasets.load`, or if it has an
    underscore or loads a data set: the other names are also ordinary words.
    """

    default_priority = 500
    code = re.compile(
        r"(?:\w+=)?(?:dk\.|dselectk_keras\.)?(\w+(?:\.\w+)*)(?:\(.*\))?", re.DOTALL
    )

    def run(self, **_kwargs):
        """Link the names of one page."""
        known = self.known_names()
        for literal in list(self.document.findall(nodes.literal)):
            match = self.code.fullmatch(literal.astext())
            entry = match and known.get(match[1])
            if entry and not self.inside_link_or_title(literal):
                link = make_refnode(
                    self.app.builder, self.env.docname, entry.docname, entry.node_id, []
                )
                literal.replace_self(link)
                link += literal

    def known_names(self):
        """The entries of the API by the names that are linked to them."""
        names = {}
        for full_name, entry in self.env.domains.python_domain.objects.items():
            name = full_name.removeprefix("dselectk_keras.")
            short = name.rpartition(".")[2]
            names[name] = entry
            clear = "_" in short or short in dselectk_keras.datasets.NAMES
            if entry.objtype == "class" or (entry.objtype == "function" and clear):
                names[short] = entry
        return names

    @staticmethod
    def inside_link_or_title(node):
        """Check whether a link would be in another link, or in a heading."""
        while node := node.parent:
            if isinstance(node, nodes.reference | nodes.title):
                return True
        return False


class EnglishAndChinese(SearchEnglish):
    """Searches for English words, and for Chinese characters one by one."""

    lang = "en+zh"
    js_splitter_code = r"""
var splitQuery = (query) =>
  query.match(/\p{Script=Han}|((?!\p{Script=Han})[\p{Letter}\p{Number}_])+/gu) || [];
"""

    def split(self, text):
        """The words to be found."""
        return re.findall(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+", text)


def page_language(_app, page, _template, context, _doctree):
    """Tell browsers which pages are in Chinese, for their fonts and translations."""
    if page.endswith(".zh"):
        context["language"] = "zh-CN"


def setup(app):
    """Copy the notebooks and connect the hooks."""
    copy_notebooks()
    app.add_search_language(EnglishAndChinese)
    app.add_post_transform(CodeLinks)
    app.connect("source-read", tables_of_names)
    app.connect("html-page-context", page_language)
    # Before Napoleon, which reads the sections.
    app.connect("autodoc-process-docstring", markdown_math, priority=400)
    app.connect("autodoc-process-signature", class_signature)
