"""Table 3 on a small problem: which router is best, and what each costs."""

import dataclasses
from typing import Any

from research.engine import Higher, drawing
from research.engine.plan import price
from research.papers.smear._claims import ESTIMATORS, HEURISTICS, differences, points
from research.papers.smear._comparison import REFERENCE, DomainComparison
from research.papers.smear._routers import DOMAINNET, HOURS, OURS, ROUTED_BY, SINGLE


def above(arms, others, effect=0.0, within=0.0):
    """The test that arms are more accurate than others."""
    return Higher(arms, others, "accuracy", effect, within)


CLAIMS = {
    "Section 4, Results, first result": {
        (
            "Tag routing is more accurate than all routers that are learned by "
            "gradient estimation."
        ): ("+1.4, +2.9, +1.4, +2.1", above("Tag", ESTIMATORS))
    },
    "Section 4, Results, second result": {
        (
            "Some routers that are learned by gradient estimation are more accurate "
            "than hash routing: Top-k."
        ): ("+7.6", above("Top-k", "Hash", 0.076)),
        "Some are more accurate than a single expert: Top-k.": (
            "+1.0",
            above("Top-k", "1x compute", 0.01),
        ),
    },
    "Abstract; Table 3": {
        (
            "Routers that are learned by gradient estimation are less accurate than "
            "one expert with as many parameters."
        ): ("+0.8, +2.3, +0.8, +1.5", above("1x parameters", ESTIMATORS))
    },
    "Section 4, Results, third result": {
        (
            "SMEAR is as good as all routers that are learned by gradient estimation, "
            "or better."
        ): ("+2.0, +3.5, +2.0, +2.7", above("SMEAR", ESTIMATORS, within=0.01)),
        "SMEAR is as good as all heuristic routing strategies, or better.": (
            "+0.6, +9.6, +3.0, +1.2",
            above("SMEAR", HEURISTICS, within=0.01),
        ),
    },
    "Section 4, Results": {
        "SMEAR is more accurate than tag routing.": (
            "+0.6",
            above("SMEAR", "Tag", 0.006),
        ),
        "SMEAR is more accurate than one expert with as many parameters.": (
            "+1.2",
            above("SMEAR", "1x parameters", 0.012),
        ),
        "SMEAR is modestly less accurate than the ensemble of the experts.": (
            "-0.9",
            above("Ensemble", "SMEAR", 0.009),
        ),
        "SMEAR is more accurate than Adamix.": ("+4", above("SMEAR", "Adamix")),
        "SMEAR is more accurate than Soft MoE.": ("+1.5", above("SMEAR", "Soft MoE")),
        "SMEAR is more accurate than DSelect-k.": ("+2.7", above("SMEAR", "DSelect-k")),
        "SMEAR is slightly more accurate than Latent Skills.": (
            "+0.1",
            above("SMEAR", "Latent Skills", 0.001),
        ),
    },
    "Section 4, Scaling": {
        "Twice as many experts make SMEAR more accurate.": (
            "+0.8",
            above("SMEAR 2x", "SMEAR", 0.008),
        )
    },
}


@dataclasses.dataclass(frozen=True)
class Table3Small(DomainComparison):
    """The routers' accuracy by domain, and their cost; see `DomainComparison`."""

    name = "smear-table3-small"
    title = "routers of adapters on images of six domains"
    where = "Table 3"

    @property
    def claims(self):
        return differences(CLAIMS)

    def table_accuracy(self, results):
        yield (
            "router | paper, DomainNet | here | plain | blurred | edges | outlines | "
            "inverted | cluttered"
        )
        for arm in self.shown:
            means = results.values(arm, "accuracies").mean(axis=0)
            here = results.text(arm, "accuracy", scale=100)
            yield [
                arm,
                DOMAINNET.get(arm, ""),
                here,
                *(f"{100 * x:.1f}" for x in means),
            ]

    def table_costs(self, results):
        yield (
            "router | experts with a weight above 0 | thousand operations, adapters "
            "and router | times a single expert | times a single expert, whole network "
            "| time, whole network, times a single expert"
        )
        for arm in self.shown:
            yield [
                arm,
                f"{results.mean(arm, 'experts_used'):.2f}",
                f"{results.mean(arm, 'adapter_flops') / 1000.0:.0f}",
                *(f"{times(results, arm, n):.2f}" for n in ("adapter_flops", "flops")),
                f"{results.mean(arm, 'time_ratio'):.2f}",
            ]

    @property
    def fields(self) -> dict[str, Any]:
        return super().fields | {
            "above_ours": points("SMEAR", OURS),
            "price": lambda r: price(r, seeds=20),
            "hours": HOURS["DomainNet"],
            "num_arms": len(self.arms),
            "all_hours": len(self.arms)
            * self.presets()["paper"].seeds
            * HOURS["DomainNet"],
        }

    def draw_accuracy_and_cost(self, results):
        arms = sorted(self.shown, key=lambda arm: results.mean(arm, "accuracy"))
        figure, [[ax]] = drawing.panels(1, 1, 0.9 + 0.19 * len(arms), width=0.8)
        text = {
            "xycoords": ("axes fraction", "data"),
            "ha": "right",
            "fontsize": drawing.SMALL_FONT,
            "color": drawing.TEXT,
        }
        look = {"fmt": "o", "markersize": 5, "elinewidth": 1.2}
        for row, arm in enumerate(arms):
            mean, error = results.mean(arm, "accuracy"), results.error(arm, "accuracy")
            ax.errorbar(100 * mean, row, xerr=100 * error, color=_color(arm), **look)
            cost = f"{times(results, arm, 'adapter_flops'):.1f}x"
            ax.annotate(cost, (1.06, row), va="center", **text)
        ax.annotate("cost", (1.06, len(arms) - 0.2), **text)
        ax.set_yticks(range(len(arms)), arms)
        for label, arm in zip(ax.get_yticklabels(), arms, strict=True):
            label.set_color(_color(arm))
        drawing.label(ax, x="accuracy (%)")
        ax.grid(axis="x", color="#EEEEEE", linewidth=0.6)
        ax.set_axisbelow(True)
        drawing.tidy_axes(ax)
        ax.tick_params(axis="y", length=0)
        return figure


def times(results, arm, number):
    """The mean of a number, relative to that of the single expert."""
    return results.mean(arm, number) / results.mean(REFERENCE, number)


def _color(arm):
    """Of the router in the picture."""
    if arm in ("SMEAR", "SMEAR 2x"):
        return drawing.COLORS[1]
    if ROUTED_BY.get(arm) == "domain":
        return drawing.COLORS[2]
    return drawing.COLORS[6 if arm in SINGLE else 0]
