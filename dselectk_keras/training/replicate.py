"""Many runs of one architecture."""

import numbers
from collections.abc import Iterable

import keras
import numpy as np

from dselectk_keras.training.copies import Copy, Stopping
from dselectk_keras.training.data import Data
from dselectk_keras.training.fit_runs import FitRuns
from dselectk_keras.training.memory import in_words
from dselectk_keras.training.progress import Progress
from dselectk_keras.training.replicas import Replicas
from dselectk_keras.training.scanned_runs import ScannedRuns
from dselectk_keras.utils import check_count

COLUMNS = ("copy", "seed", "epoch", "epochs", "best_epoch", "status")
HIGHER_IS_BETTER = ("accuracy", "auc", "precision", "recall", "score", "iou")


def replicate(  # noqa: PLR0913, all but two go by name
    build,
    data,
    *,
    validation_data=None,
    seeds: Iterable[int] = range(8),
    settings=None,
    epochs=1,
    batch_size=32,
    monitor=None,
    mode=None,
    patience=None,
    histories=(),
    vectorize="auto",
    memory_limit=None,
    verbose=1,
):
    """Train copies of one architecture, with seeds and settings of their own.

    Each copy comes to what it would alone, up to rounding: by `build`, right after
    `keras.utils.set_random_seed(seed)`, and `fit` on `training.Batches(data,
    batch_size, seed)` with `shuffle=False` and `validation_batch_size=batch_size`.

    On JAX a whole epoch is one program, which all copies share: what differs between
    them becomes its input. Several copies run at once, on the cores of a processor or
    side by side on an accelerator. Elsewhere copies are fitted one after another.

    Args:
        build: A function of a seed, and of the settings by name, that returns a
            compiled Keras model.
        data: A tuple of inputs and labels, with or without sample weights, such as
            `dataset.train`.
        validation_data: The same, to validate on after every epoch.
        seeds: A seed for each copy: of its weights, its draws and its order of the
            data.
        settings: A dict of what `build` gets beside the seed: for each name a list
            with a number for each copy, or one number for all.
        epochs: How many passes over the data.
        batch_size: Examples in a step, and in a step of the validation.
        monitor: The result, such as `"val_loss"`, by which each copy keeps the
            weights of its best epoch; `None` is nothing, and it keeps the last ones.
        mode: `"min"` or `"max"`: which values of it are better. `None` is what its
            name says: accuracies and the like are to be high.
        patience: After how many epochs without a better value a copy stops.
        histories: The numbers of the copies whose gates are recorded, at the start
            and after every epoch.
        vectorize: On JAX, how many copies one program trains side by side. `"auto"`
            is 1 on a processor, and as many as fit on an accelerator.
        memory_limit: How many bytes may be used; `None` is what is free. Copies that
            do not fit at once take turns.
        verbose: Whether to show the estimate of the memory, and a progress bar.

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
    stopping = Stopping(epochs, monitor, _sign(monitor, mode, patience), patience)
    seeds = [int(seed) for seed in seeds]
    copies = [
        Copy(number, seed, values, stopping)
        for number, (seed, values) in enumerate(
            zip(seeds, _by_copy(settings or {}, len(seeds)), strict=True)
        )
    ]
    _check(copies, histories, vectorize)
    kind = ScannedRuns if keras.backend.backend() == "jax" else FitRuns
    runs = kind(build, copies, data, set(histories))
    needed = runs.plan(vectorize, memory_limit)
    if verbose:
        print(  # noqa: T201
            f"{len(copies)} copies, with about {in_words(needed)} of memory."
        )
    runs.run(Progress(epochs * len(copies), verbose))
    batch = keras.tree.map_structure(np.array, data.first_batch)
    return Replicas(build, copies, batch)


def _by_copy(settings, count):
    """The settings of each copy."""
    columns = {}
    for name, values in settings.items():
        if name in COLUMNS:
            raise ValueError(
                f"A setting must not have the name of a column of the tables: "
                f"{', '.join(COLUMNS)}. Received: {name!r}."
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
                    f"Received: {value!r} for {name!r}. Choose by number in `build`."
                )
        # Python's own numbers: what NumPy's would make of a dtype is another matter.
        columns[name] = np.asarray(column).tolist()
    return [
        {name: column[number] for name, column in columns.items()}
        for number in range(count)
    ]


def _check(copies, histories, vectorize):
    if not copies:
        raise ValueError("`seeds` must have one seed for each copy. Received: none.")
    if vectorize != "auto":
        check_count("vectorize", vectorize)
    unknown = sorted(set(histories) - set(range(len(copies))))
    if unknown:
        raise ValueError(
            f"`histories` must be numbers of copies, from 0 to {len(copies) - 1}. "
            f"Received: {unknown}."
        )


def _sign(monitor, mode, patience):
    """1 if a lower value of what is monitored is better, and -1 if a higher one is."""
    if mode not in {None, "min", "max"}:
        raise ValueError(f'`mode` must be "min", "max" or None. Received: {mode!r}.')
    if patience is not None and (monitor is None or patience < 0):
        raise ValueError(
            "`patience` must not be negative, and needs a result to look at: pass "
            f'monitor="val_loss", say. Received: patience={patience}, '
            f"monitor={monitor!r}."
        )
    if mode is None:
        mode = "max" if str(monitor).lower().endswith(HIGHER_IS_BETTER) else "min"
    return 1 if mode == "min" else -1
