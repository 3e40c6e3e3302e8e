"""Figure 3: which experts the domains use."""

import dataclasses
import itertools
from typing import Any

import numpy as np

from experiments import (
    Claim,
    Picture,
    Report,
    Table,
    is_positive,
    mean_and_error,
)
from papers import citations, drawing
from papers.smear._claims import ESTIMATORS, NOT_RUN, of_each
from papers.smear._comparison import DomainComparison
from papers.smear._domains import DOMAINS, PAIRS
from papers.smear._protocol import facts
from papers.smear._routers import base_of

DRAWN = (
    "SMEAR",
    "Latent Skills",
    "Top-k",
    "ST-Gumbel",
    "REINFORCE",
    "DSelect-k",
    "Ensemble",
)
TEXT = "Section 4, Qualitative Analysis"
# A domain keeps to two experts if they have this share of its weight.
TWO = 0.8
# Experts in use, of six: at least so many are "most", and at most so many "one".
MOST, ONE = 5.0, 1.5


@dataclasses.dataclass(frozen=True)
class Fig3(DomainComparison):
    """How SMEAR routes the domains; see `DomainComparison`."""

    name = "smear-fig3"
    title = "mean routing distributions of the domains, ResNet-DomainNet"
    paper = citations.SMEAR
    where = "Figures 3, 4, 8, 12, 16, 20, 24 and 25"
    about = (
        "The runs of [the comparison of routers](smear-table3-small.md): the weights "
        "over the experts, averaged over the test images of each domain, layer by "
        "layer. Two domains *differ* by the total variation distance of their mean "
        "distributions: 0 for the same experts in the same shares, 1 for no expert in "
        "common. Experts *in use* are two to the power of the entropy of a "
        "distribution. The six domains go in pairs that look alike: plain and blurred, "
        "edges and outlines, inverted and cluttered. Claims on domains of DomainNet "
        "are judged by whether any of our domains has that role."
    )

    def report(self, results):
        routed = [
            arm
            for arm in self.arms
            if base_of(arm) == arm and _has_routing(results, arm)
        ]
        return Report(
            self._claims(results, routed),
            [self._table(results, routed)],
            [
                picture_of_routing(
                    results,
                    "domain",
                    DOMAINS,
                    "White lines part the pairs of domains that are alike. ",
                    parts=[1.5, 3.5],
                )
            ],
            NOTES,
            protocol=facts(type(self)),
        )

    def _claims(self, results, routed):
        def claim(says, arms, judge, source):
            return of_each(says, arms, judge, source, routed)

        return [
            claim(
                "SMEAR sends one domain (Quickdraw) to two experts, in both of the "
                "layers that are shown.",
                ["SMEAR"],
                lambda arm: self._keeps_to_two(results, arm),
                f"{TEXT}; Figure 3",
            ),
            claim(
                "SMEAR routes domains that are alike (Painting and Real) alike.",
                ["SMEAR"],
                lambda arm: self._alike(results, arm),
                f"{TEXT}; Figure 3",
            ),
            claim(
                "Some domains (Clipart and Sketch) use SMEAR's experts evenly.",
                ["SMEAR"],
                lambda arm: self._evenly(results, arm),
                f"{TEXT}; Figure 3",
            ),
            claim(
                "Top-k routes uniformly in the first layers, and to a single expert in "
                "the last.",
                ["Top-k"],
                lambda arm: self._from_all_to_one(results, arm),
                f"{TEXT}; Figure 12",
            ),
            claim(
                "REINFORCE, ST-Gumbel and DSelect-k mostly use a single expert.",
                ["REINFORCE", "ST-Gumbel", "DSelect-k"],
                lambda arm: self._uses(results, arm, most=False),
                f"{TEXT}; Figures 16, 20 and 24",
            ),
            claim(
                "All routers learned by gradient estimation give one domain "
                "(Quickdraw) an expert of its own.",
                ESTIMATORS,
                lambda arm: self._own_expert(results, arm),
                f"{TEXT}; Figures 12, 16, 20 and 24",
            ),
            claim(
                "Latent Skills and the ensemble use most experts, as SMEAR does.",
                ["SMEAR", "Latent Skills", "Ensemble"],
                lambda arm: self._uses(results, arm, most=True),
                f"{TEXT}; Figures 4, 8 and 25",
            ),
            Claim(
                "SMEAR's experts specialize less on DomainNet than on GLUE.",
                "Not compared: our images and our texts differ in more than that.",
                None,
                f"{TEXT}; Figures 3 to 7",
            ),
            claim(
                "Routers learned by gradient estimation specialize and share in less "
                "meaningful ways than SMEAR.",
                ESTIMATORS,
                lambda arm: self._less_meaningful(results, arm),
                f"{TEXT}; Figures 4, 12, 16, 20 and 24",
            ),
        ]

    def _keeps_to_two(self, results, arm):
        weights = np.sort(routing_of(results, arm), axis=-1)[..., -2:].sum(-1)
        # The same domain in two layers.
        shares = np.sort(weights, axis=1)[:, -2:].min(axis=1).max(axis=-1)
        text = (
            f"the two experts that a domain uses most have {shares.mean():.2f} of its "
            f"weight in two layers; {TWO} counts"
        )
        return text, bool(shares.mean() >= TWO)

    def _alike(self, results, arm):
        layers = _over_seeds(results, arm)
        text = (
            f"domains that are alike differ by {layers['related'].mean():.2f}, others "
            f"by {layers['unrelated'].mean():.2f}"
        )
        return text, is_positive(*mean_and_error(self._parted(results, arm)))

    def _less_meaningful(self, results, arm):
        if not results.of("SMEAR"):
            return NOT_RUN, False
        own, smear = (self._parted(results, each) for each in (arm, "SMEAR"))
        text = (
            f"domains that are not alike differ by {own.mean():.2f} more, SMEAR's by "
            f"{smear.mean():.2f}"
        )
        return text, is_positive(*mean_and_error(smear - own))

    def _parted(self, results, arm):
        """How much more domains differ that are not alike, by seed."""
        layers = _over_seeds(results, arm)
        return (layers["unrelated"] - layers["related"]).mean(axis=1)

    def _evenly(self, results, arm):
        used = np.sort(2.0 ** entropy(routing_of(results, arm)).mean(axis=1))[:, -2]
        text = f"two domains have {used.mean():.1f} of 6 in use; {MOST:g} counts"
        return text, bool(used.mean() >= MOST)

    def _from_all_to_one(self, results, arm):
        used = _over_seeds(results, arm)["used"].mean(axis=0)
        text = (
            f"{used[0]:.1f} experts in use in the first layer and {used[-1]:.1f} in "
            f"the last; {MOST:g} or more and {ONE:g} or fewer count"
        )
        return text, bool(used[0] >= MOST and used[-1] <= ONE)

    def _uses(self, results, arm, most):
        used = _over_seeds(results, arm)["used"].mean()
        limit = f"{MOST:g} or more count" if most else f"{ONE:g} or fewer count"
        text = f"{used:.1f} experts in use ({limit})"
        return text, bool(used >= MOST if most else used <= ONE)

    def _own_expert(self, results, arm):
        share = own_expert(routing_of(results, arm)).mean()
        text = f"so in {share:.0%} of the layers and seeds; half counts"
        return text, bool(share >= 0.5)

    def _table(self, results, routed):
        rows = []
        for arm in routed:
            layers = _over_seeds(results, arm)
            rows.append(
                [
                    arm,
                    *(f"{layers[key].mean():.2f}" for key in ("related", "unrelated")),
                    *(f"{layers[key].mean():.2f}" for key in ("information", "used")),
                ]
            )
        return Table(
            "How far routers tell the domains apart",
            [
                "router",
                "domains that are alike differ by",
                "others differ by",
                "bits about the domain",
                "experts in use",
            ],
            rows,
            "Means over layers and seeds. *Bits about the domain* is the mutual "
            "information of domain and expert, an expert being drawn by the weights: "
            f"at most {np.log2(len(DOMAINS)):.2f}. *Experts in use* is two to the "
            f"power of the entropy of their total weights: at most {len(DOMAINS)}. The "
            "paper shows pictures, and no such numbers.",
        )


