"""Remedies for the collapse of the gates of a mixture of experts."""

import dataclasses
import math
from typing import Any

import keras
import numpy as np

import dselectk_keras as dk
from dselectk_keras.datasets import Dataset, Split
from dselectk_keras.plots import plot_gate_weights
from research.engine import Arm, Experiment, by_group, drawing, preset, train_jobs
from research.engine.experiment import TRIAL_SEED
from research.engine.train_jobs import gate_history

KINDS, TASKS, FEATURES, EXPERTS, OFFSET = 8, 4, 16, 8, 5.0
RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
WEIGHTS = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0)  # Of a penalty, relative to the loss.
BY_STEPS = (0.0, 0.0001, 0.001, 0.01, 0.1, 1.0)
TUNING_PROBLEM, SEEDS = 100, 3  # The seeds of each problem that is reported.
# An expert has died if it has less than this part of an even share.
DEAD = 0.1
DRAWN = "Top-2", "Top-2, standardized inputs"


def _arm(gate, strengths=(None,), per_example=True, standardize=False, **options):
    """A model with a gate of each strength, at all learning rates."""
    space = {"strength": strengths, "rate": RATES}
    more = {"standardize": standardize}
    return Arm(gate, per_example=per_example, space=space, more=more, **options)


def _top_2(_):
    return dk.TopKGate(2)


def _with_importance(strength):
    return dk.TopKGate(2, weights_regularizer=dk.ImportanceRegularizer(strength))


def _with_load(strength):
    return dk.TopKGate(2, weights_regularizer=dk.SwitchLoadRegularizer(strength))


BOTTOM: dict[str, Any] = {"architecture": "shared_bottom", "per_example": False}
MODELS = {
    "Top-2": _arm(_top_2),
    "Top-2, expert dropout": _arm(
        lambda strength: dk.TopKGate(2, expert_dropout=strength),
        (0.0, 0.003, 0.01, 0.03, 0.1, 0.3),
    ),
    "Top-2, importance": _arm(_with_importance, WEIGHTS),
    "Top-2, Switch's load": _arm(_with_load, WEIGHTS),
    "Top-2, bias of the choice": _arm(
        lambda strength: dk.TopKGate(2, scores="sigmoid", bias_rate=strength), BY_STEPS
    ),
    "Top-2, normalized gate": _arm(lambda _: dk.TopKGate(2, normalize=True)),
    "Top-2, standardized inputs": _arm(_top_2, standardize=True),
    "Top-2, standardized inputs, importance": _arm(
        _with_importance, WEIGHTS, standardize=True
    ),
    "softmax": _arm(lambda _: dk.SoftmaxGate()),
    "softmax, standardized inputs": _arm(lambda _: dk.SoftmaxGate(), standardize=True),
    "DSelect-2, entropy": _arm(
        lambda strength: dk.DSelectKGate(2, entropy_reg=strength, reduction="mean"),
        BY_STEPS,
    ),
    "chosen by fit, 2, static": _arm(
        lambda _: dk.ChosenGate(2, seed=0), per_example=False, choose=True
    ),
    "shared bottom": _arm(None, **BOTTOM),
    "shared bottom, standardized inputs": _arm(None, standardize=True, **BOTTOM),
}


