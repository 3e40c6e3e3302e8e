"""Table 2: gates on Multi-MNIST and Multi-Fashion."""

import dataclasses
from typing import Any

import keras
import numpy as np

from dselectk_keras.batches import Batches
from dselectk_keras.experts import Experts
from dselectk_keras.models import Task, build_multitask_model
from experiments import Experiment, all_hold, gate_history, preset, stand_in, train_jobs
from papers import citations
from papers.data import multi_mnist
from papers.dselectk import _gates
from papers.dselectk._gates import METHODS, SPARSE, lower, within_rules

TITLES = {"multi_mnist": "Multi-MNIST", "multi_fashion": "Multi-Fashion"}
IMAGES = {"multi_mnist": "mnist", "multi_fashion": "fashion_mnist"}
TASKS = ("top_left", "bottom_right")
STATIC, PER_EXAMPLE = "DSelect-k, static", "DSelect-k, per-example"
TOP_K, SOFTMAX = "Top-k, static", "softmax, per-example"
RIVALS = (TOP_K, "Top-k, per-example", "Gumbel-softmax, static")
ACCURACIES = [(f"accuracy_{task}", 100) for task in TASKS]
SHAPES = ("num_nonzeros", "epochs", "dense_layers")  # They need a program each.
# The paper's % of steps until binary, and FLOPS relative to Top-k.
TABLE_4 = {"multi_mnist": (42.33, 0.8), "multi_fashion": (80.02, 1.2)}


@dataclasses.dataclass(frozen=True)
class Table2(Experiment):
    """Convolutional experts, and a gate for each of the two images in one."""

    name = "dselectk-table2"
    title = "gates on Multi-MNIST and Multi-Fashion"
    paper = citations.DSELECT_K
    where = "Table 2"

    seeds: int = preset(5, paper=100, smoke=1)
    trials: int = preset(8, paper=48, smoke=1)
    stand_in: bool = preset(False, smoke=True)
    datasets: tuple[str, ...] = preset(tuple(TITLES), smoke=("multi_mnist",))
    methods: tuple[str, ...] = preset(tuple(METHODS), smoke=(STATIC,))
    num_train: int = preset(1_500, paper=100_000)
    num_validation: int = preset(500, paper=20_000)
    num_test: int = preset(2_000, paper=20_000)
    num_experts: int = preset(8, smoke=2)
    filters: tuple[int, int] = preset((4, 8), paper=(10, 20), smoke=(1, 1))
    units: int = preset(50, smoke=2)  # Of an expert's dense layers.
    towers: tuple[int, ...] = preset((50, 50), smoke=(2,))
    batch_size: int = preset(32, paper=256, smoke=48)
    # What is tuned; a single value is not.
    learning_rates: tuple[float, ...] = preset(
        (0.01, 1e-3), paper=(0.01, 1e-3, 1e-4, 1e-5)
    )
    epochs: tuple[int, ...] = preset((4,), paper=(25, 50, 75, 100), smoke=(1,))
    num_nonzeros: tuple[int, ...] = preset((2, 4), smoke=(2,))
    dense_layers: tuple[int, ...] = preset((1,), paper=(1, 3, 5))  # Of an expert.
    entropies: tuple[float, ...] = (0.1, 1.0, 10.0)
    gammas: tuple[float, ...] = (0.1, 1.0, 10.0)
    sparsities: tuple[float, ...] = (0.0, 1e-3, 1e-2, 0.1, 1.0, 10.0, 1000.0)

    @property
    def arms(self):
        return {
            arm_name(dataset, name): (dataset, method)
            for dataset in self.datasets
            for name, method in _gates.methods_of(self).items()
        }

    def space(self, arm):
        return _gates.choices(self._full_space(self.arms[arm][1]))

    def _full_space(self, method):
        """All settings of a method, also those with one value."""
        return _gates.search_space(self, method) | {"dense_layers": self.dense_layers}

    def run(self, arm, jobs):
        dataset, method = self.arms[arm]
        data = self._data(dataset)
        recorded = method.gate in SPARSE and not method.per_example
        found = [{}] * len(jobs)
        for shape, own in _gates.grouped(jobs, self._full_space(method), SHAPES):

            def build(_, *, shape=shape, **settings):
                return self._model(data, method, shape, **settings)

            runs = train_jobs(
                build,
                data,
                [job for _, job in own],
                record=recorded,
                epochs=shape["epochs"],
                batch_size=self.batch_size,
            )
            for i, (number, _) in enumerate(own):
                copy, k = runs.copies[i], shape.get("num_nonzeros")
                history = gate_history(copy)["mmoe"] if recorded else None
                found[number] = _judge(copy.model, data, method, k, history)
        return found

    def _data(self, dataset):
        if self.stand_in:
            return stand_in((36, 36, 1), dict.fromkeys(TASKS, 10))
        names = "num_train", "num_validation", "num_test", "data_dir"
        sizes = {name: getattr(self, name) for name in names}
        return multi_mnist(images=IMAGES[dataset], **sizes)

    def _model(self, data, method, shape, learning_rate, **settings):
        layers = keras.layers
        steps = shape["epochs"] * Batches(data.train, self.batch_size).num_batches
        k = shape.get("num_nonzeros")
        gate: Any = _gates.new_gate(method.gate, k, steps, **settings)
        parts = []
        for filters in self.filters:
            parts.append(layers.Conv2D(filters, 5, activation="relu"))
            parts.append(layers.MaxPooling2D())
        parts.append(layers.Flatten())
        dense = range(shape["dense_layers"])
        parts += [layers.Dense(self.units, activation="relu") for _ in dense]
        options = {"routing_network": layers.Flatten()} if method.per_example else {}
        model = build_multitask_model(
            data.train.x.shape[1:],
            [Task(name, "multiclass", 10, self.towers) for name in TASKS],
            "mmoe" if method.gate else "shared_bottom",
            experts=Experts(
                keras.Sequential(parts), self.num_experts if method.gate else 1
            ),
            gate=gate,
            per_example=method.per_example,
            **options,
        )
        model.compile(keras.optimizers.Adam(learning_rate))
        return model

    def gates_of(self, dataset):
        """The gates that are compared on a data set, with their arms."""
        own = (arm for arm, (name, _) in self.arms.items() if name == dataset)
        return [(arm.partition(": ")[2], arm) for arm in own]


