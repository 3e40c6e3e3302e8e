"""Arguments that several layers read in the same way."""

from typing import Any

from dselectk_keras.experts import ExpertBank, Experts
from dselectk_keras.gates import Gate
from dselectk_keras.utils import (
    MAX_EXPERTS,
    check_count,
    check_type,
)


def as_bank(experts: Any, shared_input: bool = True) -> ExpertBank:
    """The bank of a layer, given as a bank, or a list of Keras layers."""
    if isinstance(experts, (list, tuple)):
        return Experts(experts, shared_input=shared_input)
    banks = "`DenseExperts(8, [64])` or `Experts(layer, 8)`, or a list of Keras layers"
    check_type("experts", experts, ExpertBank, f"a bank, such as {banks}")
    return experts


def task_names(tasks: Any) -> list[str]:
    """List the names of tasks: of a number of them, a list of names, or of `Task`."""
    if not isinstance(tasks, (list, tuple, str)):
        number = check_count("tasks", tasks, maximum=MAX_EXPERTS)
        return [f"task_{i}" for i in range(number)]
    given = () if isinstance(tasks, str) else tasks
    names = [getattr(task, "name", task) for task in given]
    are_names = all(isinstance(name, str) for name in names)
    if not names or not are_names or len({*names}) < len(names):
        raise ValueError(
            "`tasks` must be a number, or a list of one or more `Task` or unique "
            f"names. Received: tasks={names or tasks!r}."
        )
    return names


def check_gate(gate: Any) -> Gate:
    """Return the gate of a layer, or raise an error if it is none."""
    check_type("gate", gate, Gate, "a gate, such as `DSelectKGate(num_nonzeros=2)`")
    return gate
