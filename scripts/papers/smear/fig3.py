"""Figure 3: which experts the domains use."""

import dataclasses
import itertools

import numpy as np

from experiments import gap_of
from papers import citations
from papers.smear._claims import (
    ONE,
    Found,
    distance,
    draw_routing,
    entropy,
    has_routing,
    of_each,
    routing_of,
)
from papers.smear._comparison import DomainComparison
from papers.smear._domains import DOMAINS, PAIRS
from papers.smear._routers import base_of

TEXT = "Section 4, Qualitative Analysis"
# A domain keeps to two experts if they have this share of its weight.
TWO = 0.8
MOST = 5.0  # So many experts in use, of six, or more, are "most".


@dataclasses.dataclass(frozen=True)
class Fig3(DomainComparison):
    """How SMEAR routes the domains; see `DomainComparison`."""

    name = "smear-fig3"
    title = "mean routing distributions of the domains, ResNet-DomainNet"
    paper = citations.SMEAR
    where = "Figures 3, 4, 8, 12, 16, 20, 24 and 25"

    def routed(self, results):
        """The arms with a router, without those with another dropout."""
        arms = (arm for arm in self.arms if base_of(arm) == arm)
        return [arm for arm in arms if has_routing(results, arm)]

    def judged(self, results, judge, *arms):
        """What a function of results and an arm found for arms."""
        return of_each(results, arms, lambda arm: Found(*judge(results, arm)))

    def draw_routing(self, results):
        return draw_routing(results, DOMAINS, parts=[1.5, 3.5])


def keeps_to_two(results, arm):
    """Whether a domain has two experts in two layers."""
    weights = np.sort(routing_of(results, arm), axis=-1)[..., -2:].sum(-1)
    # The same domain in two layers.
    share = np.sort(weights, axis=1)[:, -2:].min(axis=1).max(axis=-1).mean()
    text = (
        f"the two experts that a domain uses most have {share:.2f} of its weight in "
        f"two layers; {TWO} counts"
    )
    return text, bool(share >= TWO)


def alike(results, arm):
    """Whether domains that are alike are routed alike."""
    layers = separation(routing_of(results, arm))
    text = (
        f"domains that are alike differ by {layers['related'].mean():.2f}, others by "
        f"{layers['unrelated'].mean():.2f}"
    )
    return text, gap_of(parted(results, arm)).is_positive()


def less_meaningful(results, arm):
    """Whether a router tells domains apart that are not alike, less than SMEAR."""
    own, smear = (parted(results, each) for each in (arm, "SMEAR"))
    text = (
        f"domains that are not alike differ by {own.mean():.2f} more, SMEAR's by "
        f"{smear.mean():.2f}"
    )
    return text, gap_of(smear - own).is_positive()


def parted(results, arm):
    """How much more domains differ that are not alike, by seed."""
    layers = separation(routing_of(results, arm))
    return (layers["unrelated"] - layers["related"]).mean(axis=1)


def evenly(results, arm):
    """Whether two domains use most experts."""
    used = np.sort(2.0 ** entropy(routing_of(results, arm)).mean(axis=1))[:, -2].mean()
    return f"two domains have {used:.1f} of 6 in use; {MOST:g} counts", used >= MOST


def from_all_to_one(results, arm):
    """Whether the first layer uses most experts, and the last one."""
    used = separation(routing_of(results, arm))["used"].mean(axis=0)
    text = (
        f"{used[0]:.1f} experts in use in the first layer and {used[-1]:.1f} in the "
        f"last; {MOST:g} or more and {ONE:g} or fewer count"
    )
    return text, bool(used[0] >= MOST and used[-1] <= ONE)


def uses_one(results, arm):
    """Whether a router uses one expert."""
    used = separation(routing_of(results, arm))["used"].mean()
    return f"{used:.1f} experts in use ({ONE:g} or fewer count)", used <= ONE


def uses_most(results, arm):
    """Whether a router uses most experts."""
    used = separation(routing_of(results, arm))["used"].mean()
    return f"{used:.1f} experts in use ({MOST:g} or more count)", used >= MOST


def own_expert(results, arm):
    """Whether a domain has more than half of its weight on an expert of its own."""
    weights = routing_of(results, arm)
    favourite = weights.argmax(axis=-1)
    alone = (favourite[..., None] == favourite[..., None, :]).sum(axis=-1) == 1
    share = (alone & (weights.max(axis=-1) > 0.5)).any(axis=-1).mean()
    return f"so in {share:.0%} of the layers and seeds; half counts", share >= 0.5


def separation(weights):
    """How far a router tells the domains apart.

    Args:
        weights: Array `(..., domains, experts)` of mean weights that sum to one.

    Returns:
        A dict of arrays `(...)`: the mean distance of `related` and `unrelated`
        domains, the mutual `information` of domain and expert in bits, and the
        experts in use, `used`.
    """
    distances = distance(weights)
    related = [tuple(map(DOMAINS.index, pair)) for pair in PAIRS]
    pairs = itertools.combinations(range(len(DOMAINS)), 2)
    unrelated = [pair for pair in pairs if pair not in related]
    bits = entropy(weights.mean(axis=-2))
    return {
        "related": _mean_of(distances, related),
        "unrelated": _mean_of(distances, unrelated),
        "information": bits - entropy(weights).mean(axis=-1),
        "used": 2.0**bits,
    }


def _mean_of(distances, pairs):
    return np.mean([distances[..., a, b] for a, b in pairs], axis=0)
