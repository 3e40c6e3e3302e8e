"""Table 3: engagement in a recommender, for five methods."""

import dataclasses
import functools
import itertools
import json
import math
import pathlib
from typing import Any

import keras
import numpy as np

import dselectk_keras as dk
from research.engine import (
    Claim,
    Experiment,
    Fact,
    Untestable,
    all_positive,
    gap_of,
    preset,
    train_jobs,
)
from research.engine.compare import mean_and_error, standard_error
from research.engine.results import NotRunError, format_mean
from research.papers import citations
from research.papers.data.changes import only_tasks

SHARED, L2, STITCH = "Shared-Bottom", "L2-Constrained", "Cross-Stitch"
ARCHITECTURES = {
    SHARED: "shared_bottom",
    L2: "l2_constrained",
    STITCH: "cross_stitch",
    "OMoE": "omoe",
    "MMoE": "mmoe",
}
SEPARATE = L2, STITCH  # One network per task, from the inputs on.
BATCH = {"serving": "256", "training": "1024"}  # Of the times.
NOTICED = 0.1  # A share of the cost that is noticeable.
TASKS = {"engagement": "click", "satisfaction": "like"}
TITLES = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "torch"}
_load = functools.lru_cache(maxsize=1)(dk.datasets.recommender_sim)
# The paper's numbers after 2, 4 and 6 million steps.
AUC = {
    SHARED: ("0.6879", "0.6888", "0.6900"),
    L2: ("0.6866", "0.6881", "0.6895"),
    STITCH: ("0.6880", "0.6885", "0.6899"),
    "OMoE": ("0.6876", "0.6891", "0.6893"),
    "MMoE": ("0.6894", "0.6897", "0.6908"),
}
R2 = {
    SHARED: ("0.08812", "0.09159", "0.09287"),
    L2: ("0.08668", "0.09030", "0.09213"),
    STITCH: ("0.08949", "0.09112", "0.09332"),
    "OMoE": ("0.08749", "0.09085", "0.09230"),
    "MMoE": ("0.08978", "0.09263", "0.09362"),
}

PUBLISHED = {"auc": AUC, "r2": R2}


