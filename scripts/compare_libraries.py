"""Train one MMoE with this package and with two libraries of recommender models.

    python scripts/compare_libraries.py --data-dir data

The data are the files of UCI Adult, in a folder `adult`: two tasks, an income above
50,000 dollars and never married. It needs torch and pandas, and compares with
torch-rechub and DeepCTR-Torch if they are installed. Prints a table in Markdown: also
of the examples per second of training, with the building of the model and a prediction.
"""

# pyright: reportMissingImports=false
import contextlib
import importlib.util
import inspect
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
from command_line import choose_backend, make_parser

COLUMNS = "age workclass weight education years marital_status occupation relationship"
COLUMNS += " race sex capital_gain capital_loss hours country income"
STRINGS = ["workclass", "education", "occupation", "race", "sex", "country"]
NUMBERS = ["age", "capital_gain", "capital_loss", "hours"]
TASKS = ["income", "never_married"]
# Embeddings, experts, units of an expert and of a tower; then the training.
WIDTH, EXPERTS, UNITS, TOWER = 4, 8, 16, 8
EPOCHS, BATCH_SIZE, RATE = 5, 256, 0.005
# Of this package, besides MMoE.
OTHERS = {
    "shared bottom": ("shared_bottom",),
    "PLE": ("ple",),
    "static DSelect-k": ("mmoe", "dselect_k", False),
}


def main(arguments=None):
    """Train each library with each seed, and print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--data-dir", default="data", help="folder with adult/")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs of each")
    options = parser.parse_args(arguments)
    choose_backend("torch")
    tables = read(pathlib.Path(options.data_dir) / "adult")
    print("| library | lines | AUC of income | AUC of never married | examples / s |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for run in (dselectk_keras, torch_rechub, deepctr_torch):
        if importlib.util.find_spec(run.__name__) is None:
            continue
        print(f"| {run.__name__} | {row(run, tables, options.seeds)} |")
    for name, given in OTHERS.items():
        cells = row(dselectk_keras, tables, options.seeds, *given)
        print(f"| dselectk_keras, {name} | {cells} |")


def row(run, tables, seeds, *options):
    """The lines of code, the mean and standard error of each task's AUC, and the speed.

    Speeds are medians, of the examples of all epochs by the seconds of a run.
    """
    from experiments.scores import area_under_curve

    labels, found, seconds = tables[1][TASKS].to_numpy(), [], []
    for seed in range(seeds):
        begin = time.perf_counter()
        with contextlib.redirect_stdout(sys.stderr):  # Some report their training.
            predicted = run(*tables, seed, *options)
        seconds.append(time.perf_counter() - begin)
        predicted = np.reshape(predicted, labels.shape)
        found.append(list(map(area_under_curve, labels.T, predicted.T)))
    lines = [line.strip() for line in inspect.getsource(run).splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    # Without the line of `def`, and the docstring.
    cells = [str(len(lines) - 1 - lines.index(f'"""{run.__doc__}"""'))]
    for column in zip(*found, strict=True):
        error = statistics.stdev(column) / seeds**0.5 if seeds > 1 else 0.0
        cells.append(f"{statistics.mean(column):.4f} ± {error:.4f}")
    speed = EPOCHS * len(tables[0]) / statistics.median(seconds)
    cells.append(f"{speed:,.0f}")
    return " | ".join(cells)


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


def dselectk_keras(
    train, test, seed, architecture="mmoe", gate="softmax", per_example=True
):
    """This package."""
    import keras

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
        architecture,
        experts=DenseExperts(EXPERTS, [UNITS]),
        gate=gate,
        per_example=per_example,
    )
    model.compile(keras.optimizers.Adam(RATE))
    model.fit(
        arrays(train), train[TASKS].to_numpy(), BATCH_SIZE, epochs=EPOCHS, verbose=0
    )
    found = model.predict(arrays(test), 4096, verbose=0)
    return np.concatenate([found[name] for name in TASKS], axis=1)


def torch_rechub(train, test, seed):
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
        n_epoch=EPOCHS,
        model_path=tempfile.mkdtemp(),
    )
    trainer.fit(training, validation)
    return trainer.predict(model, (batch for batch, _ in tested))


def deepctr_torch(train, test, seed):
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
    model.fit(arrays(train), y, BATCH_SIZE, epochs=EPOCHS, verbose=0)
    return model.predict(arrays(test), 4096)


if __name__ == "__main__":
    main()
