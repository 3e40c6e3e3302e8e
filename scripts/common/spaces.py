"""What a study tries: fields of `TrainingRun`, by the gate, and boxes around values."""

RATES = {"learning_rate": [0.001, 0.003, 0.01, 0.03]}
DECISIONS = {"decide_by": [0.2, 0.5, 0.8]}
SPACES: dict[str, dict[str, list]] = {
    "dselect_k": {"num_nonzeros": [1, 2, 4], "gamma": [0.3, 1.0, 3.0, 10.0]},
    "top_k": {"num_nonzeros": [2, 4], "gate_options": [{}, {"noise": True}]},
    "gumbel_softmax": {
        "gate_options": [{"sparsity_reg": x} for x in (1e-4, 1e-3, 1e-2, 0.1)]
    },
    "chosen": {"num_nonzeros": [1, 2, 4]},
}


def space_of(run, given):
    """The values to try for a run: learning rates, and those of its gate.

    Args:
        run: A `TrainingRun`.
        given: The names of the fields that are not tuned.
    """
    space = RATES | DECISIONS | SPACES.get(run.gate, {})
    left_out = {*run.unused, *given}
    return {name: values for name, values in space.items() if name not in left_out}


def box_around(values):
    """The box around numbers: `int` or `float`, and its ends; `None` around others.

    It is logarithmic if it spans more than a factor of ten.
    """
    kinds = {type(value) for value in values}
    if not kinds <= {int, float}:
        return None
    low, high = min(values), max(values)
    ends = {"low": low, "high": high, "log": low > 0 and high / low > 10}
    return int if kinds == {int} else float, ends
