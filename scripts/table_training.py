"""Train on a table of one's own, and end with a model that takes its raw columns."""

import contextlib
import math
import pathlib

import keras
import numpy as np
import pandas as pd

from dselectk_keras import (
    GateRecorder,
    MultitaskModel,
    Task,
    build_multitask_model,
    condense,
)
from dselectk_keras.experts import DenseExperts
from dselectk_keras.models.columns import as_inputs
from dselectk_keras.plots import plot_expert_heatmap
from dselectk_keras.plots.style import save_figure
from experiments.files import write_json
from experiments.scores import area_under_curve
from experiments.timing import medians_in_turns

# The parts of the rows to train on and to validate on; the others are the test.
TRAIN, VALIDATION = 0.7, 0.15
REPORT, MODEL, SERVED, GATES = "report.json", "model.keras", "served", "gates.png"


def read_table(path, targets):
    """Read a CSV or Parquet file, with numbers as float32 and gaps in labels as NaN.

    Of two values of a target, the larger becomes 1 and the other 0.
    """
    path = pathlib.Path(path)
    readers = {".csv": pd.read_csv, ".parquet": pd.read_parquet}
    if path.suffix not in readers:
        raise ValueError(
            f"`--table` must be a .csv or a .parquet file. Received: {path}."
        )
    frame = readers[path.suffix](path)
    unknown = [name for name in targets or [] if name not in frame]
    if not targets or unknown:
        raise ValueError(
            f"`--targets` must name columns of {path}: {', '.join(frame.columns)}. "
            f"Received: {', '.join(unknown or []) or 'none'}."
        )
    columns = {}
    for name, column in frame.items():
        if name in targets:
            columns[name] = _labels(name, column)
        elif column.notna().any():
            is_number = pd.api.types.is_numeric_dtype(column)
            columns[name] = _numbers(column) if is_number else _strings(name, column)
        else:
            print(f"Left out: {name}, which has no value.")
    if len(columns) == len(targets):
        raise ValueError(f"{path} must have columns beside the targets.")
    return pd.DataFrame(columns)


def _numbers(column):
    return column.to_numpy("float32", na_value=np.nan)


def _strings(name, column):
    known = column.dropna()
    if all(isinstance(value, str) for value in known):
        return column.astype(object).where(column.notna(), None)
    raise ValueError(
        f"The column {name!r} must have numbers, or strings alone. Received: "
        f"{known.iloc[0]!r}. Convert it, or remove it from the table."
    )


def _labels(name, column):
    values = sorted(column.dropna().unique())
    is_number = pd.api.types.is_numeric_dtype(column)
    if len(values) < 2 or (len(values) > 2 and not is_number):
        raise ValueError(
            f"The target {name!r} must have two values, such as 0 and 1, or numbers. "
            f"Received {len(values)}: {[str(value) for value in values[:5]]}."
        )
    if len(values) > 2:
        print(f"{name}: numbers from {values[0]:g} to {values[-1]:g}.")
        return _numbers(column)
    if values != [0, 1]:
        print(f"{name}: 1 is {values[1]!r}, and 0 is {values[0]!r}.")
    return column.map({values[0]: 0.0, values[1]: 1.0}).to_numpy("float32")


def split_rows(frame, seed):
    """Draw the rows to train on, to validate on and to test on."""
    order = np.random.default_rng(seed).permutation(len(frame))
    ends = [int(TRAIN * len(frame)), int((TRAIN + VALIDATION) * len(frame))]
    return [frame.iloc[rows] for rows in np.split(order, ends)]


def make_encoder(frame):
    """A model from raw columns to features, as in docs/tabular.md."""
    inputs, features = {}, []
    for name, column in frame.items():
        if column.dtype.kind == "f":
            scale = keras.layers.Normalization(axis=None)
            scale.adapt(column.dropna().to_numpy("float32"))
            inputs[name] = keras.Input((1,), name=name)
            missing = keras.ops.isnan(inputs[name])
            features.append(keras.ops.where(missing, 0.0, scale(inputs[name])))
            features.append(keras.ops.cast(missing, "float32"))
        elif keras.backend.backend() != "tensorflow":
            raise ValueError(
                f"The column {name!r} has strings, and only TensorFlow looks strings "
                f"up. Received: --backend {keras.backend.backend()}. Use TensorFlow, "
                "or write numbers."
            )
        else:
            known = sorted(column.dropna().unique())
            inputs[name] = keras.Input((), dtype="string", name=name)
            ids = keras.layers.StringLookup(vocabulary=known)(inputs[name])
            width = min(16, 2 + math.isqrt(len(known)))
            features.append(keras.layers.Embedding(len(known) + 1, width)(ids))
    return keras.Model(inputs, keras.layers.Concatenate()(features))


def make_task(name, labels):
    """A task of labels: numbers count by the part of their variance that is left."""
    if labels.dropna().isin([0, 1]).all():
        return Task(name, "binary", metrics=("AUC",))
    return Task(name, weight=1 / labels.var())


