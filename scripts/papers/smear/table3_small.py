"""Table 3 on a small problem: which router is best, and what each costs."""

import dataclasses
import math

from dselectk_keras.experiments.compare import difference
from dselectk_keras.experiments.report import Claim, Picture, Report, Table
from dselectk_keras.experiments.results import format_mean
from papers import citations, drawing
from papers.smear._comparison import REFERENCE, DomainComparison
from papers.smear._domains import DOMAINS
from papers.smear._routers import ROUTED_BY, SINGLE

# What learns to choose experts, by an estimate of the gradient or by a smooth gate.
LEARNED = ("top-1", "top-2", "switch", "ST-Gumbel", "REINFORCE", "DSelect-k")
FIXED = ("hash", REFERENCE)
# The most that "about the cost of a single expert" may be, for the whole network.
ABOUT = 1.25
# What the paper states about SMEAR and Soft MoE on DomainNet.
OVER_SOFT_MOE = 1.5


@dataclasses.dataclass(frozen=True)
class Table3Small(DomainComparison):
    """The routers' accuracy by domain, and their cost; see `DomainComparison`."""

    name = "smear-table3-small"
    title = "routers of adapters on images of six domains"
    paper = citations.SMEAR
    where = "Table 3"
    about = (
        "One problem in six domains: the ten garments of Fashion-MNIST, each image in "
        "one of six styles (plain, blurred, edges, outlines, inverted, cluttered). A "
        "network of the shape of ResNet18 is trained on handwritten digits and then "
        "frozen. In front of each of its last blocks six adapters are learned, one for "
        "each domain, and a router says which of them an image gets, or in which "
        "shares. The routers are those of the paper, with the settings of its "
        "release; nothing is tuned."
    )

    def report(self, results):
        return Report(
            self._claims(results),
            [self._accuracies(results), self._costs(results)],
            [self._picture(results)],
            NOTES,
        )

    def _claims(self, results):
        def mean(arm):
            return 100 * results.mean(arm, "accuracy")

        def against(says, rivals, holds):
            rivals = [arm for arm in rivals if arm in self.arms]
            if not rivals:
                return Claim(says, "Not run with these.", None)
            gaps = {
                arm: [100 * x for x in difference(results, "accuracy", "SMEAR", arm)]
                for arm in rivals
            }
            text = "; ".join(
                f"{arm} {mean(arm):.1f} % ({format_mean(*gaps[arm], digits=2)})"
                for arm in rivals
            )
            return Claim(
                says,
                f"SMEAR {mean('SMEAR'):.1f} %. Others, and by how many points SMEAR is "
                f"better: {text}.",
                all(holds(*each) for each in gaps.values()),
            )

        def better(difference, error):
            return difference > 2 * (0 if math.isnan(error) else error)

        def as_good(difference, error):
            return difference > -2 * (0 if math.isnan(error) else error)

        time = results.mean("SMEAR", "time_ratio")
        return [
            against(
                "SMEAR is more accurate than routers that learn to choose experts.",
                LEARNED,
                better,
            ),
            against(
                "SMEAR is as good as tag routing, which is told the domain, or better.",
                ("tag",),
                as_good,
            ),
            against(
                "SMEAR is more accurate than hash routing, and than a single expert.",
                FIXED,
                better,
            ),
            against(
                f"SMEAR is more accurate than Soft MoE (on DomainNet by "
                f"{OVER_SOFT_MOE} points).",
                ("Soft MoE",),
                better,
            ),
            Claim(
                "Inference takes about as long as with a single expert.",
                f"{time:.2f} times as long, from image to class; a ratio of up to "
                f"{ABOUT} counts as about.",
                time <= ABOUT,
            ),
        ]

    def _accuracies(self, results):
        rows = []
        for arm in self.arms:
            each = results.values(arm, "accuracies").mean(axis=0)
            rows.append(
                [
                    arm,
                    None,
                    results.text(arm, "accuracy", scale=100),
                    *(f"{100 * value:.1f}" for value in each),
                ]
            )
        return Table(
            "Accuracy in percent",
            ["router", "paper, DomainNet", "here", *DOMAINS],
            rows,
            "The paper's table has accuracies on DomainNet, whose six domains are of "
            "345 classes. They cannot be compared with ours, and its column is left "
            "open: no source of them could be had when this page was made.",
        )

    def _costs(self, results):
        rows = []
        for arm in self.arms:
            ratios = []
            for number in ("adapter_flops", "flops"):
                of_one = results.mean(REFERENCE, number)
                ratios.append(f"{results.mean(arm, number) / of_one:.2f}")
            kflops = results.mean(arm, "adapter_flops") / 1e3
            time = results.mean(arm, "time_ratio")
            rows.append([arm, f"{kflops:.0f}", *ratios, f"{time:.2f}"])
        return Table(
            "Cost of an image at inference",
            [
                "router",
                "thousand operations, adapters and router",
                "times a single expert",
                "times a single expert, whole network",
                "time, whole network, times a single expert",
            ],
            rows,
            "Operations are counted: an addition and a multiplication are two. Routers "
            "that choose evaluate only what they chose. To merge experts for an image "
            "costs as much as to apply an adapter to as many positions as there are "
            "experts; images here have few positions, so that it weighs more than in "
            "the paper. AdaMix and latent skills can merge once and keep the result. "
            "Times are of the first seed, in turns with the single expert, and depend "
            "on the machine.",
        )

    def _picture(self, results):
        def draw():
            arms = sorted(self.arms, key=lambda arm: results.mean(arm, "accuracy"))
            figure, [[ax]] = drawing.panels(1, 1, 0.9 + 0.19 * len(arms), width=0.8)
            of_one = results.mean(REFERENCE, "adapter_flops")
            for row, arm in enumerate(arms):
                error = 100 * results.error(arm, "accuracy")
                ax.errorbar(
                    100 * results.mean(arm, "accuracy"),
                    row,
                    xerr=None if math.isnan(error) else error,
                    fmt="o",
                    color=_color(arm),
                    markersize=5,
                    elinewidth=1.2,
                )
                ax.annotate(
                    f"{results.mean(arm, 'adapter_flops') / of_one:.1f}x",
                    (1.06, row),
                    xycoords=("axes fraction", "data"),
                    ha="right",
                    va="center",
                    fontsize=drawing.SMALL_FONT,
                    color=drawing.TEXT,
                )
            ax.annotate(
                "cost",
                (1.06, len(arms) - 0.2),
                xycoords=("axes fraction", "data"),
                ha="right",
                fontsize=drawing.SMALL_FONT,
                color=drawing.TEXT,
            )
            ax.set_yticks(range(len(arms)), arms)
            for label, arm in zip(ax.get_yticklabels(), arms, strict=True):
                label.set_color(_color(arm))
            drawing.label(ax, x="accuracy (%)")
            ax.grid(axis="x", color="#EEEEEE", linewidth=0.6)
            ax.set_axisbelow(True)
            drawing.tidy(ax)
            ax.tick_params(axis="y", length=0)
            return figure

        return Picture(
            "accuracy-and-cost",
            "Accuracy of the routers, with the standard error over the seeds; on the "
            "right the operations of adapters and router, as multiples of a single "
            "expert's. Green: told the domain. Black: without a router.",
            draw,
        )


