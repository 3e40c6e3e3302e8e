"""The tasks of Appendix C.1, and the runs that Figure 5 and Table 4 report."""

import abc
import dataclasses

import keras
import numpy as np
from keras import ops

from dselectk_keras import datasets
from dselectk_keras.metrics import active_experts, jaccard_index
from dselectk_keras.models import Task, build_multitask_model
from experiments import Experiment, gate_history, train_jobs
from papers.dselectk._synthetic_methods import METHODS, K, Method, SumExperts

POINTS = 50  # Of the curve that is kept of each run.


@dataclasses.dataclass(frozen=True)
class SyntheticExperiment(Experiment, abc.ABC):
    """Gates for 16 to 128 tasks, on labels that a mixture of experts has made.

    Args:
        tasks: The numbers of tasks. Every method is tuned for each of them.
        methods: Names in `METHODS`.
        num_train: Training examples.
        num_evaluated: Examples to tune on, and as many to report on.
        epochs: Of a run.
        batch_size: Examples in a step.
    """

    tasks: tuple[int, ...] = (16, 32, 64, 128)
    methods: tuple[str, ...] = tuple(METHODS)
    num_train: int = 100_000
    num_evaluated: int = 20_000
    epochs: int = 25
    batch_size: int = 256

    @classmethod
    def presets(cls):
        return {
            "smoke": cls(
                tasks=(32,),
                methods=("DSelect-k", "Top-k", "DSelect-k, recipe"),
                trials=1,
                num_train=256,
                num_evaluated=128,
                epochs=2,
            ),
            "cpu": cls(seeds=5, trials=12),
            "paper": cls(
                seeds=100,
                trials=36,
                epochs=100,
                methods=tuple(name for name in METHODS if "restarts" not in name),
            ),
        }

    @property
    def source(self):
        return "dselectk-fig5"

    @property
    def arms(self):
        return {
            name_arm(name, count): (name, count)
            for name, method in self.compared.items()
            for count in (self.tasks if method.paper else [self.most])
        }

    @property
    def compared(self):
        """The methods that are compared, by name."""
        own = {
            name: Method(lambda steps, _, make=make: make(K, steps), paper=False)
            for name, make in self.gates.items()
        }
        return {name: METHODS[name] for name in self.methods} | own

    def space(self, arm):
        method, _ = self.arms[arm]
        return self.compared[method].settings

    def run(self, arm, jobs):
        name, num_tasks = self.arms[arm]
        method, data = self.compared[name], self._data(num_tasks)
        trained = self._train(method, data, jobs)
        zero = method.zero
        found = []
        for model, weights, binary in trained:
            seen = {
                **look(weights, data.groups, zero),
                **follow(binary, self.steps_per_epoch),
            }
            # The paper's rules: S(Z) is binary, and at most k experts are used.
            decided = zero > 0.0 or seen.get("binary", 1.0) == 1.0
            found.append(
                {
                    "objective": error(model, data.validation),
                    "mse": error(model, data.test),
                    "admissible": decided and seen["most_experts"] <= K,
                    **seen,
                }
            )
        return found

    @property
    def num_steps(self):
        """The steps of a run."""
        return self.epochs * self.steps_per_epoch

    @property
    def steps_per_epoch(self):
        """The steps of an epoch."""
        return -(-self.num_train // self.batch_size)

    @property
    def most(self):
        """The largest number of tasks."""
        return max(self.tasks)

    def _train(self, method, data, jobs):
        """Train a method once for each job.

        Args:
            method: A `Method`.
            data: A `Dataset`.
            jobs: A list of `Job`.

        Returns:
            A list of a model, its gates' last weights `(tasks, n)`, and which of
            their selectors were binary at the begin and after every epoch, `(epochs
            + 1, tasks, k)`, or `None`.
        """
        runs = train_jobs(
            self._build(method, data),
            data,
            jobs,
            record=True,
            decide=method.decides,
            epochs=self.epochs,
            batch_size=self.batch_size,
        )
        found = []
        for copy in runs.copies:
            history = gate_history(copy)["mmoe"]
            found.append((copy.model, history["weights"][-1], history.get("binary")))
        return found

    def _build(self, method, data):
        """What builds the model of a job: a function of a seed and the settings."""
        tasks = [Task(name, tower="sum", metrics=()) for name in data.task_names]

        def build(seed, learning_rate, **settings):
            model = build_multitask_model(
                data.train.x.shape[1],
                tasks,
                "mmoe",
                experts=SumExperts(len(tasks) // 4),
                gate=method.make(self.num_steps, seed, **settings),
            )
            model.compile(keras.optimizers.Adam(learning_rate))
            return model

        return build

    def _data(self, num_tasks):
        """The data, the same for every run."""
        return datasets.load(
            "synthetic_moe",
            num_tasks=num_tasks,
            num_train=self.num_train,
            num_validation=self.num_evaluated,
            num_test=self.num_evaluated,
            seed=0,
        )


def name_arm(method, num_tasks):
    """The name of an arm."""
    return f"{method}, {num_tasks} tasks"


def error(model, split):
    """The mean squared error, over examples and tasks."""
    found = model(ops.convert_to_tensor(split.x))
    found = [ops.convert_to_numpy(found[task.name])[:, 0] for task in model.tasks]
    return float(np.square(np.stack(found, axis=1) - split.y).mean())


def look(weights, groups, zero=0.0):
    """Which experts the tasks of a run ended with.

    Args:
        weights: Array `(tasks, n)`, the gates' weights.
        groups: The group of each task.
        zero: The largest weight that counts as none.

    Returns:
        A dict of numbers: `"experts"` of a task, on average, and `"most_experts"`;
        how many are `"used"` by any; and the Jaccard index of `"related"` and of
        `"unrelated"` pairs of tasks.
    """
    experts = active_experts(weights, zero)
    shared = jaccard_index(weights, groups, zero)
    return {
        "experts": float(experts.mean()),
        "most_experts": int(experts.max()),
        "used": int(active_experts(weights.max(axis=0), zero)),
        "related": shared.related,
        "unrelated": shared.unrelated,
    }


def follow(binary, steps):
    """When the selectors of a run were binary.

    Args:
        binary: Array `(epochs + 1, tasks, k)`: which selectors were; `None` if the
            gates have no selectors.
        steps: Of an epoch.

    Returns:
        A dict of numbers: the share of selectors that are `"binary"` at the end; the
        step from which on all are, for good (`"decided"`), or `None`; the share of
        the run in which not all were (`"open"`), and in which not all of a task were,
        on average over the tasks (`"task_open"`); and a curve of the share over the
        `"steps"`. Empty without selectors.
    """
    if binary is None:
        return {}
    by_task = binary.all(axis=2)
    every = by_task.all(axis=1)
    share = binary.mean(axis=(1, 2))
    opened = np.flatnonzero(~every)
    decided = opened[-1] + 1 if len(opened) else 0
    kept = np.unique(np.linspace(0, len(share) - 1, POINTS).round().astype(int))
    return {
        "binary": float(share[-1]),
        "decided": int(decided * steps) if every[-1] else None,
        # Until the end of an epoch is what its begin was.
        "open": float(1.0 - every[:-1].mean()),
        "task_open": float(1.0 - by_task[:-1].mean()),
        "steps": kept * steps,
        "share": share[kept].round(4),
    }