@dataclasses.dataclass(frozen=True)
class Collapse(Experiment):
    """Models are trained on examples of eight kinds, whose columns are not centred.

    As in ages and counts, the mean of a column is five times its deviation within a
    kind. All models try the same learning rates, those that add something with each of
    its strengths, of which one is zero. The settings with the lowest validation error
    on one problem, of two seeds, are trained on others, with three seeds each.
    """

    name = "collapse"
    title = "dead experts, and what helps"
    pictures = ("gates.svg",)
    together = 108  # All trials of an arm are copies of one model.
    page = """\
{table_errors}

Means and standard deviations of two problems with three seeds each; \
`python scripts/reproduce.py collapse --backend jax`, {machines}."""

    seeds: int = preset(6, smoke=1)
    trial_runs: int = preset(2, smoke=1)
    sampler: str = "grid"
    num_train: int = preset(3_000, smoke=64)
    num_validation: int = preset(1_000, smoke=64)
    num_test: int = preset(4_000, smoke=64)
    epochs: int = preset(20, smoke=1)
    batch_size: int = 128

    @property
    def arms(self):
        """The models, by name."""
        return MODELS

    def run(self, arm, jobs):
        """Train the jobs of a problem together."""

        def train(problem, same):
            return self._run(self.arms[arm], problem, same, arm in DRAWN)

        return by_group(jobs, problem_of, train)

    def _run(self, arm, problem, jobs, drawn):
        data = self.make_problem(problem)
        recorders = []
        if drawn and jobs[0].seed == 0:
            probe, options = data.test.x[:500], {"every": 1, "unit": "epochs"}
            recorders = [lambda: dk.GateRecorder(probe=probe, **options)]
        runs = train_jobs(
            lambda _, strength, rate: build(arm, data, strength, rate),
            data,
            [job._replace(seed=seed_of(job)) for job in jobs],
            choose=arm.choose,
            callbacks=recorders,
            epochs=self.epochs,
            batch_size=self.batch_size,
        )
        found, models = [], {}
        for job, copy in zip(jobs, runs.copies, strict=True):
            # One model predicts for each strength: it is compiled once.
            model = models.setdefault(copy.settings["strength"], copy.model)
            model.set_weights(copy.model.get_weights())
            numbers: dict[str, Any] = {"objective": error(model, data.validation)}
            if not job.is_trial:
                numbers["test_error"] = error(model, data.test)
                numbers |= measure_gates(arm, model, data)
            if recorders and job.seed == 0:
                # Of one task, after each epoch.
                weights = gate_history(copy)["mmoe"]["weights"][:, 0]
                numbers["weights"] = weights.astype("float64").round(4)
            found.append(numbers)
        return found

    def make_problem(self, seed):
        """Draw a `Dataset`: each kind of example has a function per task."""
        rng = np.random.default_rng(seed)
        centers = 2.0 * rng.normal(size=(KINDS, FEATURES))
        maps = rng.normal(size=(KINDS, TASKS, FEATURES)) * 1.5 / FEATURES**0.5
        splits = []
        for size in (self.num_train, self.num_validation, self.num_test):
            kinds = rng.integers(KINDS, size=size)
            within = rng.normal(size=(size, FEATURES))
            y = np.sin(np.einsum("bd,btd->bt", within, maps[kinds]))
            x = centers[kinds] + within + OFFSET
            splits.append(Split(x.astype("float32"), (y / y.std()).astype("float32")))
        names = tuple(f"task_{task}" for task in range(TASKS))
        train, validation, test = splits
        return Dataset(train, validation, test, names, ("regression",) * TASKS)

    def table_errors(self, results):
        """Dead experts and errors of each model."""
        rows: list[Any] = [
            "model | dead experts per task: | largest share: | test error:"
        ]
        for arm, model in self.arms.items():
            cells = [arm, "", "", results.spread(arm, "test_error")]
            if model.gate:
                dead, share = (
                    results.mean(arm, name)
                    for name in ("dead_experts", "largest_share")
                )
                cells[1:3] = f"{dead:.1f} of {EXPERTS}", f"{share:.2f}"
            rows.append(cells)
        return rows

    def draw_gates(self, results):
        """The gates of one task with the inputs as they are, and standardized."""
        figure, axes = drawing.panels(1, 2, 2.5, width=1.3, sharey=True)
        for ax, arm in zip(axes[0], DRAWN, strict=True):
            weights = np.array(results.ran(arm)[0].numbers["weights"])
            order = np.argsort(-weights[-1])
            look: Any = {"highlight": order[:4], "title": arm, "ax": ax}
            steps = math.ceil(self.num_train / self.batch_size)
            plot_gate_weights(steps * np.arange(len(weights)), weights, **look)
        # Names of elements that are the same each time.
        drawing.import_pyplot().rcParams["svg.hashsalt"] = "collapse"
        return figure


def problem_of(job):
    """The seed of the problem of a job."""
    return TUNING_PROBLEM if job.is_trial else job.seed // SEEDS


def seed_of(job):
    """The seed of the initial weights of a job, and of its order of examples."""
    return job.seed - TRIAL_SEED if job.is_trial else job.seed % SEEDS


def build(arm, data, strength, rate):
    """Build a compiled model."""
    inputs = FEATURES
    if arm.more["standardize"]:
        scale = keras.layers.Normalization()
        scale.adapt(data.train.x)
        raw = keras.Input((FEATURES,))
        inputs = keras.Model(raw, scale(raw))
    number, units = (EXPERTS, 8) if arm.gate else (1, 8 * EXPERTS)
    model = dk.build_multitask_model(
        inputs,
        data.task_names,
        arm.architecture,
        experts=dk.DenseExperts(number, [units]),
        gate=arm.gate and arm.gate(strength),
        per_example=arm.per_example,
        stacked=True,
    )
    model.compile(keras.optimizers.Adam(rate))
    return model


def error(model, split):
    """The mean squared error over examples and tasks."""
    predicted = model.predict(split.x, batch_size=1_000, verbose=0)
    return float(np.mean((predicted - split.y) ** 2))


def measure_gates(arm, model, data):
    """The number of dead experts per task, and the largest share of one."""
    if not arm.gate:
        return {}
    gate, shown = model.get_layer("mmoe").gate, data.test.x
    if arm.more["standardize"]:
        shown = (shown - data.train.x.mean(0)) / data.train.x.std(0)
    weights = gate.expert_weights(*[shown] * gate.per_example)
    weights = keras.ops.convert_to_numpy(weights)
    shares = weights.mean(axis=0) if gate.per_example else weights
    dead = (shares < DEAD / EXPERTS).sum(axis=-1)
    return {
        "dead_experts": float(dead.mean()),
        "largest_share": float(shares.max(axis=-1).mean()),
    }
