"""Figures 2, 7 and 8: which experts a gate finds, and how its weights get there."""

import dataclasses
import functools
import itertools

import numpy as np

from dselectk_keras.gates import DSelectKGate, TopKGate
from dselectk_keras.plots import plot_gate_weights
from experiments import Experiment, drawing, preset
from papers import citations
from papers.dselectk._gates import movement, within_rules
from papers.dselectk._recovery import K, Problems

TOP_K, DSELECT_K = "Top-k", "DSelect-k"
NOISY, WIDE = "noisy Top-k", "Top-k, wide start"
ARMS = {
    # arm: the model of `Problems`, and its fixed settings
    TOP_K: (Problems.top_k, {}),
    DSELECT_K: (Problems.dselect_k, {}),
    NOISY: (Problems.top_k, {"noise": True}),
    WIDE: (Problems.top_k, {"start": 2.0}),
}
FOUND = {TOP_K: 1, DSELECT_K: 4}  # The paper's true experts found.
RECORDS = 60  # So many points of a trajectory are kept.
SIZES = ((2, 8), (4, 16), (4, 32), (4, 128), (2, 1024))  # k and n.


@dataclasses.dataclass(frozen=True)
class Fig278(Experiment):
    """Recovery of four experts among sixteen, tuned for each problem."""

    name = "dselectk-fig2-7-8"
    title = "expert weights during training, and which experts a gate finds"
    paper = citations.DSELECT_K
    where = "Figures 2, 7 and 8"

    seeds: int = preset(10, paper=100, smoke=1)
    num_train: int = preset(10_000, smoke=300)  # Of a problem.
    num_validation: int = preset(10_000, smoke=100)
    epochs: int = preset(50, smoke=1)
    batch_size: int = preset(256, smoke=100)
    learning_rates: tuple[float, ...] = preset(
        (1e-1, 1e-2, 1e-3, 1e-4, 1e-5), smoke=(0.01,)
    )
    gammas: tuple[float, ...] = preset((5.0, 10.0, 15.0), smoke=(5.0,))
    entropies: tuple[float, ...] = preset((0.001, 0.005, 0.01, 0.1), smoke=(0.1,))

    @property
    def arms(self):
        return ARMS

    def run(self, arm, jobs):
        make, fixed = self.arms[arm]
        length = {"epochs": self.epochs, "batch_size": self.batch_size}
        seeds = [job.seed for job in jobs]
        problems = self._problems(seeds)
        settings = self.settings(arm)
        build = functools.partial(make, problems, **fixed)
        tried = problems.search(build, settings, **length)
        best = [each.index(min(each, key=_rank)) for each in tried]
        found = [{}] * len(jobs)
        for number in sorted(set(best)):  # Those that take it are followed together.
            own = [i for i, each in enumerate(best) if each == number]
            several = self._problems([seeds[i] for i in own])
            model = make(several, **settings[number], **fixed)
            followed = several.follow(model, **length)
            for i, each in zip(own, followed, strict=True):
                found[i] = _thin(each, seeds[i]) | {
                    "setting": words(settings[number]),
                    "tried": [one["found"] for one in tried[i]],
                }
        return found

    def _problems(self, seeds):
        return Problems(seeds, self.num_train, self.num_validation)

    def settings(self, arm):
        """All settings of an arm: the grid."""
        grid = {"learning_rate": self.learning_rates}
        if arm == DSELECT_K:
            grid |= {"gamma": self.gammas, "entropy": self.entropies}
        every = itertools.product(*grid.values())
        return [dict(zip(grid, values, strict=True)) for values in every]

    def draw_weights(self, results):
        arms, shared = (TOP_K, DSELECT_K, WIDE), {"sharex": True, "sharey": True}
        figure, axes = drawing.panels(len(arms), 1, 1.7 * len(arms), 0.8, **shared)
        for ax, arm in zip(axes.flat, arms, strict=True):
            numbers = results.of(arm)[0].numbers
            look = {"title": f"{arm}: {numbers['found']} of {K} found", "ax": ax}
            look["highlight"] = numbers["true_experts"]
            plot_gate_weights(numbers["steps"], numbers["weights"], **look)
            ax.label_outer()
        return figure


def all_four(results, arm):
    """For each problem, whether all four experts are found and no other is used."""
    found, others = (results.values(arm, name) for name in ("found", "others"))
    return (found == K) & (others == 0)


def recovery(results, arm):
    """What an arm has found, as text."""
    every = all_four(results, arm)
    return (
        f"{results.text(arm, 'found', 2)} of {K} on average over {len(every)} "
        f"problems; all four, and no other, in {every.mean():.0%}."
    )


def kept(results):
    """In how many problems DSelect-k's gate is binary, as text."""
    binary = within_rules(results, DSELECT_K)
    return f"S(Z) is binary on {binary.sum()} of {len(binary)} problems."


def taken(results, arm, setting):
    """How many problems take a setting."""
    return [r.numbers["setting"] for r in results.of(arm)].count(words(setting))


def parameters(k, n):
    """The parameters of a static DSelect-k gate and of a static Top-k gate."""
    counts = []
    for gate in (DSelectKGate(k), TopKGate(k)):
        gate.build((None, n))
        counts.append(sum(int(np.prod(v.shape)) for v in gate.trainable_variables))
    return tuple(counts)


def are_counted():
    """Whether the formulas hold, and DSelect-k has fewer for the largest size."""
    counts = [parameters(k, n) for k, n in SIZES]
    formulas = [(k + k * (n - 1).bit_length(), n) for k, n in SIZES]
    return counts == formulas and counts[-1][0] < counts[-1][1]


def words(setting):
    """A setting, as text."""
    return ", ".join(f"{name} {value:g}" for name, value in setting.items())


def _rank(found):
    """First the lowest validation loss, if possible of an admissible run."""
    return not found["admissible"], np.nan_to_num(found["loss"], nan=np.inf)


def _thin(found, seed):
    """What is kept of a run that was followed; the trajectory of seed 0 only."""
    weights, steps = found.pop("weights"), found.pop("steps")
    found |= movement(weights[:, None])
    if seed:
        return found
    kept = np.unique(np.linspace(0, len(steps) - 1, RECORDS).round().astype(int))
    return found | {"steps": steps[kept], "weights": np.round(weights[kept], 4)}
