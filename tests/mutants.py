"""Change single expressions of the package, and list the changes that no test sees.

python tests/mutants.py -N 100 --seed 0

Each mutant runs in a fork of a process that has imported the backend. It imports the
changed module from memory: no file is written. The tests of a module are those of the
same name in `tests/`, for gates also their cases of the contract, or else all tests of
the folder. What survives them meets all tests of the folder, of those that use it most
and the drawn combinations. All tests must pass without a change. `mutants.txt` is
a list of mutants and of the tests that kill them.
"""

import argparse
import ast
import importlib.machinery
import importlib.util
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "dselectk_keras"
FOLDERS = "gates layers models callbacks experts datasets"
MODULES = "ops regularizers metrics schedules initializers"
TARGETS = [PACKAGE / each for each in FOLDERS.split()]
TARGETS += [PACKAGE / f"{each}.py" for each in MODULES.split()]
GATE_TESTS = ("test_contract.py", "test_properties.py")
# The tests that see most of what a folder, or a module, does.
USERS = {"gates": "layers test_regularizers.py", "experts": "layers models"}
USERS |= {"layers": "models", "models": "callbacks"}
USERS |= dict.fromkeys(MODULES.split(), "gates layers")
BETWEEN = {  # What stands between two operands, and what replaces it.
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
EXTREMES = {"min": "max", "minimum": "maximum", "argmin": "argmax"}
EXTREMES |= {other: one for one, other in EXTREMES.items()}
# Changes that no test can see or should see: a pattern of "old line -> new line".
UNSEEN = [
    (r"strict=True.*->(?!.*strict=True)", "`strict=` only finds faults of other code"),
    (r"stacklevel=", "the line that a warning names"),
    (r"elif dtype in .*-> elif True", "small integers have the same hash in two words"),
    (r"linewidth=", "how thick a line is"),
    (r"^num_(train|validation|test): int =", "how large a simulated data set is"),
    (r"^[A-Z_]*SEEDS? =", "which random numbers are drawn"),
    (r"encoding=.*->(?!.*encoding=)", "the default encoding of the machine"),
]


class Points(ast.NodeVisitor):
    """The changes of a module: first and last character, new text and kind."""

    def __init__(self, text):
        self.text, self.found = text, []
        lines = text.splitlines(keepends=True)
        self.starts = [sum(map(len, lines[:i])) for i in range(len(lines) + 1)]
        self.lines = [line.encode() for line in lines]
        self.visit(ast.parse(text))

    def place(self, line, column):
        """The place in the text, of a column in bytes."""
        before = self.lines[line - 1][:column].decode() if column else ""
        return self.starts[line - 1] + len(before)

    def span(self, node):
        first = self.place(node.lineno, node.col_offset)
        return first, self.place(node.end_lineno, node.end_col_offset)

    def add(self, first, last, new, kind):
        self.found.append((first, last, new, kind))

    def between(self, left, right, operator, kind):
        if type(operator) not in BETWEEN:
            return
        old, new = BETWEEN[type(operator)]
        first, last = self.span(left)[1], self.span(right)[0]
        place = self.text.find(old, first, last)
        self.add(place, place + len(old), new, kind)

    def visit_BinOp(self, node):
        self.between(node.left, node.right, node.op, "sign")
        self.generic_visit(node)

    def visit_Compare(self, node):
        operands = [node.left, *node.comparators]
        for i, operator in enumerate(node.ops):
            self.between(operands[i], operands[i + 1], operator, "bound")
        self.generic_visit(node)

    def visit_BoolOp(self, node):
        self.between(*node.values[:2], node.op, "and, or")
        self.generic_visit(node)

    def visit_UnaryOp(self, node):
        kinds = {ast.Not: "not", ast.USub: "sign"}
        if type(node.op) in kinds:
            first, operand = self.span(node)[0], self.span(node.operand)[0]
            self.add(first, operand, "", kinds[type(node.op)])
        self.generic_visit(node)

    def visit_Constant(self, node):
        value = node.value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            news = [1 - value] if value in {0, 1} else [value * 10, value + 1]
            for new in news:
                self.add(*self.span(node), repr(new), "constant")

    def visit_If(self, node):
        for new in ("True", "False"):
            self.add(*self.span(node.test), new, "guard")
        self.generic_visit(node)

    visit_IfExp = visit_If

    def visit_Call(self, node):
        for each in node.keywords:
            if each.arg is not None:
                first, last = self.span(each)
                comma = re.compile(r"\s*,\s*").match(self.text, last)
                self.add(first, comma.end() if comma else last, "", "keyword")
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        if name in EXTREMES:
            last = self.span(node.func)[1]
            self.add(last - len(name), last, EXTREMES[name], "min, max")
        self.generic_visit(node)

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_arguments(self, node):
        for default in [*node.defaults, *filter(None, node.kw_defaults)]:
            self.visit(default)

    def visit_FunctionDef(self, node):
        for each in [node.args, *node.body]:
            self.visit(each)

    def visit_Raise(self, node):
        """Leave out the texts of errors."""


class Mutant:
    """One change of one module."""

    def __init__(self, path, text, first, last, new, kind):
        self.path, self.kind = path, kind
        self.text = text[:first] + new + text[last:]
        self.line = text.count("\n", 0, first) + 1
        end = text.find("\n", last)
        begin = text.rfind("\n", 0, first) + 1
        self.old = " ".join(text[begin:end].split())
        changed = text[begin:first] + new + text[last:end]
        self.new = " ".join(changed.split())

    def __str__(self):
        place = f"{self.path.relative_to(ROOT)}:{self.line}"
        return f"{place} ({self.kind})\n    - {self.old}\n    + {self.new}"

    @property
    def reason(self):
        """Why no test sees the change, if that is known."""
        change = f"{self.old} -> {self.new}"
        return next((why for each, why in UNSEEN if re.search(each, change)), None)

    def tests(self):
        """The tests to run, and the name of the module whose gates they are about."""
        part, stem = self.path.relative_to(PACKAGE).parent, self.path.stem.strip("_")
        folder, own = ROOT / "tests" / part, f"test_{stem}.py"
        if not (folder / own).exists():
            return [folder], None
        if part.name != "gates" or "CASES =" not in (folder / own).read_text():
            return [folder / own], None
        return [folder / name for name in (own, *GATE_TESTS)], own

    def more_tests(self):
        """The tests that a mutant meets which survives its own."""
        part = self.path.relative_to(PACKAGE).parts[0]
        own = [] if part.endswith(".py") else [part]
        users = USERS.get(part.removesuffix(".py"), "").split()
        return [ROOT / "tests" / each for each in (*own, *users, "differential")], None


def mutants(targets):
    """All mutants of some files and folders."""
    for target in targets:
        for path in sorted(target.rglob("*.py")) if target.is_dir() else [target]:
            text = path.read_text(encoding="utf-8")
            for point in [] if path.name == "__init__.py" else Points(text).found:
                mutant = Mutant(path, text, *point)
                if mutant.reason is None:
                    yield mutant


class Finder:
    """Import one module from a text."""

    def __init__(self, mutant):
        self.path, self.text = str(mutant.path), mutant.text
        parts = mutant.path.relative_to(ROOT).with_suffix("").parts
        self.name = ".".join(parts)

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        loader = importlib.machinery.SourceFileLoader(name, self.path)
        loader.get_code = lambda _: compile(self.text, self.path, "exec")
        return importlib.util.spec_from_file_location(name, self.path, loader=loader)


class OwnCases:
    """Of the tests of all gates, run those with the cases of one test module."""

    def __init__(self, module):
        self.module = f"gates.{pathlib.Path(module).stem}"

    def pytest_collection_modifyitems(self, items):
        own = importlib.import_module(self.module).CASES
        items[:] = [
            item
            for item in items
            if item.path.name not in GATE_TESTS
            or (hasattr(item, "callspec") and item.callspec.params.get("case") in own)
        ]


def run(mutant, output, tests, module):
    """Run tests of a mutant in this process, and return pytest's exit code."""
    import pytest

    os.setsid()
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    sys.meta_path.insert(0, Finder(mutant))
    options = ["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    plugins = [] if module is None else [OwnCases(module)]
    return pytest.main([*options, *map(str, tests)], plugins)


def killer(output):
    """The first test that failed, by pytest's output."""
    output.seek(0)
    failed = re.search(
        r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output.read().decode(), re.MULTILINE
    )
    return f"killed by {failed[1]}" if failed else "killed"


def fate(mutant, timeout, tests):
    """Run a mutant in a fork: "killed by a test", "timeout", "survived" or an error."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = int(run(mutant, output, *tests))
            finally:
                os._exit(code)
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                code = os.waitstatus_to_exitcode(status)
                known = {0: "survived", 1: killer(output), 2: "killed at import"}
                return known.get(code, "killed" if code < 0 else f"error {code}")
            time.sleep(0.05)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "timeout"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-N", type=int, default=100, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--only", nargs="*", help="files, folders of dselectk_keras")
    parser.add_argument("--timeout", type=float, default=300, help="seconds per mutant")
    given = parser.parse_args()
    os.chdir(ROOT)
    os.environ["KERAS_BACKEND"] = given.backend
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "scripts")]
    import conftest  # noqa: F401, it sets the environment
    import keras  # noqa: F401, each fork has it

    targets = [PACKAGE / each for each in given.only or ()] or TARGETS
    every = list(mutants(targets))
    drawn = random.Random(given.seed).sample(every, min(given.N, len(every)))
    print(f"{len(drawn)} of {len(every)} mutants", flush=True)
    survivors = []
    for i, mutant in enumerate(drawn, 1):
        begin = time.monotonic()
        found = fate(mutant, given.timeout, mutant.tests())
        if found == "survived":
            found = fate(mutant, given.timeout, mutant.more_tests())
        print(f"{i}: {found}, {time.monotonic() - begin:.0f} s, {mutant}", flush=True)
        if found == "survived" or found.startswith("error"):
            survivors.append(mutant)
    print(f"\n{len(drawn) - len(survivors)} of {len(drawn)} killed. Survivors:")
    for mutant in survivors:
        print(mutant)


if __name__ == "__main__":
    main()
