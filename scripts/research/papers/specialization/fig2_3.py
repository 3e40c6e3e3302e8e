"""Figures 2 and 3: expert selection tables of the two gates of Table 1."""

import dataclasses

import numpy as np

from research.engine import Claim, drawing, most
from research.papers.specialization._mixture import DATA
from research.papers.specialization._splits import JOINT, SPLIT, SPLITS, Splits, arm_of
from research.papers.specialization._tables import SHARE, are_used, draw_table

FIGURE = {JOINT: "Figure 2", SPLIT: "Figure 3"}
MIXED = "fmnist_mnist"
USED_IN_PAPER = {"mnist": "3 of 5 experts used", MIXED: "not all 6 used"}
SHOWN = 5  # Runs that are drawn.
CLOTHES = 6  # The first classes of the mixed data are clothes, the others digits.


@dataclasses.dataclass(frozen=True)
class Fig2And3(Splits):
    """The experts that the gates of Table 1 choose for each class."""

    name = "specialization-fig2-3"
    title = "a joint gate leaves experts out, one on trained experts does not"
    where = "Figures 2 and 3"

    @property
    def claims(self):
        for name in self.datasets:
            about, part = DATA[name], "a" if name == "mnist" else "b"
            names = {"name": name, "about": about, "part": part}
            names |= {"theirs": USED_IN_PAPER[name], "joint": arm_of(name, JOINT)}
            names["most_bits"] = np.log2(about.num_experts)
            yield Claim("leaves-out", lambda r, n=name: most(leaves_out(r, n)), names)
            yield Claim("follows", lambda r, n=name: follows(r, n).all(), names)
        yield Claim("mixes", lambda r: most(mixes(r)))

    def table_numbers(self, results):
        yield "data | gate | error | I(E;Y) | H_s | H_u | experts used | as the split"
        numbers = "error", "mutual_information", "sample_entropy", "utilization_entropy"
        for arm, (name, kind) in self.arms.items():
            texts = results.texts(arm, *(f"gate_{number}" for number in numbers))
            used = num_used(results, name, kind)
            shared = f"{share(results, name):.0%}" if kind == SPLIT else ""
            yield [DATA[name].title, kind, *texts, used, shared]

    def draw_tables(self, results):
        size = len(self.arms), SHOWN, 2.0 * len(self.arms) + 0.4
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


def tables(results, name, kind):
    """The tables of all runs of a gate, `(runs, classes, experts)`."""
    return results.values(arm_of(name, kind), "gate_table")


def leaves_out(results, name):
    """For each run, whether the joint gate leaves out experts."""
    return ~are_used(tables(results, name, JOINT)).all(axis=-1)


def share(results, name):
    """The share of images that choose the expert that the split gives their class."""
    found, split = tables(results, name, SPLIT), SPLITS[name]
    chosen = found[:, np.arange(len(split)), split].sum(axis=-1)
    return (chosen / found.sum(axis=(1, 2))).mean()


def num_used(results, name, kind):
    """Number of experts that are used on average, of how many, as text."""
    used = are_used(tables(results, name, kind)).sum(axis=-1)
    return f"{used.mean():.1f} of {DATA[name].num_experts}"


def follows(results, name):
    """For each run, whether most images of every class choose the split's expert."""
    return (tables(results, name, SPLIT).argmax(axis=-1) == SPLITS[name]).all(axis=-1)


def mixes(results):
    """For each run, whether an expert has a tenth or more of its images of each kind.

    Experts that are not used do not count.
    """
    found = tables(results, MIXED, JOINT)
    clothes, digits = found[:, :CLOTHES].sum(axis=1), found[:, CLOTHES:].sum(axis=1)
    mixed = np.minimum(clothes, digits) >= 0.1 * (clothes + digits)
    return (mixed & are_used(found)).any(axis=-1)
