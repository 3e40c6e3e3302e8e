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
    drawn,
    each,
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
        yield Claim(
            f"{TEXT}; Figure 3",
            "SMEAR sends one domain (Quickdraw) to two experts, in both of the layers "
            "that are shown.",
            lambda r: (
                "SMEAR: the two experts that a domain uses most have "
                f"{weight_of_two(r, 'SMEAR'):.2f} of its weight in two layers."
            ),
            Untestable(PHOTOS),
        )
        yield Claim(
            f"{TEXT}; Figure 3",
            "SMEAR routes domains that are alike (Painting and Real) alike.",
            lambda r: (
                "SMEAR: domains that are alike differ by "
                f"{apart(r, 'SMEAR', PAIRS).mean():.2f}, others by "
                f"{apart(r, 'SMEAR', OTHERS).mean():.2f}."
            ),
            Untestable(PHOTOS),
        )
        yield Claim(
            f"{TEXT}; Figure 3",
            "Some domains (Clipart and Sketch) use SMEAR's experts evenly.",
            lambda r: (
                f"SMEAR: two domains have {used_by_two(r, 'SMEAR'):.1f} of 6 in use."
            ),
            Untestable(PHOTOS),
        )
        yield Claim(
            f"{TEXT}; Figure 12",
            "Top-k routes uniformly in the first layers, and to a single expert in the "
            "last.",
            lambda r: (
                f"Top-k: {in_use(r, 'Top-k')[:, 0].mean():.1f} experts in use in the "
                f"first layer and {in_use(r, 'Top-k')[:, -1].mean():.1f} in the last."
            ),
            Untestable(DEPTH),
        )
        yield Claim(
            f"{TEXT}; Figures 16, 20 and 24",
            "REINFORCE, ST-Gumbel and DSelect-k mostly use a single expert.",
            each(NARROW, lambda r, a: f"{used(r, a)} ({ONE:g} or fewer count)"),
            lambda r: all_positive(
                gap_of(ONE - in_use(r, arm).mean(axis=1)) for arm in NARROW
            ),
        )
        yield Claim(
            f"{TEXT}; Figures 12, 16, 20 and 24",
            "All routers learned by gradient estimation give one domain (Quickdraw) an "
            "expert of its own.",
            each(
                ESTIMATORS,
                lambda r, a: f"so in {alone(r, a):.0%} of the layers and seeds",
            ),
            Untestable(PHOTOS),
        )
        yield Claim(
            f"{TEXT}; Figures 4, 8 and 25",
            "Latent Skills and the ensemble use most experts, as SMEAR does.",
            each(WIDE, lambda r, a: f"{used(r, a)} ({MOST:g} or more count)"),
            lambda r: all_positive(
                gap_of(in_use(r, arm).mean(axis=1) - MOST) for arm in WIDE
            ),
        )
        yield Claim(
            f"{TEXT}; Figures 3 to 7",
            "SMEAR's experts specialize less on DomainNet than on GLUE.",
            "Not compared: our images and our texts differ in more than that.",
            Untestable("Images and texts here differ in more than that."),
        )
        yield Claim(
            f"{TEXT}; Figures 4, 12, 16, 20 and 24",
            "Routers learned by gradient estimation specialize and share in less "
            "meaningful ways than SMEAR.",
            each(
                ESTIMATORS,
                lambda r, a: (
                    f"domains that are not alike differ by {parted(r, a).mean():.2f} "
                    f"more, SMEAR's by {parted(r, 'SMEAR').mean():.2f}"
                ),
            ),
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
            "drawn": lambda r: ", ".join(drawn(r)),
            "most_bits": np.log2(len(DOMAINS)),
            "num_domains": len(DOMAINS),
        }

    def draw_routing(self, results):
        return _claims.draw_routing(results, DOMAINS, parts=[1.5, 3.5])


def used(results, arm):
    """Number of experts in use on average, as text."""
    return f"{in_use(results, arm).mean():.1f} experts in use"


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


def parted(results, arm):
    """The distance of unlike domains minus that of domains that are alike, by seed."""
    return (apart(results, arm, OTHERS) - apart(results, arm, PAIRS)).mean(axis=1)


def bits(results, arm):
    """The mutual information of domain and expert, `(seeds, layers)`."""
    weights = routing_of(results, arm)
    return entropy(weights.mean(axis=-2)) - entropy(weights).mean(axis=-1)