NOTES = [
    (
        "The claims are what the paper's text says of its pictures; it gives no "
        "numbers. The measures and limits in them are ours. The sentence on Latent "
        "Skills and the ensemble comes after those on T5-GLUE; we read it as one on "
        "both settings. That SMEAR's routing is sparse comes before those on "
        "DomainNet; we read it as one on T5-GLUE. Our pairs of styles are made so that "
        "some domains are alike."
    ),
    ("Figure 3 also has two routers of T5-GLUE, which belong to `smear-table2-small`."),
]


def routing_of(results, arm):
    """The mean routing distributions of an arm.

    Args:
        results: A `Results`.
        arm: Name of an arm that has a router.

    Returns:
        An array `(seeds, layers, domains, experts)`.
    """
    weights = np.array([run.numbers["routing"] for run in results.of(arm)])
    # Rounded weights, and those of switch, do not sum to one.
    return weights / weights.sum(axis=-1, keepdims=True)


def picture_of_routing(results, what, names, note="", parts=()):
    """Heat maps of the mean weights at the first seed, by router and layer.

    Args:
        results: A `Results`.
        what: Whose routing distributions are drawn: "domain" or "task".
        names: Names of the domains or tasks.
        note: A sentence of the caption.
        parts: Where white lines part the rows.

    Returns:
        A `Picture`.
    """
    arms = results.experiment.arms
    drawn = [arm for arm in DRAWN if arm in arms and _has_routing(results, arm)]

    def draw():
        routing = {arm: routing_of(results, arm)[0] for arm in drawn}
        layers = len(routing[drawn[0]])
        figure, axes = drawing.panels(
            len(drawn), layers, 0.5 + 1.5 * len(drawn), sharex=True, sharey=True
        )
        mesh: Any = None
        for row, arm in zip(axes, drawn, strict=True):
            for ax, weights in zip(row, routing[arm], strict=True):
                mesh = ax.imshow(weights, cmap="YlGnBu", vmin=0, vmax=1)
                ax.set_yticks(range(len(names)), names)
                ax.set_xticks(range(weights.shape[1]))
                ax.hlines(parts, -0.5, weights.shape[1] - 0.5, color="white")
                ax.tick_params(labelsize=drawing.SMALL_FONT, length=0)
                ax.spines[:].set_visible(False)
            drawing.label(row[0], y=arm)
        for number in range(layers):
            drawing.label(axes[0, number], title=f"layer {number + 1}")
            drawing.label(axes[-1, number], x="expert")
        drawing.color_bar(figure, mesh, axes, "mean weight", pad=0.02, aspect=30)
        return figure

    return Picture(
        "routing",
        f"Mean weights over the experts, by {what} and layer, of {', '.join(drawn)}, "
        f"at seed 0. {note}The order of the experts means nothing.",
        draw,
    )


