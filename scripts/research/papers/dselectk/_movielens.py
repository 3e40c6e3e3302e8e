"""Data, model and measures of the experiments on MovieLens."""

import dataclasses
import functools
import math
from typing import Any

import keras
import numpy as np

import dselectk_keras as dk
from common.training_run import encode_inputs, make_tasks
from dselectk_keras.tables.scores import area_under_curve
from research.engine import Experiment, preset, settings
from research.engine.retrained import Retrained
from research.papers import citations
from research.papers.data import movielens
from research.papers.data.changes import changed
from research.papers.data.movielens import pairs_of_noise
from research.papers.dselectk import _gates
from research.papers.dselectk._gates import METHODS, STARTS, STATIC, TOP_K

SHAPES = ("num_nonzeros", "epochs", "units")  # Settings that need a model each.


@dataclasses.dataclass(frozen=True)
class MovieLensExperiment(Experiment):
    r"""Gates on MovieLens: is a film watched, and how is it rated?

    The paper's loss is $\alpha L_1 + (1 - \alpha) L_2$, with the cross-entropy $L_1$
    of `watched` and the squared error $L_2$ of `rating`, over the films that have one.
    Tables 1, 4 and 5 and Figure 6 show the same runs.
    """

    paper = citations.DSELECT_K
    shown_runs = "dselectk-table1-5"
    needs = ("MovieLens", 4)
    all_train = 1_600_000  # The pairs of the paper, where `num_train` is `None`.

    seeds: int = preset(16, paper=100, smoke=1)
    trials: int = preset(0, paper=30, smoke=1)
    sampler: str = preset("grid", paper="random", smoke="random")
    stand_in: bool = preset(False, smoke=True)
    version: str = preset("latest-small", paper="1m", smoke="1m")
    # Pairs of a user and a film; `None` is all, and a tenth each to evaluate.
    num_train: int | None = preset(40_000, paper=None, smoke=None)
    num_evaluated: int | None = preset(5_000, paper=None, smoke=None)
    alphas: tuple[float, ...] = preset((0.1, 0.5, 0.9), smoke=(0.5,))  # Of `watched`.
    embedding: int = preset(8, paper=64, smoke=2)
    num_experts: int = 8
    units: int = preset(64, paper=256, smoke=4)  # Of an expert.
    tower: int = preset(64, paper=256, smoke=4)  # Units of a task's hidden layer.
    dropout: float = 0.5  # Of the experts' outputs.
    batch_size: int = preset(128, smoke=32)
    # The rest is tuned.
    learning_rates: tuple[float, ...] = (0.001, 0.01, 0.1, 0.2, 0.3)  # Of Adagrad.
    epochs: tuple[int, ...] = preset((3,), paper=(5, 10, 20, 30, 40, 50), smoke=(1,))
    num_nonzeros: tuple[int, ...] = (2, 4)  # k.
    entropies: tuple[float, ...] = (0.1, 1.0, 10.0)
    gammas: tuple[float, ...] = (1.0, 10.0)
    sparsities: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
    # A quarter of the paper's, as the experts' width is.
    bottoms: tuple[int, ...] = preset(
        (8, 64, 512, 1024, 2048), paper=(32, 256, 2048, 4096, 8192), smoke=(4,)
    )

    methods: tuple[str, ...] = preset(
        tuple(METHODS),
        smoke=(STATIC, *STARTS, "DSelect-k, per-example", "shared bottom"),
    )
    points: int = preset(80, smoke=3)  # Records of the first seed that are kept.

    @property
    def compared(self):
        return {name: METHODS[name] for name in self.methods}

    @property
    def arms(self):
        return {
            name_arm(name, alpha): (method, alpha)
            for alpha in self.alphas
            for name, method in self.compared.items()
        }

    def full_space(self, method):
        """All settings of a method, also those with one value."""
        space = _gates.search_space(self, method)
        return space if method.gate else space | {"units": self.bottoms}

    def space(self, arm):
        method, _ = self.arms[arm]
        return _gates.choices(self.full_space(method))

    @functools.cached_property
    def _data(self):
        """The data: the same for all runs, with ratings whose mean is taken off."""
        if self.stand_in:
            data = pairs_of_noise()
        else:
            sizes = self.num_train, self.num_evaluated, self.num_evaluated
            data = movielens(self.version, *sizes, data_dir=self.data_dir)
        mean = np.array([0.0, np.nanmean(data.train.y[:, 1])], "float32")
        return changed(data, lambda part: part._replace(y=part.y - mean))

    @functools.cached_property
    def _models(self):
        """A `Retrained` by method and shape."""
        return {}

    def run(self, arm, jobs):
        method, alpha = self.arms[arm]
        space = self.full_space(method)
        divided = [_gates.divided(job, space, SHAPES) for job in jobs]
        return [self._run(method, alpha, *each) for each in divided]

    def _run(self, method, alpha, shape, job):
        build = functools.partial(self._build, method, shape)
        new, data = Retrained(build, self.batch_size), self._data
        recorder = dk.GateRecorder(every=1)
        recorded = _gates.is_followed(method) and not job.is_trial
        model = self._models.setdefault((method, *shape.items()), new).train(
            data.train,
            job.seed,
            shape["epochs"],
            callbacks=[recorder] if recorded else [],
            alpha=alpha,
            **job.settings,
        )
        validation = measure(model, data.validation, alpha)
        found = measure(model, data.test, alpha)
        found["objective"] = validation["loss"]
        found["admissible"] = _gates.is_admissible(validation, method, shape)
        if recorded:
            record, steps = recorder.history["mmoe"], recorder.history.steps
            weights = record["weights"]
            found |= _gates.cost(weights, record.get("binary"))
            found |= _gates.movement(steps, weights, job.seed, self.points)
        return found

    def _build(self, method, shape, alpha, learning_rate, **settings):
        """A compiled model whose settings are variables, except those of its shape."""
        data, numbers = self._data, Settings(alpha=alpha, **settings)
        features = encode_inputs(data, width=self.embedding)
        scheduled: dict[str, Any] = {n: numbers.schedule(n) for n in settings}
        k = shape.get("num_nonzeros")
        gate = _gates.new_gate(method.gate, k, **scheduled)
        hidden = keras.layers.Dense(shape.get("units", self.units), "relu")
        expert = keras.Sequential([hidden, keras.layers.Dropout(self.dropout)])
        model = dk.build_multitask_model(
            features,
            make_tasks(data, (self.tower,)),
            "mmoe" if method.gate else "shared_bottom",
            experts=dk.Experts(expert, self.num_experts if method.gate else 1),
            gate=gate,
            per_example=method.per_example,
            label_average="labels",
            task_weighting=numbers,
        )
        model.compile(keras.optimizers.Adagrad(learning_rate))
        return model

    @property
    def num_steps(self):
        """The training steps of a run."""
        examples = self.num_train or self.all_train
        return self.epochs[0] * math.ceil(examples / self.batch_size)

    def followed(self, alpha, start=TOP_K):
        """The arms of static DSelect-k and static Top-k, of one start."""
        return name_arm(STATIC, alpha), name_arm(start, alpha)

    def kept(self, results):
        """For each reported run of static DSelect-k, whether it has decided."""
        arms = (self.followed(alpha)[0] for alpha in self.alphas)
        return _gates.within_rules(results, *arms)

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "binary_at_end": lambda r: (
                f"{self.kept(r).sum()} of the {len(self.kept(r))}"
            )
        }


