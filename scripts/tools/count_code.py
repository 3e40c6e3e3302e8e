"""Count the code, and write the table into docs/architecture.md.

    python scripts/tools/count_code.py --ways

Lines are those of Python files. A way is what one call does: calls of the package's
functions, and moves between its files.
"""

import ast
import itertools
import os
import pathlib
import re
import sys
import tempfile
import threading

sys.path.append(str(pathlib.Path(__file__).parents[1]))

from common.command_line import choose_backend, make_parser

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "dselectk_keras"
BLOCK = r"(?s)<!-- count -->\n.*?<!-- /count -->"


def main(arguments=None):
    """Count, and write the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--ways", action="store_true", help="count the ways again, too")
    options = parser.parse_args(arguments)
    choose_backend("jax" if options.ways else None)
    text = PAGE.read_text(encoding="utf-8")
    rows = [f"| {what} | {count:,} |" for what, count in counts().items()]
    if options.ways:
        rows += [
            f"| {name}: calls, moves between files | {calls:,}, {moves:,} |"
            for name, (calls, moves) in ways()
        ]
    else:
        rows += re.findall(r"(?m)^\| .*: calls, moves between files .*$", text)
    table = "\n".join(["| what | count |", "| --- | ---: |", *rows])
    print(table)
    block = f"<!-- count -->\n{table}\n<!-- /count -->"
    PAGE.write_text(re.sub(BLOCK, lambda _: block, text), encoding="utf-8")


def counts():
    """What the files have, by what it is."""
    apart = [PACKAGE / "baselines", PACKAGE / "tables"]
    everything = python(PACKAGE)
    core = [path for path in everything if not {*apart} & {*path.parents}]
    scripts = python(ROOT / "scripts")
    text = "\n".join(path.read_text("utf-8") for path in everything)
    called = [name for path in everything for name in calls_of(path)]
    programs = [each for each in (*everything, *scripts) if "Program" in calls_of(each)]
    public = re.search(
        r"(?s)__all__ = \[(.*?)\]", (PACKAGE / "__init__.py").read_text()
    )
    return {
        "lines of the core, without `baselines` and `tables`": lines(core),
        "lines of the package": lines(everything),
        "lines of `scripts`": lines(scripts),
        "lines of `scripts`, without `research`": lines(
            path for path in scripts if "research" not in path.parts
        ),
        "lines of `tests`": lines(python(ROOT / "tests")),
        "public names of the package": public[1].count('"') // 2 if public else 0,
        "calls of `isinstance` in the package": called.count("isinstance"),
        "calls of `getattr` and `hasattr` in the package": (
            called.count("getattr") + called.count("hasattr")
        ),
        "methods of `keras.Model` that `MultitaskModel` overrides": overridden(text),
        "files that make a `Program`": len(programs),
        "files of `scripts` that write Markdown": len([*filter(writes_pages, scripts)]),
    }


def python(folder):
    """The Python files of a folder."""
    return sorted(folder.rglob("*.py"))


def lines(paths):
    """The number of lines of some files."""
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def calls_of(path):
    """The names of the functions that a file calls, as often as it does."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return [
        node.func.id
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]


def overridden(text):
    """The number of methods of `keras.Model` that `MultitaskModel` has too."""
    import keras

    cls = text[text.index("class MultitaskModel(") :]
    own = re.findall(r"(?m)^    def (\w+)\(", re.split(r"\n\n\n", cls)[0])
    return len({name for name in own if name != "__init__"} & {*dir(keras.Model)})


def writes_pages(path):
    """Check whether a file writes Markdown."""
    text = path.read_text("utf-8")
    return bool(re.search(r"write_(text|whole)\(", text)) and '.md"' in text


def ways():
    """For each way its name, and how many calls and moves it has."""
    import keras
    import numpy as np
    import train

    import dselectk_keras as dk

    x = np.ones((6, 10), "float32")
    gate, experts = dk.DSelectKGate(2, entropy_reg=0.01), keras.ops.ones((6, 4, 3))
    gate(experts, x)
    bank, route = dk.DenseExperts(16, [256]), dk.TopKGate(1)
    mmoe = dk.MMoE(bank, route, 3, per_example=True, dispatch=True)
    mmoe(x)
    tasks = [dk.Task("a"), dk.Task("b", "binary", tower=(8,))]
    small = ["--epochs", "1", "--num-tasks", "16", "--num-train", "512", "--quiet"]
    folder = ["--out", tempfile.mkdtemp(), "--overwrite"]

    def build(seed, entropy):  # noqa: ARG001
        gate = dk.DSelectKGate(2, entropy_reg=entropy)
        model = dk.build_multitask_model(3, ["a", "b"], gate=gate)
        model.compile("adam")
        return model

    def copies():
        data = np.ones((8, 3)), np.ones((8, 2))
        settings = {"settings": {"entropy": [0.0, 0.1]}, "epochs": 2, "verbose": 0}
        dk.replicate(build, data, seeds=range(2), **settings)

    yield "a per-example `DSelectKGate`", walk(lambda: gate(experts, x, training=True))
    yield "`MMoE` with dispatch", walk(lambda: mmoe(x, training=True))
    yield (
        "`build_multitask_model`",
        walk(lambda: dk.build_multitask_model(10, tasks, gate=dk.DSelectKGate(2))),
    )
    yield "`train.py`, an epoch", walk(lambda: train.main([*small, *folder]))
    yield "`replicate`, two copies", walk(copies)


def walk(function):
    """Count the calls of the package's functions, and the moves between its files."""
    files = []

    def watch(frame, event, _):
        code = frame.f_code
        inner = code.co_name in {"<genexpr>", "<listcomp>", "<lambda>"}
        if event == "call" and not inner and code.co_filename.startswith(folder):
            files.append(code.co_filename)

    folder = str(PACKAGE) + os.sep
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len(files), sum(a != b for a, b in itertools.pairwise(files))


if __name__ == "__main__":
    sys.exit(main())
