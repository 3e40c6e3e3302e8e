"""Gates: layers that give weights over the experts and mix them."""

from dselectk_keras.gates.attentive import AttentiveGate
from dselectk_keras.gates.dselect_k import DSelectKGate
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.gumbel_softmax import GumbelSoftmaxGate
from dselectk_keras.gates.hash import HashGate
from dselectk_keras.gates.latent_skills import LatentSkillsGate
from dselectk_keras.gates.random import RandomGate
from dselectk_keras.gates.reinforce import ReinforceGate
from dselectk_keras.gates.selected import SelectedGate
from dselectk_keras.gates.softmax import SoftmaxGate
from dselectk_keras.gates.softmax_selector import SoftmaxSelectorGate
from dselectk_keras.gates.st_gumbel import STGumbelGate
from dselectk_keras.gates.switch import SwitchGate
from dselectk_keras.gates.tag import TagGate
from dselectk_keras.gates.top_k import TopKGate

GATES = {
    "softmax": SoftmaxGate,
    "top_k": TopKGate,
    "dselect_k": DSelectKGate,
    "attentive": AttentiveGate,
    "reinforce": ReinforceGate,
    "switch": SwitchGate,
    "st_gumbel": STGumbelGate,
    "gumbel_softmax": GumbelSoftmaxGate,
    "softmax_selector": SoftmaxSelectorGate,
    "hash": HashGate,
    "tag": TagGate,
    "latent_skills": LatentSkillsGate,
    "random": RandomGate,
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


__all__ = [
    "GATES",
    "AttentiveGate",
    "DSelectKGate",
    "Gate",
    "GumbelSoftmaxGate",
    "HashGate",
    "LatentSkillsGate",
    "RandomGate",
    "ReinforceGate",
    "STGumbelGate",
    "SelectedGate",
    "SoftmaxGate",
    "SoftmaxSelectorGate",
    "SwitchGate",
    "TagGate",
    "TopKGate",
    "get",
]
