"""Table 3 on a small problem: which router is best, and what each costs."""

import dataclasses

from experiments import drawing
from papers.smear._comparison import REFERENCE, DomainComparison
from papers.smear._routers import ROUTED_BY, SINGLE


@dataclasses.dataclass(frozen=True)
class Table3Small(DomainComparison):
    """The routers' accuracy by domain, and their cost; see `DomainComparison`."""

    name = "smear-table3-small"
    title = "routers of adapters on images of six domains"
    where = "Table 3"

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
