"""Figure 4: three models by task correlation."""

import dataclasses
import itertools

import numpy as np

from dselectk_keras.plots import plot_curves
from experiments.compare import (
    all_hold,
    format_gap,
    is_positive,
    mean_and_error,
)
from experiments.report import Claim, Picture, Question, Report, Table
from experiments.results import format_mean
from experiments.search import best_settings
from papers import citations, drawing
from papers.mmoe import _synthetic
from papers.mmoe._synthetic import MODELS, gaps, median
from papers.mmoe._three_models import ThreeModels, arm_of, three_models_protocol


@dataclasses.dataclass(frozen=True)
class Fig4(ThreeModels):
    """The loss of the three models during training, by task correlation."""

    name = "mmoe-fig4"
    title = "the losses of three models, by the correlation of their tasks"
    paper = citations.MMOE
    where = "Figure 4"
    about = (
        "A shared-bottom model, OMoE (one gate for both tasks) and MMoE (one gate per "
        "task) on the synthetic data of Section 3.2, whose tasks have weight vectors "
        "with the cosine *p*. The models have about the same number of parameters in "
        "experts and towers. The learning rate is searched for each model at each "
        "correlation. No model can predict the noise, which adds 0.01 to the loss."
    )

    def report(self, results):
        ordered = sorted(self.correlations)
        caption = (
            "Loss during training by the cosine p of the tasks' weights: mean and "
            "standard error over the runs."
        )
        return Report(
            [
                _trend(results, ordered),
                _smallest_gap(results, ordered),
                _same(results, ordered[-1]),
                _omoe_degenerates(results, ordered),
                _above_shared(results, ordered),
            ],
            [_losses(results, ordered)],
            [Picture("loss", caption, lambda: _draw(self, results))],
            _synthetic.remarks(),
            [_medians(results, ordered)],
            three_models_protocol(self),
        )


def _trend(results, ordered):
    texts, holds = [], []
    for model in MODELS:
        arms = [arm_of(model, p) for p in ordered]
        losses = ", ".join(results.text(arm, "loss") for arm in arms)
        texts.append(f"{losses} ({model})")
        holds.append(_synthetic.is_trend(results, arms))
    return Claim(
        "Every model does better the more the tasks are correlated.",
        f"Losses at p = {', '.join(f'{p:g}' for p in ordered)}: {'; '.join(texts)}.",
        all_hold(holds),
        "Section 5.1, observation 1",
    )


def _smallest_gap(results, ordered):
    found = {model: _gaps(results, model, ordered) for model in MODELS}
    return Claim(
        "The gap between correlations is much smaller for MMoE than for OMoE and "
        "Shared-Bottom.",
        f"From p = {ordered[-1]:g} to p = {ordered[0]:g} the loss changes by "
        + ", ".join(f"{_signed(values)} ({model})" for model, values in found.items())
        + ".",
        all_hold(
            is_positive(*mean_and_error(values - found["MMoE"]))
            for model, values in found.items()
            if model != "MMoE"
        ),
        "Section 5.1, observation 2",
    )


def _same(results, p):
    omoe, shared = _above_mmoe(results, p)
    near = abs(np.mean(omoe)) < abs(np.mean(shared)) / 4
    # A large difference that may be chance says neither that they differ nor that not.
    far = None if is_positive(*mean_and_error(omoe)) is None else False
    return Claim(
        f"If the tasks are the same (p = {p:g}), OMoE and MMoE hardly differ. (It "
        "holds here if they differ by less than a quarter of what Shared-Bottom and "
        "MMoE do.)",
        f"OMoE's loss differs from MMoE's by {_signed(omoe)}, Shared-Bottom's by "
        f"{_signed(shared)}.",
        bool(near) or far,
        "Section 5.1, observation 2",
    )


def _omoe_degenerates(results, ordered):
    gap = _above_mmoe(results, ordered[0])[0]
    own, its = (_gaps(results, model, ordered) for model in ("OMoE", "MMoE"))
    return Claim(
        "If the correlation decreases, OMoE gets worse, and MMoE changes little. (It "
        "holds here if OMoE gets worse by more than MMoE, and worse than MMoE.)",
        f"From p = {ordered[-1]:g} to p = {ordered[0]:g} OMoE's loss changes by "
        f"{_signed(own)}, and MMoE's by {_signed(its)}; at p = {ordered[0]:g} OMoE's "
        f"is above MMoE's by {_signed(gap)}.",
        all_hold(is_positive(*mean_and_error(each)) for each in (gap, own, own - its)),
        "Section 5.1, observation 2",
    )


def _above_shared(results, ordered):
    texts, holds = [], []
    for p in ordered:
        omoe, shared = _above_mmoe(results, p)
        texts.append(
            f"{_signed(shared - omoe)} (OMoE) and {_signed(shared)} (MMoE) at p = {p:g}"
        )
        holds += [is_positive(*mean_and_error(gap)) for gap in (shared, shared - omoe)]
    return Claim(
        "Both MoE models are better than Shared-Bottom at every correlation.",
        f"Shared-Bottom's loss is above theirs by {'; '.join(texts)}.",
        all_hold(holds),
        "Section 5.1, observation 3",
    )


def _medians(results, ordered):
    texts = []
    for model in MODELS:
        losses = (results.values(arm_of(model, p), "loss") for p in ordered)
        texts.append(f"{', '.join(_written(values) for values in losses)} ({model})")
    return Question(
        "What are the medians, which a single poor run does not move?",
        f"Losses at p = {', '.join(f'{p:g}' for p in ordered)}: {'; '.join(texts)}.",
    )


def _gaps(results, model, ordered):
    """How much each run is worse at the lowest correlation than at the highest."""
    return gaps(results, arm_of(model, ordered[0]), arm_of(model, ordered[-1]))


def _above_mmoe(results, p):
    """By how much OMoE's runs, and Shared-Bottom's, are worse than MMoE's."""
    mmoe, omoe, shared = (
        arm_of(model, p) for model in ("MMoE", "OMoE", "Shared-Bottom")
    )
    return gaps(results, omoe, mmoe), gaps(results, shared, mmoe)


def _signed(values):
    return format_gap(*mean_and_error(values))


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
                results.text(arm, "loss"),
                _written(results.values(arm, "loss")),
                results.text(arm, "train_loss"),
            ]
        )
    return Table(
        "Losses at the end",
        ["model", "p", "learning rate", "mean", "median", "mean in training"],
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