@dataclasses.dataclass(frozen=True)
class Table3(Experiment):
    """Five methods on an engagement and a satisfaction task of a recommender."""

    name = "mmoe-table3"
    title = "engagement in a simulated recommender, for five methods"
    paper = citations.MMOE
    where = "Table 3"
    looks = 2
    stands_in_for = citations.LOGS

    seeds: int = preset(15, paper=20, smoke=1)
    trials: int = preset(6, smoke=0)
    num_train: int = preset(90_000, paper=9_000_000, smoke=64)
    num_test: int = preset(20_000, paper=1_000_000, smoke=64)  # And for validation.
    bottom: int = preset(32, paper=256, smoke=3)  # Units below the top layer.
    units: int = preset(16, paper=64, smoke=2)  # Of the top layer, or of an expert.
    num_experts: int = preset(8, smoke=3)
    epochs: int = preset(9, smoke=3)  # A multiple of three.
    batch_size: int = preset(1024, smoke=32)
    learning_rates: tuple[float, ...] = preset(
        (0.03, 0.1, 0.3, 1.0, 3.0, 10.0), smoke=(0.1,)
    )

    @property
    def arms(self):
        return ARCHITECTURES

    def space(self, arm):
        several = len(self.learning_rates) > 1
        return {"learning_rate": self.learning_rates} if several else {}

    def run(self, arm, jobs):
        data = _load(self.num_train, self.num_test, self.num_test)
        data = only_tasks(data, TASKS)
        # Data of the measures after each epoch: tuning does not see the test data.
        measured = data.validation if jobs[0].is_trial else data.test
        fixed = {"learning_rate": self.learning_rates[0]}
        runs = train_jobs(
            functools.partial(self._build, arm),
            dataclasses.replace(data, validation=measured),
            [job._replace(settings=fixed | job.settings) for job in jobs],
            epochs=self.epochs,
            batch_size=self.batch_size,
        )
        variance = float(np.var(measured.y[:, 0]))
        return [read(copy.history, variance) for copy in runs.copies]

    def _build(self, arm, _seed, learning_rate):
        metrics = ("AUC", "mean_squared_error")
        tasks = [dk.Task(name, "binary", metrics=metrics) for name in TASKS]
        inputs = keras.Input((20,), name="features")
        if arm in SEPARATE:
            experts = dk.DenseExperts(len(TASKS), [self.bottom, self.units])
        else:
            bottom = keras.layers.Dense(self.bottom, "relu")(inputs)
            inputs = keras.Model(inputs, bottom, name="bottom")
            experts = dk.DenseExperts(self.num_experts, [self.units])
        options = {"experts": experts, "per_example": True}
        model = dk.build_multitask_model(inputs, tasks, ARCHITECTURES[arm], **options)
        model.compile(keras.optimizers.SGD(learning_rate))
        return model

    def model(self, arm):
        """A compiled model, not trained."""
        return self._build(arm, None, self.learning_rates[0])

    def kernels(self, arm, other=SHARED):
        """The parameters of the kernels, relative to another method's."""
        counts = [count_kernels(self.model(each)) for each in (arm, other)]
        return counts[0] / counts[1]

    def thirds(self, results, arm, metric):
        """A metric after each third of the training, of all runs: three columns."""
        third = self.epochs // 3
        return results.values(arm, metric)[:, third - 1 :: third]

    def gaps(self, results, arm, other, metric):
        """By how much a method is above another after each third."""
        mine, its = (self.thirds(results, each, metric) for each in (arm, other))
        return [gap_of(differences) for differences in (mine - its).T]

    def below(self, results, arm, metric):
        """Distance of a method below Shared-Bottom after each third, as text."""
        return ", ".join(map(format, self.gaps(results, SHARED, arm, metric)))

    def leads(self, results, metric):
        """MMoE's gaps to all other methods after each third, and the others' names."""
        others = [arm for arm in self.arms if arm != "MMoE"]
        gaps = ((self.gaps(results, "MMoE", arm, metric), arm) for arm in others)
        return [(gap, arm) for each, arm in gaps for gap in each]

    def least(self, results, metric):
        """MMoE's gap to the best other method after each third, as text."""
        found = self.leads(results, metric)
        least = [min(found[i::3], key=lambda pair: pair[0].mean) for i in range(3)]
        gaps = ", ".join(f"{gap} ({other})" for gap, other in least)
        return f"Difference to the best other method after each third: {gaps}."

    @property
    def claims(self):
        for metric, theirs in PUBLISHED.items():
            test = functools.partial(self.is_highest, metric=metric)
            yield Claim(metric, test, {"theirs": ", ".join(theirs["MMoE"])})
        for arm in SEPARATE:
            pairs = [[", ".join(p[each]) for each in (arm, SHARED)] for p in (AUC, R2)]
            auc, r2 = map(" against ".join, pairs)
            names = {"arm": arm, "theirs": f"AUC {auc}; R-squared {r2}"}
            yield Claim("separate", functools.partial(self.is_worse, arm=arm), names)
        ratios = {arm: self.kernels(arm) for arm in SEPARATE}
        yield Claim(
            "parameters",
            Fact(all(abs(times / 2 - 1) <= NOTICED for times in ratios.values())),
            {"kernels": ", ".join(f"{a} {ratios[a]:.2f} times" for a in SEPARATE)},
        )
        multiplications = self.presets()["paper"].kernels("MMoE")
        for backend, title in TITLES.items():
            names = {"backend": backend, "title": title}
            for claim, test in tests_of_time(backend).items():
                yield Claim(claim, test, {**names, "multiplications": multiplications})

    def is_highest(self, results, metric):
        """Judge whether MMoE is above all others after each third."""
        return all_positive(gap for gap, _ in self.leads(results, metric))

    def is_worse(self, results, arm):
        """Judge whether a method is below Shared-Bottom in both after each third."""
        gaps = (self.gaps(results, SHARED, arm, metric) for metric in PUBLISHED)
        return all_positive(itertools.chain(*gaps))

    def table_auc(self, results):
        return self._table(results, "auc")

    def table_r_squared(self, results):
        return self._table(results, "r2")

    def _table(self, results, metric):
        """A metric after each third of the training, the paper's and ours."""
        yield (
            "method | @2M: paper | ours, after 1/3 | @4M: paper | ours, after 2/3 | "
            "@6M: paper | ours, after 3/3"
        )
        for arm in self.arms:
            cells, columns = [arm], self.thirds(results, arm, metric).T
            for theirs, ours in zip(PUBLISHED[metric][arm], columns, strict=True):
                cells += [theirs, format_mean(*mean_and_error(ours), 4)]
            yield cells

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "num_steps": self.epochs * -(-self.num_train // self.batch_size),
        }

    def draw_auc(self, results):
        steps = 1 + np.arange(self.epochs)
        values = {arm: results.values(arm, "auc") for arm in self.arms}
        return dk.plots.plot_curves(
            {arm: (steps, found.mean(axis=0)) for arm, found in values.items()},
            errors={arm: standard_error(found) for arm, found in values.items()},
            x_label="epochs",
            y_label="AUC of engagement",
        )