NOTES = [
    (
        "*More accurate* is here: by more than two standard errors of the difference, "
        "which is taken seed by seed; *as good*: not worse by as much."
    ),
    (
        "Ours are the problem, the network and the lengths: the paper has DomainNet "
        "and a ResNet18 trained on ImageNet, with adapters of width 32 after all "
        "eight blocks, six experts, Adam at 0.001 and 100,000 steps of 128 images. "
        "From the release: the place of the adapters (between the sum that ends a "
        "block and its activation), the batch normalization before them, the mean "
        "over the positions as the router's input, the normalized router, expert "
        "dropout of 0.1 for SMEAR and switch, the temperature of ST-Gumbel (from 10 "
        "to 0.5 within three tenths of the run) and the weights of REINFORCE."
    ),
    (
        "No image of a garment is in two domains, and the digits are no garments. The"
        " styles go in pairs that are alike: plain and blurred, edges and outlines, "
        "inverted and cluttered."
    ),
    (
        "With `top-1` the one weight is 1 whatever the router says, so that the "
        "router learns nothing; `switch` scales the expert by its probability, and is"
        " what the paper's release runs as Top-k. `DSelect-k` has one selector, and "
        "an entropy term that grows over the run. `tag`, `latent skills` are told the"
        " domain, `hash` the number of the image; the others see the features alone."
    ),
    (
        "The preset `paper` has a ResNet18 of KerasHub, trained on ImageNet, adapters"
        " in all blocks and 100,000 steps, on all images of Fashion-MNIST in the six "
        "styles. It has not been run."
    ),
]


def _color(arm):
    """Of the router in the picture."""
    if arm == "SMEAR":
        return drawing.COLORS[1]
    if ROUTED_BY.get(arm) == "domain":
        return drawing.COLORS[2]
    return drawing.COLORS[6 if arm in SINGLE else 0]
