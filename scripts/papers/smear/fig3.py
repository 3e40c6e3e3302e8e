"""Figure 3: which experts the domains use."""

import dataclasses
import itertools

import numpy as np

from experiments import gap_of
from papers.data.styles import DOMAINS, PAIRS
from papers.smear._claims import (
    ONE,
    distance,
    draw_routing,
    entropy,
    has_routing,
    in_use,
    routing_of,
)
from papers.smear._comparison import DomainComparison

TEXT = "Section 4, Qualitative Analysis"
# A domain keeps to two experts if they have this share of its weight.
TWO = 0.8
MOST = 5.0  # So many experts in use, of six, or more, are "most".


@dataclasses.dataclass(frozen=True)
class Fig3(DomainComparison):
    """How SMEAR routes the domains; see `DomainComparison`."""

    name = "smear-fig3"
    title = "mean routing distributions of the domains, ResNet-DomainNet"
    where = "Figures 3, 4, 8, 12, 16, 20, 24 and 25"

    def routed(self, results):
        """The arms that are shown and have a router."""
        return [arm for arm in self.shown if has_routing(results, arm)]

    def draw_routing(self, results):
        return draw_routing(results, DOMAINS, parts=[1.5, 3.5])


def keeps_to_two(weights):
    """Whether a domain has two experts in two layers."""
    weights = np.sort(weights, axis=-1)[..., -2:].sum(-1)
    # The same domain in two layers.
    share = np.sort(weights, axis=1)[:, -2:].min(axis=1).max(axis=-1).mean()
    text = (
        f"the two experts that a domain uses most have {share:.2f} of its weight in "
        f"two layers; {TWO} counts"
    )
    return text, share >= TWO


def alike(weights):
    """Whether domains that are alike are routed alike."""
    layers = separation(weights)
    text = (
        f"domains that are alike differ by {layers['related'].mean():.2f}, others by "
        f"{layers['unrelated'].mean():.2f}"
    )
    return text, gap_of(parted(weights)).is_positive()


def less_meaningful(results):
    """Judge whether a router tells unlike domains apart less than SMEAR does."""
    smear = parted(routing_of(results, "SMEAR"))

    def judge(weights):
        own = parted(weights)
        text = (
            f"domains that are not alike differ by {own.mean():.2f} more, SMEAR's by "
            f"{smear.mean():.2f}"
        )
        return text, gap_of(smear - own).is_positive()

    return judge


def parted(weights):
    """How much more domains differ that are not alike, by seed."""
    layers = separation(weights)
    return (layers["unrelated"] - layers["related"]).mean(axis=1)


def evenly(weights):
    """Whether two domains use most experts."""
    used = np.sort(2.0 ** entropy(weights).mean(axis=1))[:, -2].mean()
    return f"two domains have {used:.1f} of 6 in use; {MOST:g} counts", used >= MOST


def from_all_to_one(weights):
    """Whether the first layer uses most experts, and the last one."""
    used = in_use(weights).mean(axis=0)
    text = (
        f"{used[0]:.1f} experts in use in the first layer and {used[-1]:.1f} in the "
        f"last; {MOST:g} or more and {ONE:g} or fewer count"
    )
    return text, used[0] >= MOST and used[-1] <= ONE


def uses_one(weights):
    """Whether a router uses one expert."""
    used = in_use(weights).mean()
    return f"{used:.1f} experts in use ({ONE:g} or fewer count)", used <= ONE


def uses_most(weights):
    """Whether a router uses most experts."""
    used = in_use(weights).mean()
    return f"{used:.1f} experts in use ({MOST:g} or more count)", used >= MOST


def own_expert(weights):
    """Whether a domain has more than half of its weight on an expert of its own."""
    favourite = weights.argmax(axis=-1)
    alone = (favourite[..., None] == favourite[..., None, :]).sum(axis=-1) == 1
    share = (alone & (weights.max(axis=-1) > 0.5)).any(axis=-1).mean()
    return f"so in {share:.0%} of the layers and seeds; half counts", share >= 0.5


def separation(weights):
    """How far apart related and other domains are, and the bits about the domain."""
    distances = distance(weights)
    related = [tuple(map(DOMAINS.index, pair)) for pair in PAIRS]
    pairs = itertools.combinations(range(len(DOMAINS)), 2)
    unrelated = [pair for pair in pairs if pair not in related]
    return {
        "related": np.mean([distances[..., a, b] for a, b in related], axis=0),
        "unrelated": np.mean([distances[..., a, b] for a, b in unrelated], axis=0),
        "information": entropy(weights.mean(axis=-2)) - entropy(weights).mean(axis=-1),
    }
