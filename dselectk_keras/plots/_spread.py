"""Positions of labels that must not overlap."""

import numpy as np


def spread_positions(positions, gap):
    """The positions in [0, 1], at least `gap` apart, that are nearest to those given.

    Least squares by pooling adjacent violators, after subtracting the gaps. If the
    positions do not fit, the gap shrinks.
    """
    positions = np.asarray(positions, dtype=float)
    if positions.size == 0:
        return positions
    order = np.argsort(positions, kind="stable")
    if len(order) > 1:
        gap = min(gap, 1 / (len(order) - 1))
    steps = gap * np.arange(len(order))

    blocks = []
    for value in positions[order] - steps:
        total, count = value, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            total, count = total + blocks[-1][0], count + blocks[-1][1]
            blocks.pop()
        blocks.append((total, count))
    ascending = np.repeat([t / c for t, c in blocks], [c for _, c in blocks])

    placed = np.empty_like(positions)
    placed[order] = np.clip(ascending, 0, 1 - steps[-1]) + steps
    return placed