class Settings(settings.Settings):
    """Settings, of which alpha weights the two tasks, by alpha and 1 - alpha."""

    def weights_of_losses(self):
        alpha = 1.0 * self.numbers["alpha"]
        return keras.ops.stack([alpha, 1.0 - alpha])

    def penalty(self, losses, shares):
        return 0.0 * losses


def name_arm(gate, alpha):
    """The name of an arm."""
    return f"{gate}, alpha {alpha}"


def measure(model, split, alpha):
    """The losses and metrics of the tasks, and what `look_at` has seen of the gates."""
    found, gates = _gates.look_at(model, split.x)
    watched, rating = (found[name][:, 0] for name in ("watched", "rating"))
    truth = split.y[:, 0] == 1
    probability = watched.astype("float64").clip(1e-7, 1 - 1e-7)
    entropy = -np.log(np.where(truth, probability, 1 - probability)).mean()
    error = float(np.nanmean((rating - split.y[:, 1]) ** 2))  # NaN: without a rating.
    return gates | {
        "loss": float(alpha * entropy + (1 - alpha) * error),
        "watched_loss": float(entropy),
        "watched_auc": area_under_curve(truth, watched),
        "watched_accuracy": float(np.mean((watched > 0.5) == truth)),
        "rating_mse": error,
    }
