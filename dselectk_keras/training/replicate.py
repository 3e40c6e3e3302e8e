"""Train many copies of one architecture."""

import numbers
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np

from dselectk_keras.callbacks import DecideGates
from dselectk_keras.training.copies import Copy, Stopping
from dselectk_keras.training.data import Data
from dselectk_keras.training.fit_runs import FitRuns
from dselectk_keras.training.memory import format_bytes
from dselectk_keras.training.replicas import Replicas
from dselectk_keras.training.scanned_runs import ScannedRuns
from dselectk_keras.utils import check_count

_COLUMNS = ("copy", "seed", "epoch", "epochs", "best_epoch", "status")
_HIGHER_IS_BETTER = (
    "(accuracy|auc|precision|recall|sensitivity|specificity|score|iou|io_u|correlation|"
    "similarity)$"
)


def replicate(  # noqa: PLR0913, all but two are keyword-only
    build: Callable[..., keras.Model],
    data: Any,
    *,
    validation_data: Any = None,
    seeds: Iterable[int] = range(8),
    settings: Mapping[str, Any] | None = None,
    epochs: int = 1,
    batch_size: int = 32,
    monitor: str | None = None,
    mode: str | None = None,
    patience: int | None = None,
    start_from_epoch: int = 0,
    decide: DecideGates | None = None,
    histories: Iterable[int] = (),
    vectorize: int | str = "auto",
    memory_limit: float | None = None,
    verbose: int = 1,
) -> Replicas:
    """Train copies of one architecture with different seeds and settings.

    Up to rounding, each copy gets the result of training it alone: `build` called after
    `keras.utils.set_random_seed(seed)`, and `fit` on `training.Batches(data,
    batch_size, seed)` with `shuffle=False` and `validation_batch_size=batch_size`.

    On JAX an epoch is one compiled program that all copies share; the constants in
    which they differ are its inputs. Several copies run at once: on the cores of a CPU,
    or vectorized on an accelerator. On other backends copies are fitted one by one.

    Args:
        build: A function of a seed, and of the settings by name, that returns a
            compiled Keras model.
        data: A tuple of inputs and labels, optionally with sample weights, such as
            `dataset.train`.
        validation_data: The same, to validate on after every epoch.
        seeds: One seed per copy, for its weights, its random draws and the order of
            its data.
        settings: A dict of further arguments of `build`: for each name a list with one
            number per copy, or one number for all.
        epochs: Number of epochs.
        batch_size: Examples per training and validation step.
        monitor: The result, such as `"val_loss"`, that decides which epoch is the best
            of a copy, whose weights are kept; `None` keeps those of the last epoch.
            With `decide`, only epochs count at whose end the gates have decided.
        mode: `"min"` or `"max"`: whether lower or higher values are better. `None`
            infers it from the name: `"max"` for accuracies and similar metrics.
        patience: Number of epochs without improvement after which a copy stops.
        start_from_epoch: The first epoch that may be the best.
        decide: A `DecideGates` that makes the gates of all copies decide.
        histories: Indices of the copies whose gates are recorded, before training and
            after every epoch.
        vectorize: On JAX, the number of copies that one program trains. `"auto"` is 1
            on a CPU, and as many as fit on an accelerator.
        memory_limit: Number of bytes that may be used; `None` is the free memory.
            Copies that do not fit at once are trained in turn.
        verbose: Whether to show the estimated memory and a progress bar.

    Returns:
        A `Replicas`.

    Example:
        >>> def build(seed, entropy):
        ...     gate = DSelectKGate(2, entropy_reg=entropy)
        ...     model = build_multitask_model(3, ["a", "b"], gate=gate)
        ...     model.compile("adam")
        ...     return model
        >>> x, y = np.ones((8, 3)), np.ones((8, 2))
        >>> runs = replicate(
        ...     build,
        ...     (x, y),
        ...     seeds=range(3),
        ...     settings={"entropy": [0.0, 0.01, 0.1]},
        ...     monitor="loss",
        ...     verbose=0,
        ... )
        >>> len(runs), sorted(runs.copies[2].logs[0])[:3]
        (3, ['a_loss', 'a_mean_absolute_error', 'b_loss'])
    """
    check_count("epochs", epochs)
    data = Data(data, validation_data, batch_size)
    first = check_count("start_from_epoch", start_from_epoch, 0, epochs - 1)
    if decide:
        first = max(first, decide.first_decided_epoch(epochs))
    sign = _sign(monitor, mode, patience)
    stopping = Stopping(epochs, monitor, sign, patience, first)
    seeds = [int(seed) for seed in seeds]
    settings_per_copy = _settings_per_copy(settings or {}, len(seeds))
    copies = [
        Copy(number, seed, settings_per_copy[number], stopping)
        for number, seed in enumerate(seeds)
    ]
    histories = set(histories)
    _check_arguments(copies, histories, vectorize)
    runs_class = ScannedRuns if keras.backend.backend() == "jax" else FitRuns
    runs = runs_class(build, copies, data, histories, decide)
    needed = runs.plan(vectorize, memory_limit)
    if verbose:
        print(  # noqa: T201
            f"{len(copies)} copies need about {format_bytes(needed)} of memory."
        )
    runs.run(_Progress(epochs * len(copies), verbose))
    batch = keras.tree.map_structure(np.array, data.first_batch)
    return Replicas(build, copies, batch)


