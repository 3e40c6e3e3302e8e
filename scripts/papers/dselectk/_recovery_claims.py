"""What a grid of settings says about the paper's claims."""

import numpy as np

from dselectk_keras.experiments import Claim, Table
from papers.dselectk._recovery import DSELECT_K, GATES, TOP_K

PAPER = {TOP_K: 1, DSELECT_K: 4}  # True experts found, in one run.


def claims(cells, usual, jumps):
    """The paper's claims, judged.

    Args:
        cells: A list of `Cell`.
        usual: The training that is the default: unit, optimizer, rate, batch size.
            The first setting of a gate under it is its default.
        jumps: The largest change of a weight in a step, by gate.

    Returns:
        A list of `Claim`.
    """
    top_k, dselect_k = (
        next(c for c in cells if c.gate == gate and c.training == usual)
        for gate in (TOP_K, DSELECT_K)
    )
    return [
        Claim(
            "DSelect-k recovers all four true experts.",
            f"In {dselect_k.share:.0%} of {len(dselect_k.found)} seeds with the "
            f"defaults here; {dselect_k.text()} of four on average.",
            dselect_k.share > 0.5,
        ),
        Claim(
            "Top-k recovers one of the four.",
            f"{top_k.text()} of four on average with the defaults here, where the "
            f"logits start close together; all four in {top_k.share:.0%} of the seeds.",
            top_k.mean < 1.5,
        ),
        _both_at_once(cells),
        Claim(
            "DSelect-k finds more than Top-k.",
            " ".join(_comparison(cells, unit) for unit in _units(cells)),
            all(
                2 * np.sum(_wins(cells, u)) > len(_wins(cells, u))
                for u in _units(cells)
            ),
        ),
        Claim(
            "Top-k's weights jump, those of DSelect-k move smoothly.",
            "The largest change of any weight in a single step, on average over the "
            f"seeds: {jumps[TOP_K]:.2f} for Top-k and {jumps[DSELECT_K]:.2f} for "
            "DSelect-k.",
            jumps[TOP_K] > 2 * jumps[DSELECT_K],
        ),
    ]


def summary(cells):
    """The best, the median and the worst setting of each gate."""
    rows = []
    for unit in _units(cells):
        for gate in GATES:
            own = [c for c in cells if (c.gate, c.unit) == (gate, unit)]
            best = max(own, key=lambda c: (c.mean, c.share))
            worst = min(own, key=lambda c: c.mean)
            rows.append(
                [
                    gate,
                    unit,
                    PAPER.get(gate),
                    f"{best.mean:.2f} ({best.share:.0%})",
                    f"{best.setting}; {best.training_text}",
                    f"{np.median([c.mean for c in own]):.2f}",
                    f"{worst.mean:.2f} ({worst.share:.0%})",
                ]
            )
    columns = ["gate", "unit", "the paper", "best setting", "which", "median", "worst"]
    note = (
        "True experts found of four, on average over the seeds; in brackets the share "
        "of seeds that have found all four and use no other. The paper shows one run. "
        "The best of many settings looks better than it is, for every gate."
    )
    return Table("True experts found, by gate", columns, rows, note)


def _both_at_once(cells):
    """Whether some training shows the paper's picture."""
    pairs = [
        (theirs, ours)
        for theirs in cells
        for ours in cells
        if (theirs.gate, ours.gate) == (TOP_K, DSELECT_K)
        and theirs.training == ours.training
        and theirs.mean < 1.5
        and ours.share > 0.5
    ]
    text = "With none that was tried."
    if pairs:
        theirs, ours = max(pairs, key=lambda pair: pair[1].share)
        text = (
            f"Unit {ours.unit}, {ours.training_text}: Top-k with {theirs.setting} "
            f"finds {theirs.text()}; DSelect-k with {ours.setting} finds "
            f"{ours.text()}, and all four in {ours.share:.0%} of the seeds."
        )
    return Claim(
        "There is a setting with which Top-k finds about one, and DSelect-k all four.",
        text,
        bool(pairs),
    )


def _comparison(cells, unit):
    wins = _wins(cells, unit)
    return (
        f"With the unit {unit} and each gate at its best setting, in {sum(wins)} of "
        f"{len(wins)} ways to train."
    )


def _wins(cells, unit):
    """For each training whether DSelect-k's best setting beats Top-k's."""
    wins = []
    for training in dict.fromkeys(c.training for c in cells if c.unit == unit):
        dselect_k, top_k = (
            max(c.mean for c in cells if (c.gate, c.training) == (gate, training))
            for gate in (DSELECT_K, TOP_K)
        )
        wins.append(dselect_k > top_k)
    return wins


def _units(cells):
    return list(dict.fromkeys(cell.unit for cell in cells))


NOTES = [
    (
        "**Where Top-k starts decides what it finds.** Of four experts drawn at random "
        "from sixteen, one is a true one on average, and a Top-k gate gives a gradient "
        "only to those that it keeps. Where all logits start close together, a kept "
        "expert that does not help soon falls below the next in line, which gets its "
        "turn: the gate tries many, and its weights jump. Where they start far apart, "
        "the next in line is never reached, and the gate stays with what it drew. That "
        "is the picture of the paper. It does not say how its gates started; the "
        "package starts Top-k's logits within ±0.05, which is kind to it. Noise makes "
        "up for a part of a wide start."
    ),
    (
        "**A logistic unit that learns as well** makes the problem another one: as "
        "long as the unit points the wrong way, other experts than the true ones look "
        "best, and DSelect-k, whose bits get no gradient once they are 0 or 1, keeps "
        "to its first decision. There it needs a wide smooth step and an optimizer "
        "that moves the unit faster than the gate."
    ),
    (
        "**How it is counted.** An expert is found if it is among the four largest "
        "weights, and used if its weight exceeds 0.01. A gate that spreads its weight "
        "over all experts finds some by chance; all four count only where no other is "
        "used."
    ),
    (
        "**Ours,** since the paper leaves it open: ten inputs, experts of four ReLU "
        "units, labels drawn from the logistic unit and not thresholded, the sizes, "
        "and all that the grid varies. DSelect-k's entropy weight grows "
        "exponentially from 1e-5 over the run. All problems of a setting see their "
        "batches in one order, and share a stream for Top-k's noise."
    ),
]
