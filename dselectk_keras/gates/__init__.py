"""Gates: layers that compute weights over the experts and mix their outputs.

Each gate is one module. `@GATES.register("name")` on its class registers it.
"""

from dselectk_keras.gates.chosen import ChosenGate
from dselectk_keras.gates.dselect_k import DSelectKGate
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.gumbel_softmax import GumbelSoftmaxGate
from dselectk_keras.gates.inputs import RouterInputs
from dselectk_keras.gates.random import RandomGate
from dselectk_keras.gates.registry import GATES, get
from dselectk_keras.gates.routing import Routing
from dselectk_keras.gates.softmax import SoftmaxGate
from dselectk_keras.gates.switch import SwitchGate
from dselectk_keras.gates.top_k import TopKGate

__all__ = [
    "GATES",
    "ChosenGate",
    "DSelectKGate",
    "Gate",
    "GumbelSoftmaxGate",
    "RandomGate",
    "RouterInputs",
    "Routing",
    "SoftmaxGate",
    "SwitchGate",
    "TopKGate",
    "get",
]
