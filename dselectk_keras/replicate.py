"""Train copies of one model, each with its own seed and settings."""

import dataclasses
import itertools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np

from dselectk_keras.batches import Batches, as_arrays, check_split
from dselectk_keras.gates.chosen import warn_if_random
from dselectk_keras.models.multitask_model import MultitaskModel
from dselectk_keras.program import Program
from dselectk_keras.utils import (
    as_python,
    check_count,
    check_type,
    optional_import,
    shown,
)

__all__ = ["Replicas", "replicate"]

STEPS = "", "train_"  # Names of hooks that Keras calls in each step of `fit`.
DATA = "x", "y", "sample_weight"  # Arguments of `fit`.
FREQUENCIES = "unit", "save_freq", "update_freq"  # Attributes of callbacks.


@dataclasses.dataclass(eq=False)
class Copy:
    """A copy of a model, with what `replicate` gives it (see `Replicas`)."""

    seed: int
    settings: dict
    model: Any = None
    callbacks: list = dataclasses.field(default_factory=list)
    history: dict = dataclasses.field(default_factory=dict)

    def build(self, build, make_callbacks):
        """Create the model and the callbacks, as `replicate` describes it."""
        keras.utils.set_random_seed(self.seed)
        self.model = build(self.seed, **self.settings)
        if not isinstance(self.model, keras.Model) or not self.model.compiled:
            raise ValueError(
                "`build(seed, **settings)` must return a compiled Keras model. "
                f"Received: {self.model!r}. Call `model.compile(...)` in `build`."
            )
        self.callbacks = list(make_callbacks()) if make_callbacks else []


class Replicas:
    """The results of `replicate`.

    Args:
        copies: A list of the copies, each with `seed`, `settings`, `model`,
            `callbacks` and `history`: a dict of lists, as that of `fit`.
    """

    def __init__(self, copies: list[Copy]) -> None:
        self.copies = copies

    @property
    def table(self) -> Any:
        """A pandas data frame with a row per copy and epoch.

        Its columns are `copy`, `seed`, the settings, `epoch` (from 0) and the results,
        under the names that `fit` gives them.
        """
        pandas = optional_import("pandas", extra="data", purpose="`Replicas.table`")
        rows = [
            {"copy": number, "seed": copy.seed, **copy.settings, "epoch": epoch}
            | dict(zip(copy.history, values, strict=True))
            for number, copy in enumerate(self.copies)
            for epoch, values in enumerate(zip(*copy.history.values(), strict=True))
        ]
        return pandas.DataFrame(rows)


def replicate(
    build: Callable[..., keras.Model],
    data: Any,
    *,
    validation_data: Any = None,
    seeds: Iterable[int] = range(8),
    settings: Mapping[str, Any] | None = None,
    epochs: int = 1,
    batch_size: int = 32,
    callbacks: Callable[[], Iterable[Any]] | None = None,
    vectorize: int | str = "auto",
    verbose: int = 1,
) -> Replicas:
    """Train copies of one model with different seeds and settings.

    Up to rounding, each copy gets the result of training it alone: `build` called after
    `keras.utils.set_random_seed(seed)`, and `fit` on `Batches(data, batch_size, seed)`
    with `shuffle=False` and `validation_batch_size=batch_size`.

    On JAX, an epoch is one compiled program. Copies share it if they differ in the
    values of variables only: in seeds, and in settings such as the learning rate. Other
    settings, such as the weight of a penalty, are constants of the program: each of
    their values is compiled once. On other backends, copies are fitted one by one.

    Args:
        build: A function of a seed, and of the settings by name, that returns a
            compiled Keras model.
        data: A tuple of inputs and labels, optionally with sample weights, such as
            `dataset.train`.
        validation_data: The same, to validate on after every epoch.
        seeds: One seed per copy, for its weights, its random draws and the order of
            its data.
        settings: A dict of further arguments of `build`: for each name a list (or a
            tuple, range or array) with one value per copy, or one value for all.
        epochs: Number of epochs.
        batch_size: Examples per training and validation step.
        callbacks: A function without arguments that returns a list of new callbacks,
            called once for each copy, such as `lambda: [DecideGates()]`. On JAX, they
            are called at the begin and the end of epochs and of the training, not of
            batches. One that is made for batches is refused, unless it has an
            attribute `catches_up=True`: at the next epoch it does what is due.
        vectorize: On JAX, the number of copies that one program trains at once. "auto"
            is 1 on a CPU, and all of them on an accelerator. If memory is short, set a
            lower number. On a CPU, 4 may be faster for models without convolutions.
        verbose: Whether to show a progress bar.

    Returns:
        A `Replicas`, which holds the models of all copies. If memory is short, train
        fewer copies per call.

    Example:
        >>> def build(seed, entropy):
        ...     gate = DSelectKGate(2, entropy_reg=entropy)
        ...     model = build_multitask_model(3, ["a", "b"], gate=gate)
        ...     model.compile("adam")
        ...     return model
        >>> x, y = np.ones((8, 3)), np.eye(8, 2)
        >>> runs = replicate(
        ...     build,
        ...     (x, y),
        ...     seeds=range(3),
        ...     settings={"entropy": [0.0, 0.01, 0.1]},
        ...     verbose=0,
        ... )
        >>> len(runs.copies), sorted(runs.copies[2].history)[:3]
        (3, ['a_loss', 'a_mean_absolute_error', 'b_loss'])
    """
    check_count("epochs", epochs)
    check_count("batch_size", batch_size)
    if vectorize != "auto":
        check_count("vectorize", vectorize)
    check_type("build", build, Callable, "a function that returns a compiled model")
    wanted = "a function that returns a list of new callbacks, for each copy its own"
    check_type("callbacks", callbacks, (Callable, types.NoneType), wanted)
    copies = _copies(seeds, {} if settings is None else settings)
    on_jax = keras.backend.backend() == "jax"
    total = epochs * len(copies)
    bar = keras.utils.Progbar(total, unit_name="epoch", verbose=int(bool(verbose)))
    count = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: bar.add(1))
    check_split("data", data)
    if validation_data is not None:
        check_split("validation_data", validation_data)
    run = _Run(data, validation_data, epochs, batch_size, count)
    for copy in copies:
        copy.build(build, callbacks)
        if on_jax:
            # Now, as `fit` does: the next copy sets another random state.
            train, _ = run.data_of(copy.model)
            _create_variables(copy.model, train, batch_size)
        else:
            run.fit(copy)
    if on_jax:
        run.scan_all(copies, vectorize)
    return Replicas(copies)


