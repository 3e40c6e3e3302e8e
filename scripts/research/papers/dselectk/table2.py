"""Table 2: gates on Multi-MNIST and Multi-Fashion."""

import dataclasses
import functools
import itertools
from typing import Any

import keras
import numpy as np

import dselectk_keras as dk
from common.training_run import make_tasks
from research.engine import (
    Claim,
    Experiment,
    WithinRules,
    all_hold,
    by_group,
    preset,
    stand_in,
    train_jobs,
)
from research.engine.plan import price
from research.engine.results import how_many
from research.engine.train_jobs import gate_history
from research.papers import citations
from research.papers.data import multi_mnist
from research.papers.dselectk import _gates
from research.papers.dselectk._gates import (
    METHODS,
    STARTS,
    STATIC,
    TOP_K,
    TOP_K_KERAS,
    is_binary_by,
    with_start,
    within_rules,
)

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
    looks = 2

    seeds: int = preset(32, paper=100, smoke=1)
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
    # Tuned, if there are several values.
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
            for name in self.methods
            for method in [METHODS[name]]
        }

    @property
    def num_steps(self):
        """The training steps of a run of the first length."""
        return self.epochs[0] * -(-self.num_train // self.batch_size)

    def space(self, arm):
        _, method = self.arms[arm]
        return _gates.choices(self._full_space(method))

    def _full_space(self, method):
        """All settings of a method, also those with one value."""
        return _gates.search_space(self, method) | {"dense_layers": self.dense_layers}

    def run(self, arm, jobs):
        dataset, method = self.arms[arm]
        data, space = self._data(dataset), self._full_space(method)

        def divided(job):
            return _gates.divided(job, space, SHAPES)

        def train(items, own):
            shape = dict(items)
            runs = train_jobs(
                functools.partial(self._model, data, method, shape),
                data,
                [divided(job)[1] for job in own],
                record=_gates.is_followed(method),
                epochs=shape["epochs"],
                batch_size=self.batch_size,
            )
            return [_judge(copy, data, method, shape) for copy in runs.copies]

        # Those of one shape are trained together.
        return by_group(jobs, lambda job: tuple(divided(job)[0].items()), train)

    def _data(self, dataset):
        if self.stand_in:
            return stand_in((36, 36, 1), dict.fromkeys(TASKS, 10))
        names = "num_train", "num_validation", "num_test", "data_dir"
        sizes = {name: getattr(self, name) for name in names}
        return multi_mnist(images=IMAGES[dataset], **sizes)

    def _model(self, data, method, shape, seed, learning_rate, **settings):
        layers = keras.layers
        k = shape.get("num_nonzeros")
        gate = _gates.new_gate(method.gate, k, **settings)
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

    @property
    def claims(self):
        error, experts = [("error", 100)], ("experts", 1)
        accuracies = [(name, 100) for name, _ in ACCURACIES]
        for start in STARTS:
            rivals, every = (with_start(names, start) for names in (RIVALS, METHODS))
            numbers = [*ACCURACIES, ("experts",)]
            shown = [*accuracies, experts]
            yield lower("better", rivals, numbers, shown, start)
            points = [("accuracy_bottom_right", -100, -1)]
            yield lower("second-task", [start], points, accuracies, start)
            others = [name for name in every if name != STATIC]
            yield lower("best", others, [("error",)], error, start, "multi_fashion")
        close = [("error", 1, 0.01), ("experts",)]
        yield lower("close", [SOFTMAX], close, [*error, experts])
        yield lower("static", [PER_EXAMPLE], [("error",)], error)
        yield from itertools.starmap(as_table_4, itertools.product(TABLE_4, STARTS))

    def table_multi_mnist(self, results):
        return self._table(results, "multi_mnist")

    def table_multi_fashion(self, results):
        return self._table(results, "multi_fashion")

    def _table(self, results, dataset):
        yield (
            "gate | accuracy 1, % | accuracy 2, % | loss | experts | runs within the "
            "rules"
        )
        for arm, (of, _) in self.arms.items():
            if of == dataset:
                tasks = (f"accuracy_{task}" for task in TASKS)
                accuracies = results.texts(arm, *tasks, digits=4, scale=100)
                texts = results.texts(arm, "loss", "experts")
                kept = how_many(within_rules(results, arm))
                yield [arm.partition(": ")[2], *accuracies, *texts, kept]

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "price": lambda r: price(r, num_train=20_000, epochs=(10,)),
            "binary_trials": lambda r: "; ".join(
                f"{TITLES[dataset]}, {how_many(kept)}"
                for dataset in self.datasets
                for arm in [arm_name(dataset, STATIC)]
                for kept in [within_rules(r, arm, tuning=True)]
            ),
        }


