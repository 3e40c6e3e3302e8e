"""Figure 3: which experts the domains use."""

import dataclasses
import itertools

import numpy as np

from papers.data.styles import DOMAINS, PAIRS
from papers.smear import _claims
from papers.smear._claims import distance, entropy, routing_of
from papers.smear._comparison import DomainComparison

TEXT = "Section 4, Qualitative Analysis"
OTHERS = [pair for pair in itertools.combinations(DOMAINS, 2) if pair not in PAIRS]
PHOTOS = "It is about a domain of DomainNet; ours are six styles of garments."
DEPTH = "It is about the last of many layers; the stand-in has few."
MOST = 5.0  # So many experts in use, of six, or more, are "most".


@dataclasses.dataclass(frozen=True)
class Fig3(DomainComparison):
    """How SMEAR routes the domains; see `DomainComparison`."""

    name = "smear-fig3"
    title = "mean routing distributions of the domains, ResNet-DomainNet"
    where = "Figures 3, 4, 8, 12, 16, 20, 24 and 25"

    def draw_routing(self, results):
        return _claims.draw_routing(results, DOMAINS, parts=[1.5, 3.5])


def weight_of_two(results, arm):
    """What share of a domain's weight two experts have in two layers; the highest."""
    weights = np.sort(routing_of(results, arm), axis=-1)[..., -2:].sum(-1)
    # The same domain in two layers.
    return np.sort(weights, axis=1)[:, -2:].min(axis=1).max(axis=-1).mean()


def used_by_two(results, arm):
    """How many experts two domains have in use, or more."""
    return np.sort(2.0 ** entropy(routing_of(results, arm)).mean(axis=1))[:, -2].mean()


def alone(results, arm):
    """In what share of the layers and seeds a domain has an expert of its own.

    More than half of the domain's weight is on this expert.
    """
    weights = routing_of(results, arm)
    favourite = weights.argmax(axis=-1)
    own = (favourite[..., None] == favourite[..., None, :]).sum(axis=-1) == 1
    return (own & (weights.max(axis=-1) > 0.5)).any(axis=-1).mean()


def apart(results, arm, pairs):
    """How far the domains of some pairs are apart, on average, `(seeds, layers)`."""
    one, other = np.array([[DOMAINS.index(each) for each in pair] for pair in pairs]).T
    return distance(routing_of(results, arm))[..., one, other].mean(axis=-1)


def parted(results, arm):
    """How much more domains differ that are not alike, by seed."""
    return (apart(results, arm, OTHERS) - apart(results, arm, PAIRS)).mean(axis=1)


def bits(results, arm):
    """The mutual information of domain and expert, `(seeds, layers)`."""
    weights = routing_of(results, arm)
    return entropy(weights.mean(axis=-2)) - entropy(weights).mean(axis=-1)
