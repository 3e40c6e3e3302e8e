"""Figures 2 and 3: expert selection tables of the two gates of Table 1."""

import dataclasses

import numpy as np

from experiments import drawing
from papers.specialization._mixture import DATA
from papers.specialization._splits import JOINT, SPLIT, SPLITS, Splits, arm_of
from papers.specialization._tables import SHARE, USED, draw_table, used

FIGURE = {JOINT: "Figure 2", SPLIT: "Figure 3"}
MIXED = "fmnist_mnist"
CLOTHES = 6  # The first classes of the mixed data are clothes, the others digits.


@dataclasses.dataclass(frozen=True)
class Fig2And3(Splits):
    """Which experts the gates of Table 1 choose for each class."""

    name = "specialization-fig2-3"
    title = "a joint gate leaves experts out, one on trained experts does not"
    where = "Figures 2 and 3"

    def draw_tables(self, results):
        columns = max(len(results.of(arm)) for arm in self.arms)
        size = len(self.arms), columns, 2.0 * len(self.arms) + 0.4
        figure, axes = drawing.panels(*size, sharey="row")
        for row, (arm, (name, kind)) in zip(axes, self.arms.items(), strict=True):
            for ax, run in zip(row, results.of(arm), strict=False):
                draw_table(ax, run.numbers["gate_table"])
                if name == MIXED:
                    ax.axhline(CLOTHES, color=drawing.TEXT, linewidth=0.8)
                ax.set_title(f"seed {run.seed}", fontsize=drawing.SMALL_FONT)
            drawing.label(row[0], y=f"{FIGURE[kind]}\n{DATA[name].title}")
        for ax in axes[-1]:
            drawing.label(ax, x="expert")
        mesh = axes[0, 0].collections[0]
        drawing.color_bar(figure, mesh, axes, SHARE, location="bottom", aspect=60)
        return figure


def each(results, name, kind, measure):
    """A measure of the table of each run of a gate."""
    runs = results.ran(arm_of(name, kind))
    return [measure(np.asarray(run.numbers["gate_table"])) for run in runs]


def fewer(results, name):
    """For each run, whether the joint gate leaves out experts."""
    return [n < DATA[name].num_experts for n in each(results, name, JOINT, used)]


def share(results, name):
    """The share of images that choose the expert that the split gives their class."""
    split, shares = SPLITS[name], each(results, name, SPLIT, lambda table: table)
    places = np.arange(len(split)), list(split)
    return np.mean([table[places].sum() / table.sum() for table in shares])


def follows(results, name):
    """For each run, whether most images of every class choose the split's expert."""
    found = each(results, name, SPLIT, lambda table: table.argmax(axis=1).tolist())
    return [favourites == list(SPLITS[name]) for favourites in found]


def has_both_kinds(table):
    """Whether an expert that is used has a tenth or more of its images of each kind."""
    kinds = np.stack([table[:CLOTHES].sum(axis=0), table[CLOTHES:].sum(axis=0)])
    totals = kinds.sum(axis=0)
    counted = totals >= USED * totals.sum()
    return bool((kinds.min(axis=0)[counted] >= 0.1 * totals[counted]).any())