def lower(claim, others, numbers, shown, start=TOP_K, dataset="multi_mnist"):
    """The claim that numbers of static DSelect-k are lower than those of others.

    Args:
        claim: Its id.
        others: The names of the others.
        numbers: See `below`.
        shown: The numbers that are shown; see `as_text`.
        start: The start of Top-k.
        dataset: The name of the data set.
    """
    test = functools.partial(below, dataset=dataset, others=others, numbers=numbers)
    names: Any = {"start": start, "begins": STARTS[start]}
    methods = [STATIC, *others]
    names["shown"] = lambda r: as_text(r, dataset, methods, shown)
    return Claim(claim, test, names)


def as_table_4(dataset, start):
    """The claim on Table 4 of a data set, with a start of Top-k."""
    steps, flops = TABLE_4[dataset]
    ours, theirs = (arm_name(dataset, method) for method in (STATIC, start))
    names = {"title": TITLES[dataset], "begins": STARTS[start], "steps": steps}
    names |= {"flops": flops, "ours": ours, "theirs": theirs}
    names |= {"more": "more", "fewer": "more"}
    if flops < 1:
        names |= {"more": "less", "fewer": "fewer"}
    test = functools.partial(as_in_table_4, dataset=dataset, start=start)
    return Claim("binary", WithinRules(test), names)


def arm_name(dataset, method):
    """The name of a method on a data set."""
    return f"{TITLES[dataset]}: {method}"


def _judge(copy, data, method, shape):
    """The numbers of a trained model: errors, gates, and whether it is admissible."""
    scores, gates = _gates.look_at(copy.model, data.validation.x, chunk=500)
    predictions, numbers = _gates.look_at(copy.model, data.test.x, chunk=500)
    found = task_numbers(predictions, data.test.y) | numbers
    found["objective"] = task_numbers(scores, data.validation.y)["error"]
    found["admissible"] = _gates.is_admissible(gates, method, shape)
    if _gates.is_followed(method):
        # Records are from before the first step and after every one (on JAX, after
        # every epoch). A record counts until the next one.
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


def as_text(results, dataset, names, numbers):
    """Numbers of methods, as text: pairs of a name and a factor."""
    parts = []
    for name in names:
        arm = arm_name(dataset, name)
        texts = (results.text(arm, each, 3, scale) for each, scale in numbers)
        found = ", ".join(filter(None, texts))
        parts.append(f"{name}: {found or 'not run'}")
    return "; ".join(parts) + "."


def above(results, start):
    """Points by which static DSelect-k is above Top-k in task 2's accuracy."""
    arms = (arm_name("multi_mnist", name) for name in (STATIC, start))
    return results.gap(*arms, "accuracy_bottom_right", 100)


def as_in_table_4(results, dataset, start):
    """Test that S(Z) is binary as early, and training as costly, as in the paper."""
    steps, flops = TABLE_4[dataset]
    number = "evaluated", 1 if flops < 1 else -1
    early = is_binary_by(results, arm_name(dataset, STATIC), steps)
    return all_hold([early, below(results, dataset, [start], [number])])


def below(results, dataset, others, numbers, name=STATIC):
    """Judge whether numbers of static DSelect-k are lower than those of others.

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
