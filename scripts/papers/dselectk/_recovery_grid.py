"""What a grid of settings has found: its cells, a table and pictures of it."""

import dataclasses

import numpy as np

from dselectk_keras.experiments import Table, format_mean, mean_and_error
from dselectk_keras.plots import plot_curves
from papers import drawing
from papers.dselectk._recovery import K


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """What one gate with one setting has found under one training.

    Args:
        gate: Its name.
        unit: `"known"` or `"learned"`.
        optimizer: Name of the optimizer.
        rate: Its learning rate.
        batch_size: Examples in a step.
        setting: The gate's setting, in words.
        found: Array (seeds,): how many true experts.
        others: Array (seeds,): how many others it uses.
    """

    gate: str
    unit: str
    optimizer: str
    rate: float
    batch_size: int
    setting: str
    found: np.ndarray
    others: np.ndarray

    @property
    def training(self):
        """All but the gate and its setting."""
        return self.unit, self.optimizer, self.rate, self.batch_size

    @property
    def mean(self):
        """True experts found, on average over the seeds."""
        return float(self.found.mean())

    @property
    def share(self):
        """The share of seeds that recover the true experts, and use no other."""
        return float(((self.found == K) & (self.others == 0)).mean())

    @property
    def training_text(self):
        """The optimizer and the batch size, in words."""
        return f"{self.optimizer} at {self.rate:g}, batches of {self.batch_size}"

    def text(self):
        """The mean and its standard error, to be read."""
        return format_mean(*mean_and_error(self.found), 2)


def grid_table(cells):
    """The whole grid: a row for each gate, setting and unit."""
    trainings = _trainings(cells)
    by_place = {(c.gate, c.setting, *c.training): c for c in cells}
    rows = []
    for unit in dict.fromkeys(cell.unit for cell in cells):
        for gate, setting in _rows(cells):
            row = [by_place[gate, setting, unit, *training] for training in trainings]
            texts = [f"{cell.mean:.1f} ({cell.share:.0%})" for cell in row]
            rows.append([gate, setting, unit, *texts])
    names = [f"{name} {rate:g}, {size}" for name, rate, size in trainings]
    return Table(
        "The whole grid",
        ["gate", "setting", "unit", *names],
        rows,
        "True experts found of four, on average over the seeds; in brackets the share "
        "of seeds that have found all four and use no other. Columns: the optimizer, "
        "its learning rate, the batch size.",
    )


def draw_grid(cells):
    """The grid as a heat map: how many true experts are found."""
    rows, trainings = _rows(cells), _trainings(cells)
    units = list(dict.fromkeys(cell.unit for cell in cells))
    columns = [(unit, *training) for unit in units for training in trainings]
    means = np.full((len(rows), len(columns)), np.nan)
    for cell in cells:
        place = rows.index((cell.gate, cell.setting)), columns.index(cell.training)
        means[place] = cell.mean
    figure, [[ax]] = drawing.panels(1, 1, 0.9 + 0.24 * len(rows), width=1.25)
    mesh = ax.pcolormesh(means, cmap="YlGnBu", vmin=0, vmax=K, edgecolors="white")
    for (i, j), mean in np.ndenumerate(means):
        color = "white" if mean > 0.6 * K else drawing.TEXT
        ax.text(j + 0.5, i + 0.5, f"{mean:.1f}", ha="center", va="center", color=color)
    for text in ax.texts:
        text.set_fontsize(drawing.SMALL_FONT - 1)
    ax.invert_yaxis()
    gates = [gate for gate, _ in rows]
    for i in range(1, len(rows)):
        if gates[i] != gates[i - 1]:
            ax.axhline(i, color="black", linewidth=0.9)
    ax.axvline(len(trainings), color="black", linewidth=0.9)
    ax.set_yticks(
        np.arange(len(rows)) + 0.5, [f"{gate}, {setting}" for gate, setting in rows]
    )
    names = [f"{name} {rate:g}, {size}" for _, name, rate, size in columns]
    ax.set_xticks(np.arange(len(columns)) + 0.5, names, rotation=90)
    for i, unit in enumerate(units):
        ax.text(
            (i + 0.5) * len(trainings),
            -0.25,
            f"logistic unit {unit}",
            ha="center",
            va="bottom",
            fontsize=drawing.FONT,
        )
    drawing.label(ax, x="optimizer, learning rate, batch size")
    ax.tick_params(labelsize=drawing.SMALL_FONT, length=0)
    ax.spines[:].set_visible(False)
    drawing.color_bar(figure, mesh, ax, "true experts found, of 4", pad=0.01)
    return figure


def draw_shares(cells):
    """How often the four are recovered, over the settings from best to worst."""
    units = list(dict.fromkeys(cell.unit for cell in cells))
    figure, axes = drawing.panels(1, len(units), 2.4, sharey=True)
    for ax, unit in zip(axes[0], units, strict=True):
        curves = {}
        for gate in dict.fromkeys(cell.gate for cell in cells):
            shares = [c.share for c in cells if (c.gate, c.unit) == (gate, unit)]
            shares = np.sort(shares)[::-1]
            curves[gate] = (np.arange(1, len(shares) + 1) / len(shares), shares)
        ax.set_ylim(-0.03, 1.03)
        plot_curves(
            curves,
            x_label="share of the settings, best first",
            y_label="starts that recover all four" if ax is axes[0, 0] else "",
            title=f"logistic unit {unit}",
            ax=ax,
        )
    return figure


def _rows(cells):
    return list(dict.fromkeys((cell.gate, cell.setting) for cell in cells))


def _trainings(cells):
    return list(dict.fromkeys(cell.training[1:] for cell in cells))
