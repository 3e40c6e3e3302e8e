"""Table 3 on a small problem: which router is best, and what each costs."""

import dataclasses
from typing import Any

from research.engine import Higher, drawing
from research.engine.plan import price
from research.papers.smear._claims import ESTIMATORS, HEURISTICS, differences
from research.papers.smear._comparison import REFERENCE, DomainComparison
from research.papers.smear._routers import DOMAINNET, HOURS, ROUTED_BY, SINGLE


def above(arms, others, effect=0.0, within=0.0):
    """The test that arms are more accurate than others."""
    return Higher(arms, others, "accuracy", effect, within)


TESTS = {
    "tag-above-estimators": above("Tag", ESTIMATORS),
    "hash": above("Top-k", "Hash", 0.076),
    "single": above("Top-k", "1x compute", 0.01),
    "parameters-above-estimators": above("1x parameters", ESTIMATORS),
    "estimators": above("SMEAR", ESTIMATORS, within=0.01),
    "heuristics": above("SMEAR", HEURISTICS, within=0.01),
    "tag": above("SMEAR", "Tag", 0.006),
    "parameters": above("SMEAR", "1x parameters", 0.012),
    "ensemble": above("Ensemble", "SMEAR", 0.009),
    "adamix": above("SMEAR", "Adamix"),
    "soft-moe": above("SMEAR", "Soft MoE"),
    "dselect-k": above("SMEAR", "DSelect-k"),
    "latent-skills": above("SMEAR", "Latent Skills", 0.001),
    "twice": above("SMEAR 2x", "SMEAR", 0.008),
}


@dataclasses.dataclass(frozen=True)
class Table3Small(DomainComparison):
    """The routers' accuracy by domain, and their cost; see `DomainComparison`."""

    name = "smear-table3-small"
    title = "routers of adapters on images of six domains"
    where = "Table 3"
    looks = 2

    @property
    def claims(self):
        return differences(TESTS)

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
