"""Gates: layers that compute weights over the experts and mix their outputs."""

from dselectk_keras.gates.chosen import ChosenGate
from dselectk_keras.gates.dselect_k import DSelectKGate
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.gumbel_softmax import GumbelSoftmaxGate
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
    "Routing",
    "SoftmaxGate",
    "SwitchGate",
    "TopKGate",
    "get",
]
