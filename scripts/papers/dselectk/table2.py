"""Table 2: gates on Multi-MNIST and Multi-Fashion."""

import dataclasses
from typing import Any, NamedTuple

import keras
import numpy as np

from dselectk_keras.batches import Batches
from dselectk_keras.experts import Experts
from dselectk_keras.models import Task, build_multitask_model
from dselectk_keras.schedules import Ramp
from experiments import (
    Claim,
    Experiment,
    Fact,
    Report,
    Table,
    all_hold,
    difference,
    format_gap,
    gate_history,
    is_positive,
    stand_in,
    train_jobs,
)
from papers import citations
from papers.data import multi_mnist
from papers.dselectk._gates import (
    METHODS,
    MOST_EXPECTED,
    SPARSE,
    Method,
    choices,
    decided,
    grouped,
    is_admissible,
    look_at,
    new_gate,
    own_methods,
    search_space,
)

TITLES = {"multi_mnist": "Multi-MNIST", "multi_fashion": "Multi-Fashion"}
IMAGES = {"multi_mnist": "mnist", "multi_fashion": "fashion_mnist"}
TASKS = ("top_left", "bottom_right")
STATIC, PER_EXAMPLE = "DSelect-k, static", "DSelect-k, per-example"
SOFTMAX = "softmax, per-example"
SHAPES = ("num_nonzeros", "epochs", "dense_layers")  # They need a program each.
# The paper's % of steps until binary, and FLOPS relative to Top-k.
TABLE_4 = {"multi_mnist": (42.33, 0.8), "multi_fashion": (80.02, 1.2)}
NOTES = [
    (
        "**What the size `cpu` can show.** It is far smaller than the paper's (see the "
        "protocol): accuracies do not compare with the paper's, and the order of the "
        "gates says how fast they learn. Nothing is tuned there."
    ),
    (
        "**How claims are judged.** A method that was not run fails its claims. A "
        "difference within two standard errors is not judged."
    ),
    (
        "**For comparison:** PaddleRec's reproduction of DSelect-k on Multi-MNIST "
        "(its `models/multitask/dselect_k/readme.md`), with all of the data and 100 "
        "epochs, reports accuracies of 93.0% and 91.6%."
    ),
]


class Arm(NamedTuple):
    """A gate on a data set.

    Args:
        dataset: Name of the data set.
        method: A `Method`.
    """

    dataset: str
    method: Method


