"""Draw the settings that are tried for an arm, and choose the best ones."""

import itertools
import math
from typing import Any

import numpy as np

from common.spaces import box_around
from dselectk_keras.utils import optional_import

SAMPLERS = ("random", "grid", "gp")


def random_settings(space, count, seed=0):
    """Draw points of a grid without repetition, as a list of dicts.

    A longer search begins with the points of a shorter one, so that it can be extended.
    """
    grid = list(itertools.product(*space.values()))
    order = np.random.default_rng(seed).permutation(len(grid))
    return [dict(zip(space, grid[i], strict=True)) for i in order[:count]]


def next_settings(space, runs, seed=0):
    """Propose settings by a Gaussian process, in the box around a grid of numbers.

    Values that span more than one order of magnitude are searched on a logarithmic
    scale, and integers stay integers. Runs that are not admissible count as the worst.
    """
    optuna = optional_import(
        *("optuna", "scipy", "torch"), extra="tune", purpose='`sampler="gp"`'
    )
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    box = {name: _distribution(optuna, values) for name, values in space.items()}
    sampler = optuna.samplers.GPSampler(seed=seed + len(runs), n_startup_trials=4)
    study = optuna.create_study(sampler=sampler)
    objectives = [_number(r) if _is_admissible(r) else math.inf for r in runs]
    worst = max((value for value in objectives if math.isfinite(value)), default=0.0)
    for run, value in zip(runs, objectives, strict=True):
        study.add_trial(
            optuna.trial.create_trial(
                params=run.settings,
                distributions=box,
                value=value if math.isfinite(value) else worst,
            )
        )
    return study.ask(fixed_distributions=box).params


def best_settings(runs):
    """The settings with the lowest mean objective, and whether they are admissible.

    Settings are admissible if all their runs are. If none are, all are compared.
    """
    if not runs:
        return {}, True
    groups = {}
    for run in runs:
        groups.setdefault(repr(run.settings), []).append(run)

    def rank(group):
        mean = np.mean([_number(run) for run in group])
        admissible = all(_is_admissible(run) for run in group)
        return not (admissible and np.isfinite(mean)), mean

    best = min(groups.values(), key=rank)
    return dict(best[0].settings), not rank(best)[0]


def _is_admissible(run):
    return run.numbers.get("admissible", True)


def best_run(runs, number="objective"):
    """Find the run in which a number is lowest, the first one if tied."""
    if not runs:
        raise ValueError("`runs` must hold a run or more. Received: none.")
    return min(runs, key=lambda run: _number(run, number))


def grid_size(space):
    """The number of points of a grid."""
    return math.prod(len(values) for values in space.values())


def _number(run, name="objective"):
    value = run.numbers.get(name)
    return math.inf if value is None else float(value)


def _distribution(optuna, values) -> Any:
    """The box around numbers, or the values."""
    found = box_around(values)
    if found is None:
        return optuna.distributions.CategoricalDistribution(values)
    kind, ends = found
    if kind is int:
        return optuna.distributions.IntDistribution(**ends)
    return optuna.distributions.FloatDistribution(**ends)
