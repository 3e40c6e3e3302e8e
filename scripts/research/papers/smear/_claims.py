"""Claims and tables of SMEAR's pages on accuracies and on routing."""

import numpy as np

from research.engine import Claim, Untestable, drawing
from research.engine.results import format_mean

ESTIMATORS = ("Top-k", "ST-Gumbel", "REINFORCE", "DSelect-k")
HEURISTICS = ("Tag", "Hash", "1x compute", "1x parameters")
DRAWN = ("SMEAR", "Latent Skills", *ESTIMATORS, "Ensemble")
WIDE = ("SMEAR", "Latent Skills", "Ensemble")  # They use most experts.
ONE = 1.5  # So many experts in use, or fewer, are "one".


def points(results, arm, others, number="accuracy"):
    """Points by which an arm is above another, or others, as text."""
    others = [others] if isinstance(others, str) else others
    gaps = (f"{o}: {signed(results.gap(arm, o, number, 100))}" for o in others)
    mean = 100 * results.mean(arm, number)
    return f"{arm} {mean:.1f} %. Points above {'; '.join(gaps)}."


def differences(tests, because=""):
    """Claims with tests by id, which runs cannot judge, `because` of something."""
    for name, test in tests.items():
        yield Claim(name, Untestable(because, test) if because else test)


def each(results, arms, write):
    """Text that a function of results and an arm writes of each arm."""
    return "; ".join(f"{arm}: {write(results, arm)}" for arm in arms) + "."


def signed(gap):
    """A difference in points, with its sign."""
    text = format_mean(gap.mean, gap.error, digits=2)
    return text if text.startswith("-") else f"+{text}"


def routing_of(results, arm):
    """The mean routing distributions, `(seeds, layers, domains or tasks, experts)`."""
    weights = np.array([run.numbers["routing"] for run in results.ran(arm)])
    # Rounded weights, and those of switch, do not sum to one.
    return weights / weights.sum(axis=-1, keepdims=True)


def has_routing(results, arm):
    """Check whether an arm has a router."""
    runs = results.of(arm)
    return bool(runs) and all(runs[0].numbers["routing"])


def drawn(results):
    """The arms whose routing is drawn."""
    return [arm for arm in DRAWN if has_routing(results, arm)]


def draw_routing(results, names, parts=()):
    """Heat maps of the mean weights of named rows; white lines divide them at parts."""
    arms = drawn(results)
    routing = {arm: routing_of(results, arm)[0] for arm in arms}
    size = len(arms), len(routing[arms[0]]), 0.5 + 1.1 * len(arms)
    figure, axes = drawing.panels(*size, sharex=True, sharey=True)
    for row, arm in zip(axes, arms, strict=True):
        for ax, weights in zip(row, routing[arm], strict=True):
            ax.imshow(weights, cmap="YlGnBu", vmin=0, vmax=1, aspect="auto")
            ax.set_yticks(range(len(names)), names)
            ax.set_xticks(range(weights.shape[1]))
            ax.hlines(parts, -0.5, weights.shape[1] - 0.5, color="white")
            ax.tick_params(labelsize=drawing.SMALL_FONT, length=0)
            ax.spines[:].set_visible(False)
        drawing.label(row[0], y=arm)
    for number, column in enumerate(axes.T, start=1):
        drawing.label(column[0], title=f"layer {number}")
        drawing.label(column[-1], x="expert")
    mesh = axes[0, 0].images[0]
    drawing.color_bar(figure, mesh, axes, "mean weight", pad=0.02, aspect=30)
    return figure


def distance(weights):
    """The total variation distance of all pairs of rows, `(..., rows, rows)`."""
    pairs = weights[..., :, None, :] - weights[..., None, :, :]
    return 0.5 * np.abs(pairs).sum(axis=-1)


def entropy(weights):
    """The entropy of distributions, in bits, over the last axis."""
    logs = np.log2(np.where(weights > 0, weights, 1.0))
    return -(weights * logs).sum(axis=-1)


def in_use(results, arm):
    """The number of experts in use in each layer, `(seeds, layers)`."""
    return 2.0 ** entropy(routing_of(results, arm).mean(axis=-2))
