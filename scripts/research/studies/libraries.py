"""An MMoE by this package, and by two libraries of recommender models."""

# pyright: reportMissingImports=false
import contextlib
import dataclasses
import importlib.metadata
import inspect
import pathlib
import sys
import tempfile
import time
from typing import Any

import keras
import numpy as np

from dselectk_keras.tables.scores import area_under_curve
from research.engine import Arm, Experiment, preset

COLUMNS = "age workclass weight education years marital_status occupation relationship"
COLUMNS += " race sex capital_gain capital_loss hours country income"
STRINGS = ["workclass", "education", "occupation", "race", "sex", "country"]
NUMBERS = ["age", "capital_gain", "capital_loss", "hours"]
TASKS = ["income", "never_married"]
# Embeddings, experts, units of an expert and of a tower; then the training.
WIDTH, EXPERTS, UNITS, TOWER = 4, 8, 16, 8
BATCH_SIZE, RATE = 256, 0.005


@dataclasses.dataclass(frozen=True)
class Libraries(Experiment):
    """Models of the same sizes on UCI Adult, with nothing tuned.

    The tasks are an income above 50,000 dollars, and never married. The speed counts
    the examples of all epochs, with the building of the model and a prediction.
    """

    name = "libraries"
    title = "an MMoE by three libraries"
    needs = ("the files of UCI Adult in a folder `adult`", 10)
    page = """\
{table_libraries}

AUCs are means of {seeds} seeds with standard errors, speeds medians; \
`python scripts/reproduce.py libraries --backend torch --data-dir DATA`, {machines}."""

    seeds: int = preset(3, smoke=1)
    epochs: int = preset(5, smoke=1)

    @property
    def arms(self):
        """The function of each library; of this package, other models too."""
        ours: Any = {"more": {"train": dselectk_keras}}
        return {
            "dselectk_keras": Arm("softmax", per_example=True, **ours),
            "dselectk_keras, shared bottom": Arm(None, "shared_bottom", **ours),
            "dselectk_keras, PLE": Arm("softmax", "ple", per_example=True, **ours),
            "dselectk_keras, static DSelect-k": Arm("dselect_k", **ours),
            "torch-rechub": Arm(more={"train": torch_rechub}),
            "DeepCTR-Torch": Arm(more={"train": deepctr_torch}),
        }

    def run(self, arm, jobs):
        """Train one after the other, and measure the test AUC of each task."""
        if keras.backend.backend() != "torch":
            raise ValueError("The other libraries are of torch: --backend torch.")
        library, *_ = arm.split(",")
        try:
            version = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            raise ImportError(
                f"This arm needs {library}: pip install {library}."
            ) from None
        tables = read(pathlib.Path(self.data_dir or ".") / "adult")
        return [self._run(self.arms[arm], job, tables, version) for job in jobs]

    def _run(self, arm, job, tables, version):
        began = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr):  # Some report their training.
            predicted = arm.more["train"](*tables, job.seed, self.epochs, arm)
        seconds = time.perf_counter() - began
        labels = tables[1][TASKS].to_numpy()
        predicted = np.reshape(predicted, labels.shape)
        areas = map(area_under_curve, labels.T, predicted.T)
        return {
            **dict(zip(TASKS, areas, strict=True)),
            "examples_per_second": self.epochs * len(tables[0]) / seconds,
            "version": version,
        }

    def table_libraries(self, results):
        """The lines of code, the AUC of each task and the speed, by library."""
        heads = [f"AUC of {task.replace('_', ' ')}:" for task in TASKS]
        rows: list[Any] = [["library", "lines:", *heads, "examples / s:"]]
        for arm, own in self.arms.items():
            name = arm
            if own.more["train"] is not dselectk_keras:
                name = f"{arm} {results.ran(arm)[0].numbers['version']}"
            areas = results.texts(arm, *TASKS, digits=4)
            speed = np.median(results.values(arm, "examples_per_second"))
            lines = count_lines(own.more["train"])
            rows.append([name, str(lines), *areas, f"{speed:,.0f}"])
        return rows


