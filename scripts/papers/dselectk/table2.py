"""Table 2: gates on Multi-MNIST and Multi-Fashion."""

import dataclasses
import functools

import keras
import numpy as np

import dselectk_keras as dk
from experiments import Experiment, preset, stand_in, train_jobs
from experiments.train_jobs import gate_history
from experiments.training_run import make_tasks
from papers import citations
from papers.data import multi_mnist
from papers.dselectk import _gates
from papers.dselectk._gates import METHODS, STATIC, TOP_K, TOP_K_KERAS

TITLES = {"multi_mnist": "Multi-MNIST", "multi_fashion": "Multi-Fashion"}
IMAGES = {"multi_mnist": "mnist", "multi_fashion": "fashion_mnist"}
TASKS = ("top_left", "bottom_right")
PER_EXAMPLE, SOFTMAX = "DSelect-k, per-example", "softmax, per-example"
RIVALS = (TOP_K, TOP_K_KERAS, "Top-k, per-example", "Gumbel-softmax, static")
SHAPES = ("num_nonzeros", "epochs", "dense_layers")  # They need a program each.
ACCURACIES = [("accuracy_top_left", -1), ("accuracy_bottom_right", -1)]
# The paper's % of steps until binary, and FLOPS relative to Top-k.
TABLE_4 = {"multi_mnist": (42.33, 0.8), "multi_fashion": (80.02, 1.2)}


@dataclasses.dataclass(frozen=True)
class Table2(Experiment):
    """Convolutional experts, and a gate for each of the two images in one."""

    name = "dselectk-table2"
    title = "gates on Multi-MNIST and Multi-Fashion"
    paper = citations.DSELECT_K
    where = "Table 2"
    needs = ("MNIST and Fashion-MNIST", 36 * 36)

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
        _, method = self.arms[arm]
        return _gates.choices(self._full_space(method))

    def _full_space(self, method):
        """All settings of a method, also those with one value."""
        return _gates.search_space(self, method) | {"dense_layers": self.dense_layers}

    def run(self, arm, jobs):
        dataset, method = self.arms[arm]
        data, space = self._data(dataset), self._full_space(method)
        groups, found = {}, {}  # Those of one shape are trained together.
        for place, each in enumerate(jobs):
            shape, job = _gates.divided(each, space, SHAPES)
            groups.setdefault(tuple(shape.items()), {})[place] = job
        for items, own in groups.items():
            shape = dict(items)
            runs = train_jobs(
                functools.partial(self._model, data, method, shape),
                data,
                list(own.values()),
                record=method.is_followed,
                epochs=shape["epochs"],
                batch_size=self.batch_size,
            )
            for place, copy in zip(own, runs.copies, strict=True):
                found[place] = _judge(copy, data, method, shape)
        return [found[place] for place in range(len(jobs))]

    def _data(self, dataset):
        if self.stand_in:
            return stand_in((36, 36, 1), dict.fromkeys(TASKS, 10))
        names = "num_train", "num_validation", "num_test", "data_dir"
        sizes = {name: getattr(self, name) for name in names}
        return multi_mnist(images=IMAGES[dataset], **sizes)

    def _model(self, data, method, shape, seed, learning_rate, **settings):
        layers = keras.layers
        steps = shape["epochs"] * -(-len(data.train.x) // self.batch_size)
        k = shape.get("num_nonzeros")
        gate = _gates.new_gate(method.gate, k, steps, **settings)
        parts = []
        for filters in self.filters:
            parts.append(layers.Conv2D(filters, 5, activation="relu"))
            parts.append(layers.MaxPooling2D())
        parts.append(layers.Flatten())
        dense = range(shape["dense_layers"])
        parts += [layers.Dense(self.units, activation="relu") for _ in dense]
        expert = keras.Sequential(parts)
        options = {"routing_network": layers.Flatten()} if method.per_example else {}
        model = dk.build_multitask_model(
            data.train.x.shape[1:],
            make_tasks(data, self.towers),
            "mmoe" if method.gate else "shared_bottom",
            experts=dk.Experts(expert, self.num_experts if method.gate else 1),
            gate=gate,
            per_example=method.per_example,
            **options,
        )
        model.compile(keras.optimizers.Adam(learning_rate))
        return model


def arm_name(dataset, method):
    """The name of a method on a data set."""
    return f"{TITLES[dataset]}: {method}"


def _judge(copy, data, method, shape):
    """What a trained model comes to."""
    scores, gates = _gates.look_at(copy.model, data.validation.x, chunk=500)
    predictions, numbers = _gates.look_at(copy.model, data.test.x, chunk=500)
    found = task_numbers(predictions, data.test.y) | numbers
    found["objective"] = task_numbers(scores, data.validation.y)["error"]
    found["admissible"] = _gates.is_admissible(gates, method, shape)
    if method.is_followed:
        # Records are from before the first step and after every one (on JAX, after
        # every epoch). Until the next record is what the last one says.
        history = gate_history(copy)["mmoe"]
        found |= _gates.cost(history["weights"][:-1], history.get("binary"))
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


def below(results, dataset, others, numbers, name=STATIC):
    """Whether numbers of static DSelect-k are lower than those of others.

    Numbers are tuples of a name, and of the factor and slack of `_gates.lower`.
    """
    return _gates.lower(
        results,
        [
            (arm_name(dataset, name), arm_name(dataset, other), *number)
            for other in others
            for number in numbers
        ],
    )
