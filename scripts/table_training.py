"""Train on a table of one's own, and end with a model that takes its raw columns."""

import contextlib
import math
import pathlib
import shutil
from typing import Any

import keras
import numpy as np
import pandas as pd
from user_table import as_float32, read_columns

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
from experiments.files import whole, write_json
from experiments.scores import area_under_curve
from experiments.timing import medians_in_turns

# The parts of the rows to train on and to validate on; the others are the test.
TRAIN, VALIDATION, FEWEST = 0.7, 0.15, 10
FARTHEST = 10.0  # What a number may be from the mean, in standard deviations.
REPORT, MODEL, SERVED, GATES = "report.json", "model.keras", "served", "gates.png"


def read_table(path, targets):
    """Read a table, with labels as numbers that are NaN where they are missing.

    Of two values of a target, the larger becomes 1 and the other 0.

    Returns:
        The table, and a `Task` for each target.
    """
    frame, targets = read_columns(path, targets)
    tasks = []
    for name in targets:
        values = sorted(frame[name].dropna().unique())
        frame[name] = _labels(name, frame[name], values)
        if len(values) == 2:
            tasks.append(Task(name, "binary", metrics=("AUC",)))
        else:
            # Numbers count by the part of their variance that is left.
            weight = 1 / float(frame[name].astype("float64").var())
            tasks.append(Task(name, weight=weight))
    return frame, tasks


def _labels(name, column, values):
    is_number = pd.api.types.is_numeric_dtype(column)
    if len(values) < 2 or (len(values) > 2 and not is_number):
        raise ValueError(
            f"The target {name!r} must have two values, such as 0 and 1, or numbers. "
            f"Received {len(values)}: {[str(value) for value in values[:5]]}."
        )
    if len(values) > 2:
        print(f"{name}: numbers from {values[0]:g} to {values[-1]:g}.")
        return as_float32(f"target {name!r}", column)
    if values != [0, 1]:
        print(f"{name}: 1 is {values[1]!r}, and 0 is {values[0]!r}.")
    numbers = column.map({values[0]: 0.0, values[1]: 1.0})
    return numbers.to_numpy("float32", na_value=np.nan)


def split_rows(frame, seed):
    """Draw the rows to train on, to validate on and to test on."""
    if len(frame) < FEWEST:
        raise ValueError(
            f"A table must have at least {FEWEST} rows. Received: {len(frame)}."
        )
    order = np.random.default_rng(seed).permutation(len(frame))
    ends = [int(TRAIN * len(frame)), int((TRAIN + VALIDATION) * len(frame))]
    return [frame.iloc[rows] for rows in np.split(order, ends)]


def make_encoder(frame):
    """A model from raw columns to features, as in docs/tabular.md.

    What does not differ between the rows is left out: weights on it would not be
    trained, and other rows may have any number there.
    """
    inputs, features = {}, []
    for name, column in frame.items():
        if column.nunique(dropna=False) < 2:
            print(f"Left out: {name}, which has one value in the rows to train on.")
        elif column.dtype.kind == "f":
            known = column.dropna().astype("float64")
            inputs[name] = keras.Input((1,), name=name)
            missing = keras.ops.isnan(inputs[name])
            features.append(keras.ops.cast(missing, "float32"))
            if known.min() < known.max():
                mean, deviation = float(known.mean()), float(known.std())
                scale = keras.layers.Rescaling(1 / deviation, -mean / deviation)
                # Of a column that is almost constant, other rows may be far off.
                scaled = keras.ops.clip(scale(inputs[name]), -FARTHEST, FARTHEST)
                features.append(keras.ops.where(missing, 0.0, scaled))
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
    if not features:
        raise ValueError(
            "The table must have a column that differs between the rows to train on."
        )
    return keras.Model(inputs, keras.layers.Concatenate()(features))


def in_units_of_labels(model, frame):
    """A model that predicts numbers from their mean and deviation on."""
    outputs = dict(model.output)
    for task in model.tasks:
        if task.kind == "regression":
            labels = frame[task.name].astype("float64")
            scale = keras.layers.Rescaling(float(labels.std()), float(labels.mean()))
            outputs[task.name] = scale(outputs[task.name])
    return MultitaskModel(
        model.input,
        outputs,
        tasks=model.tasks,
        label_average=model.task_losses.label_average,
        task_weighting=model.task_losses.task_weighting,
    )