def arm_name(dataset, method):
    """The name of a method on a data set."""
    return f"{TITLES[dataset]}: {method}"


def _judge(model, data, method, num_nonzeros, history):
    """What a trained model comes to."""
    scores, gates = _gates.look_at(model, data.validation.x, chunk=500)
    predictions, numbers = _gates.look_at(model, data.test.x, chunk=500)
    found = task_numbers(predictions, data.test.y) | numbers
    found["objective"] = task_numbers(scores, data.validation.y)["error"]
    found["admissible"] = _gates.is_admissible(gates, method, num_nonzeros)
    if history is None:
        return found
    # For Table 4, from records before the first step and after every one (on JAX, after
    # every epoch). Until the next record is what the last one says.
    used = (history["weights"] > 0).any(axis=1).sum(axis=1)
    found["evaluated"] = float(used[:-1].mean())
    found["decided"] = _gates.decided(history.get("binary"))
    return found


def task_numbers(predictions, labels):
    """The accuracies of the tasks, their mean error, and the sum of their losses."""
    numbers, loss = {}, 0.0
    for column, (name, probabilities) in enumerate(predictions.items()):
        truth = labels[:, column].astype(int)
        right = probabilities[np.arange(len(truth)), truth].astype("float64")
        loss += float(-np.log(right.clip(1e-7)).mean())
        hits = probabilities.argmax(axis=1) == truth
        numbers[f"accuracy_{name}"] = float(hits.mean())
    error = 1.0 - float(np.mean(list(numbers.values())))
    return {"loss": loss, "error": error, **numbers}


def shown(results, dataset, names, numbers):
    """Numbers of methods, as text: pairs of a name and a factor."""
    parts = []
    for name in names:
        arm = arm_name(dataset, name)
        texts = (results.text(arm, each, 3, scale) for each, scale in numbers)
        found = ", ".join(filter(None, texts))
        parts.append(f"{name}: {found or 'not run'}")
    return "; ".join(parts) + "."


def below(results, dataset, other, number, scale=1, under=0.0):
    """Whether a number of static DSelect-k is lower than another method's (`lower`)."""
    mine, other = arm_name(dataset, STATIC), arm_name(dataset, other)
    return lower(results, mine, other, number, scale, under)


def is_best_gate(results):
    """Whether DSelect-k is better than its rivals in accuracies and experts."""
    numbers = *((name, -1) for name, _ in ACCURACIES), ("experts", 1)
    return all_hold(
        below(results, "multi_mnist", rival, *each)
        for rival in RIVALS
        for each in numbers
    )


def is_best_of_all(results):
    """Whether DSelect-k has the lowest error on Multi-Fashion."""
    rivals = (name for name in METHODS if name != STATIC)
    return all_hold(below(results, "multi_fashion", name, "error") for name in rivals)


def tried_within_rules(results, arm):
    """How many trials of an arm keep the paper's rules, as text."""
    kept = [run.numbers["admissible"] for run in results.of(arm, tuning=True)]
    return f"{sum(kept)} of {len(kept)}"


def binary_after(results, dataset):
    """In how many runs S(Z) is binary, and after what share of the steps, as text."""
    mine = arm_name(dataset, STATIC)
    after = results.text(mine, "decided", scale=100)
    kept = within_rules(results, mine)
    share = after and f", after {after} % of the steps"
    return f"Binary in {kept.sum()} of {len(kept)} runs{share}"


def is_as_cheap(results, dataset):
    """Whether S(Z) is binary as early, and the cost lies on the paper's side."""
    steps, flops = TABLE_4[dataset]
    share = results.values(mine := arm_name(dataset, STATIC), "decided")
    less = below(results, dataset, TOP_K, "evaluated", 1 if flops < 1 else -1)
    early = bool((100 * share <= steps).all())
    return _gates.if_within_rules(results, mine, all_hold([early, less]))
