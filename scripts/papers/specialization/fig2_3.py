"""Figures 2 and 3: expert selection tables of the original mixture."""

import dataclasses

import numpy as np

from dselectk_keras.experiments import Claim, Picture, Report, Table
from papers import citations, drawing
from papers.specialization._images import (
    NAMES,
    NUMBERS,
    WAYS,
    Images,
    measured,
    own_numbers,
)
from papers.specialization._tables import USED, draw_table

CLOTHES = 6  # The first classes of the mixed data are clothes, the others digits.


@dataclasses.dataclass(frozen=True)
class Fig2And3(Images):
    """The original mixture on little data of three kinds.

    Args:
        num_experts: How many experts each data set gets, by its name.
    """

    name = "specialization-fig2-3"
    title = "the original mixture leaves experts out, and splits classes oddly"
    paper = citations.SPECIALIZATION
    where = "Figures 2 and 3"
    about = (
        "A mixture of small convolutional networks with the original gate learns "
        "digits (MNIST), clothes (FMNIST), and six classes of each together (FMNIST + "
        "MNIST), from 10,000 images. The expert selection table counts which expert "
        "has the largest weight for the test images of each class. One would expect "
        "that every expert is used, that a class stays together, and that clothes and "
        "digits part."
    )

    num_train: int = 10_000
    num_validation: int = 1_000
    num_test: int = 2_000
    num_experts: tuple[tuple[str, int], ...] = (
        ("mnist", 5),
        ("fashion_mnist", 5),
        ("fmnist_mnist", 6),
    )

    @classmethod
    def presets(cls):
        smoke = {
            "num_experts": (("fmnist_mnist", 2),),
            "epochs": 1,
            "batch_size": 48,
            "stand_in": True,
        }
        return {
            "smoke": cls(**smoke),
            "cpu": cls(seeds=5, epochs=20),
            "paper": cls(seeds=10, epochs=40),
        }

    @property
    def arms(self):
        return {NAMES[name]: (name, count) for name, count in self.num_experts}

    def run(self, arm, jobs):
        name, count = self.arms[arm]
        data = self.data(name)
        models = self.teach(WAYS["original"], count, data, jobs)
        found = [measured(model, data, count) for model in models]
        for numbers in found:
            numbers["used"] = used(numbers["table"])
            if name == "fmnist_mnist":
                numbers["kinds"] = information_on_kinds(numbers["table"])
        return found

    def report(self, results):
        claims = [self._leaves_out(results, arm) for arm in self.arms]
        claims += [
            self._mixes_kinds(results, arm)
            for arm, (name, _) in self.arms.items()
            if name == "fmnist_mnist"
        ]
        caption = (
            "Expert selection tables of every run: what share of each class chooses "
            "each expert, from none (white) to all (dark). Experts are in the order of "
            "the classes they get, unused ones last. Of the mixed classes those above "
            "the line are clothes."
        )
        picture = Picture("tables", caption, lambda: self.draw(results))
        columns = ["data", "experts", *NUMBERS.values(), "experts used", "I(E; kind)"]
        rows = [
            [
                arm,
                count,
                *own_numbers(results, arm),
                results.text(arm, "used"),
                results.text(arm, "kinds") if name == "fmnist_mnist" else "",
            ]
            for arm, (name, count) in self.arms.items()
        ]
        note = (
            f"Used is an expert that is chosen for at least {USED:.0%} of the images. "
            "The kind of an image is clothes or digit: one bit. The paper's own tables "
            "could not be had when this was made."
        )
        table = Table("In numbers", columns, rows, note)
        return Report(claims, [table], [picture], NOTES)

    def _leaves_out(self, results, arm):
        count = self.arms[arm][1]
        runs = results.values(arm, "used")
        fewer = int((runs < count).sum())
        return Claim(
            f"{arm}: the original mixture does not use all of its experts.",
            f"{fewer} of {len(runs)} runs use fewer than {count} experts; "
            f"H_u is {results.text(arm, 'utilization_entropy')} bits of "
            f"{np.log2(count):.2f}.",
            fewer > len(runs) / 2,
        )

    def _mixes_kinds(self, results, arm):
        mixed = sum(
            _has_both(np.array(run.numbers["table"])) for run in results.of(arm)
        )
        runs = len(results.of(arm))
        return Claim(
            "FMNIST + MNIST: clothes and digits do not part; some expert gets both.",
            f"In {mixed} of {runs} runs an expert has a tenth or more of its images of "
            f"each kind. I(E; kind) is {results.text(arm, 'kinds')} of 1 bit.",
            mixed > runs / 2,
        )

    def draw(self, results):
        """The tables of all runs: a row for each data set, a column for each seed."""
        columns = max(len(results.of(arm)) for arm in self.arms)
        figure, axes = drawing.panels(
            len(self.arms), columns, 2.0 * len(self.arms) + 0.4
        )
        for row, arm in zip(axes, self.arms, strict=True):
            for ax, run in zip(row, results.of(arm), strict=False):
                draw_table(ax, run.numbers["table"])
                if self.arms[arm][0] == "fmnist_mnist":
                    ax.axhline(CLOTHES, color=drawing.TEXT, linewidth=0.8)
                ax.set_title(f"seed {run.seed}", fontsize=drawing.SMALL_FONT)
            drawing.label(row[0], y=f"{arm}\nclass")
        for ax in axes[-1]:
            drawing.label(ax, x="expert")
        return figure


NOTES = [
    (
        "From the authors' repository: 10,000 training and 2,000 test images, batches "
        "of 64, and of the mixed data the first six classes of FMNIST (0 to 5 in the "
        "picture) and the digits 4 to 9 (6 to 11). Ours: images of these classes are "
        "drawn at random instead of evenly; how many experts; and the epochs. All runs "
        "are shown. The claims are those of the paper's abstract, in our words."
    )
]


def used(table):
    """How many experts are chosen for a share of the images worth counting.

    Args:
        table: An array (classes, experts) of counts.

    Returns:
        A number.
    """
    totals = np.asarray(table).sum(axis=0)
    return int((totals >= USED * totals.sum()).sum())


def information_on_kinds(table):
    """The mutual information of the chosen expert and the kind of an image, in bits.

    Args:
        table: An array (classes, experts) of counts; the first six are clothes.

    Returns:
        A number.
    """
    joint = _by_kind(np.asarray(table, dtype=float))
    joint = joint / joint.sum()
    apart = joint.sum(axis=0, keepdims=True) * joint.sum(axis=1, keepdims=True)
    there = joint > 0
    return float((joint[there] * np.log2(joint[there] / apart[there])).sum())


def _by_kind(table):
    return np.stack([table[:CLOTHES].sum(axis=0), table[CLOTHES:].sum(axis=0)])


def _has_both(table):
    """Whether an expert that is used has a tenth or more of its images of each kind."""
    kinds = _by_kind(table)
    totals = kinds.sum(axis=0)
    counted = totals >= USED * totals.sum()
    return bool((kinds.min(axis=0)[counted] >= 0.1 * totals[counted]).any())
