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
from common.timing import medians_in_turns
from common.training_run import BACKUP, CURVE, HISTORY, SHOWN, Curve
from dselectk_keras import (
    GateRecorder,
    MultitaskModel,
    TableModel,
    build_multitask_model,
    condense,
    read_table,
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
    find_targets,
    sort_rows,
)
from dselectk_keras.tables.scores import predictions_of, scores_of

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


def read_parts(table, seed):
    """Read and split a table, and check what can be known before the training.

    Returns:
        Tables to train on, to validate on and to test on, and a list of `Target`.
    """
    frames = table.split(seed)
    train, validation, _ = frames
    targets = find_targets(train, table.targets)
    names = [target.name for target in targets]
    column_kinds(train.drop(columns=names), table.hashed)
    for target in targets:
        if target.classes != (0, 1):
            print(target)
        # Without labels, its validation loss would be 0.
        if validation[target.name].isna().all():
            raise ValueError(
                f"The target {target.name!r} must have labels in the rows to validate "
                f"on. Received: none in {len(validation)} rows. Take more rows, "
                "another --seed, or leave this target out; with --split-by, also the "
                "rows that are too new for labels."
            )
    return frames, targets


def encode_labels(frame, targets):
    """The labels of tasks, a table of numbers."""
    return pd.DataFrame({x.task.name: x.encode(frame[x.name]) for x in targets})


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
    compare=False,
    **options,
):
    """Train on a table; return the report.

    Args:
        run: A `TrainingRun`, which builds a network with gates; or a `TableModel`.
        path: See `Table`, and so for `targets` and further options.
        targets: The names of the targets.
        out: The folder to write into, and so on: see `TrainingRun.run`.
        overwrite: Whether to replace a run.
        progress: Whether to show the progress.
        resume: Whether to go on with a run. A `TableModel` is trained anew.
        log_dir: A folder for TensorBoard.
        callbacks: Further callbacks of Keras.
        compare: Whether to train models without a network too.
        **options: Options of `Table`.
    """
    table = Table(path, targets, **options)
    is_run = not isinstance(run, TableModel)
    settings = run.config if is_run else run.get_params()
    config = settings | table.config | {"compare": compare}
    config["precision"] = keras.config.dtype_policy().name
    out, finished = prepare_folder(out, config, overwrite, resume, REPORT)
    if finished is not None:
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
        return finished | {"tasks": numbers(finished["tasks"])}
    frames, targets = read_parts(table, run.seed)
    if not (resume and (out / CHECKPOINTS / CONFIG).exists()):
        # The report first: with it, a run is finished.
        for name in (REPORT, MODEL, GATES, f"{CHECKPOINTS}/{CONFIG}"):
            (out / name).unlink(missing_ok=True)
        for name in (SERVED, CHECKPOINTS):
            shutil.rmtree(out / name, ignore_errors=True)
    write_json(out / CHECKPOINTS / CONFIG, config)
    report = {"label": run.label if is_run else "TableModel", "config": config}
    report["rows"] = [len(frame) for frame in frames]
    others = [*callbacks]
    if log_dir is not None:
        others.append(keras.callbacks.TensorBoard(log_dir, write_graph=False))
    if is_run:
        model, found = _train_network(
            run, table, frames, targets, out, others, progress
        )
        report |= found
    else:
        names = [target.name for target in targets]
        # It holds rows out by itself.
        run.fit(pd.concat(frames[:2]), names, callbacks=others)
        model, targets = run.model, run.targets_
        report["val_task_loss"] = run.loss_
    report["tasks"] = judge(model, frames[2], targets)
    with whole(out / MODEL) as part:
        (model if is_run else run).save(part)
    if compare:
        report["without a network"] = rivals_of(table, frames, targets, run.seed)
    report["served"] = serve(model, frames[2], out)
    write_json(out / REPORT, report)
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    return report


