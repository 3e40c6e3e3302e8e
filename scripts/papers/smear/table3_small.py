"""Table 3 on a small problem: which router is best, and what each costs."""

import dataclasses
import math

from experiments import Question
from experiments.report import Picture, Report, Table
from papers import citations, drawing
from papers.smear._claims import (
    ESTIMATORS,
    HEURISTICS,
    RESULTS,
    as_good,
    better,
    compare,
    worse,
)
from papers.smear._comparison import REFERENCE, DomainComparison
from papers.smear._domains import DOMAINS
from papers.smear._protocol import facts
from papers.smear._routers import OURS, ROUTED_BY, ROUTERS, SINGLE, base_of

# Final accuracy on DomainNet, and its standard deviation over five runs.
PAPER = {
    "SMEAR": "62.0 ± 0.1",
    "1x parameters": "60.8 ± 0.1",
    "1x compute": "59.0 ± 0.1",
    "Adamix": "58.0 ± 0.2",
    "Hash": "52.4 ± 0.1",
    "Tag": "61.4 ± 0.1",
    "Latent Skills": "61.9 ± 0.2",
    "Top-k": "60.0 ± 0.1",
    "ST-Gumbel": "58.5 ± 0.2",
    "REINFORCE": "60.0 ± 0.1",
    "DSelect-k": "59.3 ± 0.2",
    "Soft MoE": "60.5 ± 0.1",
    "Ensemble": "62.9 ± 0.1",
    "SMEAR 2x": "62.8 ± 0.1",
}


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
        "frozen. After each of its last blocks six adapters are learned, one for each "
        "domain, and a router says which of them an image gets, or in which shares. "
        "The claims are those of Section 4 on the paper's own problem, images of "
        "DomainNet; see the protocol below for all differences."
    )

    def report(self, results):
        shown = [arm for arm in self.arms if base_of(arm) == arm]
        return Report(
            self._claims(results),
            [self._accuracies(results, shown), self._costs(results, shown)],
            [self._picture(results, shown)],
            NOTES,
            self._questions(results),
            facts(type(self)),
        )

    def _claims(self, results):
        def smear(says, others, judge, source, paper=""):
            return compare(results, says, "SMEAR", others, judge, source, paper)

        return [
            compare(
                results,
                "Tag routing is more accurate than all routers that are learned by "
                "gradient estimation.",
                "Tag",
                ESTIMATORS,
                better,
                f"{RESULTS}, first result",
                "+1.4, +2.9, +1.4, +2.1",
            ),
            compare(
                results,
                "Some routers that are learned by gradient estimation are more "
                "accurate than hash routing: Top-k.",
                "Top-k",
                ("Hash",),
                better,
                f"{RESULTS}, second result",
                "+7.6",
            ),
            compare(
                results,
                "Some are more accurate than a single expert: Top-k.",
                "Top-k",
                ("1x compute",),
                better,
                f"{RESULTS}, second result",
                "+1.0",
            ),
            smear(
                "SMEAR is as good as all routers that are learned by gradient "
                "estimation, or better.",
                ESTIMATORS,
                as_good,
                f"{RESULTS}, third result",
                "+2.0, +3.5, +2.0, +2.7",
            ),
            smear(
                "SMEAR is as good as all heuristic routing strategies, or better.",
                HEURISTICS,
                as_good,
                f"{RESULTS}, third result",
                "+0.6, +9.6, +3.0, +1.2",
            ),
            smear(
                "SMEAR is more accurate than tag routing.",
                ("Tag",),
                better,
                RESULTS,
                "+0.6",
            ),
            smear(
                "SMEAR is more accurate than one expert with as many parameters.",
                ("1x parameters",),
                better,
                RESULTS,
                "+1.2",
            ),
            smear(
                "SMEAR is modestly less accurate than the ensemble of the experts.",
                ("Ensemble",),
                worse,
                RESULTS,
                "-0.9",
            ),
            smear(
                "SMEAR is more accurate than Adamix.",
                ("Adamix",),
                better,
                RESULTS,
                "+4",
            ),
            smear(
                "SMEAR is more accurate than Soft MoE.",
                ("Soft MoE",),
                better,
                RESULTS,
                "+1.5",
            ),
            smear(
                "SMEAR is more accurate than DSelect-k.",
                ("DSelect-k",),
                better,
                RESULTS,
                "+2.7",
            ),
            smear(
                "SMEAR is slightly more accurate than Latent Skills.",
                ("Latent Skills",),
                better,
                RESULTS,
                "+0.1",
            ),
            compare(
                results,
                "Twice as many experts make SMEAR more accurate.",
                "SMEAR 2x",
                ("SMEAR",),
                better,
                "Section 4, Scaling",
                "+0.8",
            ),
        ]

    def _questions(self, results):
        claims = [
            compare(results, "", "SMEAR", (arm,), better, "")
            for arm in OURS
            if results.of(arm)
        ]
        asks = "Is SMEAR more accurate than a router that mixes two experts (top-2)?"
        return [Question(asks, claim.ours) for claim in claims]

    def _accuracies(self, results, shown):
        rows = []
        for arm in shown:
            each = results.values(arm, "accuracies").mean(axis=0)
            rows.append(
                [
                    arm,
                    PAPER.get(arm),
                    results.text(arm, "accuracy", scale=100),
                    *(f"{100 * value:.1f}" for value in each),
                ]
            )
        missing = [arm for arm in ROUTERS if arm not in shown]
        rows += [[arm, PAPER[arm], "not run", *[None] * 6] for arm in missing]
        return Table(
            "Accuracy in percent",
            ["router", "paper, DomainNet", "here", *DOMAINS],
            rows,
            "The paper's column is the last of its Table 3 (Appendix F), with standard "
            "deviations: accuracies of 345 classes on DomainNet. Only the order of the "
            "rows can be compared with ours.",
        )

    def _costs(self, results, shown):
        rows = []
        for arm in shown:
            ratios = []
            for number in ("adapter_flops", "flops"):
                of_one = results.mean(REFERENCE, number)
                ratios.append(f"{results.mean(arm, number) / of_one:.2f}")
            kflops = results.mean(arm, "adapter_flops") / 1e3
            used = results.mean(arm, "experts_used")
            time = results.mean(arm, "time_ratio")
            rows.append([arm, f"{used:.2f}", f"{kflops:.0f}", *ratios, f"{time:.2f}"])
        return Table(
            "Cost of an image at inference",
            [
                "router",
                "experts with a weight above 0",
                "thousand operations, adapters and router",
                "times a single expert",
                "times a single expert, whole network",
                "time, whole network, times a single expert",
            ],
            rows,
            "Operations are counted: an addition and a multiplication are two. Routers "
            "that choose evaluate only what they chose; DSelect-k evaluates all that "
            "have a weight, counted on the test images. To merge experts for an image "
            "costs as much as to apply an adapter to as many positions as there are "
            "experts (Section 3 counts half as much); images here have few positions, "
            "so that it weighs more than in the paper. Adamix and Latent Skills can "
            "merge once and keep the result. "
            "Times are of the first seed, in turns with the single expert, and depend "
            "on the machine. The whole network is so much larger than the adapters "
            "that they hardly differ; Figure 2 (`smear-fig2`) measures sizes where "
            "they can.",
        )

    def _picture(self, results, shown):
        def draw():
            arms = sorted(shown, key=lambda arm: results.mean(arm, "accuracy"))
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
                cost = f"{results.mean(arm, 'adapter_flops') / of_one:.1f}x"
                ax.annotate(
                    cost,
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
            drawing.tidy_axes(ax)
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
        "*More* or *less accurate* is here: by more than two standard errors of the "
        "difference, which is taken seed by seed; a smaller difference is not judged. "
        "*As good*: not worse by as much. The paper's numbers in the claims are "
        "differences of its Table 3, in the order of our routers."
    ),
    (
        "One expert with as many parameters as all six is here about 50 wide, the "
        "others 8 (in the paper's release 192 and 32). Adapters as narrow as that may "
        "gain more from width than from routing."
    ),
    (
        "No image of a garment is in two domains, and the digits are no garments. The"
        " styles go in pairs that are alike: plain and blurred, edges and outlines, "
        "inverted and cluttered."
    ),
    (
        "`Tag` and `Latent Skills` are told the domain, `Hash` the number of the "
        "image; the others see the features alone. A test image's hash says nothing "
        "about it, so that hash routing picks an expert at random there."
    ),
    "The preset `paper` has not been run.",
]


def _color(arm):
    """Of the router in the picture."""
    if arm in ("SMEAR", "SMEAR 2x"):
        return drawing.COLORS[1]
    if ROUTED_BY.get(arm) == "domain":
        return drawing.COLORS[2]
    return drawing.COLORS[6 if arm in SINGLE else 0]
