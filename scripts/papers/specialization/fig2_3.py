"""Figures 2 and 3: expert selection tables of the two gates of Table 1."""

import dataclasses

import numpy as np

from experiments import Claim, Picture, Report, Table
from papers import citations, drawing
from papers.specialization._images import DATA, NUMBERS, own_numbers
from papers.specialization._splits import (
    CLOTHES,
    JOINT,
    SPLIT,
    SPLITS,
    Splits,
    arm_of,
    follows,
    has_both_kinds,
    share_by_split,
    used,
)
from papers.specialization._tables import SHARE, USED, draw_table

NOTE = (
    "Figure 2's claims hold if they do in more than half of the runs, Figure 3's if "
    "they do in all; each figure of the paper shows one run. Section 4.2 also says "
    "that the frozen gates split the classes as in these figures while fresh experts "
    "are trained: a frozen gate that sees only the image always does."
)
FIGURE = {JOINT: "Figure 2", SPLIT: "Figure 3"}
MIXED = "fmnist_mnist"


@dataclasses.dataclass(frozen=True)
class Fig2And3(Splits):
    """Which experts the gates of Table 1 choose for each class."""

    name = "specialization-fig2-3"
    title = "a joint gate leaves experts out, one on trained experts does not"
    paper = citations.SPECIALIZATION
    where = "Figures 2 and 3"
    about = (
        "The gates of [Table 1](specialization-table1.md): (a) trained jointly with "
        "the experts (Figure 2), and (b) trained on frozen experts, each of which "
        "knows a pair of classes (Figure 3). The expert selection table counts which "
        "expert has the largest weight for the test images of each class. The data are "
        "digits (MNIST), and six classes of clothes with six of digits (FMNIST + "
        "MNIST)."
    )

    def report(self, results):
        claims = [self._leaves_out(results, name) for name in self.datasets]
        if MIXED in self.datasets:
            claims.append(self._mixes_kinds(results))
        claims += [self._finds(results, name) for name in self.datasets]
        caption = (
            "Expert selection tables of every run: what share of each class chooses "
            "each expert, from none (white) to all (dark). Experts are in the order of "
            "the classes they get, unused ones last. Of the mixed classes those above "
            "the line are clothes."
        )
        picture = Picture("tables", caption, lambda: self.draw(results))
        columns = ["data", "gate", *NUMBERS.values(), "experts used", "as the split"]
        rows = [
            [
                DATA[name].title,
                kind,
                *own_numbers(results, arm_of(name, kind), "gate_"),
                self._used(results, name, kind),
                f"{self._share(results, name):.0%}" if kind == SPLIT else "",
            ]
            for name, kind in self.arms.values()
        ]
        note = (
            f"Used is an expert that is chosen for at least {USED:.0%} of the images. "
            "The last column is the share of images that choose the expert of their "
            "class. The errors are those of the models in which the gates were trained."
        )
        table = Table("In numbers", columns, rows, note)
        return Report(claims, [table], [picture], [NOTE], protocol=self.protocol())

    def _each(self, results, name, kind, measure):
        runs = results.of(arm_of(name, kind))
        return [measure(run.numbers["gate_table"]) for run in runs]

    def _used(self, results, name, kind):
        mean = np.mean(self._each(results, name, kind, used))
        return f"{mean:.1f} of {DATA[name].num_experts}"

    def _share(self, results, name):
        split = SPLITS[name]
        shares = self._each(
            results, name, SPLIT, lambda table: share_by_split(table, split)
        )
        return float(np.mean(shares))

    def _leaves_out(self, results, name):
        about = DATA[name]
        counts = self._each(results, name, JOINT, used)
        fewer = sum(count < about.num_experts for count in counts)
        bits = results.text(arm_of(name, JOINT), "gate_utilization_entropy")
        return Claim(
            f"{about.title}: the original mixture does not use all of its experts.",
            f"{fewer} of {len(counts)} runs use fewer than {about.num_experts} "
            f"experts; H_u is {bits} bits of {np.log2(about.num_experts):.2f}.",
            fewer > len(counts) / 2,
            source=f"Figure 2 ({'a' if name == 'mnist' else 'b'}), Section 4.1",
            paper="3 of 5 experts used" if name == "mnist" else "not all 6 used",
        )

    def _mixes_kinds(self, results):
        both = self._each(results, MIXED, JOINT, has_both_kinds)
        return Claim(
            "FMNIST + MNIST: clothes and digits do not part; an expert gets both.",
            f"In {sum(both)} of {len(both)} runs an expert has a tenth or more of its "
            "images of each kind.",
            sum(both) > len(both) / 2,
            source="Figure 2 (b), Section 4.1",
            paper="expert 2 gets both",
        )

    def _finds(self, results, name):
        split = SPLITS[name]
        right = self._each(results, name, SPLIT, lambda table: follows(table, split))
        return Claim(
            f"{DATA[name].title}: a gate on experts that know a split learns to select "
            "the expert of each class.",
            f"In {sum(right)} of {len(right)} runs most images of every class choose "
            f"its expert; {self._share(results, name):.0%} of all images do.",
            all(right),
            source=f"Figure 3 ({'a' if name == 'mnist' else 'b'}), Section 4.2",
        )

    def draw(self, results):
        """The tables of all runs: a row for each arm, a column for each seed."""
        columns = max(len(results.of(arm)) for arm in self.arms)
        figure, axes = drawing.panels(
            len(self.arms), columns, 2.0 * len(self.arms) + 0.4, sharey="row"
        )
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
