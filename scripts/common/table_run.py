"""Train a `TableModel` on a table of one's own, and report what it is worth."""

import dataclasses
import json
import shutil
from typing import Any

import keras
import numpy as np
import pandas as pd

from common.files import whole, write_json
from common.run_folder import prepare_folder
from common.timing import medians_in_turns
from dselectk_keras import read_table
from dselectk_keras.models.columns import as_inputs
from dselectk_keras.tables import (
    column_kinds,
    convert_columns,
    find_targets,
    sort_rows,
)

# The parts of the rows to train on and to validate on; the others are the test.
TRAIN, VALIDATION, FEWEST = 0.7, 0.15, 10
REPORT, MODEL, SERVED = "report.json", "model.keras", "served"


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


def train_table(model, table, out, overwrite=False, callbacks=(), compare=False):
    """Train on a table; return the report.

    Args:
        model: A `TableModel`, which holds rows out by itself.
        table: A `Table`.
        out: The folder to write into. The report is written last.
        overwrite: Whether to replace a run.
        callbacks: Callbacks of Keras.
        compare: Whether to train models without a network too.
    """
    config = json.loads(json.dumps(dataclasses.asdict(table), default=str))
    config |= model.get_params() | {"compare": compare}
    config["precision"] = keras.config.dtype_policy().name
    out, _ = prepare_folder(out, config, overwrite, result=REPORT)
    frames = table.split(model.seed)
    for target in find_targets(frames[0], table.targets):
        if target.classes != (0, 1):
            print(target)
    # The report first: with it, a run is finished.
    for name in (REPORT, MODEL):
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / SERVED, ignore_errors=True)
    rows, test = pd.concat(frames[:2]), frames[2]
    model.fit(rows, [*dict.fromkeys(table.targets)], callbacks=callbacks)
    scores = model.evaluate(test)
    report: dict[str, Any] = {
        "config": config,
        "rows": [len(rows), len(test)],
        "loss": model.loss_,
        "tasks": {name: own.dropna().to_dict() for name, own in scores.iterrows()},
    }
    with whole(out / MODEL) as part:
        model.save(part)
    if compare:
        report["without a network"] = rivals_of(table, frames, model.seed)
    report["served"] = serve(model.model, test, out)
    write_json(out / REPORT, report)
    return report


def rivals_of(table, frames, seed):
    """The best models without a network by validation: their names and test errors."""
    from common.rivals import best, error, rivals

    names = [*dict.fromkeys(table.targets)]
    kinds = column_kinds(frames[0].drop(columns=names), table.hashed)
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
    """Export the model, and measure what it costs."""
    row = as_inputs(model, test[:1])
    (seconds,) = medians_in_turns([lambda: model.predict_on_batch(row)], 20)
    if keras.backend.backend() == "tensorflow":
        model.export(out / SERVED, verbose=False)
    return {"parameters": model.count_params(), "milliseconds": 1e3 * seconds}


def describe(report):
    """The report as lines of text; where models without a network win, they begin."""
    lines, others = [], []
    for name, scores in report["tasks"].items():
        text = ", ".join(
            f"{key.replace('_', ' ')} {value:.4g}" for key, value in scores.items()
        )
        lines.append(f"  {name:20s} {text}")
        kind, error = report.get("without a network", {}).get(name, (None, None))
        own = scores.get("log_loss", scores.get("rmse"))
        if kind and own is not None:
            which = "lower" if error < own else "no lower"
            others.append(
                f"{name}: {which} error by {kind}, {error:.4g} for {own:.4g}."
            )
    others.sort(key=lambda line: "no lower" in line)
    served = "{parameters} parameters, {milliseconds:.1f} ms for a row"
    lines.append(f"  {'served':20s} {served.format(**report['served'])}")
    first = f"TableModel, {report['rows'][0]} rows to train on"
    return "\n".join([*others, first, *lines])