def train_table(run, path, targets, out, overwrite=False, progress=True):
    """Train as a `TrainingRun` says, but on the table of a file; return the report."""
    out = pathlib.Path(out)
    if (out / REPORT).exists() and not overwrite:
        raise ValueError(f"{out} has a finished run. Pass --overwrite to replace it.")
    frame, tasks = read_table(path, targets)
    targets = [task.name for task in tasks]
    train, validation, test = split_rows(frame, run.seed)
    for name in targets:
        if train[name].nunique() < 2:
            raise ValueError(
                f"The target {name!r} must have two values or more in the rows to "
                f"train on. Received: {train[name].nunique()} in {len(train)} rows. "
                "Take more rows, another --seed, or leave this target out."
            )
    keras.utils.set_random_seed(run.seed)
    steps = run.epochs * math.ceil(len(train) / run.batch_size)
    model = build_multitask_model(
        make_encoder(train.drop(columns=targets)),
        tasks,
        run.architecture,
        experts=DenseExperts(run.num_experts or 8, run.units or (64,)),
        gate=run.make_gate(steps) if run.has_gate else "softmax",
        per_example=run.gates_see_examples,
        **run.architecture_options,
    )
    model = in_units_of_labels(model, train)
    model.compile(keras.optimizers.Adam(run.learning_rate))
    decide = run.make_decide(model)
    best = keras.callbacks.EarlyStopping(
        "val_task_loss",
        mode="min",
        patience=5,
        restore_best_weights=True,
        # An epoch before the decision is another model.
        start_from_epoch=math.ceil(run.decide_by * run.epochs) if decide else 0,
    )
    probe = as_inputs(model, validation[:512]) if run.gates_see_examples else None
    recorder = GateRecorder(1, "epochs", probe=probe)
    model.fit(
        train,
        train[targets],
        validation_data=(validation, validation[targets]),
        batch_size=run.batch_size,
        epochs=run.epochs,
        callbacks=[*[recorder] * run.has_gate, *decide, best],
        verbose=1 if progress else 0,
    )
    out.mkdir(parents=True, exist_ok=True)
    for name in (REPORT, MODEL, GATES):  # Of another run.
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / SERVED, ignore_errors=True)
    report = {"label": run.label, "config": run.config, "table": str(path)}
    report["rows"] = [len(train), len(validation), len(test)]
    report["tasks"] = judge(model, test)
    if run.has_gate:
        kept = -1 if best.best_weights is None else best.best_epoch + 1
        weights = expert_weights(recorder.history, len(targets), kept)
        report["gates"] = dict(zip(targets, weights.tolist(), strict=True))
        figure = plot_expert_heatmap(weights, task_names=targets)
        save_figure(figure, out / GATES, dpi=200)
    with whole(out / MODEL) as part:
        model.save(part)
    report["served"] = serve(model, test, out)
    write_json(out / REPORT, report)
    return report


def expert_weights(history, num_tasks, record):
    """The weights that each task had on the experts, in the last layer with gates.

    The first record is from before the first epoch. In stacked layers, the last one has
    the towers' own gates.
    """
    weights = history[list(history.tasks)[-1]]["weights"][record]
    # All tasks may share a gate.
    return np.broadcast_to(weights, (num_tasks, weights.shape[-1]))


def judge(model, test):
    """AUC, and sum of predictions over that of labels; of numbers, error and R2."""
    predicted, tasks = model.predict(test, batch_size=4096, verbose=0), {}
    for task in model.tasks:
        name, known = task.name, test[task.name].notna().to_numpy()
        labels, guesses = (
            np.asarray(each[known], "float64")
            for each in (test[name].to_numpy(), predicted[name][:, 0])
        )
        found: dict[str, Any] = {"labels": len(labels)}
        tasks[name] = found
        if task.kind == "binary":
            found["positives"] = int(labels.sum())
            found["auc"] = area_under_curve(labels, guesses)
            found["calibration"] = _ratio(guesses.sum(), labels.sum())
        else:
            square = _ratio(((guesses - labels) ** 2).sum(), len(labels))
            spread = labels.var() if len(labels) else math.nan
            found["error"] = math.sqrt(square)
            found["explained"] = 1 - _ratio(square, spread)
    return tasks


def _ratio(number, other):
    """A ratio, NaN if the other number is zero."""
    return float(number / other) if other else math.nan


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
            text += f", {task['positives']} of {task['labels']} labels are 1"
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