def _copies(seeds, settings):
    """The copies, not built yet."""
    try:
        numbers = [check_count("seeds", seed, minimum=0) for seed in seeds]
    except TypeError:
        numbers = []
    if not numbers:
        raise ValueError(
            "`seeds` must be a list, range or array with one seed for each copy. "
            f"Received: seeds={shown(seeds)}."
        )
    check_type("settings", settings, Mapping, "a dict of arguments of `build`, by name")
    columns = {}
    for name, values in settings.items():
        if name in {"copy", "seed", "epoch"}:
            raise ValueError(
                "A setting must not have the name of a column of the table: copy, "
                f"seed, epoch. Received: {name!r}."
            )
        several = isinstance(values, (list, tuple, range, np.ndarray))
        column = list(values) if several else [values] * len(numbers)
        if len(column) != len(numbers):
            raise ValueError(
                f"`settings` must have one value for each of the {len(numbers)} seeds, "
                f"or one for all. Received: {len(column)} values for {name!r}."
            )
        # NumPy numbers may change the dtypes of a model.
        columns[name] = [as_python(value) for value in column]
    return [
        Copy(seed, {name: column[i] for name, column in columns.items()})
        for i, seed in enumerate(numbers)
    ]


class _Run(NamedTuple):
    """The training of each copy; `progress` is a callback that counts epochs."""

    train: tuple
    validation: tuple | None
    epochs: int
    batch_size: int
    progress: keras.callbacks.Callback

    def data_of(self, model):
        """The data, checked and converted as `fit` of the model does with arrays."""

        def converted(name, values, **options):
            if values is not None and isinstance(model, MultitaskModel):
                values = model.prepare(*values, **options)[: len(values)]
            return None if values is None else as_arrays(name, values)

        train = converted("data", self.train, training=True)
        return train, converted("validation_data", self.validation)

    def fit(self, copy):
        """Train a copy by itself."""
        train, validation = self.data_of(copy.model)
        log = copy.model.fit(
            Batches(train, self.batch_size, copy.seed),
            validation_data=validation,
            validation_batch_size=self.batch_size,
            epochs=self.epochs,
            shuffle=False,
            callbacks=[*copy.callbacks, self.progress],
            verbose=0,
        )
        copy.history = log.history

    def scan_all(self, copies, vectorize):
        """Train copies by programs of JAX, each for several copies."""
        import jax  # pyright: ignore[reportMissingImports]

        groups: dict[str, list] = {}
        for copy in copies:
            _check_callbacks(copy.callbacks)
            program = Program(copy.model, self.batch_size)
            train, validation = self.data_of(copy.model)
            run = self._replace(train=train, validation=validation)
            given = [data for data in (run.train, run.validation) if data is not None]
            text = program.text(program.read([copy.model]), self.rows(given[0]), *given)
            # Models may read other columns, or labels in another order.
            alike = groups.setdefault(text, [])
            group = next((g for _, other, g in alike if run.has_data_of(other)), [])
            if not group:
                alike.append((program, run, group))
            group.append(copy)
        for program, run, group in itertools.chain(*groups.values()):
            at_once: Any = vectorize
            if vectorize == "auto":
                at_once = 1 if jax.default_backend() == "cpu" else len(group)
            for first in range(0, len(group), at_once):
                part = group[first : first + at_once]
                try:
                    run.scan(program, part)
                except jax.errors.JaxRuntimeError as error:
                    if "RESOURCE_EXHAUSTED" not in str(error):
                        raise
                    raise MemoryError(
                        f"The device must hold {len(part)} copies at once, and has too "
                        f"little memory. Received: vectorize={vectorize!r}. Set "
                        f"vectorize={max(1, len(part) // 2)}, or a smaller batch_size."
                    ) from error

    def has_data_of(self, other):
        """Check whether the arrays of two runs are equal."""
        pairs = zip(
            *(keras.tree.flatten((run.train, run.validation)) for run in (self, other)),
            strict=True,
        )
        return all(
            one is two or np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
            for one, two in pairs
        )

    @staticmethod
    def rows(data, copies=1):
        """All rows of data in their order, for each copy."""
        length = len(keras.tree.flatten(data)[0])
        return np.broadcast_to(np.arange(length), (copies, length))

    def scan(self, program, copies):
        """Train copies side by side by a program."""
        import jax  # pyright: ignore[reportMissingImports]

        models = [copy.model for copy in copies]
        data = [Batches(self.train, self.batch_size, copy.seed) for copy in copies]
        hooks = [
            keras.callbacks.CallbackList(
                [*copy.callbacks, self.progress],
                add_history=True,
                model=copy.model,
                epochs=self.epochs,
                steps=data[0].num_batches,
            )
            for copy in copies
        ]
        train, validation = jax.device_put((self.train, self.validation))
        observed = any(copy.callbacks for copy in copies)
        for model, hook in zip(models, hooks, strict=True):
            model.stop_training = False
            # As in `fit` of a `MultitaskModel`.
            data_of_fit = dict(zip(DATA, self.train, strict=False))
            model.training_data = types.SimpleNamespace(**data_of_fit)
            hook.on_train_begin()
        state: Any = None
        for epoch in range(self.epochs):
            running = [i for i, model in enumerate(models) if not model.stop_training]
            for i in running:
                hooks[i].on_epoch_begin(epoch)
            if observed or state is None:
                state = program.read(models)
            order = np.stack([batches.order for batches in data])
            state, found = program.train(state, order, train)
            found = {"": jax.device_get(found.metrics)}
            if validation is not None:
                order = self.rows(validation, len(models))
                state, held_out = program.test(state, order, validation)
                found["val_"] = jax.device_get(held_out.metrics)
            for i in running:
                data[i].shuffle()
                if observed or epoch + 1 == self.epochs:
                    program.write(models[i], state, i)
                hooks[i].on_epoch_end(epoch, _logs(models[i], found, i))
            if all(model.stop_training for model in models):
                break
        for copy, hook in zip(copies, hooks, strict=True):
            # As in `fit`: weights may become their moving averages.
            optimizer, weights = copy.model.optimizer, copy.model.trainable_variables
            optimizer.finalize_variable_values(weights)
            hook.on_train_end()
            copy.model.training_data = types.SimpleNamespace()
            warn_if_random(copy.model)
            copy.history = copy.model.history.history


