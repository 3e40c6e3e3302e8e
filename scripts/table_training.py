"""Train on a table of one's own, and end with a model that takes its raw columns."""

import contextlib
import dataclasses
import json
import math
import shutil
from typing import Any, NamedTuple

import keras
import numpy as np
import pandas as pd
from user_table import FILE, as_float32, read_columns

from common.backup import Backup
from common.files import numbers, whole, write_json
from common.scores import area_under_curve
from common.timing import medians_in_turns
from common.training_run import (
    BACKUP,
    CHECKPOINTS,
    CONFIG,
    CURVE,
    HISTORY,
    Curve,
    prepare_folder,
)
from dselectk_keras import (
    GateRecorder,
    MultitaskModel,
    Task,
    build_multitask_model,
    condense,
    table_encoder,
)
from dselectk_keras.experts import DenseExperts
from dselectk_keras.models.columns import as_inputs
from dselectk_keras.plots import plot_expert_heatmap
from dselectk_keras.plots.style import save_figure

# The parts of the rows to train on and to validate on; the others are the test.
TRAIN, VALIDATION, FEWEST = 0.7, 0.15, 10
PATIENCE = 5  # Epochs after the best one.
REPORT, MODEL, SERVED, GATES = "report.json", "model.keras", "served", "gates.png"


@dataclasses.dataclass(frozen=True)
class Table:
    """The table of a user, and how it is split; for the arguments see `read_columns`.

    With a `test` file, all rows of the first file are to train on and to validate on.
    """

    path: Any
    targets: Any
    drop: Any = ()
    split_by: str | None = None
    test: Any = None


def read_table(table):
    """Read a table, with labels as numbers that are NaN where they are missing.

    Of two values of a target, the larger becomes 1 and the other 0.

    Returns:
        The table, and a `Task` for each target.
    """
    options = table.drop, table.split_by, table.test
    frame, targets = read_columns(table.path, table.targets, *options)
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


def split_rows(frame, seed, in_order=False):
    """Draw the rows to train on, to validate on and to test on, or take them in order.

    The test rows are those of a second file, if there is one.
    """
    if len(frame) < FEWEST:
        raise ValueError(
            f"A table must have at least {FEWEST} rows. Received: {len(frame)}."
        )
    is_test = (frame.index == 1) & (frame.index.name == FILE)
    rows = np.flatnonzero(~is_test)
    if not in_order:
        rows = np.random.default_rng(seed).permutation(rows)
    # Without a test file, some rows are left for the test.
    parts = np.array([TRAIN, TRAIN + VALIDATION])
    ends = (len(rows) * (parts / parts[1] if is_test.any() else parts)).astype(int)
    train, validation, test = np.split(rows, ends)
    test = np.flatnonzero(is_test) if is_test.any() else test
    return [frame.iloc[rows] for rows in (train, validation, test)]


def in_units_of_labels(model, frame):
    """A model that predicts numbers from their mean and deviation on."""
    outputs = dict(model.output)
    for task in model.tasks:
        if task.kind == "regression":
            labels = frame[task.name].astype("float64")
            moments = float(labels.std()), float(labels.mean())
            scale = keras.layers.Rescaling(*moments, dtype="float32")
            outputs[task.name] = scale(outputs[task.name])
    return MultitaskModel(
        model.input,
        outputs,
        tasks=model.tasks,
        label_average=model.task_losses.label_average,
        task_weighting=model.task_losses.task_weighting,
    )


class KeepStopping(keras.callbacks.Callback):
    """Lets an `EarlyStopping` go on after an interruption: it keeps its state in files.

    Args:
        stopping: The `EarlyStopping`, which is before this one among the callbacks.
        folder: The folder of the files, one for each of the last two epochs.
        done: The number of epochs that a `Backup` has restored.
    """

    def __init__(self, stopping, folder, done):
        super().__init__()
        self.stopping, self.folder = stopping, folder
        self.kept = {}
        if done and self._path(done).exists():
            with np.load(self._path(done)) as found:
                self.kept = dict(found)

    def _path(self, epochs):
        return self.folder / f"stopping-{epochs:06d}.npz"

    @property
    def is_past(self):
        """Check whether the training had stopped before the interruption."""
        return self.kept.get("wait", 0) >= PATIENCE

    def on_train_begin(self, logs=None):
        """Restore the state."""
        if self.kept:
            best, wait, epoch = (self.kept[name] for name in ("best", "wait", "epoch"))
            self.stopping.best = None if np.isnan(best) else float(best)
            self.stopping.wait, self.stopping.best_epoch = int(wait), int(epoch)
            weights = [name for name in self.kept if name.isdigit()]
            if weights:
                self.stopping.best_weights = [
                    self.kept[name] for name in sorted(weights, key=int)
                ]

    def on_epoch_end(self, epoch, logs=None):
        """Keep the state, and that of the epoch before."""
        stopping = self.stopping
        best = np.nan if stopping.best is None else stopping.best
        state = {"best": best, "wait": stopping.wait, "epoch": stopping.best_epoch}
        weights = enumerate(stopping.best_weights or ())
        with whole(self._path(epoch + 1)) as part:
            np.savez(part, **state, **{str(i): each for i, each in weights})
        self._path(epoch - 1).unlink(missing_ok=True)