def count_kernels(model):
    """The parameters of the kernels of a model.

    An example takes as many multiplications, but for those of cross-stitch units, since
    it meets every kernel once, also those of all experts.
    """
    kernels = (w for w in model.trainable_weights if "bias" not in w.name)
    return sum(math.prod(kernel.shape) for kernel in kernels)


def times_of(results, backend, work):
    """The recorded times of "serving" or "training" (scripts/serving_latency.py)."""
    folder = results.path.parent if results.path else pathlib.Path()
    path = folder / f"architectures_cpu_{backend}.json"
    if not path.exists():
        raise NotRunError(backend)
    times = json.loads(path.read_text(encoding="utf-8"))["milliseconds"][work]
    return {arm: np.array(each[BATCH[work]]) for arm, each in times.items()}


def slower(results, backend, work, arm, other=SHARED):
    """The extra time, relative to another method: a `Gap` of the share."""
    times = times_of(results, backend, work)
    return gap_of(times[arm] / times[other] - 1)


def both_slower(results, backend):
    """The extra time of the separate networks in serving, as text."""
    gaps = ((arm, slower(results, backend, "serving", arm)) for arm in SEPARATE)
    return ", ".join(f"{arm} {gap:2}" for arm, gap in gaps)


def tests_of_time(backend):
    """The tests of the times on a backend, by claim."""

    def double(results):
        gaps = [slower(results, backend, "serving", arm) for arm in SEPARATE]
        return all_positive(gap.above(0.5) for gap in gaps)

    def unnoticed(results, work):
        return (-slower(results, backend, work, "MMoE")).is_positive(-NOTICED)

    no_sizes = (
        "The paper gives neither the number of experts nor any width; these are ours."
    )
    return {
        "serving-double": Untestable(
            "The paper gives no width; at ours, what a call costs without its "
            "multiplications counts as much.",
            double,
        ),
        **{
            work: Untestable(no_sizes, functools.partial(unnoticed, work=work))
            for work in BATCH
        },
    }


def read(history, variance):
    """The numbers of a run from its history and the variance of the labels."""
    areas = [float(f"{area:.6g}") for area in history["val_engagement_AUC"]]
    errors = history["val_engagement_mean_squared_error"]
    return {
        "objective": 1 - areas[-1],
        "auc": areas,
        "r2": [float(f"{1 - error / variance:.6g}") for error in errors],
    }
