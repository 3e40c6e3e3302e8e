"""Figure 4: three models by task correlation."""

import dataclasses
import itertools

from dselectk_keras.experiments.compare import all_hold, format_gap, is_positive
from dselectk_keras.experiments.report import Claim, Picture, Report, Table
from dselectk_keras.experiments.results import format_mean
from dselectk_keras.experiments.search import best_settings
from dselectk_keras.plots import plot_curves
from papers import citations, drawing
from papers.mmoe import _synthetic
from papers.mmoe._synthetic import MODELS, gaps, median
from papers.mmoe._three_models import ThreeModels, arm_of


@dataclasses.dataclass(frozen=True)
class Fig4(ThreeModels):
    """The loss of the three models during training, by task correlation."""

    name = "mmoe-fig4"
    title = "a gate for each task keeps less related tasks from harming each other"
    paper = citations.MMOE
    where = "Figure 4"
    about = (
        "A shared-bottom model, OMoE (one gate for both tasks) and MMoE (a gate for "
        "each) on the synthetic data of Section 3.2, whose tasks have weight vectors "
        "with the cosine *p*. The sizes are the paper's: 100 inputs, 8 experts of 16 "
        "units, towers of 8, and a shared layer of 113 units, so that all have about "
        "as many parameters. The learning rate of Adam is searched for each model at "
        "each correlation over the paper's values. The loss is the mean squared error "
        "on examples that were not trained on, averaged over the two tasks; 0.01 of it "
        "is noise that no model can predict."
    )

    def report(self, results):
        ordered = sorted(self.correlations)
        caption = (
            "Loss during training by the cosine p of the tasks' weights: median and "
            "standard error over the runs."
        )
        return Report(
            [
                _trend(results, ordered),
                _smallest_gap(results, ordered),
                _same(results, ordered[-1]),
                _best(results, ordered),
            ],
            [_losses(results, ordered)],
            [Picture("loss", caption, lambda: _draw(self, results))],
            _synthetic.remarks(self),
        )


def _trend(results, ordered):
    """Claim: the more the tasks are correlated, the better."""
    texts, holds = [], []
    for model in MODELS:
        arms = [arm_of(model, p) for p in ordered]
        losses = (results.values(arm, "loss") for arm in arms)
        texts.append(f"{', '.join(_written(values) for values in losses)} ({model})")
        holds.append(is_positive(*median(_gaps(results, model, ordered))))
        # Neighbours may be too close to tell apart, but not the wrong way round.
        steps = (gaps(results, *pair) for pair in itertools.pairwise(arms))
        holds += [False for step in steps if is_positive(*median(step)) is False]
    return Claim(
        "Every model does better the more the tasks are correlated.",
        f"Losses at p = {', '.join(f'{p:g}' for p in ordered)}: {'; '.join(texts)}.",
        all_hold(holds),
    )


def _smallest_gap(results, ordered):
    """Claim: MMoE loses least where tasks are less correlated."""
    found = {model: _gaps(results, model, ordered) for model in MODELS}
    return Claim(
        "The gap between correlations is much smaller for MMoE than for OMoE and "
        "Shared-Bottom.",
        f"From p = {ordered[-1]:g} to p = {ordered[0]:g} the loss changes by "
        + ", ".join(f"{_signed(values)} ({model})" for model, values in found.items())
        + ".",
        all_hold(
            is_positive(*median(values - found["MMoE"]))
            for model, values in found.items()
            if model != "MMoE"
        ),
    )


def _same(results, p):
    """Claim: gates for each task change nothing where the tasks are the same."""
    omoe, shared = _above_mmoe(results, p)
    near = abs(median(omoe)[0]) < abs(median(shared)[0]) / 4
    return Claim(
        f"Where the tasks are the same (p = {p:g}), OMoE and MMoE hardly differ.",
        f"OMoE's loss differs from MMoE's by {_signed(omoe)}, Shared-Bottom's by "
        f"{_signed(shared)}.",
        bool(near) or is_positive(*median(omoe)) is None,
    )


def _best(results, ordered):
    """Claim: the mixtures are better, and MMoE is the best of them or as good."""
    texts, holds = [], []
    for p in ordered:
        omoe, shared = _above_mmoe(results, p)
        texts.append(
            f"{_signed(omoe)} (OMoE) and {_signed(shared)} (Shared-Bottom) at p = {p:g}"
        )
        holds += [
            is_positive(*median(omoe)) is not False,
            is_positive(*median(shared)),
            is_positive(*median(shared - omoe)),
        ]
    return Claim(
        "Both mixtures are better than Shared-Bottom at every correlation, and MMoE is "
        "the best or as good.",
        f"Losses above MMoE's: {'; '.join(texts)}.",
        all_hold(holds),
    )


def _gaps(results, model, ordered):
    """By how much each run is worse at the lowest correlation than at the highest."""
    return gaps(results, arm_of(model, ordered[0]), arm_of(model, ordered[-1]))


def _above_mmoe(results, p):
    """By how much OMoE's runs, and Shared-Bottom's, are worse than MMoE's."""
    mmoe, omoe, shared = (
        arm_of(model, p) for model in ("MMoE", "OMoE", "Shared-Bottom")
    )
    return gaps(results, omoe, mmoe), gaps(results, shared, mmoe)


def _signed(values):
    return format_gap(*median(values))


def _written(values):
    middle, error = median(values)
    return format_mean(middle, error)


def _losses(results, ordered):
    rows = []
    for model, p in itertools.product(MODELS, ordered):
        arm = arm_of(model, p)
        settings, _ = best_settings(results.of(arm, tuning=True))
        rows.append(
            [
                model,
                f"{p:g}",
                f"{settings['learning_rate']:g}" if settings else None,
                _written(results.values(arm, "loss")),
                results.text(arm, "loss"),
                _written(results.values(arm, "train_loss")),
            ]
        )
    return Table(
        "Losses at the end",
        ["model", "p", "learning rate", "median", "mean", "median in training"],
        rows,
        "The paper draws curves and prints no numbers.",
    )


def _draw(experiment, results):
    """A panel for each model, a line for each correlation."""
    figure, axes = drawing.panels(1, len(MODELS), 2.5, sharey=True)
    for ax, model in zip(axes.flat, MODELS, strict=True):
        arms = {f"p = {p:g}": arm_of(model, p) for p in experiment.correlations}
        lines, errors = _synthetic.curves(experiment, results, arms)
        plot_curves(
            lines, errors=errors, x_label="training steps", log="y", title=model, ax=ax
        )
    _synthetic.write_losses(axes[0, 0])
    drawing.label(axes[0, 0], y="loss on held-out examples")
    return figure
