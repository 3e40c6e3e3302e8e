"""Figures 2, 7 and 8: which experts a gate finds, and how its weights get there."""

import dataclasses
import functools
import itertools

import keras
import numpy as np

from dselectk_keras.experiments import Experiment, Picture, Report
from dselectk_keras.plots import plot_gate_weights
from papers import citations, drawing
from papers.dselectk._recovery import DSELECT_K, NOISY, TOP_K, K, Problems
from papers.dselectk._recovery_claims import NOTES, claims, summary
from papers.dselectk._recovery_grid import Cell, draw_grid, draw_shares, grid_table

DEFAULTS = {
    TOP_K: {"start": 0.05},
    NOISY: {"start": 0.05},
    DSELECT_K: {"gamma": 1.0, "entropy": 0.1, "start": 0.01},
}
WIDE = {"start": 2.0}
FOLLOWED = {
    # arm: a gate and its setting, to be looked at after every step
    "Top-k, step by step": (TOP_K, DEFAULTS[TOP_K]),
    "Top-k with a wide start, step by step": (TOP_K, WIDE),
    "DSelect-k, step by step": (DSELECT_K, DEFAULTS[DSELECT_K]),
}
RECORDS = 60  # So many points of a trajectory are kept.


@dataclasses.dataclass(frozen=True)
class Training:
    """How an arm trains, beside the settings of which it goes through a grid.

    Args:
        gate: One of the gates' names.
        unit: `"known"`: the logistic units are the true ones, frozen; or `"learned"`.
        optimizer: Name of a Keras optimizer.
        rates: Its learning rates.
        batch_size: Examples in a step.
        followed: The gate's setting, where the arm is one run that is looked at after
            every step.
    """

    gate: str
    unit: str
    optimizer: str
    rates: tuple[float, ...]
    batch_size: int
    followed: dict | None = None


