"""The comparison: every gate on every problem, tuned on the same budget."""

import dataclasses
import math
from typing import Any

import keras
import numpy as np

from dselectk_keras.datasets import Split
from dselectk_keras.experts import DenseExperts
from dselectk_keras.models import build_multitask_model
from dselectk_keras.schedules import Ramp
from experiments import (
    Experiment,
    best_epoch,
    gate_history,
    stand_in,
    train_jobs,
)
from experiments.pages import table
from experiments.training_run import encode_inputs, make_tasks
from gate_comparison.drawing import draw_ranks
from gate_comparison.gates import METHODS
from gate_comparison.problems import EMBEDDING, PROBLEMS
from gate_comparison.ranks import critical_difference, mean_ranks
from gate_comparison.rewarded import RewardedModel

RATES = (0.001, 0.003, 0.01, 0.03)
UNTUNED_RATE = 0.01
RECIPE, UNTUNED = "DSelect-k, recipe", "DSelect-k, untuned recipe"

QUESTIONS = (
    ("Does a learned choice beat a fixed random one?", RECIPE, "random, fixed"),
    (
        "Is DSelect-k better than a Top-k gate that is dense first?",
        RECIPE,
        "Top-k, dense first",
    ),
    (
        "Is a per-example choice better than a static one?",
        "DSelect-k, per-example recipe",
        RECIPE,
    ),
    ("What does the recipe lose without tuning?", UNTUNED, RECIPE),
    ("What does sparsity cost?", RECIPE, "softmax, static"),
    ("Which sparse gate is better?", RECIPE, "Top-k, noisy"),
)


