"""Gates and layers of papers that compare with them; no other part imports them."""

from dselectk_keras.baselines.attentive import AttentiveGate
from dselectk_keras.baselines.hash import HashGate
from dselectk_keras.baselines.latent_skills import LatentSkillsGate
from dselectk_keras.baselines.reinforce import ReinforceGate
from dselectk_keras.baselines.soft_moe import SoftMoE
from dselectk_keras.baselines.st_gumbel import STGumbelGate
from dselectk_keras.baselines.tag import TagGate

__all__ = [
    "AttentiveGate",
    "HashGate",
    "LatentSkillsGate",
    "ReinforceGate",
    "STGumbelGate",
    "SoftMoE",
    "TagGate",
]
