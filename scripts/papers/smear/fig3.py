"""Figure 3: which experts the domains use."""

import dataclasses
import itertools
from typing import Any

import numpy as np

from dselectk_keras.experiments import Claim, Picture, Report, Table
from papers import citations, drawing
from papers.smear._comparison import DomainComparison
from papers.smear._domains import DOMAINS, PAIRS

# Distributions that differ by less are called the same.
SAME = 0.05
DRAWN = ("SMEAR", "switch")


@dataclasses.dataclass(frozen=True)
class Fig3(DomainComparison):
    """How SMEAR routes the domains; see `DomainComparison`."""

    name = "smear-fig3"
    title = "mean routing distributions of the domains"
    paper = citations.SMEAR
    where = "Figure 3"
    about = (
        "The runs of [the comparison of routers](smear-table3-small.md): the weights "
        "over the experts, averaged over the test images of each domain, layer by "
        "layer. Two domains *differ* by the total variation distance of their mean "
        "distributions: 0 for the same experts in the same shares, 1 for no expert in "
        "common. The six domains go in pairs that look alike: plain and blurred, edges "
        "and outlines, inverted and cluttered."
    )

    def report(self, results):
        routed = [arm for arm in self.arms if _has_routing(results, arm)]
        drawn = [arm for arm in DRAWN if arm in routed]
        return Report(
            self._claims(results),
            [self._table(results, routed)],
            [self._picture(results, drawn)],
            NOTES,
        )

    def _claims(self, results):
        layers = _over_seeds(results, "SMEAR")
        related, unrelated = layers["related"].mean(), layers["unrelated"].mean()
        by_layer = layers["unrelated"].mean(axis=0)
        deepest = ", ".join(f"{value:.2f}" for value in by_layer)
        return [
            Claim(
                "SMEAR's experts specialize: the domains differ in the experts that "
                "they use.",
                f"Domains that are not alike differ by {unrelated:.2f} on average over "
                f"layers and seeds; above {SAME} counts as different.",
                bool(unrelated > SAME),
            ),
            Claim(
                "Some domains share experts: those that are alike.",
                f"Those that are alike differ by {related:.2f}, the others by "
                f"{unrelated:.2f}.",
                bool(related < unrelated),
            ),
            Claim(
                "Routers of different layers route differently: some separate the "
                "domains, some hardly do.",
                f"By layer, domains that are not alike differ by {deepest}; a factor "
                "of 1.5 between the largest and the smallest counts.",
                bool(by_layer.max() > 1.5 * by_layer.min()),
            ),
        ]

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

    def _picture(self, results, drawn):
        def draw():
            routing = {arm: routing_of(results, arm)[0] for arm in drawn}
            layers = len(routing[drawn[0]])
            figure, axes = drawing.panels(
                len(drawn), layers, 0.5 + 2.05 * len(drawn), sharex=True, sharey=True
            )
            mesh: Any = None
            for row, arm in zip(axes, drawn, strict=True):
                for number, (ax, weights) in enumerate(
                    zip(row, routing[arm], strict=True)
                ):
                    mesh = ax.imshow(weights, cmap="YlGnBu", vmin=0, vmax=1)
                    drawing.label(ax, title=f"{arm}, layer {number + 1}")
                    ax.set_yticks(range(len(DOMAINS)), DOMAINS)
                    ax.set_xticks(range(weights.shape[1]))
                    ax.hlines([1.5, 3.5], -0.5, weights.shape[1] - 0.5, color="white")
                    ax.tick_params(labelsize=drawing.SMALL_FONT, length=0)
                    ax.spines[:].set_visible(False)
            for ax in axes[-1]:
                drawing.label(ax, x="expert")
            drawing.color_bar(figure, mesh, axes, "mean weight", pad=0.02, aspect=30)
            return figure

        return Picture(
            "routing",
            "Mean weights over the experts, by domain and layer, of "
            f"{' and '.join(drawn)}, at seed 0. White lines part the pairs of domains "
            "that are alike. The order of the experts means nothing.",
            draw,
        )


NOTES = [
    (
        "The paper draws two routers each of its networks on DomainNet and on GLUE. "
        "There, on DomainNet, related domains such as sketches and quick drawings "
        "share experts; its release has options that give a tag in common to them, "
        "and to paintings and photographs. Our pairs of styles are made in their "
        "likeness."
    ),
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
    entropy = _entropy(total)
    return {
        "related": _mean_of(distances, related),
        "unrelated": _mean_of(distances, unrelated),
        "information": entropy - _entropy(weights).mean(axis=-1),
        "used": 2.0**entropy,
    }


def _mean_of(distances, pairs):
    return np.mean([distances[..., a, b] for a, b in pairs], axis=0)


def _entropy(weights):
    logs = np.log2(np.where(weights > 0, weights, 1.0))
    return -(weights * logs).sum(axis=-1)


def _over_seeds(results, arm):
    return separation(routing_of(results, arm))


def _has_routing(results, arm):
    runs = results.of(arm)
    return bool(runs) and all(bool(each) for each in runs[0].numbers["routing"])