@dataclasses.dataclass(frozen=True)
class GateComparison(Experiment):
    """Gates that select experts, on synthetic and real problems.

    Args:
        problems: Names in `PROBLEMS`.
        methods: Names in `METHODS`.
        num_train: The largest number of training examples.
        batch_size: Examples in a step.
        epoch_factor: What the problems' numbers of epochs are multiplied with.
        draws: How often the data are drawn or split; the seeds take turns.
    """

    name = "gatebench"
    title = "What is a learned choice of experts worth?"

    problems: tuple[str, ...] = tuple(PROBLEMS)
    methods: tuple[str, ...] = tuple(METHODS)
    num_train: int = 8_000
    batch_size: int = 128
    epoch_factor: float = 1.0
    draws: int = 2

    @classmethod
    def presets(cls):
        """From seconds to a day of two cores."""
        return {
            "smoke": cls(
                problems=("C.1, 16 tasks", "enb"),
                methods=(UNTUNED, RECIPE, "Top-k", "random, fixed", "single task"),
                trials=1,
                num_train=128,
                epoch_factor=0.02,
                stand_in=True,
            ),
            "small": cls(
                problems=(
                    "C.1, 16 tasks",
                    "C.1, 32 tasks",
                    "correlated tasks, p = 0.5",
                    "correlated tasks, p = 0.9",
                    "adult",
                    "MovieLens",
                    "enb",
                    "slump",
                    "sf1",
                    "sf2",
                ),
                seeds=10,
                trials=3,
                num_train=4_000,
                epoch_factor=0.5,
            ),
            "cpu": cls(seeds=10, trials=6),
            "gpu": cls(seeds=30, trials=12, num_train=40_000, draws=5),
        }

    @property
    def arms(self):
        """Each method on each problem."""
        return {
            name_arm(problem, method): (problem, method)
            for problem in self.problems
            for method in self.methods
        }

    def space(self, arm):
        """The learning rate, and what the method has."""
        method = METHODS[self.arms[arm][1]]
        return {"learning_rate": RATES, **method.space} if method.tuned else {}

    def run(self, arm, jobs):
        """Train the jobs of a problem and a method: those on the same data together."""
        by_draw = {}
        for job in jobs:
            draw = 0 if job.is_trial else job.seed % self.draws
            by_draw.setdefault(draw, []).append(job)
        found = {
            id(job): numbers
            for draw, same in by_draw.items()
            for job, numbers in zip(
                same, self._run(*self.arms[arm], same, draw), strict=True
            )
        }
        return [found[id(job)] for job in jobs]

    def _run(self, problem, method, jobs, seed):
        problem, method = PROBLEMS[problem], METHODS[method]
        data: Any = standardized(self._data(problem, seed))
        epochs = max(2, round(problem.epochs * self.epoch_factor))
        steps = epochs * -(-len(data.train.x) // self.batch_size)

        def build(seed, learning_rate=UNTUNED_RATE, **settings):  # noqa: ARG001
            model = build_multitask_model(
                encode_inputs(data, width=EMBEDDING),
                make_tasks(data),
                method.architecture,
                experts=DenseExperts(problem.num_experts, [problem.units]),
                gate=method.make(problem.num_nonzeros, steps, **settings)
                if method.make
                else None,
                per_example=method.per_example,
            )
            if method.rewarded:
                model = RewardedModel(model.input, model.output, tasks=model.tasks)
            # Constant until the gates decide, and falling in the last fifth.
            rate = Ramp(
                learning_rate, learning_rate / 100, begin=0.8, end=1.0, num_steps=steps
            )
            model.compile(keras.optimizers.Adam(rate))
            return model

        runs = train_jobs(
            build,
            data,
            jobs,
            record=method.make is not None,
            decide=method.decides,
            best={
                "monitor": "val_task_loss",
                "start_from_epoch": min(round(method.settled * epochs), epochs - 1),
            },
            epochs=epochs,
            batch_size=self.batch_size,
        )
        recorded = method.make is not None
        return [self._measure(copy, recorded, problem, data) for copy in runs.copies]

    def _measure(self, copy, recorded, problem, data):
        model = copy.model
        found = {
            "objective": loss_of(model, data.validation, data),
            "loss": loss_of(model, data.test, data),
        }
        if not recorded:
            return found | {"operations": count_operations(model)}
        record = gate_history(copy)["mmoe"]
        best = best_epoch(copy) + 1  # The first row is the start.
        active = record["active"][best]
        decided = "binary" not in record or record["binary"][best].min() == 1.0
        evaluated = count_experts(model, data.test)
        return found | {
            "experts": float(active.mean()),
            "evaluated": evaluated,
            "operations": count_operations(model, evaluated / problem.num_experts),
            "sparse": bool(decided and active.max() <= problem.num_nonzeros + 1e-6),
        }

    def _data(self, problem, seed):
        if self.stand_in and problem.real:
            return stand_in((6,), {"a": "regression", "b": "binary"}, seed=seed)
        return problem.load(self.num_train, seed, self.data_dir or ".")

    def ranks(self, results):
        """The mean ranks of the methods over the problems, from the best."""
        losses = [
            [self._loss(results, name_arm(p, m)) for m in self.methods]
            for p in self.problems
        ]
        ranks = zip(self.methods, mean_ranks(np.array(losses)), strict=True)
        return sorted(ranks, key=lambda pair: pair[1])

    @property
    def critical(self):
        """The critical difference of two mean ranks."""
        return critical_difference(len(self.methods), len(self.problems))

    def draw_ranks(self, results):
        """The mean ranks, with the critical difference."""
        methods, ranks = zip(*self.ranks(results), strict=True)
        return draw_ranks(methods, np.array(ranks), self.critical)

    def _loss(self, results, arm):
        """The mean test loss of a method; infinite if one of its runs failed."""
        losses = results.values(arm, "loss")
        return math.inf if np.isnan(losses).any() else float(losses.mean())

    def _text(self, results, arm):
        failed = int(np.isnan(results.values(arm, "loss")).sum())
        text = results.text(arm, "loss")
        return f"{text} ({failed} failed)" if failed else text

    def tables(self, results):
        """A section with a table for each problem."""
        columns = "test loss", "experts per task", "experts per example"
        columns = ["method", *columns, "thousand operations", "seconds"]
        return "\n\n".join(
            f"## {problem}\n\n{table(columns, self._rows(results, problem))}"
            for problem in self.problems
        )

    def _rows(self, results, problem):
        rows = []
        for method in self.methods:
            arm = name_arm(problem, method)
            runs, gated = results.of(arm), METHODS[method].make
            numbers = ("experts", "evaluated")
            rows.append(
                [
                    method,
                    self._text(results, arm),
                    *(results.text(arm, name) if gated else "" for name in numbers),
                    f"{results.mean(arm, 'operations') / 1000:.1f}",
                    f"{np.mean([run.seconds for run in runs]):.1f}" if runs else "",
                ]
            )
        return rows

    def sparse(self, results, method):
        """The share of a method's runs whose gates are sparse, as text."""
        if METHODS[method].make is None:
            return ""
        found = [
            run.numbers["sparse"]
            for problem in self.problems
            for run in results.of(name_arm(problem, method))
        ]
        return f"{np.mean(found):.0%}" if found else ""

    def questions(self):
        """What is asked of two methods that are compared."""
        compared = set(self.methods)
        return [(asks, *pair) for asks, *pair in QUESTIONS if compared >= set(pair)]

    def compare(self, results, one, other):
        """How the losses of two methods compare over the problems, as text."""
        ratios = [
            self._loss(results, name_arm(problem, one))
            / self._loss(results, name_arm(problem, other))
            for problem in self.problems
        ]
        lower = sum(ratio < 1 for ratio in ratios)
        return (
            f"{one} has the lower mean loss on {lower} of {len(ratios)} problems; the "
            f"median ratio of its loss to that of {other} is {np.median(ratios):.3f}."
        )


def name_arm(problem, method):
    """The name of an arm."""
    return f"{problem}: {method}"


def standardized(data):
    """The data with regression labels of mean 0 and deviation 1 in training."""
    kinds = np.array([kind == "regression" for kind in data.task_kinds])
    mean = np.where(kinds, np.nanmean(data.train.y, axis=0), 0.0)
    scale = np.where(kinds, np.nanstd(data.train.y, axis=0), 1.0)
    scale = np.where(scale > 0, scale, 1.0)
    parts = {
        part: Split(
            getattr(data, part).x,
            ((getattr(data, part).y - mean) / scale).astype("float32"),
        )
        for part in ("train", "validation", "test")
    }
    return dataclasses.replace(data, **parts)


def count_experts(model, split, chunk=4096):
    """How many experts an example needs for all tasks, on average."""
    layer = model.get_layer("mmoe")
    x = keras.tree.map_structure(lambda array: array[:chunk], split.x)
    features = keras.Model(model.input, layer.input)(x)
    weights = keras.ops.convert_to_numpy(layer.expert_weights(features))
    return float((weights > 0).any(axis=-2).sum(axis=-1).mean())


def count_operations(model, share=1.0):
    """Operations of a prediction: two per weight of a kernel that an example meets.

    Args:
        model: A model; embeddings are looked up, and cost nothing.
        share: The share of the experts that is evaluated.
    """
    kernels = {v.path: v.shape for v in model.trainable_variables if "kernel" in v.name}
    return 2 * sum(
        math.prod(shape) * (share if "/dense_experts" in path else 1.0)
        for path, shape in kernels.items()
    )


def loss_of(model, split, data, chunk=4096):
    """The mean over the tasks of their losses on a split."""
    outputs = [
        {
            name: keras.ops.convert_to_numpy(value)
            for name, value in model(split.x[i : i + chunk]).items()
        }
        for i in range(0, len(split.x), chunk)
    ]
    losses = []
    for i, (name, kind) in enumerate(
        zip(data.task_names, data.task_kinds, strict=True)
    ):
        found = np.concatenate([part[name] for part in outputs]).astype("float64")
        labels = split.y[:, i].astype("float64")
        known = ~np.isnan(labels)
        found, labels = found[known], labels[known]
        if kind == "regression":
            each = (found[:, 0] - labels) ** 2
        elif kind == "binary":
            p = np.clip(found[:, 0], 1e-7, 1 - 1e-7)
            each = -labels * np.log(p) - (1 - labels) * np.log1p(-p)
        else:
            chosen = found[np.arange(len(found)), labels.astype(int)]
            each = -np.log(np.clip(chosen, 1e-7, 1))
        losses.append(each.mean())
    return float(np.mean(losses))
