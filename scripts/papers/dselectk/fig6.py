"""Figure 6: expert weights during training on MovieLens."""

import dataclasses

import keras
import numpy as np

from dselectk_keras.callbacks import GateRecorder
from dselectk_keras.experiments.compare import difference, is_positive
from dselectk_keras.experiments.report import Claim, Picture, Report, Table
from dselectk_keras.metrics import active_experts
from dselectk_keras.plots import plot_gate_weights
from dselectk_keras.training import Batches
from papers import citations
from papers.dselectk._gates import METHODS, Method
from papers.dselectk._movielens import CPU, SMOKE, MovieLensExperiment, measure

TASKS = ("watched", "rating")


@dataclasses.dataclass(frozen=True)
class Fig6(MovieLensExperiment):
    """Static gates of DSelect-k and Top-k, looked at after every training step.

    Args:
        alpha: Weight of the task `watched`.
        learning_rate: Of Adam, for both gates.
        entropy: Final entropy weight of DSelect-k.
        points: How many records of each run are kept to be drawn.
    """

    name = "dselectk-fig6"
    title = "expert weights during training on MovieLens"
    paper = citations.DSELECT_K
    where = "Figure 6"
    about = (
        "The model and the data of [Table 1](dselectk-table1-5.md), with static gates. "
        "The weights of each task's gate over the 8 experts are recorded after every "
        "step. A *swap* is a step after which a task's k = 2 largest weights are on "
        "other experts than before; a *jump* is the largest change of one weight in "
        "one step."
    )

    alpha: float = 0.5
    learning_rate: float = 0.003
    entropy: float = 0.1
    points: int = 80

    @classmethod
    def presets(cls):
        return {
            "smoke": cls(
                **SMOKE,
                points=3,
            ),
            "cpu": cls(
                seeds=5,
                **CPU,
            ),
            "paper": cls(seeds=100),
        }

    @property
    def arms(self):
        arms = {name: METHODS[f"{name}, static"] for name in ("DSelect-k", "Top-k")}
        return arms | {name: Method(make) for name, make in self.gates.items()}

    def run(self, arm, jobs):
        data = self.data()
        return [self._run(self.arms[arm], data, job.seed) for job in jobs]

    def _run(self, method, data, seed):
        keras.utils.set_random_seed(seed)
        own = {"entropy": self.entropy} if method.gate == "dselect_k" else {}
        model = self.model(data, method, self.alpha, self.learning_rate, **own)
        recorder = GateRecorder(every=1)
        model.fit(
            Batches(data.train, self.batch_size, seed),
            epochs=self.epochs,
            shuffle=False,
            callbacks=[recorder],
            verbose=0,
        )
        history = recorder.history
        weights = history["mmoe"]["weights"]
        kept = np.linspace(0, len(weights) - 1, min(self.points, len(weights)))
        kept = kept.round().astype(int)
        return {
            "loss": measure(model, data.test, self.alpha)["loss"],
            **movement(weights, self.num_nonzeros),
            "steps": history.steps[kept],
            "weights": weights[kept].astype("float64").round(4),
        }

    def report(self, results):
        jumps = {arm: results.text(arm, "jump") for arm in self.arms}
        smooth = Claim(
            "Top-k's weights jump when its choice changes; those of DSelect-k change "
            "smoothly.",
            f"The largest change of a weight in one step: {jumps['DSelect-k']} with "
            f"DSelect-k, {jumps['Top-k']} with Top-k.",
            is_positive(*difference(results, "jump", "Top-k", "DSelect-k")),
        )
        experts = results.values("DSelect-k", "experts")
        sparse = Claim(
            "DSelect-k begins with all experts and ends with at most k for each task.",
            f"It ends with {results.text('DSelect-k', 'experts')} on average; with no "
            f"more than {self.num_nonzeros} in "
            f"{int((experts <= self.num_nonzeros).sum())} of {len(experts)} runs.",
            bool((experts <= self.num_nonzeros).all()) if len(experts) else None,
        )
        rows = [
            [arm]
            + [results.text(arm, name) for name in ("jump", "swaps", "last_swap")]
            + [results.text(arm, "experts"), results.text(arm, "loss", digits=4)]
            for arm in self.arms
        ]
        columns = ["gate", "largest jump", "swaps", "last swap", "experts", "test loss"]
        table = Table(
            "How the weights move",
            columns,
            rows,
            "Means over the two tasks, except for the largest jump. The last swap is a "
            "fraction of the run. A swap of DSelect-k is not a jump: early on all "
            "experts have weights that are nearly equal. We know of no numbers in the "
            "paper for this.",
        )
        pictures = [
            Picture(arm.lower(), self._caption(arm), _drawing(results, arm))
            for arm in self.arms
        ]
        return Report([smooth, sparse], [table], pictures, self._notes())

    def _caption(self, arm):
        return (
            f"{arm}, static gates: expert weights of the two tasks during training, "
            "seed 0. Grey are experts that have no weight, or little, at the end."
        )

    def _notes(self):
        figure = (
            "**What the paper's figure shows exactly could not be checked** when this "
            "was written. It is one of its figures of expert weights during training; "
            "this one is made for MovieLens, with static gates."
        )
        settings = (
            f"Both gates have a learning rate of {self.learning_rate}, and nothing is "
            "tuned here. Seed 0 is drawn because it is the first; the table is over "
            f"all seeds. The pictures have {self.points} of all steps; swaps and jumps "
            "are counted on every step."
        )
        return [figure, settings]


def movement(weights, num_nonzeros):
    """How the weights of gates moved over training.

    Args:
        weights: Array `(records, tasks, n)`.
        num_nonzeros: How many of the largest weights are a gate's choice.

    Returns:
        A dict: `"jump"`, the largest change of a weight between two records;
        `"swaps"`, how often the choice changes, and `"last_swap"`, at what fraction of
        the run it does so for the last time, as means over the tasks; and
        `"experts"`, which have a weight at the end, as a mean as well.
    """
    chosen = np.argsort(-weights, axis=-1, kind="stable")[..., :num_nonzeros]
    chosen = np.sort(chosen, axis=-1)
    swapped = (chosen[1:] != chosen[:-1]).any(axis=-1)
    places = np.arange(1, len(weights))[:, None]
    return {
        "jump": float(np.abs(np.diff(weights, axis=0)).max()),
        "swaps": float(swapped.sum(axis=0).mean()),
        "last_swap": float((swapped * places).max(axis=0).mean() / (len(weights) - 1)),
        "experts": float(active_experts(weights[-1]).mean()),
    }


def _drawing(results, arm):
    def draw():
        numbers = results.of(arm)[0].numbers
        return plot_gate_weights(
            np.array(numbers["steps"]),
            np.array(numbers["weights"]),
            task_names=TASKS,
        )

    return draw
