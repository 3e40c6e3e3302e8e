"""The copies of a model that `replicate` trains, and their results."""

import dataclasses
import itertools
import math
from typing import Any

import keras

from dselectk_keras._keras import all_layers, create_variables
from dselectk_keras.callbacks import GateRecorder


@dataclasses.dataclass(frozen=True)
class Stopping:
    """Which epoch of a copy is the best, and when its training stops.

    Args:
        epochs: The largest number of epochs.
        monitor: The name of the monitored result; `None` makes the last epoch best.
        sign: 1 if lower values are better, and -1 if higher ones are.
        patience: The number of epochs without improvement after which to stop.
        first: The first epoch that may be the best.
    """

    epochs: int
    monitor: str | None
    sign: int
    patience: int | None
    first: int = 0


@dataclasses.dataclass(eq=False)
class Copy:
    """A copy of a model: its seed and settings, its results and its best weights."""

    number: int
    seed: int
    settings: dict
    stopping: Stopping
    logs: list = dataclasses.field(default_factory=list)
    best_epoch: Any = None
    weights: Any = None
    status: str = "running"
    recorder: Any = None
    reader: Any = None

    def __str__(self):
        return f"copy {self.number} (seed {self.seed})"

    def build_model(self, build, batch):
        """The initial model, the same in every call."""
        keras.utils.set_random_seed(self.seed)
        model = build(self.seed, **self.settings)
        if not isinstance(model, keras.Model) or not model.compiled:
            raise ValueError(
                "`build(seed, **settings)` must return a compiled Keras model. "
                f"Received: {model!r}. Call `model.compile(...)` in `build`."
            )
        if getattr(model.optimizer, "use_ema", False):
            raise ValueError(
                "`replicate` does not support averaged weights. Received: an optimizer "
                "with use_ema=True. Leave it out."
            )
        create_variables(model, batch)
        return model

    def load_weights(self, model):
        """Assign the best weights of this copy to a model."""
        pairs = zip(prediction_variables(model), self.weights, strict=True)
        for variable, value in pairs:
            variable.assign(value)

    def start_recorder(self, model, probe):
        """Record the gates of a model from now on."""
        self.recorder = GateRecorder(every=1, unit="epochs", probe=probe)
        self.recorder.set_model(model)
        self.recorder.on_train_begin()

    def end_epoch(self, logs, read_weights):
        """Store the results of an epoch, and return whether the training has ended."""
        self.logs.append(logs)
        epoch, stopping = len(self.logs) - 1, self.stopping
        failed = not math.isfinite(logs.get("loss", 0.0))
        if not failed and self._improved():
            self.best_epoch, self.weights = epoch, read_weights()
        if failed:
            self.status = "failed"
        elif epoch + 1 == stopping.epochs:
            self.status = "finished"
        elif stopping.patience is not None and epoch > stopping.first:
            before = stopping.first - 1
            waited = epoch - (before if self.best_epoch is None else self.best_epoch)
            if waited >= max(stopping.patience, 1):
                self.status = "stopped"
        ended = self.status != "running"
        if ended and self.weights is None:
            self.best_epoch, self.weights = epoch, read_weights()
        return ended

    def _improved(self):
        monitor, sign = self.stopping.monitor, self.stopping.sign
        if monitor is None or len(self.logs) <= self.stopping.first:
            return False
        value = sign * self.logs[-1][monitor]
        if self.best_epoch is None:
            return not math.isnan(value)
        return value < sign * self.logs[self.best_epoch][monitor]


def build_models(build, copies, data, recorded):
    """Yield each copy and its initial model, checked to be of one architecture."""
    parts = None
    for copy in copies:
        model = copy.build_model(build, data.first_batch)
        if parts is None:
            parts = _describe(model)
            _check_monitor(model, copy.stopping.monitor, data.validation is not None)
        check_same(_describe(model), copy, parts, copies[0])
        if copy.number in recorded:
            copy.start_recorder(model, data.probe)
        yield copy, model


def prediction_variables(model):
    """The variables that a model's predictions depend on, trainable ones first."""
    return [*model.trainable_variables, *model.non_trainable_variables]


def _describe(model):
    """What all models of one architecture have in common, as a list of texts."""

    def size(variable):
        return f"{tuple(variable.shape)} of {variable.dtype}"

    # Without the names of the optimizer's variables, which contain Keras' counters.
    return [
        *(f"a variable {v.name!r} {size(v)}" for v in prediction_variables(model)),
        *(f"an optimizer's variable {size(v)}" for v in model.optimizer.variables),
        *(f"a layer {type(layer).__name__}" for layer in all_layers(model)),
    ]


def check_same(parts, copy, other_parts, other):
    """Raise an error if the texts that describe two copies differ."""
    pairs = itertools.zip_longest(parts, other_parts, fillvalue="nothing")
    for part, other_part in pairs:
        if part != other_part:
            raise ValueError(
                "`build` must return one architecture. Received different "
                f"architectures: {copy} has {part}, and {other} has {other_part}. Call "
                "`replicate` once for each."
            )


def _check_monitor(model, monitor, has_validation):
    names = list(model.get_metrics_result())
    names += [f"val_{name}" for name in names] if has_validation else []
    if monitor is not None and monitor not in names:
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise ValueError(
            f"`monitor` must be the name of a result: {shown}. Received: {monitor!r}. "
            "Names that begin with 'val_' need `validation_data`."
        )