def distance(weights):
    """The total variation distance of all pairs of domains.

    Args:
        weights: Array `(..., domains, experts)`.

    Returns:
        An array `(..., domains, domains)`.
    """
    pairs = weights[..., :, None, :] - weights[..., None, :, :]
    return 0.5 * np.abs(pairs).sum(axis=-1)


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
    number = {name: i for i, name in enumerate(DOMAINS)}
    related = [(number[a], number[b]) for a, b in PAIRS]
    unrelated = [
        pair
        for pair in itertools.combinations(range(len(DOMAINS)), 2)
        if pair not in related
    ]
    total = weights.mean(axis=-2)
    bits = entropy(total)
    return {
        "related": _mean_of(distances, related),
        "unrelated": _mean_of(distances, unrelated),
        "information": bits - entropy(weights).mean(axis=-1),
        "used": 2.0**bits,
    }


def own_expert(weights):
    """Whether a domain has an expert of its own.

    Args:
        weights: Array `(..., domains, experts)` of mean weights that sum to one.

    Returns:
        Booleans `(...)`: whether an expert has more than half of the weight of a
        domain, and no other domain uses that expert most.
    """
    favourite = weights.argmax(axis=-1)
    alone = (favourite[..., None] == favourite[..., None, :]).sum(axis=-1) == 1
    return (alone & (weights.max(axis=-1) > 0.5)).any(axis=-1)


def _mean_of(distances, pairs):
    return np.mean([distances[..., a, b] for a, b in pairs], axis=0)


def entropy(weights):
    """The entropy of distributions, in bits, over the last axis."""
    logs = np.log2(np.where(weights > 0, weights, 1.0))
    return -(weights * logs).sum(axis=-1)


def _over_seeds(results, arm):
    return separation(routing_of(results, arm))


def _has_routing(results, arm):
    runs = results.of(arm)
    return bool(runs) and all(bool(each) for each in runs[0].numbers["routing"])