def _train_network(run, table, frames, targets, out, others, progress):
    """Train a network with gates; return it, and its part of the report."""
    train, validation, _ = frames
    tasks = [target.task for target in targets]
    names = [target.name for target in targets]
    keras.utils.set_random_seed(run.seed)
    steps = run.epochs * math.ceil(len(train) / run.batch_size)
    model = build_multitask_model(
        table_encoder(train.drop(columns=names), train[names], table.hashed),
        tasks,
        run.architecture,
        experts=DenseExperts(run.num_experts or 8, run.units or (64,)),
        gate=run.make_gate(steps) if run.has_gate else "softmax",
        per_example=run.gates_see_examples,
        **run.architecture_options,
    )
    model = in_units_of_labels(model, targets)
    model.compile(keras.optimizers.Adam(run.learning_rate))
    probe = as_inputs(model, validation[:512]) if run.gates_see_examples else None
    history = out / CHECKPOINTS / HISTORY
    recorder = GateRecorder(1, "epochs", probe=probe, path=history)
    saved = [recorder] * run.has_gate
    own, held_out = [
        (as_inputs(model, x), encode_labels(x, targets)) for x in frames[:2]
    ]
    log = _fit(run, model, own, held_out, out / CHECKPOINTS, saved, others, progress)
    report: dict[str, Any] = {"val_task_loss": log.loss}
    if run.has_gate:
        # The first record is from before the first epoch.
        weights = expert_weights(recorder.history, len(tasks), log.epoch + 1)
        report["gates"] = dict(zip(names, weights.tolist(), strict=True))
        figure = plot_expert_heatmap(weights, task_names=names)
        save_figure(figure, out / GATES, dpi=200)
    return model, report


class Bar(keras.callbacks.ProgbarLogger):
    """Keras' progress bar, without the metrics of single tasks."""

    def on_epoch_end(self, epoch, logs=None):
        """End the bar of an epoch."""
        logs = {name: logs[name] for name in SHOWN if name in logs}
        super().on_epoch_end(epoch, logs)


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
    batches = Batches((x, y.to_numpy()), run.batch_size, run.seed)
    backup, curve = Backup(folder / BACKUP), Curve(folder / CURVE, batches)
    done = backup.restore(model)
    keep = KeepStopping(stopping, folder, done)
    shown = [Bar()] if progress else []
    model.fit(
        batches,
        validation_data=validation,
        shuffle=False,
        # A kill after the last epoch leaves nothing to train.
        epochs=done if keep.is_past else run.epochs,
        initial_epoch=done,
        # A callback before the backup has saved each epoch that is backed up.
        callbacks=[*saved, *decide, curve, stopping, keep, backup, *others, *shown],
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


def judge(model, test, targets):
    """The scores of each target, as `TableModel.evaluate` has them."""
    found = model.predict(test, batch_size=4096, verbose=0)
    return {
        x.name: scores_of(
            x, x.encode(test[x.name]), predictions_of(x, found[x.task.name])
        )
        for x in targets
    }


def rivals_of(table, frames, targets, seed):
    """The best models without a network by validation: their names and test errors."""
    from common.rivals import best, error, rivals

    names = [target.name for target in targets]
    train = frames[0].drop(columns=names)
    kinds = column_kinds(train, table.hashed)
    train, validation, test = (
        convert_columns(frame, kinds).assign(**{x: frame[x] for x in names})
        for frame in frames
    )
    found = {}
    for name, models in rivals(train, validation, names, seed=seed).items():
        kind = best(models)
        rows = test[test[name].notna()]
        labels, predicted = rows[name], models[kind].predict(rows.drop(columns=names))
        found[name] = [kind, error(labels, predicted, models[kind].classes)]
    return found


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
    """The report as lines of text; where models without a network win, they begin."""
    lines, others = [], []
    for name, scores in report["tasks"].items():
        text = ", ".join(
            f"{key.replace('_', ' ')} {value:.4g}" for key, value in scores.items()
        )
        weights = report.get("gates", {}).get(name, [])
        used = [f"{i} ({w:.2f})" for i, w in enumerate(weights) if w > 0.01]
        experts = f"; experts {', '.join(used)}" if used else ""
        lines.append(f"  {name:20s} {text}{experts}")
        kind, error = report.get("without a network", {}).get(name, (None, None))
        own = scores.get("log_loss", scores.get("rmse"))
        if kind and own is not None:
            which = "lower" if error < own else "no lower"
            others.append(
                f"{name}: {which} error by {kind}, {error:.4g} for {own:.4g}."
            )
    others.sort(key=lambda line: "no lower" in line)
    served = "{parameters} parameters, {milliseconds:.1f} ms for a row"
    if report["served"]["experts"]:
        served = f"{{experts}} experts, {served}"
    # A `TableModel` holds out rows of both parts.
    rows = sum(report["rows"][: 1 + (report["label"] == "TableModel")])
    label = f"{report['label']}, {rows} rows to train on"
    lines.append(f"  {'served':20s} {served.format(**report['served'])}")
    return "\n".join([*others, label, *lines])
