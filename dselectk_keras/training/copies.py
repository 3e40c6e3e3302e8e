"""One run among many: what it is, and what it has come to."""

import dataclasses
import math
from typing import Any

import keras

from dselectk_keras._keras import all_layers, create_variables
from dselectk_keras.callbacks import GateRecorder


@dataclasses.dataclass(frozen=True)
class Stopping:
    """When a copy has its best weights, and when it stops.

    Args:
        epochs: The most epochs that a copy may take.
        monitor: The name of what decides; `None` is nothing: the last epoch is best.
        sign: 1 if a lower value is better, and -1 if a higher one is.
        patience: How many epochs in a row may pass without a better value.
    """

    epochs: int
    monitor: str | None
    sign: int
    patience: int | None


class Copy:
    """A copy of a model with its seed and settings, over its training.

    Args:
        number: Its place among the copies.
        seed: Of weights, draws and the order of the data.
        settings: A dict of numbers, which `build` gets.
        stopping: A `Stopping`.
    """

    def __init__(self, number, seed, settings, stopping):
        self.number = number
        self.seed = seed
        self.settings = settings
        self.stopping = stopping
        self.logs = []
        self.best_epoch: Any = None
        self.weights: Any = None
        self.status = "running"
        self.recorder: Any = None
        self.reader: Any = None

    def __str__(self):
        return f"copy {self.number} (seed {self.seed})"

    def build(self, build, batch):
        """The model at its start: the same at every call.

        Args:
            build: The function that makes it.
            batch: A batch, for its shapes.

        Returns:
            A compiled Keras model with all its variables.
        """
        keras.utils.set_random_seed(self.seed)
        model = build(self.seed, **self.settings)
        if not isinstance(model, keras.Model) or not model.compiled:
            raise ValueError(
                "`build(seed, **settings)` must return a compiled Keras model. "
                f"Received: {model!r}. Call `model.compile(...)` in `build`."
            )
        if getattr(model.optimizer, "use_ema", False):
            raise ValueError(
                "`replicate` reads weights before `fit` would replace them by their "
                "averages. Received: an optimizer with use_ema=True. Leave it out."
            )
        create_variables(model, batch)
        return model

    def record(self, model, probe):
        """Record the gates of a model from here on.

        Args:
            model: The model of this copy.
            probe: Inputs on which to look at per-example gates.
        """
        self.recorder = GateRecorder(every=1, unit="epochs", probe=probe)
        self.recorder.set_model(model)
        self.recorder.on_train_begin()

    def end_epoch(self, logs, read_weights):
        """Note an epoch's results, keep the weights if they are best, and go on or not.

        Args:
            logs: A dict of numbers.
            read_weights: A function that gives the weights, as arrays of their own.

        Returns:
            Whether the copy has ended.
        """
        self.logs.append(logs)
        epoch, stopping = len(self.logs) - 1, self.stopping
        failed = not math.isfinite(logs.get("loss", 0.0))
        if not failed and self._improved():
            self.best_epoch, self.weights = epoch, read_weights()
        if failed:
            self.status = "failed"
        elif epoch + 1 == stopping.epochs:
            self.status = "finished"
        elif stopping.patience is not None and epoch > 0:
            waited = epoch - (-1 if self.best_epoch is None else self.best_epoch)
            self.status = (
                "stopped" if waited >= max(stopping.patience, 1) else "running"
            )
        ended = self.status != "running"
        if ended and self.weights is None:
            self.best_epoch, self.weights = epoch, read_weights()
        return ended

    def _improved(self):
        monitor, sign = self.stopping.monitor, self.stopping.sign
        if monitor is None:
            return False
        value = sign * self.logs[-1][monitor]
        if self.best_epoch is None:
            return not math.isnan(value)
        return value < sign * self.logs[self.best_epoch][monitor]


def checked_models(build, copies, data, recorded):
    """The model of each copy at its start, seen to be of one architecture.

    Args:
        build: The function that makes them.
        copies: A list of `Copy`.
        data: A `Data`.
        recorded: The numbers of the copies whose gates are to be recorded.

    Yields:
        Pairs of a copy and its model.
    """
    parts = None
    for copy in copies:
        model = copy.build(build, data.first_batch)
        if parts is None:
            parts = _parts(model)
            _check_monitor(model, copy.stopping.monitor, data.validation is not None)
        _check_same(_parts(model), copy, parts, copies[0])
        if copy.number in recorded:
            copy.record(model, data.probe)
        yield copy, model


def different(copy, mine, first, its):
    """The error for copies that are not of one architecture.

    Args:
        copy: One copy.
        mine: What it has.
        first: Another copy.
        its: What that one has in the same place.

    Returns:
        A `ValueError`.
    """
    return ValueError(
        "`build` must return one architecture. Received different architectures: "
        f"{copy} has {mine}, where {first} has {its}. Call `replicate` once for each."
    )


def weights_of(model):
    """The variables that a model predicts with, trainable ones first.

    Args:
        model: A Keras model.

    Returns:
        A list of variables.
    """
    return [*model.trainable_variables, *model.non_trainable_variables]


def _parts(model):
    """What models of one architecture have in common, as texts."""

    def like(variable):
        return f"{tuple(variable.shape)} of {variable.dtype}"

    # The names of the optimizer's have in them what Keras has counted up.
    return [
        *(f"a variable {v.name!r} {like(v)}" for v in weights_of(model)),
        *(f"an optimizer's variable {like(v)}" for v in model.optimizer.variables),
        *(f"a layer {type(layer).__name__}" for layer in all_layers(model)),
    ]


def _check_same(mine, copy, its, first):
    if mine != its:
        width = max(len(mine), len(its))
        pairs = zip(
            *(parts + ["nothing"] * (width - len(parts)) for parts in (mine, its)),
            strict=True,
        )
        one, other = next(pair for pair in pairs if pair[0] != pair[1])
        raise different(copy, one, first, other)


def _check_monitor(model, monitor, has_validation):
    names = list(model.get_metrics_result())
    names += [f"val_{name}" for name in names] if has_validation else []
    if monitor is not None and monitor not in names:
        shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
        raise ValueError(
            f"`monitor` must be the name of a result: {shown}. Received: {monitor!r}. "
            "Names that begin with 'val_' need `validation_data`."
        )
