"""A new gate is one source file, one test file and its name in `__init__.py`."""

import os
import shutil
from pathlib import Path

from jobs import run_python

ROOT = Path(__file__).parents[1]
# Half of the contract is enough here.
KEYWORDS = "favourite and not favourite-x"
SOURCE = '''
"""The gate of the first expert."""

from keras import ops

from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.routing import Routing
from dselectk_keras.gates.logits import Logits
from dselectk_keras.gates.registry import GATES
from dselectk_keras.ops import softmax


@GATES.register("favourite")
class FavouriteGate(Gate):
    r"""A softmax of logits of which the first is raised by one.

    $$
    g = \\mathrm{softmax}(W x + e_1)
    $$

    Args:
        **kwargs: The arguments of `Gate`.

    Returns:
        The mixture of the experts.
    """

    def build_logits(self):
        """Create the logits."""
        shape = (*self.gate_shape, self.num_experts)
        self._logits = Logits(self, "gate", shape, "random_uniform", use_bias=False)

    def compute_weights(self, inputs, training, step) -> Routing:
        """The softmax."""
        raised = ops.one_hot(0, self.num_experts)
        return Routing(softmax(self._logits(inputs.routing_inputs) + raised))
'''
PUBLIC = """
from dselectk_keras.gates.favourite import FavouriteGate

__all__ += ["FavouriteGate"]
"""
TEST = """
import dselectk_keras as dk
from gate_cases import Case

CASES = [Case("favourite", dk.FavouriteGate, dense=True)]


def test_favourite_names():
    assert dk.gates.get("favourite", seed=1).seed == 1


def test_favourite_trains_from_the_command_line(tmp_path):
    import train

    data = ["--num-tasks", "16", "--num-train", "64", "--epochs", "1"]
    train.main(["--gate", "favourite", *data, "--quiet", "--out", str(tmp_path)])
"""


def test_a_gate_is_one_source_file_one_test_file_and_one_name(tmp_path):
    tests = ("tests/gates", "tests/baselines", "tests/golden")
    for folder in ("dselectk_keras", "scripts", *tests):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for name in ("checks.py", "helpers.py", "gate_cases.py", "jobs.py", "conftest.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "dselectk_keras/gates/favourite.py").write_text(SOURCE)
    (tmp_path / "tests/gates/test_favourite.py").write_text(TEST)
    with (tmp_path / "dselectk_keras/__init__.py").open("a") as init:
        init.write(PUBLIC)
    # Keras would import it, for nothing.
    (tmp_path / "tensorflow.py").write_text("raise ImportError")
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", KEYWORDS]
    env = os.environ | {"KERAS_BACKEND": "torch"}  # The fastest of the three.
    said = run_python("-m", "pytest", *options, "tests/gates", cwd=tmp_path, env=env)
    # The contract was among them.
    assert int(said.rpartition(" passed")[0].split()[-1]) > 30