class _Progress:
    """One progress bar for all epochs of all copies; it is thread-safe."""

    def __init__(self, total, verbose):
        verbose = int(bool(verbose))
        self._bar = keras.utils.Progbar(total, unit_name="epoch", verbose=verbose)
        self._lock = threading.Lock()

    def end_epoch(self, copy):
        """Count an epoch, and the epochs that a stopped copy skips."""
        skipped = copy.stopping.epochs - len(copy.logs)
        with self._lock:
            self._bar.add(1 if copy.status == "running" else 1 + skipped)


def _settings_per_copy(settings, count):
    columns = {}
    for name, values in settings.items():
        if name in _COLUMNS:
            raise ValueError(
                "A setting must not have the name of a column of the tables: "
                f"{', '.join(_COLUMNS)}. Received: {name!r}."
            )
        single = isinstance(values, numbers.Number)
        column = [values] * count if single else list(values)
        if len(column) != count:
            raise ValueError(
                f"`settings` must have one number for each of the {count} seeds, or "
                f"one for all. Received: {len(column)} values for {name!r}."
            )
        for value in column:
            if not isinstance(value, numbers.Real):
                raise ValueError(
                    "`settings` must be numbers. "
                    f"Received: {value!r} for {name!r}. Pass an index, and look the "
                    "value up in `build`."
                )
        # Python numbers, because NumPy numbers may change the dtypes of a model.
        columns[name] = np.asarray(column).tolist()
    return [
        {name: column[number] for name, column in columns.items()}
        for number in range(count)
    ]


def _check_arguments(copies, histories, vectorize):
    if not copies:
        raise ValueError("`seeds` must have one seed for each copy. Received: none.")
    if vectorize != "auto":
        check_count("vectorize", vectorize)
    unknown = sorted(histories - set(range(len(copies))))
    if unknown:
        raise ValueError(
            f"`histories` must be indices of copies, from 0 to {len(copies) - 1}. "
            f"Received: {unknown}."
        )


def _sign(monitor, mode, patience):
    """1 if lower values of the monitored result are better, and -1 if higher ones."""
    if mode not in {None, "min", "max"}:
        raise ValueError(f'`mode` must be "min", "max" or None. Received: {mode!r}.')
    if patience is not None and (monitor is None or patience < 0):
        raise ValueError(
            "`patience` must not be negative and needs a monitored result, such as "
            f'monitor="val_loss". Received: patience={patience}, monitor={monitor!r}.'
        )
    if mode is None:
        higher = re.search(_HIGHER_IS_BETTER, str(monitor).lower())
        mode = "max" if higher else "min"
    return 1 if mode == "min" else -1
