"""Table 3: engagement in a recommender, for five methods."""

import dataclasses
import functools

import keras
import numpy as np

from dselectk_keras import datasets
from dselectk_keras.experts import DenseExperts
from dselectk_keras.models import Task, build_multitask_model
from dselectk_keras.plots import plot_curves
from experiments.compare import (
    all_hold,
    format_gap,
    is_positive,
    mean_and_error,
    standard_error,
)
from experiments.experiment import Experiment
from experiments.report import Claim, Fact, Picture, Report, Table
from experiments.results import format_mean
from experiments.train_jobs import train_jobs
from papers import citations
from papers.mmoe._protocol import by_preset
from papers.mmoe._tasks import only_tasks

SHARED, L2, STITCH = "Shared-Bottom", "L2-Constrained", "Cross-Stitch"
ARCHITECTURES = {
    SHARED: "shared_bottom",
    L2: "l2_constrained",
    STITCH: "cross_stitch",
    "OMoE": "omoe",
    "MMoE": "mmoe",
}
SEPARATE = L2, STITCH  # One network per task, from the inputs on.
TASKS = {"engagement": "click", "satisfaction": "like"}
METRICS = {"auc": "AUC", "r2": "R-squared"}
# The paper's numbers after 2, 4 and 6 million steps.
PUBLISHED = {
    "auc": {
        SHARED: (0.6879, 0.6888, 0.6900),
        L2: (0.6866, 0.6881, 0.6895),
        STITCH: (0.6880, 0.6885, 0.6899),
        "OMoE": (0.6876, 0.6891, 0.6893),
        "MMoE": (0.6894, 0.6897, 0.6908),
    },
    "r2": {
        SHARED: (0.08812, 0.09159, 0.09287),
        L2: (0.08668, 0.09030, 0.09213),
        STITCH: (0.08949, 0.09112, 0.09332),
        "OMoE": (0.08749, 0.09085, 0.09230),
        "MMoE": (0.08978, 0.09263, 0.09362),
    },
}
STEPS = "2M", "4M", "6M"
REMARK = (
    "Section 6.4.2 says that Cross-Stitch is worse than Shared-Bottom. In the paper's "
    "Table 3 this holds for the AUC after 4 and 6 million steps and for R-squared "
    "after 4 million, and not for the other three numbers."
)
COUNT = (
    "Section 6.4.2 counts 10 billion examples in 2 million steps of 1024. These are 2 "
    "billion; in the 6 million steps, 6 of the 30 billion examples."
)
SHORT = (
    "The runs are far shorter than the paper's, and their settings were not searched "
    "beyond the learning rate. Most methods take the largest learning rate that is "
    "tried, so that longer runs may rank them differently."
)
SIZES = (
    "The paper explains the results of L2-Constrained and Cross-Stitch by their many "
    "parameters. Here OMoE and MMoE have the most: about four times those of "
    "Shared-Bottom in the preset `cpu`. L2-Constrained and Cross-Stitch have twice "
    "those of Shared-Bottom."
)
DIGITS = {"auc": 4, "r2": 5}


