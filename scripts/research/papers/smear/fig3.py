"""Figure 3: which experts the domains use."""

import dataclasses
import functools
import itertools
from typing import Any

import numpy as np

from research.engine import Claim, Untestable, all_positive, gap_of
from research.papers.data.styles import DOMAINS, PAIRS
from research.papers.smear import _claims
from research.papers.smear._claims import (
    ESTIMATORS,
    ONE,
    WIDE,
    distance,
    entropy,
    has_routing,
    in_use,
    routing_of,
)
from research.papers.smear._comparison import DomainComparison

TEXT = "Section 4, Qualitative Analysis"
OTHERS = [pair for pair in itertools.combinations(DOMAINS, 2) if pair not in PAIRS]
PHOTOS = "It is about a domain of DomainNet; ours are six styles of garments."
DEPTH = "It is about the last of many layers; the stand-in has few."
NARROW = ("REINFORCE", "ST-Gumbel", "DSelect-k")  # They mostly use one expert.
MOST = 5.0  # So many experts in use, of six, or more, are "most".


@dataclasses.dataclass(frozen=True)
class Fig3(DomainComparison):
    """The routing of the domains by SMEAR; see `DomainComparison`."""

    name = "smear-fig3"
    title = "mean routing distributions of the domains, ResNet-DomainNet"
    where = "Figures 3, 4, 8, 12, 16, 20, 24 and 25"

    @property
    def claims(self):
        for name, but in {
            **dict.fromkeys(("two-experts", "alike", "evenly", "own"), PHOTOS),
            "uniform-first": DEPTH,
            "less-than-glue": "Images and texts here differ in more than that.",
        }.items():
            yield Claim(name, Untestable(but))
        yield Claim(
            "single",
            lambda r: all_positive(
                gap_of(ONE - in_use(r, arm).mean(axis=1)) for arm in NARROW
            ),
        )
        yield Claim(
            "most",
            lambda r: all_positive(
                gap_of(in_use(r, arm).mean(axis=1) - MOST) for arm in WIDE
            ),
        )
        yield Claim(
            "less-meaningful",
            lambda r: all_positive(
                gap_of(parted(r, "SMEAR") - parted(r, arm)) for arm in ESTIMATORS
            ),
        )

    def table_apart(self, results):
        yield (
            "router | domains that are alike differ by | others differ by | bits about "
            "the domain | experts in use"
        )
        for arm in filter(functools.partial(has_routing, results), self.shown):
            numbers = [apart(results, arm, pairs) for pairs in (PAIRS, OTHERS)]
            numbers += [bits(results, arm), in_use(results, arm)]
            yield [arm, *(f"{each.mean():.2f}" for each in numbers)]

    @property
    def fields(self) -> dict[str, Any]:
        return super().fields | {
            "most_bits": np.log2(len(DOMAINS)),
            "num_domains": len(DOMAINS),
        }

    def draw_routing(self, results):
        return _claims.draw_routing(results, DOMAINS, parts=[1.5, 3.5])


def few(results, arm):
    """Number of experts in use on average, and which number counts, as text."""
    return f"{used(results, arm)} ({ONE:g} or fewer count)"


def many(results, arm):
    """The same where many count."""
    return f"{used(results, arm)} ({MOST:g} or more count)"


def how_often_alone(results, arm):
    """How often a domain has an expert of its own, as text."""
    return f"so in {alone(results, arm):.0%} of the layers and seeds"


def how_parted(results, arm):
    """By how much more unlike domains differ, as text."""
    theirs, ours = (parted(results, each).mean() for each in (arm, "SMEAR"))
    return (
        f"domains that are not alike differ by {theirs:.2f} more, SMEAR's by {ours:.2f}"
    )


def used(results, arm):
    """Number of experts in use on average, as text."""
    return f"{in_use(results, arm).mean():.1f} experts in use"


def in_layer(results, arm, layer):
    """The number of experts in use in a layer."""
    return in_use(results, arm)[:, layer].mean()


def weight_of_two(results, arm):
    """The highest share of a domain's weight that two experts have, in two layers."""
    weights = np.sort(routing_of(results, arm), axis=-1)[..., -2:].sum(-1)
    # The same domain in two layers.
    return np.sort(weights, axis=1)[:, -2:].min(axis=1).max(axis=-1).mean()


def used_by_two(results, arm):
    """The number of experts that at least two domains have in use."""
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
    """The mean distance of the domains of some pairs, `(seeds, layers)`."""
    one, other = np.array([[DOMAINS.index(each) for each in pair] for pair in pairs]).T
    return distance(routing_of(results, arm))[..., one, other].mean(axis=-1)


def mean_apart(results, arm, pairs):
    """The mean of these distances."""
    return apart(results, arm, pairs).mean()


def parted(results, arm):
    """The distance of unlike domains minus that of domains that are alike, by seed."""
    return (apart(results, arm, OTHERS) - apart(results, arm, PAIRS)).mean(axis=1)


def bits(results, arm):
    """The mutual information of domain and expert, `(seeds, layers)`."""
    weights = routing_of(results, arm)
    return entropy(weights.mean(axis=-2)) - entropy(weights).mean(axis=-1)