def in_units_of_labels(model, frame):
    """A model that predicts numbers from their mean and deviation on."""
    outputs = dict(model.output)
    for task in model.tasks:
        if task.kind == "regression":
            labels = frame[task.name]
            scale = keras.layers.Rescaling(labels.std(), labels.mean())
            outputs[task.name] = scale(outputs[task.name])
    return MultitaskModel(model.input, outputs, tasks=model.tasks)


def train_table(run, path, targets, out, overwrite=False, progress=True):
    """Train as a `TrainingRun` says, but on the table of a file; return the report."""
    out = pathlib.Path(out)
    if (out / REPORT).exists() and not overwrite:
        raise ValueError(f"{out} has a finished run. Pass --overwrite to replace it.")
    frame = read_table(path, targets)
    train, validation, test = split_rows(frame, run.seed)
    keras.utils.set_random_seed(run.seed)
    steps = run.epochs * math.ceil(len(train) / run.batch_size)
    model = build_multitask_model(
        make_encoder(train.drop(columns=targets)),
        [make_task(name, train[name]) for name in targets],
        run.architecture,
        experts=DenseExperts(run.num_experts or 8, run.units or (64,)),
        gate=run.make_gate(steps) if run.has_gate else "softmax",
        per_example=run.gates_see_examples,
        **run.architecture_options,
    )
    model = in_units_of_labels(model, train)
    model.compile(keras.optimizers.Adam(run.learning_rate))
    decided = math.ceil(run.decide_by * run.epochs)
    best = keras.callbacks.EarlyStopping(
        "val_task_loss",
        mode="min",
        patience=5,
        restore_best_weights=True,
        start_from_epoch=decided,
    )
    probe = as_inputs(model, validation[:512]) if run.gates_see_examples else None
    recorder = GateRecorder(1, "epochs", probe=probe)
    model.fit(
        train,
        train[targets],
        validation_data=(validation, validation[targets]),
        batch_size=run.batch_size,
        epochs=run.epochs,
        callbacks=[*[recorder] * run.has_gate, *run.make_decide(model), best],
        verbose=1 if progress else 0,
    )
    out.mkdir(parents=True, exist_ok=True)
    report = {"label": run.label, "config": run.config, "table": str(path)}
    report["rows"] = [len(train), len(validation), len(test)]
    report["tasks"] = judge(model, test)
    if run.has_gate:
        layer = list(recorder.history.tasks)[-1]
        weights = recorder.history[layer]["weights"][-1]
        report["gates"] = dict(zip(targets, weights.tolist(), strict=False))
        figure = plot_expert_heatmap(weights, task_names=recorder.history.tasks[layer])
        save_figure(figure, out / GATES, dpi=200)
    model.save(out / MODEL)
    report["served"] = serve(model, test, out)
    write_json(out / REPORT, report)
    return report


def judge(model, test):
    """AUC, and sum of predictions over that of labels; of numbers, error and R2."""
    predicted, tasks = model.predict(test, batch_size=4096, verbose=0), {}
    for task in model.tasks:
        name, known = task.name, test[task.name].notna().to_numpy()
        labels, guesses = test[name][known].to_numpy(), predicted[name][known, 0]
        if task.kind == "binary":
            level = float(guesses.sum() / labels.sum())
            auc = area_under_curve(labels, guesses)
            tasks[name] = {"auc": auc, "calibration": level}
        else:
            square = float(np.mean((guesses - labels) ** 2))
            explained = 1 - square / float(labels.var())
            tasks[name] = {"error": math.sqrt(square), "explained": explained}
    return tasks


def serve(model, test, out):
    """Shrink the model if its gates allow it, export it, and measure what it costs."""
    small = model
    with contextlib.suppress(ValueError):  # Gates that see examples, or are dense.
        small = condense(model)
    banks = [layer.experts for layer in small.layers if hasattr(layer, "experts")]
    row = as_inputs(small, test[:1])
    (seconds,) = medians_in_turns([lambda: small.predict_on_batch(row)], 20)
    if keras.backend.backend() == "tensorflow":
        small.export(out / SERVED, verbose=False)
    return {
        "experts": sum(bank.num_experts for bank in banks),
        "parameters": small.count_params(),
        "milliseconds": 1e3 * seconds,
    }


def describe(report):
    """The report as lines of text."""
    lines = [f"{report['label']}, {report['rows'][0]} rows to train on"]
    for name, task in report["tasks"].items():
        if "auc" in task:
            text = f"AUC {task['auc']:.4f}, calibration {task['calibration']:.2f}"
        else:
            text = f"error {task['error']:.4g}, R2 {task['explained']:.3f}"
        weights = report.get("gates", {}).get(name, [])
        used = [f"{i} ({w:.2f})" for i, w in enumerate(weights) if w > 0.01]
        experts = f"; experts {', '.join(used)}" if used else ""
        lines.append(f"  {name:20s} {text}{experts}")
    served = (
        "{experts} experts, {parameters} parameters, {milliseconds:.1f} ms for a row"
    )
    lines.append(f"  {'served':20s} {served.format(**report['served'])}")
    return "\n".join(lines)
