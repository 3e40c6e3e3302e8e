"""Write docs/methods.md, the table of all methods, from the registries.

python docs/methods.py
"""

import inspect
import pathlib
import re

from dselectk_keras import experts, layers, metrics, models, regularizers, schedules
from dselectk_keras.gates import GATES
from dselectk_keras.models import ARCHITECTURES

ROOT = pathlib.Path(__file__).parents[1]
PAGE = ROOT / "docs" / "methods.md"

INTRO = """\
# Methods

<!-- Written by docs/methods.py from the registries and the docstrings. -->

Every gate, architecture, layer, regularizer and metric, with its paper and with the
tests that hold it to its equation. `gates.get` and `scripts/train.py --gate` know the
gates by the names in quotes, `build_multitask_model` and `--architecture` the
architectures. [Choosing a gate](choosing.md) says which to take when.
"""

# What is made of several pieces: name, how, paper, test.
RECIPES = [
    (
        "Schedules: constant, ramps, piecewise",
        "a number, `Ramp`, or Keras' `PiecewiseConstantDecay`",
        "Hazimeh et al., DSelect-k, Section 3",
        "tests/test_schedules.py",
    ),
    (
        "Layer-normalized router",
        "`normalize=True` of gates with logits",
        "Muqeeth et al., SMEAR, and its release",
        "tests/gates/test_logits.py",
    ),
    (
        "Experts evaluated only for the examples that chose them",
        "`dispatch` of `MoE` and `MMoE`",
        "Shazeer et al. (ICLR 2017), Section 3",
        "tests/layers/test_dispatch.py",
    ),
    (
        "Experts dropped in training",
        "`expert_dropout` of every gate",
        "Muqeeth et al., SMEAR, Section 4",
        "tests/gates/test_contract.py",
    ),
    (
        "DSelect-k with one expert",
        '`gates.get("dselect_k", num_nonzeros=1)`',
        "Muqeeth et al., SMEAR, Section 4",
        "tests/gates/test_dselect_k.py",
    ),
    (
        "gamma annealed towards zero; entropy of each bit",
        '`DSelectKGate(gamma=Ramp(...))`; `EntropyRegularizer(target="bits")`',
        "Hazimeh et al., DSelect-k, Sections 3.1 and 3.2",
        "tests/gates/test_dselect_k.py",
    ),
    (
        "Ablation (annealing), Ablation (entropy)",
        "`SoftmaxSelectorGate` with a falling `temperature`, or with `entropy_reg`",
        "Hazimeh et al., DSelect-k, Appendix C.1",
        "tests/gates/test_softmax_selector.py",
    ),
    (
        "Softmax ensemble",
        "`MoE(experts, SoftmaxGate(normalize=True), per_example=True)`",
        "Muqeeth et al., SMEAR, Section 4",
        "tests/layers/test_moe.py",
    ),
    (
        "AdaMix",
        "`SmearExperts(e, RandomGate(), per_layer=True)`, `RoutedModel(consistency=1)`",
        "Wang et al., AdaMix (EMNLP 2022), Section 3",
        "tests/layers/test_smear_experts.py",
    ),
    (
        "Single expert of matched compute, of matched parameters",
        '`single_expert(bank, "compute")`, `single_expert(bank, "parameters")`',
        "Muqeeth et al., SMEAR, Section 4",
        "tests/experts/test_single_expert.py",
    ),
    (
        "Distillation of an attentive gate",
        "`distill(model, SoftmaxGate())`",
        "Krishnamurthy et al., Section 5.1",
        "tests/models/test_distill.py",
    ),
    (
        "Experts pre-trained on a split of the classes",
        "[three stages](choosing.md#experts-first-then-the-gate)",
        "Krishnamurthy et al., Section 4.2",
        "tests/test_readme.py",
    ),
]


def tables():
    """The tables: a title, and rows of name, what, paper and test."""
    yield "Gates", [row(cls, f'`"{name}"`') for name, cls in GATES.items()]
    yield (
        "Architectures",
        [
            (
                f'`"{name}"`',
                first_sentence(function),
                reference(function),
                link("tests/models/test_build.py"),
            )
            for name, function in ARCHITECTURES.items()
            if name != "moe"  # Another name for "omoe".
        ],
    )
    yield "Layers", rows_of(layers)
    yield "Banks of experts", rows_of(experts)
    yield "Models", rows_of(models, skip={"Task"})
    yield "Regularizers", rows_of(regularizers)
    yield "Schedules", [row(schedules.Ramp)]
    yield "Metrics", rows_of(metrics, skip={"JaccardIndex"})
    yield (
        "Made of several pieces",
        [(name, how, paper, link(test)) for name, how, paper, test in RECIPES],
    )


def rows_of(module, skip=()):
    """A row for each public class or function that is not abstract."""
    return [
        row(getattr(module, name))
        for name in module.__all__
        if name not in skip
        and callable(getattr(module, name))
        and not inspect.isabstract(getattr(module, name))
    ]


def row(thing, name=""):
    """Name, what it is, paper and test of a class or function."""
    label = f"{name} `{thing.__name__}`".strip()
    return label, first_sentence(thing), reference(thing), link(test_of(thing))


def first_sentence(thing):
    """The first sentence of the docstring."""
    text = inspect.getdoc(thing).split("\n\n")[0]
    return one_line(text).rstrip(".")


def reference(thing):
    """What the docstring gives as its reference."""
    found = re.search(
        r"^Reference:\n((?: +.*\n?|\n)+)", inspect.getdoc(thing), re.MULTILINE
    )
    return without_period(one_line(found[1])) if found else ""


def test_of(thing):
    """The test that mirrors the file of a class or function."""
    *folders, name = thing.__module__.split(".")[1:]
    return "/".join(["tests", *folders, f"test_{name}.py"])


def link(path):
    """A link to a file of the repository, which must be there."""
    if not (ROOT / path).exists():
        raise FileNotFoundError(f"{path} is named in the table of methods.")
    return f"`{path.removeprefix('tests/')}`"


def without_period(text):
    """Text without its last period, unless it ends in "et al."."""
    return text if text.endswith("et al.") else text.rstrip(".")


def one_line(text):
    """Text without line breaks, and without what breaks a table."""
    return " ".join(text.split()).replace("|", "\\|")


def page():
    """The text of the page."""
    parts = [INTRO]
    for title, rows in tables():
        lines = ["| | what | paper | test |", "| --- | --- | --- | --- |"]
        lines += [f"| {' | '.join(cells)} |" for cells in rows]
        parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
