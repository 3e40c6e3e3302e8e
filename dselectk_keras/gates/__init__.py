"""Gates: layers that give weights over the experts and mix them."""

from dselectk_keras.gates.dselect_k import DSelectKGate
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.softmax import SoftmaxGate
from dselectk_keras.gates.top_k import TopKGate

GATES = {
    "softmax": SoftmaxGate,
    "top_k": TopKGate,
    "dselect_k": DSelectKGate,
}


def get(name, **settings):
    """A gate by its name, such as `get("dselect_k", num_nonzeros=4)`.

    Args:
        name: One of the names in `GATES`.
        **settings: The gate's arguments.

    Returns:
        A `Gate`.
    """
    if name not in GATES:
        raise ValueError(
            f"There is no gate of the name {name!r}. Known gates: {', '.join(GATES)}."
        )
    return GATES[name](**settings)


__all__ = ["GATES", "DSelectKGate", "Gate", "SoftmaxGate", "TopKGate", "get"]