def train_table(
    run,
    path,
    targets,
    out,
    overwrite=False,
    progress=True,
    resume=False,
    log_dir=None,
    callbacks=(),
    **options,
):
    """Train as a `TrainingRun` says, but on a table; return the report.

    For path, targets and options see `Table`, and for the others `TrainingRun.run`.
    """
    table = Table(path, targets, **options)
    of_table = json.loads(json.dumps(dataclasses.asdict(table), default=str))
    config = run.config | {"data": of_table.pop("path")} | of_table
    config["precision"] = keras.config.dtype_policy().name
    out, finished = prepare_folder(out, config, overwrite, resume, REPORT)
    if finished is not None:
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
        return finished | {"tasks": numbers(finished["tasks"])}
    frame, tasks = read_table(table)
    targets = [task.name for task in tasks]
    in_order = table.split_by is not None
    train, validation, test = split_rows(frame, run.seed, in_order)
    for name in targets:
        if train[name].nunique() < 2:
            raise ValueError(
                f"The target {name!r} must have two values or more in the rows to "
                f"train on. Received: {train[name].nunique()} in {len(train)} rows. "
                "Take more rows, another --seed, or leave this target out."
            )
        # Without labels, its validation loss would be 0.
        if validation[name].isna().all():
            raise ValueError(
                f"The target {name!r} must have labels in the rows to validate on. "
                f"Received: none in {len(validation)} rows. Take more rows, another "
                "--seed, or leave this target out; with --split-by, also the rows that "
                "are too new for labels."
            )
    keras.utils.set_random_seed(run.seed)
    steps = run.epochs * math.ceil(len(train) / run.batch_size)
    model = build_multitask_model(
        table_encoder(train.drop(columns=targets)),
        tasks,
        run.architecture,
        experts=DenseExperts(run.num_experts or 8, run.units or (64,)),
        gate=run.make_gate(steps) if run.has_gate else "softmax",
        per_example=run.gates_see_examples,
        **run.architecture_options,
    )
    model = in_units_of_labels(model, train)
    model.compile(keras.optimizers.Adam(run.learning_rate))
    if not (resume and (out / CHECKPOINTS / CONFIG).exists()):
        # The report first: with it, a run is finished.
        for name in (REPORT, MODEL, GATES, f"{CHECKPOINTS}/{CONFIG}"):
            (out / name).unlink(missing_ok=True)
        for name in (SERVED, CHECKPOINTS):
            shutil.rmtree(out / name, ignore_errors=True)
    write_json(out / CHECKPOINTS / CONFIG, config)
    probe = as_inputs(model, validation[:512]) if run.gates_see_examples else None
    history = out / CHECKPOINTS / HISTORY
    recorder = GateRecorder(1, "epochs", probe=probe, path=history)
    others = [*callbacks]
    if log_dir is not None:
        others.append(keras.callbacks.TensorBoard(log_dir, write_graph=False))
    saved = [recorder] * run.has_gate
    log = _fit(
        run, model, train, validation, out / CHECKPOINTS, saved, others, progress
    )
    report = {"label": run.label, "config": config}
    report["val_task_loss"] = log.loss
    report["rows"] = [len(train), len(validation), len(test)]
    report["tasks"] = judge(model, test)
    if run.has_gate:
        # The first record is from before the first epoch.
        weights = expert_weights(recorder.history, len(targets), log.epoch + 1)
        report["gates"] = dict(zip(targets, weights.tolist(), strict=True))
        figure = plot_expert_heatmap(weights, task_names=targets)
        save_figure(figure, out / GATES, dpi=200)
    with whole(out / MODEL) as part:
        model.save(part)
    report["served"] = serve(model, test, out)
    write_json(out / REPORT, report)
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    return report


class Log(NamedTuple):
    """The epoch whose weights are kept, and its validation loss."""

    epoch: int
    loss: float


def _fit(run, model, train, validation, folder, saved, others, progress):
    """Train, or go on with it, up to the weights of the best epoch."""
    targets = [task.name for task in model.tasks]
    decide = run.make_decide(model)
    stopping = keras.callbacks.EarlyStopping(
        "val_task_loss",
        mode="min",
        patience=PATIENCE,
        restore_best_weights=True,
        # An epoch before the decision is another model.
        start_from_epoch=math.ceil(run.decide_by * run.epochs) if decide else 0,
    )
    backup, curve = Backup(folder / BACKUP), Curve(folder / CURVE)
    done = backup.restore(model)
    keep = KeepStopping(stopping, folder, done)
    model.fit(  # In another order of the rows after an interruption.
        train,
        train[targets],
        validation_data=(validation, validation[targets]),
        batch_size=run.batch_size,
        # A kill after the last epoch leaves nothing to train.
        epochs=done if keep.is_past else run.epochs,
        initial_epoch=done,
        # A callback before the backup has saved each epoch that is backed up.
        callbacks=[*saved, *decide, curve, stopping, keep, backup, *others],
        verbose=1 if progress else 0,
    )
    losses = curve.logs["val_task_loss"]
    # Without an epoch after the decision, the last one is kept.
    last = stopping.best_weights is None
    epoch = len(losses) - 1 if last else int(stopping.best_epoch)
    return Log(epoch, losses[epoch])


def expert_weights(history, num_tasks, record):
    """The weights that each task had on the experts, in the last layer with gates.

    In stacked layers, the last one has the towers' own gates.
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