def _check_callbacks(callbacks):
    """Refuse a callback that would miss the steps, which are inside of a program."""
    for each in callbacks:
        hooks = (f"on_{name}batch_{end}" for name in STEPS for end in ("begin", "end"))
        misses = any(
            getattr(getattr(each, hook), "__func__", None)
            is not getattr(keras.callbacks.Callback, hook)
            for hook in hooks
        )
        often = [getattr(each, name, None) for name in FREQUENCIES]
        goes_on = getattr(each, "catches_up", False)
        if misses and not goes_on and not {"epoch", "epochs"} & {*often}:
            raise ValueError(
                "On JAX, `replicate` calls callbacks once per epoch. Received: a "
                f"`{type(each).__name__}`, which is called in each step. Let it work "
                'by epochs, as `GateRecorder(unit="epochs")` and '
                '`ModelCheckpoint(save_freq="epoch")` do, or train with `fit`.'
            )


def _create_variables(model, arrays, batch_size):
    """Create all variables of a model on JAX, without computing anything."""
    import jax  # pyright: ignore[reportMissingImports]

    def visit(arrays):
        batch = jax.tree.map(lambda array: array[:batch_size], arrays)
        x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
        predicted = model(x)
        model.compute_loss(x, y, predicted, weights)
        model.compute_metrics(x, y, predicted, weights)

    with keras.StatelessScope():
        jax.eval_shape(visit, arrays)
    model.optimizer.build(model.trainable_variables)


def _logs(model, found, number):
    """The results of an epoch, from the metrics' variables."""
    logs = {}
    for prefix, values in found.items():
        for variable, value in zip(model.metrics_variables, values, strict=True):
            variable.assign(value[number])
        results = model.get_metrics_result()
        logs |= {prefix + name: float(value) for name, value in results.items()}
    return logs
