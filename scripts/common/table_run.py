"""Train on a table of one's own, and end with a model that takes its columns."""

import contextlib
import dataclasses
import hashlib
import json
import math
import pathlib
import shutil
from typing import Any, NamedTuple

import keras
import numpy as np
import pandas as pd

from common.backup import Backup, KeepStopping
from common.files import numbers, whole, write_json
from common.run_folder import CHECKPOINTS, CONFIG, prepare_folder
from common.scores import area_under_curve
from common.timing import medians_in_turns
from common.training_run import BACKUP, CURVE, HISTORY, Curve
from dselectk_keras import (
    GateRecorder,
    MultitaskModel,
    build_multitask_model,
    condense,
    table_encoder,
)
from dselectk_keras.batches import Batches
from dselectk_keras.experts import DenseExperts
from dselectk_keras.models.columns import as_inputs
from dselectk_keras.plots import plot_expert_heatmap
from dselectk_keras.plots.style import save_figure
from dselectk_keras.tables import (
    column_kinds,
    convert_columns,
    describe_columns,
    find_targets,
    read_table,
    sort_rows,
)

# The parts of the rows to train on and to validate on; the others are the test.
TRAIN, VALIDATION, FEWEST = 0.7, 0.15, 10
PATIENCE = 5  # Epochs after the best one.
REPORT, MODEL, SERVED, GATES = "report.json", "model.keras", "served", "gates.png"


@dataclasses.dataclass(frozen=True)
class Table:
    """The table of a user, and how it is split.

    Args:
        path: A file, or a folder of files, for `read_table`.
        targets: The names of the columns to predict.
        drop: The names of columns to leave out.
        split_by: The name of a column of numbers or dates: the last rows are the test.
            It is left out, because later rows have values that no row before has.
        test: Another such file, whose rows are the test: all rows of the first are to
            train on and to validate on.
        encoding: The encoding of text files.
        hashed: For columns of ids, their names and numbers of embeddings.
    """

    path: Any
    targets: Any
    drop: Any = ()
    split_by: str | None = None
    test: Any = None
    encoding: str = "utf-8"
    hashed: dict = dataclasses.field(default_factory=dict)

    @property
    def config(self):
        """The fields by name, as JSON values, and a digest of the files."""
        fields = json.loads(json.dumps(dataclasses.asdict(self), default=str))
        files = [_digest(path) for path in (self.path, self.test) if path is not None]
        return {"data": fields.pop("path"), **fields, "contents of the table": files}

    def split(self, seed):
        """Read the rows to train on, to validate on and to test on.

        They are drawn by a seed, or in the order of `split_by`.
        """
        frame = read_table(self.path, self.encoding)
        _check_names(self.path, frame, "--drop", self.drop)
        _check_names(self.path, frame, "--targets", self.targets or ())
        drop = {*self.drop} - {*(self.targets or ())}
        if self.split_by is not None:
            frame, drop = sort_rows(frame, self.split_by), {*drop, self.split_by}
        if len(frame) < FEWEST:
            raise ValueError(
                f"A table must have at least {FEWEST} rows. Received: {len(frame)}."
            )
        rows = np.arange(len(frame))
        if self.split_by is None:
            rows = np.random.default_rng(seed).permutation(rows)
        parts = np.array([TRAIN, TRAIN + VALIDATION])
        ends = parts if self.test is None else parts / parts[1]
        parts = np.split(rows, (len(rows) * ends).astype(int))
        frames = [frame.iloc[part].drop(columns=[*drop]) for part in parts]
        if self.test is not None:
            frames[2] = read_table(self.test, self.encoding)
            _check_names(self.test, frames[2], f"the columns of {self.path}", frames[0])
        return frames


def _check_names(path, frame, what, names):
    """Check that names are those of columns."""
    if unknown := [name for name in names if name not in frame]:
        raise ValueError(
            f"{what} must name columns of {path}: {', '.join(frame.columns)}. "
            f"Received: {', '.join(unknown)}."
        )