@dataclasses.dataclass(frozen=True)
class Table3(Experiment):
    """Five methods on an engagement and a satisfaction task of a recommender.

    Args:
        num_train: Training examples.
        num_test: Validation examples, and test examples.
        bottom: Width of the layer below the top layer.
        units: Width of the top layer, or of an expert in its place.
        num_experts: The number of experts.
        epochs: Passes over the data: a multiple of three.
        batch_size: Examples in a step.
        learning_rates: Of SGD: what is tried for each arm; a single one is not tuned.
    """

    name = "mmoe-table3"
    title = "engagement in a simulated recommender, for five methods"
    paper = citations.MMOE
    where = "Table 3"
    about = (
        "The paper's data are private: tens of billions of examples of a live "
        "recommender. `datasets.recommender_sim` takes their place. Five methods are "
        "trained on two binary tasks: engagement (`click`, positive in 30% of the "
        "examples) and satisfaction (`like`, 5%). As in the paper, the table has the "
        "AUC and R-squared of the engagement task at three times of the training. "
        "**Only the order of the methods can be compared with the paper.**"
    )

    num_train: int = 90_000
    num_test: int = 20_000
    bottom: int = 32
    units: int = 16
    num_experts: int = 8
    epochs: int = 9
    batch_size: int = 1024
    learning_rates: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)

    @classmethod
    def presets(cls):
        return {
            "smoke": cls(
                num_train=64,
                num_test=64,
                bottom=3,
                units=2,
                num_experts=3,
                epochs=3,
                batch_size=32,
                learning_rates=(0.1,),
            ),
            "cpu": cls(seeds=8, trials=4),
            "paper": cls(
                seeds=20,
                trials=4,
                num_train=9_000_000,
                num_test=1_000_000,
                bottom=256,
                units=64,
            ),
        }

    @property
    def arms(self):
        return ARCHITECTURES

    def space(self, arm):
        several = len(self.learning_rates) > 1
        return {"learning_rate": self.learning_rates} if several else {}

    def run(self, arm, jobs):
        data = _load(self.num_train, self.num_test)
        # What is measured after every epoch: tuning does not see the test data.
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
        return [read(copy.logs, variance) for copy in runs.copies]

    def report(self, results):
        caption = (
            "AUC of the engagement task on test data during training: mean and "
            "standard error over the runs."
        )

        def draw():
            steps = 1 + np.arange(self.epochs)
            values = {arm: results.values(arm, "auc") for arm in self.arms}
            return plot_curves(
                {arm: (steps, found.mean(axis=0)) for arm, found in values.items()},
                errors={arm: standard_error(found) for arm, found in values.items()},
                x_label="epochs",
                y_label="AUC of engagement",
            )

        return Report(
            [
                *(self._best(results, metric) for metric in METRICS),
                *(self._below_shared(results, arm) for arm in SEPARATE),
            ],
            [self._table(results, metric) for metric in METRICS],
            [Picture("auc", caption, draw)],
            [REMARK, COUNT, SIZES, SHORT],
            protocol=self._protocol(),
        )

    def _build(self, arm, _seed, learning_rate):
        tasks = [
            Task(name, "binary", metrics=("AUC", "mean_squared_error"))
            for name in TASKS
        ]
        inputs = keras.Input((20,), name="features")
        if arm in SEPARATE:
            experts = DenseExperts(len(TASKS), [self.bottom, self.units])
        else:
            bottom = keras.layers.Dense(self.bottom, "relu")(inputs)
            inputs = keras.Model(inputs, bottom, name="bottom")
            experts = DenseExperts(self.num_experts, [self.units])
        model = build_multitask_model(
            inputs, tasks, ARCHITECTURES[arm], experts=experts, per_example=True
        )
        model.compile(keras.optimizers.SGD(learning_rate))
        return model

    def _at(self, results, arm, metric, third):
        """A metric of all runs after a third of the training, two thirds, or all."""
        return results.values(arm, metric)[:, (third + 1) * self.epochs // 3 - 1]

    def _gap(self, results, pair, metric, third):
        mine, other = (self._at(results, arm, metric, third) for arm in pair)
        return mean_and_error(mine - other)

    def _best(self, results, metric):
        gaps = []
        for third in range(3):
            means = {
                arm: self._at(results, arm, metric, third).mean() for arm in self.arms
            }
            others = [arm for arm in means if arm != "MMoE"]
            other = max(others, key=lambda arm, means=means: means[arm])
            gap = self._gap(results, ("MMoE", other), metric, third)
            gaps.append((other, gap))
        texts = ", ".join(f"{format_gap(*gap)} ({other})" for other, gap in gaps)
        return Claim(
            f"MMoE has the highest {METRICS[metric]} at all times.",
            f"Difference to the best other method after each third: {texts}.",
            all_hold(is_positive(*gap) for _, gap in gaps),
            "Section 6.4.2; Table 3",
            _numbers(metric, "MMoE"),
        )

    def _below_shared(self, results, arm):
        pair = SHARED, arm
        gaps = {
            metric: [self._gap(results, pair, metric, third) for third in range(3)]
            for metric in METRICS
        }
        texts = (
            f"{METRICS[metric]} {', '.join(format_gap(*gap) for gap in found)}"
            for metric, found in gaps.items()
        )
        return Claim(
            f"{arm} is worse than Shared-Bottom.",
            f"Shared-Bottom is above it by: {'; '.join(texts)}.",
            all_hold(is_positive(*gap) for found in gaps.values() for gap in found),
            "Section 6.4.2",
            "; ".join(
                f"{name} {_numbers(metric, arm)} against {_numbers(metric, SHARED)}"
                for metric, name in METRICS.items()
            ),
        )

    def _table(self, results, metric):
        columns, rows = ["method"], []
        for third, steps in enumerate(STEPS, start=1):
            columns += [f"@{steps}: paper", f"ours, after {third}/3"]
        for arm in self.arms:
            row = [arm]
            for third, theirs in enumerate(PUBLISHED[metric][arm]):
                values = self._at(results, arm, metric, third)
                ours = format_mean(values.mean(), standard_error(values), 4)
                row += [f"{theirs:.{DIGITS[metric]}f}", ours]
            rows.append(row)
        return Table(
            f"{METRICS[metric]} of the engagement task",
            columns,
            rows,
            "The data differ: compare the order of the methods only.",
        )

    def _protocol(self):
        def of(write):
            return by_preset(self, write)

        private = "The paper's data are private."
        return [
            Fact("Data", "a recommender's feedback", "`recommender_sim`", private),
            Fact(
                "Tasks",
                "one of engagement, one of satisfaction; labels of the second are "
                "sparser",
                "`click` (30% positive) and `like` (5%)",
                private,
            ),
            Fact(
                "Features",
                "embeddings of sparse ones; dense ones in [0, 1] (Section 6.4.1)",
                "20 numbers, standard normal",
                "The simulation has no sparse features.",
            ),
            Fact(
                "Training examples",
                "30 billion, 6 million steps",
                of(
                    lambda e: (
                        f"{e.num_train:,}, "
                        f"{e.epochs * -(-e.num_train // e.batch_size):,} steps"
                    )
                ),
                private,
            ),
            Fact("Held out", "1 million", of(lambda e: f"{e.num_test:,}"), private),
            Fact(
                "Measured",
                "after 2, 4 and 6 million steps",
                "after one, two and three thirds of the steps",
            ),
            Fact(
                "Shared bottom",
                "several fully connected layers, ReLU; no sizes",
                of(lambda e: f"{e.bottom} and {e.units}, ReLU"),
            ),
            Fact(
                "OMoE and MMoE",
                "MMoE: an MoE layer in place of the top layer, with outputs of the "
                "same width and without noticeable extra cost (Section 6.4.1); OMoE: "
                "not described",
                of(
                    lambda e: (
                        f"{e.num_experts} experts of {e.units} in its place, at "
                        f"{e.num_experts} times the cost of the layer"
                    )
                ),
                "The paper does not say how many experts, nor how their cost is kept "
                "down.",
            ),
            Fact(
                "Gates",
                "softmax of a linear function of the layer's input (Equation 8)",
                "the same",
            ),
            Fact(
                "L2-Constrained and Cross-Stitch",
                "about twice the parameters of Shared-Bottom",
                of(lambda e: f"two networks of {e.bottom} and {e.units}"),
            ),
            Fact("Towers", "one fully connected layer", "one fully connected layer"),
            Fact(
                "Method's own hyperparameters",
                "tuned by a Gaussian process (Section 6.2): experts and their units, "
                "strength of the L2 constraint, hidden and cross-stitch layers, of at "
                "most 2048 units",
                "not tuned: the sizes above, and the defaults of the architectures",
                "Fewer runs.",
            ),
            Fact("Optimizer", "SGD", "SGD"),
            Fact("Batch size", 1024, of(lambda e: e.batch_size)),
            Fact(
                "Learning rate",
                "tuned for each method (Section 6.2); no values",
                of(
                    lambda e: (
                        f"one of {', '.join(f'{rate:g}' for rate in e.learning_rates)} "
                        "for each method, by validation data"
                    )
                ),
            ),
            Fact(
                "Runs",
                "not stated; no errors",
                of(lambda e: e.seeds),
                "Standard errors need several.",
            ),
            Fact(
                "AUC and R-squared",
                "no details",
                "Keras' AUC with 200 thresholds; one minus the squared error of the "
                "probabilities, divided by the variance of the labels",
            ),
        ]


def read(logs, variance):
    """What is kept of a run.

    Args:
        logs: The results of each epoch.
        variance: Of the labels of the engagement task.

    Returns:
        A dict.
    """
    areas = [float(f"{log['val_engagement_AUC']:.6g}") for log in logs]
    errors = [log["val_engagement_mean_squared_error"] for log in logs]
    return {
        "objective": 1 - areas[-1],
        "auc": areas,
        "r2": [float(f"{1 - error / variance:.6g}") for error in errors],
    }


def _numbers(metric, arm):
    digits = DIGITS[metric]
    return ", ".join(f"{value:.{digits}f}" for value in PUBLISHED[metric][arm])


@functools.lru_cache(maxsize=1)
def _load(num_train, num_test):
    return only_tasks(datasets.recommender_sim(num_train, num_test, num_test), TASKS)
