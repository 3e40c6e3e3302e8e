"""Write into architecture.md which functions a batch enters, with file and line.

    KERAS_BACKEND=torch python docs/call_path.py

The functions of the package are listed in the order in which they are first entered.
"""

import os
import pathlib
import re
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import dselectk_keras as dk

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = str(ROOT / "dselectk_keras") + os.sep
PAGE = ROOT / "docs" / "architecture.md"
BLOCK = r"(?s)<!-- path: (\w+) -->\n(.*?)<!-- /path -->"


def entered(function, deepest):
    """The public functions of the package that a function enters: lines of a tree."""
    lines, seen, stack = [], set(), []

    def watch(frame, event, _):
        code = frame.f_code
        public = not code.co_name.startswith(("_", "<"))
        if not (public and code.co_filename.startswith(PACKAGE)):
            return
        if event == "return":
            stack.pop()
        elif event == "call":
            stack.append(code)
            if code not in seen and len(stack) <= deepest:
                seen.add(code)
                name = f"{'   ' * (len(stack) - 1)}{code.co_qualname}"
                path = pathlib.Path(code.co_filename).relative_to(PACKAGE).as_posix()
                lines.append(f"{name:<48} {path}:{code.co_firstlineno}")

    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(None)
    return lines


def paths():
    """The two trees, by name."""
    x, y = np.ones((4, 3), "float32"), np.eye(4, 2, dtype="float32")
    layer = dk.MMoE(dk.DenseExperts(4, [8]), dk.TopKGate(2), 2, per_example=True)
    layer(x)
    model = dk.build_multitask_model(
        3, ["a", "b"], gate=dk.DSelectKGate(2, entropy_reg=0.1)
    )
    model.compile("adam")
    return {
        "call": entered(lambda: layer(x, training=True), 5),
        "fit": entered(lambda: model.fit(x, y, verbose=0), 4),
    }


def filled(text):
    """The page with the trees of today."""
    found = {name: "\n".join(lines) for name, lines in paths().items()}

    def fill(block):
        tree = f"```text\n{found[block[1]]}\n```"
        return f"<!-- path: {block[1]} -->\n{tree}\n<!-- /path -->"

    return re.sub(BLOCK, fill, text)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text("utf-8")), encoding="utf-8")
