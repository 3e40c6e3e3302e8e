"""Helpers of the command lines. None imports Keras, so that --help is fast."""

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import sys
from typing import Any

# For XLA_FLAGS, where programs take far longer to compile than to run.
COMPILE_FAST = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1"
)
if any(
    each.version < "0.11" for each in importlib.metadata.distributions(name="jaxlib")
):
    # Later versions refuse this flag.
    COMPILE_FAST += " --xla_cpu_use_fusion_emitters=false"


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows the default of an option, if it has one."""

    def _get_help_string(self, action):
        if action.default or type(action.default) is int:
            return super()._get_help_string(action)
        return action.help


def make_parser(doc):
    """A parser with the first line of a module's docstring as description.

    It takes no abbreviated options, which `refuse` would not find.
    """
    return argparse.ArgumentParser(
        description=doc.split("\n", maxsplit=1)[0],
        formatter_class=_Formatter,
        allow_abbrev=False,
    )


def refuse(parser, arguments, options, why):
    """End with an error if one of some options, which would do nothing, was given."""
    given = {each.partition("=")[0] for each in map(str, arguments)}
    for option in options:
        if option in given:
            parser.error(f"{option} is {why}")


def as_options(names):
    """Fields as they are options: `--num-tasks` for `num_tasks`."""
    return [f"--{name.replace('_', '-')}" for name in names]


def count(text):
    """A positive integer."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, received {text}")
    return int(text)


def name_and_count(text):
    """A name and a positive integer, such as `user=1000`."""
    name, _, number = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"must be NAME=NUMBER, received {text}")
    return name, count(number)


def add_backend(parser):
    """Add the option `--backend`."""
    parser.add_argument(
        "--backend", choices=("tensorflow", "jax", "torch"), help="Keras' backend"
    )


def choose_backend(backend=None):
    """Set the backend before anything imports Keras; `None` is Keras' own choice."""
    if backend:
        os.environ["KERAS_BACKEND"] = backend
    os.environ.setdefault("MPLBACKEND", "agg")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def registered(registry, *folders):
    """The names in a registry of the package, read from the source of some folders."""
    package: Any = importlib.util.find_spec("dselectk_keras")
    root = pathlib.Path(package.origin).parent
    paths = [path for each in folders for path in sorted((root / each).glob("*.py"))]
    text = "".join(path.read_text(encoding="utf-8") for path in paths)
    return re.findall(rf'^@{registry}\.register\("(\w+)"\)', text, re.MULTILINE)


def add_fields(parser, config, choices):
    """Add an option for each field of a dataclass, with its help, default and type.

    Args:
        parser: A parser.
        config: The dataclass; the `metadata` of a field has its `"help"`.
        choices: The names that a field may have, by field.
    """
    for field in dataclasses.fields(config):
        text = str(field.type)
        kinds: Any = dict, bool, str, float, int
        kind = next(each for each in kinds if each.__name__ in text)
        options: Any = {"type": kind, "default": field.default}
        if kind is dict:
            options = {"type": json_object, "default": {}, "metavar": "JSON"}
        elif kind is bool:
            options = {"action": "store_true"}
        elif "tuple" in text:
            options["nargs"] = "+" if "..." in text else text.count(kind.__name__)
        elif field.name in choices:
            options["choices"] = choices[field.name]
        (name,) = as_options([field.name])
        parser.add_argument(name, help=field.metadata["help"], **options)


def json_object(text):
    """Read options that are given as JSON."""
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise argparse.ArgumentTypeError(
            f"""expected JSON such as '{{"name": 1}}', received {text!r}"""
        )
    return options


def check_names(what, chosen, known):
    """Stop if a name is not known."""
    if unknown := [name for name in chosen if name not in known]:
        sys.exit(f"There is no {what} {unknown[0]!r}. Known: {'; '.join(known)}.")


def without_data_dir(given):
    """The arguments, with the folder of the data left open."""
    given = list(given)
    for place, argument in enumerate(given):
        if argument.startswith("--data-dir="):
            given[place] = "--data-dir=DATA"
        elif place and given[place - 1] == "--data-dir":
            given[place] = "DATA"
    return given