@dataclasses.dataclass(frozen=True)
class Table2(Experiment):
    """Convolutional experts, and a gate for each of the two images in one.

    Args:
        datasets: Names of the data sets.
        methods: Names from `METHODS`.
        num_train: How many pairs of images are trained on.
        num_validation: How many there are for validation.
        num_test: How many there are for test.
        num_experts: The number of experts.
        filters: Of an expert's two convolutions.
        units: Of an expert's dense layers.
        towers: Widths of the hidden layers of a task.
        batch_size: Examples in a step.
        learning_rates: Of Adam, to choose from.
        epochs: How many passes over the training data, to choose from.
        num_nonzeros: How many experts a sparse gate may choose, k, to choose from.
        dense_layers: How many dense layers an expert has, to choose from.
        entropies: Weights of DSelect-k's entropy term, to choose from.
        gammas: Widths of DSelect-k's smooth step, to choose from.
        sparsities: Penalties of the Gumbel-softmax gate, to choose from.
        entropy_ramp: Whether DSelect-k's entropy weight grows from a thousandth over
            four fifths of the run, instead of being constant.
        gate_bias: Whether per-example softmax and Top-k gates have a bias.
    """

    name = "dselectk-table2"
    title = "gates on Multi-MNIST and Multi-Fashion"
    paper = citations.DSELECT_K
    where = "Table 2"
    about = (
        "Two images are laid over each other, one towards the top left corner and one "
        "towards the bottom right. Task 1 asks for the class of the first, task 2 for "
        "that of the second. Each of 8 experts is a small convolutional network (5 x 5 "
        "convolution, pooling, 5 x 5 convolution, pooling, dense layers). Each task "
        "has its own gate, which mixes them."
    )

    datasets: tuple[str, ...] = ("multi_mnist", "multi_fashion")
    methods: tuple[str, ...] = tuple(METHODS)
    num_train: int = 100_000
    num_validation: int = 20_000
    num_test: int = 20_000
    num_experts: int = 8
    filters: tuple[int, int] = (10, 20)
    units: int = 50
    towers: tuple[int, ...] = (50, 50)
    batch_size: int = 256
    learning_rates: tuple[float, ...] = (0.01, 0.001, 0.0001, 0.00001)
    epochs: tuple[int, ...] = (25, 50, 75, 100)
    num_nonzeros: tuple[int, ...] = (2, 4)
    dense_layers: tuple[int, ...] = (1, 3, 5)
    entropies: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0)
    gammas: tuple[float, ...] = (0.1, 1.0, 10.0)
    sparsities: tuple[float, ...] = (0.0, 1e-3, 1e-2, 0.1, 1.0, 10.0, 1000.0)
    entropy_ramp: bool = False
    gate_bias: bool = True

    @classmethod
    def presets(cls):
        few = ("DSelect-k, static", "Top-k, static", "softmax, per-example")
        one = {
            "num_nonzeros": (2,),
            "dense_layers": (1,),
            "learning_rates": (0.003,),
            "entropies": (1.0,),
            "gammas": (0.3,),
            "sparsities": (0.01,),
        }
        return {
            "smoke": cls(
                stand_in=True,
                datasets=("multi_mnist",),
                methods=few[:1],
                num_experts=2,
                filters=(1, 1),
                units=2,
                towers=(2,),
                epochs=(1,),
                batch_size=48,
                **one,
            ),
            "cpu": cls(
                seeds=5,
                methods=few,
                num_train=3_000,
                num_validation=500,
                num_test=2_000,
                filters=(4, 8),
                towers=(50,),
                epochs=(5,),
                batch_size=64,
                entropy_ramp=True,
                gate_bias=False,
                **one,
            ),
            "paper": cls(seeds=100, trials=48),
        }

    @property
    def arms(self):
        arms = {}
        for dataset in self.datasets:
            methods = {name: METHODS[name] for name in self.methods}
            methods |= own_methods(self.gates, self.num_nonzeros[0])
            for name, method in methods.items():
                arms[arm_name(dataset, name)] = Arm(dataset, method)
        return arms

    def space(self, arm):
        return choices(self._full_space(self.arms[arm].method))

    def _full_space(self, method):
        """All settings of a method, also those with one value."""
        return search_space(self, method) | {"dense_layers": self.dense_layers}

    def run(self, arm, jobs):
        dataset, method = self.arms[arm]
        data = self._data(dataset)
        fixed = {name: each[0] for name, each in self._full_space(method).items()}
        recorded = method.gate in SPARSE and not method.per_example
        found = [{}] * len(jobs)
        for shape, own in grouped(jobs, fixed, SHAPES):
            steps = shape["epochs"] * Batches(data.train, self.batch_size).num_batches

            def build(_, *, shape=shape, steps=steps, **settings):
                return self._model(data, method, shape, steps, **settings)

            runs = train_jobs(
                build,
                data,
                [job for _, job in own],
                record=recorded,
                epochs=shape["epochs"],
                batch_size=self.batch_size,
            )
            for i, (number, _) in enumerate(own):
                model = runs.model(i)
                validation = look_at(model, data.validation.x, chunk=500)
                predictions, gates = look_at(model, data.test.x, chunk=500)
                found[number] = task_numbers(predictions, data.test.y) | gates
                found[number] |= {
                    "objective": task_numbers(validation[0], data.validation.y)[
                        "error"
                    ],
                    "admissible": is_admissible(
                        validation[1], method, shape.get("num_nonzeros")
                    ),
                }
                if recorded:
                    found[number] |= _cost(gate_history(runs.copies[i])["mmoe"])
        return found

    def _data(self, dataset):
        if self.stand_in:
            return stand_in((36, 36, 1), dict.fromkeys(TASKS, 10))
        return multi_mnist(
            images=IMAGES[dataset],
            num_train=self.num_train,
            num_validation=self.num_validation,
            num_test=self.num_test,
            data_dir=self.data_dir,
        )

    def _model(self, data, method, shape, steps, learning_rate, **settings):
        layers = keras.layers
        if self.entropy_ramp and "entropy" in settings:
            entropy = settings["entropy"]
            ramp = Ramp(entropy / 1000, entropy, end=0.8, num_steps=steps)
            settings["entropy"] = ramp
        k = shape.get("num_nonzeros")
        gate: Any = new_gate(method.gate, k, steps, use_bias=self.gate_bias, **settings)
        expert = keras.Sequential(
            [
                layers.Conv2D(self.filters[0], 5, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(self.filters[1], 5, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                *(
                    layers.Dense(self.units, activation="relu")
                    for _ in range(shape["dense_layers"])
                ),
            ]
        )
        per_example = method.per_example
        options = {"routing_network": layers.Flatten()} if per_example else {}
        model = build_multitask_model(
            data.train.x.shape[1:],
            [Task(name, "multiclass", 10, self.towers) for name in TASKS],
            "mmoe" if method.gate else "shared_bottom",
            experts=Experts(expert, self.num_experts if method.gate else 1),
            gate=gate,
            per_example=per_example,
            **options,
        )
        model.compile(keras.optimizers.Adam(learning_rate))
        return model

    def report(self, results):
        return Report(
            [
                *self._claims_multi_mnist(results),
                self._claim_fashion(results),
                *(
                    self._claim_cost(results, dataset, *numbers)
                    for dataset, numbers in TABLE_4.items()
                ),
            ],
            [self._table(results, dataset) for dataset in self.datasets],
            notes=NOTES,
            protocol=self._protocol(),
        )

    def _better(self, results, number, mine, other, lower=False):
        """Whether an arm is better than another in a number; not if either lacks."""
        if not (results.of(mine) and results.of(other)):
            return False
        gap, error = difference(results, number, mine, other)
        return is_positive(-gap if lower else gap, error)

    def _texts(self, results, dataset, names, numbers):
        """Numbers of methods, to be read."""
        parts = []
        for name in names:
            arm = arm_name(dataset, name)
            texts = [results.text(arm, each, 3, scale) for each, scale in numbers]
            shown = ", ".join(filter(None, texts)) if results.of(arm) else ""
            parts.append(f"{name}: {shown or 'not run'}")
        return "; ".join(parts) + "."

    def _claims_multi_mnist(self, results):
        dataset, source = "multi_mnist", "Section 4.2; Table 2, Multi-MNIST"
        mine = arm_name(dataset, STATIC)
        rivals = ("Top-k, static", "Top-k, per-example", "Gumbel-softmax, static")
        accuracies = [(f"accuracy_{task}", 100) for task in TASKS]
        judged = [
            self._better(results, number, mine, arm_name(dataset, rival), lower)
            for rival in rivals
            for number, lower in (
                *((name, False) for name, _ in accuracies),
                ("experts", True),
            )
        ]
        top_k, softmax = (arm_name(dataset, n) for n in (rivals[0], SOFTMAX))
        gap, error = difference(results, accuracies[1][0], mine, top_k)
        both = results.of(mine) and results.of(top_k)
        excess, doubt = difference(results, "error", mine, softmax)
        near = is_positive(0.01 - excess, doubt)
        other = arm_name(dataset, PER_EXAMPLE)
        gain = self._better(results, "error", other, mine, lower=True)
        return [
            Claim(
                "DSelect-k (static) is better than Top-k and Gumbel-softmax in the "
                "accuracies of both tasks and in the number of experts.",
                "Accuracies (%) and experts. "
                + self._texts(
                    results,
                    dataset,
                    (STATIC, *rivals),
                    [*accuracies, ("experts", 1)],
                ),
                all_hold(judged),
                source,
            ),
            Claim(
                "DSelect-k (static) improves task 2's accuracy by over 1 % over Top-k "
                "(static). (We read percentage points.)",
                f"By {format_gap(100 * gap, 100 * error, 2)} %." if both else "not run",
                is_positive(gap - 0.01, error) if both else False,
                source,
                "over 1 %",
            ),
            Claim(
                "DSelect-k (static) comes close to the softmax gate, with fewer "
                "experts. (Close: here, the error is higher by less than one "
                "percentage point.)",
                "Errors (%) and experts. "
                + self._texts(
                    results,
                    dataset,
                    (STATIC, SOFTMAX),
                    [("error", 100), ("experts", 1)],
                ),
                all_hold(
                    [near, self._better(results, "experts", mine, softmax, lower=True)]
                ),
                source,
                "1.7 and 8 experts",
            ),
            Claim(
                "DSelect-k (per-example) is not better than DSelect-k (static).",
                "Errors (%). "
                + self._texts(
                    results, dataset, (STATIC, PER_EXAMPLE), [("error", 100)]
                ),
                gain is not True if results.of(other) else False,
                source,
            ),
        ]

    def _claim_fashion(self, results):
        dataset = "multi_fashion"
        mine = arm_name(dataset, STATIC)
        judged = [
            self._better(results, "error", mine, arm_name(dataset, name), lower=True)
            for name in METHODS
            if name != STATIC
        ]
        return Claim(
            "DSelect-k (static) has the best accuracy of all methods.",
            "Errors (%). " + self._texts(results, dataset, METHODS, [("error", 100)]),
            all_hold(judged),
            "Section 4.2; Table 2, Multi-Fashion",
        )

    def _claim_cost(self, results, dataset, steps, flops):
        mine, top_k = (arm_name(dataset, n) for n in (STATIC, "Top-k, static"))
        share = results.values(mine, "decided")
        ours, theirs = (results.mean(arm, "evaluated") for arm in (mine, top_k))
        known = not np.isnan([ours, theirs]).any()
        unknown = "not recorded in these runs" if results.of(mine) else "not run"
        word, count = ("less", "fewer") if flops < 1 else ("more", "more")
        return Claim(
            f"S(Z) is binary after {steps} % of the training steps, and training takes "
            f"{word} FLOPS than with Top-k. (It holds here if S(Z) is binary as early "
            f"in every run, and {count} experts are evaluated per step than with "
            "Top-k.)",
            f"Binary in {np.isfinite(share).sum()} of {len(share)} runs, after "
            f"{results.text(mine, 'decided', scale=100)} % of the steps; experts "
            f"evaluated per step: {ours:.2f} against {theirs:.2f}."
            if known
            else unknown,
            known
            and bool((100 * share <= steps).all())
            and bool((ours < theirs) == (flops < 1)),
            f"Table 4, {TITLES[dataset]}",
            f"{steps} %; {flops} times",
        )

    def _table(self, results, dataset):
        rows = []
        for name, arm in self.arms.items():
            if arm.dataset == dataset:
                gate = name.removeprefix(f"{TITLES[dataset]}: ")
                scores = [
                    results.text(name, f"accuracy_{task}", digits=4, scale=100)
                    for task in TASKS
                ]
                loss, experts = (results.text(name, n) for n in ("loss", "experts"))
                rows.append([gate, *scores, loss, experts])
        return Table(
            f"Table 2: {TITLES[dataset]}",
            ["gate", "accuracy 1, %", "accuracy 2, %", "loss", "experts"],
            rows,
            "Task 1 is the image in the top left, task 2 the one in the bottom right; "
            "the loss is the sum of both. The paper's cells are missing in the copy of "
            "the text that we have.",
        )

    def _protocol(self):
        presets = self.presets()

        def values(name):
            cpu, paper = (_words(getattr(presets[p], name)) for p in ("cpu", "paper"))
            return cpu if cpu == paper else f"cpu: {cpu}; paper: {paper}"

        small = "to run on two cores"
        old = "the committed runs are older than this protocol"
        return [
            Fact(
                "Examples for training, validation, test",
                "100,000; 20,000; 20,000",
                f"training {values('num_train')}; validation "
                f"{values('num_validation')}; test {values('num_test')}",
                small,
            ),
            Fact(
                "Overlay",
                "two images, shifted by 4 pixels to opposite corners: 36 x 36 pixels",
                "the same; where both have ink, the brighter pixel",
                "the paper does not say how pixels are combined",
            ),
            Fact(
                "Experts",
                "8: convolutions 5 x 5 with 10 and 20 filters, each with max pooling; "
                "1, 3 or 5 dense layers of 50",
                f"{self.num_experts}: filters {values('filters')}; dense layers "
                f"{values('dense_layers')} of {values('units')}",
                small,
            ),
            Fact(
                "Images of the pairs",
                "sampled uniformly",
                "the same, two different ones; no image is in two splits",
                "the paper does not say how splits share images",
            ),
            Fact(
                "Task networks",
                "two ReLU layers of 50, then a softmax over 10 classes",
                f"ReLU layers of {values('towers')}, then a softmax over 10 classes",
                old,
            ),
            Fact("Loss", "sum of the tasks' cross-entropies", "the same"),
            Fact(
                "Optimizer",
                "Adam, batches of 256",
                f"Adam, batches of {values('batch_size')}",
                small,
            ),
            Fact(
                "Learning rate",
                "tuned over 0.01, 0.001, 0.0001, 0.00001",
                values("learning_rates"),
                old,
            ),
            Fact("Epochs", "tuned over 25, 50, 75, 100", values("epochs"), small),
            Fact("k", "tuned over 2, 4", values("num_nonzeros"), old),
            Fact("gamma of DSelect-k", "tuned over 0.1, 1, 10", values("gammas"), old),
            Fact(
                "lambda of DSelect-k",
                "Appendix D.2 gives no range; constant",
                f"{values('entropies')}; grows over the run: {values('entropy_ramp')}",
                old,
            ),
            Fact(
                "lambda of Gumbel-softmax",
                "tuned over 0, 1e-3, 1e-2, 1e-1, 1, 10, 1000; at most 4 expected "
                "experts",
                f"{values('sparsities')}; at most {MOST_EXPECTED} expected experts",
                "the cpu preset lacks this gate",
            ),
            Fact(
                "Per-example gates",
                "linear in the input, with a bias for softmax and Top-k (Section 2)",
                f"linear in the pixels; bias: {values('gate_bias')}",
                old,
            ),
            Fact(
                "Methods",
                "DSelect-k and Top-k, both static and per-example; Gumbel-softmax; "
                "softmax, gating not stated; shared bottom",
                "; ".join(
                    f"{name}: {' / '.join(presets[name].methods)}"
                    for name in ("cpu", "paper")
                ),
                small,
            ),
            Fact(
                "Tuning",
                "random grid search, 5 trials per grid point on average; by the mean "
                "accuracy of the tasks",
                f"random grid search: settings, one run each, {values('trials')}; by "
                "the mean accuracy",
                small,
            ),
            Fact(
                "Admissible",
                "static: S(Z) is binary; per-example: at most k experts on average "
                "(Sections 3.1.3 and 3.2)",
                "the same, on validation data, where something is tuned",
            ),
            Fact("Repetitions", "100", values("seeds"), small),
        ]


def _words(value):
    """A value of a field, to be read."""
    if isinstance(value, tuple):
        return ", ".join(f"{each:g}" for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}"


def _cost(record):
    """What Table 4 needs of a run, from records at the begin and after every epoch."""
    weights, binary = record["weights"], record.get("binary")
    used = (weights > 0).any(axis=1).sum(axis=1)
    return {
        # Until the end of an epoch is what its begin was.
        "evaluated": float(used[:-1].mean()),
        "decided": None if binary is None else decided(binary),
    }


def arm_name(dataset, method):
    """The name of a method on a data set."""
    return f"{TITLES[dataset]}: {method}"


def task_numbers(predictions, labels):
    """How well the classes of both images are predicted.

    Args:
        predictions: A dict by task name of probabilities `(samples, classes)`.
        labels: Array `(samples, tasks)` of classes, in the same order.

    Returns:
        A dict: `"loss"`, the sum of the tasks' cross-entropies; `"accuracy_..."` for
        each task; and `"error"`, one minus the mean accuracy.
    """
    numbers, loss = {}, 0.0
    for column, (name, probabilities) in enumerate(predictions.items()):
        truth = labels[:, column].astype(int)
        right = probabilities[np.arange(len(truth)), truth].astype("float64")
        loss += float(-np.log(right.clip(1e-7)).mean())
        hits = probabilities.argmax(axis=1) == truth
        numbers[f"accuracy_{name}"] = float(hits.mean())
    error = 1.0 - float(np.mean(list(numbers.values())))
    return {"loss": loss, "error": error, **numbers}