def _digest(path):
    """A digest of a file, or of those of a folder."""
    path, found = pathlib.Path(path), hashlib.sha256()
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    for each in files:
        if each.is_file():
            with each.open("rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


@dataclasses.dataclass(frozen=True)
class Parts:
    """The rows of a table as pairs of columns and labels, and what they mean."""

    targets: list
    train: tuple
    validation: tuple
    test: tuple


def read_parts(table, seed):
    """Read and split a table; what it holds comes from the rows to train on alone."""
    frames = table.split(seed)
    train, validation, _ = frames
    targets = find_targets(train, table.targets)
    names = [target.name for target in targets]
    columns = train.drop(columns=names)
    kinds = column_kinds(columns, table.hashed)
    meant = [each for each in targets if each.classes != (0, 1)]
    for line in (*meant, *describe_columns(columns, kinds)):
        print(line)
    for name in names:
        # Without labels, its validation loss would be 0.
        if validation[name].isna().all():
            raise ValueError(
                f"The target {name!r} must have labels in the rows to validate on. "
                f"Received: none in {len(validation)} rows. Take more rows, another "
                "--seed, or leave this target out; with --split-by, also the rows that "
                "are too new for labels."
            )
    pairs = [
        (
            convert_columns(frame, kinds),
            pd.DataFrame({x.task.name: x.encode(frame[x.name]) for x in targets}),
        )
        for frame in frames
    ]
    return Parts(targets, *pairs)


def in_units_of_labels(model, targets):
    """A model that predicts numbers from their mean and deviation on."""
    outputs = dict(model.output)
    for target in targets:
        if target.kind == "number":
            moments = target.deviation, target.mean
            scale = keras.layers.Rescaling(*moments, dtype="float32")
            outputs[target.task.name] = scale(outputs[target.task.name])
    return MultitaskModel(
        model.input,
        outputs,
        tasks=model.tasks,
        label_average=model.task_losses.label_average,
        task_weighting=model.task_losses.task_weighting,
    )


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
    config = run.config | table.config
    config["precision"] = keras.config.dtype_policy().name
    out, finished = prepare_folder(out, config, overwrite, resume, REPORT)
    if finished is not None:
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
        return finished | {"tasks": numbers(finished["tasks"])}
    parts = read_parts(table, run.seed)
    train, validation, test = parts.train, parts.validation, parts.test
    tasks = [target.task for target in parts.targets]
    keras.utils.set_random_seed(run.seed)
    steps = run.epochs * math.ceil(len(train[0]) / run.batch_size)
    model = build_multitask_model(
        table_encoder(train[0], table.hashed),
        tasks,
        run.architecture,
        experts=DenseExperts(run.num_experts or 8, run.units or (64,)),
        gate=run.make_gate(steps) if run.has_gate else "softmax",
        per_example=run.gates_see_examples,
        **run.architecture_options,
    )
    model = in_units_of_labels(model, parts.targets)
    model.compile(keras.optimizers.Adam(run.learning_rate))
    if not (resume and (out / CHECKPOINTS / CONFIG).exists()):
        # The report first: with it, a run is finished.
        for name in (REPORT, MODEL, GATES, f"{CHECKPOINTS}/{CONFIG}"):
            (out / name).unlink(missing_ok=True)
        for name in (SERVED, CHECKPOINTS):
            shutil.rmtree(out / name, ignore_errors=True)
    write_json(out / CHECKPOINTS / CONFIG, config)
    probe = as_inputs(model, validation[0][:512]) if run.gates_see_examples else None
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
    report["rows"] = [len(x) for x, _ in (train, validation, test)]
    report["tasks"] = judge(model, *test)
    if run.has_gate:
        # The first record is from before the first epoch.
        weights = expert_weights(recorder.history, len(tasks), log.epoch + 1)
        names = [task.name for task in tasks]
        report["gates"] = dict(zip(names, weights.tolist(), strict=True))
        figure = plot_expert_heatmap(weights, task_names=names)
        save_figure(figure, out / GATES, dpi=200)
    with whole(out / MODEL) as part:
        model.save(part)
    report["served"] = serve(model, test[0], out)
    write_json(out / REPORT, report)
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    return report


class Log(NamedTuple):
    """The epoch whose weights are kept, and its validation loss."""

    epoch: int
    loss: float


def _fit(run, model, train, validation, folder, saved, others, progress):
    """Train, or go on with it, up to the weights of the best epoch."""
    decide = run.make_decide(model)
    stopping = keras.callbacks.EarlyStopping(
        "val_task_loss",
        mode="min",
        patience=PATIENCE,
        restore_best_weights=True,
        # An epoch before the decision is another model.
        start_from_epoch=math.ceil(run.decide_by * run.epochs) if decide else 0,
    )
    x, y = train
    data = as_inputs(model, x), y.to_numpy()
    batches = Batches(data, run.batch_size, run.seed)
    backup, curve = Backup(folder / BACKUP), Curve(folder / CURVE, batches)
    done = backup.restore(model)
    keep = KeepStopping(stopping, folder, done)
    model.fit(
        batches,
        validation_data=validation,
        shuffle=False,
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


def judge(model, x, y):
    """AUC, and sum of predictions over that of labels; of numbers, error and R2.

    Of classes, the part of the rows whose class has the largest probability.
    """
    predicted, tasks = model.predict(x, batch_size=4096, verbose=0), {}
    for task in model.tasks:
        name, known = task.name, y[task.name].notna().to_numpy()
        labels, guesses = (
            np.asarray(each[known], "float64")
            for each in (y[name].to_numpy(), predicted[name])
        )
        likeliest = guesses.argmax(axis=1)
        guesses = guesses[:, 0]
        found: dict[str, Any] = {"labels": len(labels)}
        tasks[name] = found
        if task.kind == "binary":
            found["positives"] = int(labels.sum())
            found["auc"] = area_under_curve(labels, guesses)
            found["calibration"] = _ratio(guesses.sum(), labels.sum())
        elif task.kind == "multiclass":
            found["accuracy"] = _ratio((likeliest == labels).sum(), len(labels))
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
        elif "accuracy" in task:
            text = f"accuracy {task['accuracy']:.3f}"
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