@dataclasses.dataclass(frozen=True)
class Fig278(Experiment):
    """Recovery of four experts among sixteen, over a grid of settings.

    Args:
        num_train: Training examples of a problem.
        num_test: Test examples of a problem.
        epochs: How many passes over the data.
        units: Whether the logistic unit is `"known"` or `"learned"`.
        rates: Names of optimizers, each with its learning rates. The last one of the
            first optimizer is the default.
        batch_sizes: Examples in a step, the default first.
        starts: Top-k's logits start uniform in plus and minus these.
        dselect_k: Settings of DSelect-k: the width of the smooth step, what the
            weight of the entropy term grows to, and how many widths around zero its
            selectors' logits start.
    """

    name = "dselectk-fig2-7-8"
    title = "expert weights during training, and which experts a gate finds"
    paper = citations.DSELECT_K
    where = "Figures 2, 7 and 8"
    about = (
        "The mean of four of sixteen random experts, and a logistic unit, have made "
        "binary labels (`datasets.expert_recovery`, after Appendix C.2.2). A model "
        "gets all sixteen experts, frozen, and a static gate of four has to find the "
        "four. Each seed is a problem with experts, labels and a start of its own. "
        "What the paper leaves open is varied: whether the logistic unit is the true "
        "one or learns as well, the optimizer, its rate, the batch size, where the "
        "gates' logits start, whether Top-k's are noisy in training, and DSelect-k's "
        "smooth step and entropy term."
    )

    num_train: int = 5_000
    num_test: int = 2_000
    epochs: int = 20
    units: tuple[str, ...] = ("known", "learned")
    rates: tuple[tuple[str, tuple[float, ...]], ...] = (
        ("Adam", (0.005, 0.02)),
        ("SGD", (0.1, 1.0)),
    )
    batch_sizes: tuple[int, ...] = (250, 50)
    starts: tuple[float, ...] = (0.05, 0.5, 2.0)
    dselect_k: tuple[tuple[float, float, float], ...] = (
        (1.0, 0.1, 0.01),
        (1.0, 0.1, 0.3),
        (1.0, 0.001, 0.01),
        (5.0, 0.1, 0.01),
        (5.0, 0.001, 0.01),
        (20.0, 0.1, 0.01),
    )

    @classmethod
    def presets(cls):
        smoke = cls(
            num_train=300,
            num_test=100,
            epochs=1,
            units=("known",),
            rates=(("Adam", (0.02,)),),
            batch_sizes=(100,),
            starts=(0.05,),
            dselect_k=((1.0, 0.1, 0.01),),
        )
        return {
            "smoke": smoke,
            "cpu": cls(seeds=24),
            "paper": cls(
                seeds=100,
                num_train=20_000,
                num_test=10_000,
                rates=(("Adam", (0.005, 0.1, 0.02)), ("SGD", (0.1, 0.3, 1.0, 3.0))),
            ),
        }

    @property
    def arms(self):
        (optimizer, (*_, rate)), size = self.rates[0], self.batch_sizes[0]
        arms = {
            name: Training(gate, "known", optimizer, (rate,), size, setting)
            for name, (gate, setting) in FOLLOWED.items()
        }
        for gate, unit, (optimizer, rates), size in itertools.product(
            DEFAULTS, self.units, self.rates, self.batch_sizes
        ):
            name = f"{gate}, unit {unit}, {optimizer}, batches of {size}"
            arms[name] = Training(gate, unit, optimizer, rates, size)
        return arms

    def run(self, arm, jobs):
        training = self.arms[arm]
        seeds = tuple(job.seed for job in jobs)
        problems = _problems(seeds, self.num_train, self.num_test)
        build = self._builder(problems, training)
        length = {"epochs": self.epochs, "batch_size": training.batch_size}
        if training.followed is None:
            settings = [
                {"rate": rate, **setting} for rate, setting in self._settings(training)
            ]
            return problems.search(build, settings, **length)
        model = build(training.rates[0], **training.followed)
        found = problems.follow(model, **length)
        return [_thin(each, seed) for each, seed in zip(found, seeds, strict=True)]

    def report(self, results):
        cells = self._cells(results)
        (optimizer, (*_, rate)), size = self.rates[0], self.batch_sizes[0]
        jumps = {
            gate: results.mean(name, "jump")
            for name, (gate, setting) in FOLLOWED.items()
            if setting is DEFAULTS[gate]
        }
        judged = claims(cells, ("known", optimizer, rate, size), jumps)
        pictures = [
            Picture(
                "weights",
                "Expert weights during training with a known logistic unit, on the "
                "problem of seed 0. The four experts that made the labels are "
                "coloured, the other twelve grey.",
                functools.partial(_draw_weights, results),
            ),
            Picture(
                "grid",
                "How many of the four true experts each gate finds, on average over "
                "the seeds, with every setting that was tried.",
                functools.partial(draw_grid, cells),
            ),
            Picture(
                "shares",
                "The share of the seeds that recover all four experts and use no "
                "other, with all settings of a gate, from the best to the worst.",
                functools.partial(draw_shares, cells),
            ),
        ]
        return Report(judged, [summary(cells), grid_table(cells)], pictures, NOTES)

    def _settings(self, training):
        """All pairs of a rate and a gate's setting that an arm goes through."""
        if training.gate == DSELECT_K:
            names = DEFAULTS[DSELECT_K]
            settings = [dict(zip(names, each, strict=True)) for each in self.dselect_k]
        else:
            settings = [{"start": start} for start in self.starts]
        return [(rate, each) for rate in training.rates for each in settings]

    def _builder(self, problems, training):
        """A function of a rate and a gate's setting that gives a model."""
        optimizer = getattr(keras.optimizers, training.optimizer)
        learn = training.unit == "learned"
        if training.gate == DSELECT_K:
            steps = self.epochs * -(-self.num_train // training.batch_size)
            return lambda rate, **setting: problems.dselect_k(
                optimizer(rate), steps=steps, learn_unit=learn, **setting
            )
        noise = training.gate == NOISY
        return lambda rate, **setting: problems.top_k(
            optimizer(rate), noise=noise, learn_unit=learn, **setting
        )

    def _cells(self, results):
        """What each setting of the grid has found."""
        cells = []
        for name, arm in self.arms.items():
            runs = results.of(name)
            if arm.followed is not None or not runs:
                continue
            for i, (rate, setting) in enumerate(self._settings(arm)):
                found, others = (
                    np.array([run.numbers[key][i] for run in runs])
                    for key in ("found", "others")
                )
                words = ", ".join(f"{key} {value:g}" for key, value in setting.items())
                cells.append(
                    Cell(
                        arm.gate,
                        arm.unit,
                        arm.optimizer,
                        rate,
                        arm.batch_size,
                        words,
                        found,
                        others,
                    )
                )
        return cells


_problems = functools.lru_cache(maxsize=1)(Problems)


def _thin(found, seed):
    """What is kept of a run that was followed; the trajectory of seed 0 only."""
    weights, steps = found.pop("weights"), found.pop("steps")
    found["jump"] = float(np.abs(np.diff(weights, axis=0)).max())
    if seed:
        return found
    kept = np.unique(np.linspace(0, len(steps) - 1, RECORDS).round().astype(int))
    return found | {"steps": steps[kept], "weights": np.round(weights[kept], 4)}


def _draw_weights(results):
    figure, axes = drawing.panels(
        len(FOLLOWED), 1, 1.7 * len(FOLLOWED), width=0.8, sharex=True, sharey=True
    )
    for ax, arm in zip(axes.flat, FOLLOWED, strict=True):
        numbers = results.of(arm)[0].numbers
        plot_gate_weights(
            numbers["steps"],
            numbers["weights"],
            highlight=numbers["true_experts"],
            title=f"{arm.partition(',')[0]}: {numbers['found']} of {K} found",
            ax=ax,
        )
        ax.label_outer()
    return figure