def count_lines(function):
    """Count the lines of code of a function, without `def` and the docstring."""
    lines = [line.strip() for line in inspect.getsource(function).splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    return len(lines) - 1 - lines.index(f'"""{function.__doc__}"""')


def read(folder):
    """Tables for training and test: strings as integers, and numbers standardized."""
    import pandas as pd

    tables = []
    for part, header in (("data", 0), ("test", 1)):
        options = {"names": COLUMNS.split(), "skipinitialspace": True}
        path = folder / f"adult.{part}.gz"
        tables.append(pd.read_csv(path, skiprows=header, **options))
    first = tables[0].copy()
    for table in tables:
        for name in STRINGS:
            # 0 is for strings that the training data do not have.
            codes = {value: i for i, value in enumerate(first[name].unique(), 1)}
            table[name] = table[name].map(codes).fillna(0).astype("int64")
        scaled = (table[NUMBERS] - first[NUMBERS].mean()) / first[NUMBERS].std()
        table[NUMBERS] = scaled.astype("float32")
        table["income"] = table["income"].str.startswith(">").astype("float32")
        never = table["marital_status"] == "Never-married"
        table["never_married"] = never.astype("float32")
    return tables


def arrays(table):
    """The columns by name."""
    return {name: table[name].to_numpy() for name in STRINGS + NUMBERS}


def size(table, name):
    """Count the strings of a column, unknown ones included."""
    return int(table[name].max()) + 1


def dselectk_keras(train, test, seed, epochs, arm):
    """This package."""
    from dselectk_keras import DenseExperts, Task, build_multitask_model

    keras.utils.set_random_seed(seed)
    inputs = {name: keras.Input((), dtype="int32", name=name) for name in STRINGS}
    numbers = {name: keras.Input((1,), name=name) for name in NUMBERS}
    embedded = [
        keras.layers.Embedding(size(train, name), WIDTH)(x)
        for name, x in inputs.items()
    ]
    features = keras.layers.Concatenate()([*embedded, *numbers.values()])
    model = build_multitask_model(
        keras.Model({**inputs, **numbers}, features),
        [Task(name, "binary", tower=(TOWER,)) for name in TASKS],
        arm.architecture,
        experts=DenseExperts(EXPERTS, [UNITS]),
        gate=arm.gate,
        per_example=arm.per_example,
    )
    model.compile(keras.optimizers.Adam(RATE))
    model.fit(
        arrays(train), train[TASKS].to_numpy(), BATCH_SIZE, epochs=epochs, verbose=0
    )
    found = model.predict(arrays(test), 4096, verbose=0)
    return np.concatenate([found[name] for name in TASKS], axis=1)


def torch_rechub(train, test, seed, epochs, _):
    """The library torch-rechub."""
    import torch
    from torch_rechub.basic.features import DenseFeature, SparseFeature
    from torch_rechub.models.multi_task import MMOE
    from torch_rechub.trainers import MTLTrainer
    from torch_rechub.utils.data import DataGenerator

    torch.manual_seed(seed)
    features = [
        *(SparseFeature(name, size(train, name), embed_dim=WIDTH) for name in STRINGS),
        *(DenseFeature(name) for name in NUMBERS),
    ]
    kinds = ["classification"] * len(TASKS)
    towers = [{"dims": [TOWER]} for _ in TASKS]
    model = MMOE(features, kinds, EXPERTS, {"dims": [UNITS]}, towers)
    x, y = [arrays(table) for table in (train, test)], train[TASKS].to_numpy()
    # It keeps the best epoch, judged by the training data here.
    training, validation, tested = DataGenerator(x[0], y).generate_dataloader(
        x[0], y, x[1], test[TASKS].to_numpy(), batch_size=BATCH_SIZE
    )
    trainer = MTLTrainer(
        model,
        kinds,
        optimizer_params={"lr": RATE},
        n_epoch=epochs,
        model_path=tempfile.mkdtemp(),
    )
    trainer.fit(training, validation)
    return trainer.predict(model, (batch for batch, _ in tested))


def deepctr_torch(train, test, seed, epochs, _):
    """The library DeepCTR-Torch."""
    import torch
    from deepctr_torch.inputs import DenseFeat, SparseFeat
    from deepctr_torch.models import MMOE

    columns = [
        *(SparseFeat(name, size(train, name), WIDTH) for name in STRINGS),
        *(DenseFeat(name, 1) for name in NUMBERS),
    ]
    model = MMOE(
        columns,
        num_experts=EXPERTS,
        expert_dnn_hidden_units=(UNITS,),
        gate_dnn_hidden_units=(),
        tower_dnn_hidden_units=(TOWER,),
        l2_reg_linear=0.0,
        l2_reg_embedding=0.0,
        seed=seed,
        task_types=["binary"] * len(TASKS),
        task_names=TASKS,
    )
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    model.compile(optimizer, loss=["binary_crossentropy"] * len(TASKS))
    y = train[TASKS].to_numpy()
    model.fit(arrays(train), y, BATCH_SIZE, epochs=epochs, verbose=0)
    return model.predict(arrays(test), 4096)
