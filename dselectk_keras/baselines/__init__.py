"""Gates, layers and models for comparisons in papers; no other part imports them."""

from dselectk_keras.baselines.attentive import AttentiveGate
from dselectk_keras.baselines.attentive_moe import AttentiveMoE
from dselectk_keras.baselines.cross_stitch import CrossStitch
from dselectk_keras.baselines.hash import HashGate
from dselectk_keras.baselines.l2_constrained import L2Constrained
from dselectk_keras.baselines.latent_skills import LatentSkillsGate
from dselectk_keras.baselines.reinforce import ReinforceGate
from dselectk_keras.baselines.routed_model import RoutedModel
from dselectk_keras.baselines.single_expert import single_expert
from dselectk_keras.baselines.soft_moe import SoftMoE
from dselectk_keras.baselines.softmax_selector import SoftmaxSelectorGate
from dselectk_keras.baselines.st_gumbel import STGumbelGate
from dselectk_keras.baselines.tag import TagGate
from dselectk_keras.baselines.tucker import TuckerExperts

__all__ = [
    "AttentiveGate",
    "AttentiveMoE",
    "CrossStitch",
    "HashGate",
    "L2Constrained",
    "LatentSkillsGate",
    "ReinforceGate",
    "RoutedModel",
    "STGumbelGate",
    "SoftMoE",
    "SoftmaxSelectorGate",
    "TagGate",
    "TuckerExperts",
    "single_expert",
]
