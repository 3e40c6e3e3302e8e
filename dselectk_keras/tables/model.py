"""One model for all targets of a table."""

import contextlib
import dataclasses
import functools
import importlib.util
import json
import math
import time
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.experts import DenseExperts
from dselectk_keras.models.multitask_model import MultitaskModel
from dselectk_keras.models.towers import add_towers
from dselectk_keras.tables.columns import as_table, import_pandas, plain_name
from dselectk_keras.tables.encoder import table_encoder
from dselectk_keras.tables.scores import (
    fit_scale,
    fit_share,
    predictions_of,
    scaled,
    scores_of,
)
from dselectk_keras.tables.targets import Target, find_targets
from dselectk_keras.tables.trees import fit_trees
from dselectk_keras.utils import argument_names, check_count

# The file in the archive of a model that says what its targets mean.
STATE = "table_model.json"
# Each member holds out one of so many parts of the rows.
FOLDS = 7
SMALLEST = 1e-9  # Of a loss whose logarithm is taken.
OF_NETWORKS = {"units", "activation", "dropout", "trees"}  # What `build` decides.
# What a search tries in turn, from the best settings on. The first one, a smooth
# network, is for numbers with little noise.
CHANGES: tuple[dict[str, Any], ...] = (
    {"units": (128,) * 3, "activation": "silu", "dropout": 0.0, "learning_rate": 0.005},
    {"dropout": 0.0},
    {"learning_rate": 0.005},
    {"bins": "both"},
    {"dropout": 0.3},
    {"units": (256, 256, 256)},
    {"bins": "none"},
    {"weight_decay": 0.2},
    {"learning_rate": 0.0007},
    {"units": (64,)},
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of the networks of a `TableModel` and of their training.

    Args:
        units: Widths of the layers of a network.
        activation: Their activation.
        dropout: The part of the units that a step leaves out.
        bins: How numbers are encoded (see `table_encoder`).
        learning_rate: That of AdamW in the first step. It falls to 0, along a cosine.
        weight_decay: That of AdamW.
        epochs: The most epochs. `None`: by the number of rows.
        trees: The most rounds of boosted trees, which predict beside the networks. With
            0, or without scikit-learn, there are none.
    """

    units: Sequence[int] = (128, 128)
    activation: str = "relu"
    dropout: float = 0.1
    bins: str = "auto"
    learning_rate: float = 0.002
    weight_decay: float = 0.02
    epochs: int | None = None
    trees: int = 300

    def __post_init__(self):
        if self.epochs is not None:
            check_count("epochs", self.epochs)

    def lengths(self, rows: int) -> tuple[int, int]:
        """The number of rows per step, a power of two, and of epochs at most.

        Networks without dropout are for numbers with little noise, and learn longer.
        """
        size = 2 ** min(max(round(math.log2(rows / 100)), 4), 9)
        steps, most = (5_000, 200) if self.dropout else (15_000, 400)
        return size, self.epochs or min(max(steps * size // rows, 20), most)


class TableModel:
    """One model for all targets of a table, with the manners of scikit-learn.

    `fit` finds what columns and targets hold, encodes the columns, and trains several
    networks at once, whose mean predicts. Each target counts by the part of its
    variance, or of its entropy, that is not explained. `fit` keeps the weights of the
    epoch with the lowest geometric mean of these parts on rows that are held out, after
    the outputs of each target are scaled to the lowest loss there (see `fit_scale`).

    Then `fit` fits boosted trees to the same rows, with scikit-learn, and mixes their
    predictions into those of the networks. The share of the trees, for each target, has
    the lowest loss on the rows that are held out. Trees are layers of the model, too.

    Args:
        members: The number of networks. With 1, training is fastest.
        settings: A dict of what differs from the defaults of `Settings`.
        build: A function from an encoder and a list of `Task` to a `MultitaskModel`,
            such as `build_multitask_model`, in place of the networks and trees: one
            model, whatever `members` says, without search if there is no `time_limit`.
        hashed: For columns of ids, their numbers of embeddings (see `table_encoder`).
        time_limit: For so many seconds, `fit` tries other settings, and keeps those of
            the lowest validation loss. `None`: it tries a smooth network without
            dropout beside the `settings`, and 0: it tries none.
        seed: The seed of the split, of the weights and of the order of the rows.
        verbose: Whether `fit` prints a line per epoch, and lines about the columns.

    Attributes:
        model: The `MultitaskModel`, which takes tables, and predicts probabilities, and
            numbers in the units of the labels.
        targets_: A list of `Target`, which say what the labels mean.
        loss_: The validation loss, the geometric mean over the targets, 1 for a
            constant prediction. It is a little too low: the settings have the lowest
            one, and the edges of numbers are found in all rows. Judge by `evaluate`.
        settings_: The `Settings` in use.

    Example:
        >>> import numpy as np, pandas as pd
        >>> frame = pd.DataFrame({"size": np.arange(60.0), "city": ["a", "b"] * 30})
        >>> frame["price"], frame["sold"] = frame["size"] * 2, ["no", "yes"] * 30
        >>> table = TableModel(members=2, settings={"epochs": 2}, verbose=0)
        >>> table = table.fit(frame, ["price", "sold"])
        >>> table.predict(frame[:2]).shape
        (2, 2)
    """

    def __init__(
        self,
        members: int = 4,
        settings: Mapping[str, Any] | None = None,
        build: Callable | None = None,
        hashed: Mapping[str, int] | None = None,
        time_limit: float | None = None,
        seed: int = 0,
        verbose: int = 1,
    ):
        self.members = members
        self.settings = settings
        self.build = build
        self.hashed = hashed
        self.time_limit = time_limit
        self.seed = seed
        self.verbose = verbose

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of `__init__`, as scikit-learn asks for them."""
        return {name: getattr(self, name) for name in argument_names(TableModel)}

    def set_params(self, **params: Any) -> "TableModel":
        """Set arguments of `__init__`."""
        known = self.get_params()
        if unknown := params.keys() - known.keys():
            raise ValueError(
                f"A `TableModel` has the arguments {', '.join(known)}. "
                f"Received: {', '.join(sorted(unknown))}."
            )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks an estimator."""
        from sklearn.utils import InputTags, Tags, TargetTags

        targets = TargetTags(required=True, multi_output=True)
        inputs = InputTags(string=True, categorical=True, allow_nan=True)
        return Tags(None, targets, input_tags=inputs)

    def fit(
        self,
        frame: Any,
        targets: Any,
        validation: Any = None,
        callbacks: Sequence[Any] = (),
    ) -> "TableModel":
        """Find what the columns hold, and train.

        Args:
            frame: The rows to train on, a table of pandas.
            targets: The names of its columns to predict, or a table of labels. Missing
                labels are NaN or None.
            validation: A table with the same columns. `None`: some of the rows, which
                are not trained on. With a table of labels, a pair of tables.
            callbacks: Callbacks of Keras, such as `DecideGates`.

        Returns:
            The `TableModel`.
        """
        check_count("members", self.members)
        parts = split_targets(frame, targets)
        labels = parts[1]
        self.targets_ = find_targets(labels, [*labels.columns])
        settings = Settings(**(self.settings or {}))
        if validation is not None:
            validation = split_validation(validation, [*labels.columns])
        encode = functools.cache(
            lambda bins: table_encoder(*parts, hashed=self.hashed, bins=bins)
        )
        if self.build is not None and (idle := OF_NETWORKS & {*(self.settings or {})}):
            raise ValueError(
                "`build` is in place of the networks. Received: the settings "
                f"{', '.join(sorted(idle))}, which would do nothing."
            )
        data = encode, parts, validation, callbacks
        begin, longest = time.monotonic(), 0.0
        best = self._train(settings, *data)
        limit, changes = self.time_limit, CHANGES
        if limit is None:
            limit, changes = math.inf, CHANGES[: self.build is None]
        for change in changes:
            if self.build is not None and OF_NETWORKS & {*change}:
                continue
            seconds = time.monotonic() - begin
            longest = longest or seconds
            if seconds + longest > limit:
                break
            changed = dataclasses.replace(settings, **change)
            found = self._train(changed, *data)
            longest = max(longest, time.monotonic() - begin - seconds)
            is_better = found.loss < best.loss or math.isnan(best.loss)
            if self.verbose:
                print(  # noqa: T201
                    f"{change}: {found.loss:.4f} instead of {best.loss:.4f}, "
                    f"{'kept' if is_better else 'not kept'}."
                )
            if is_better:
                settings, best = changed, found
        has_trees = settings.trees and importlib.util.find_spec("sklearn")
        if has_trees and self.build is None:
            best.add_trees(self.seed, self.verbose)
        self.settings_, self.loss_ = settings, best.loss
        self.model = best.in_units_of_labels()
        return self

    def _train(self, settings, encode, parts, validation, callbacks):
        """Train networks with these settings."""
        keras.utils.set_random_seed(self.seed)
        with printing(self.verbose):
            encoder = keras.models.clone_model(encode(settings.bins))
        networks = Networks(self.targets_, parts[1], settings)
        if self.build is None:
            networks.build_members(encoder, self.members)
        else:
            networks.build_by(self.build, encoder)
        if validation is None:
            folds = folds_of(parts[1], max(FOLDS, networks.members), self.seed)
            validation = folds[:, None] == np.arange(networks.members)
        networks.fit(parts, validation, callbacks, self.verbose)
        return networks

    @property
    def classes_(self) -> dict[str, np.ndarray]:
        """The classes of each target that has some."""
        return {x.name: np.array(x.classes) for x in self.targets_ if x.classes}

    def predict(self, frame: Any) -> Any:
        """Predict labels: numbers in the units of the labels, or the likeliest class.

        Returns:
            A table with a column per target, and the index of `frame`.
        """
        pd, frame = import_pandas(), as_table(frame)
        found, columns = self._predictions(frame), {}
        for target in self.targets_:
            values = found[target.name]
            if target.kind != "number":
                classes = np.array(pd.Series([*target.classes]))
                values = classes[np.argmax(values, axis=1)]
            columns[target.name] = values
        return pd.DataFrame(columns, index=frame.index)

    def predict_proba(self, frame: Any) -> dict[str, Any]:
        """Predict the probability of each class of each target that has classes.

        Returns:
            A dict from the names of targets to tables with a column per class.
        """
        frame = as_table(frame)
        pd, found = import_pandas(), self._predictions(frame)
        return {
            x.name: pd.DataFrame(found[x.name], frame.index, [*x.classes])
            for x in self.targets_
            if x.classes
        }

    def _predictions(self, frame):
        """The numbers `(rows,)`, or probabilities `(rows, classes)`, of each target."""
        if not hasattr(self, "model"):
            raise ValueError(
                "A `TableModel` must be trained before it predicts. Received: one that "
                "is not. Call `fit`."
            )
        predicted = self.model.predict(frame, batch_size=4096, verbose=0)
        found = {}
        for target in self.targets_:
            outputs = predicted[plain_name(target.name)]
            found[target.name] = predictions_of(target, outputs)
        return found

    def evaluate(self, frame: Any, targets: Any = None) -> Any:
        """Compute the scores of each target.

        Args:
            frame: A table.
            targets: The labels, as in `fit`, of some targets or of all. `None`: the
                columns of `frame`, of all.

        Returns:
            A table with a row per target: `labels`, the number of them; of classes
            `auc` (of two), `log_loss` and `accuracy`; of numbers `rmse` and `r2`; and
            `explained`, the part of the variance, or of the entropy, that is explained.
        """
        own = {target.name: target for target in self.targets_}
        columns, labels = split_targets(frame, [*own] if targets is None else targets)
        if unknown := [name for name in labels if name not in own]:
            raise ValueError(
                f"The targets must be some of {', '.join(own)}. Received: "
                f"{', '.join(unknown)}."
            )
        found = self._predictions(columns)
        names = [name for name in own if name in labels]
        with printing(self.verbose):
            rows = [
                scores_of(own[name], own[name].encode(labels[name]), found[name])
                for name in names
            ]
        return import_pandas().DataFrame(rows, index=names)

    def score(self, frame: Any, targets: Any = None) -> float:
        """The mean over the targets of `explained` (see `evaluate`)."""
        return float(self.evaluate(frame, targets)["explained"].mean())

    def save(self, path: Any) -> None:
        """Save the model and what its targets mean in one file, `.keras`.

        The function `build` is not in it: set it anew before you call `fit` again.
        """
        params = {**self.get_params(), "build": None}
        targets = [dataclasses.asdict(target) for target in self.targets_]
        state = {"params": params, "targets": targets, "loss": self.loss_}
        settings, is_built = dataclasses.asdict(self.settings_), self.build is not None
        state |= {"settings": settings, "is_built": is_built}
        text = json.dumps(state, default=lambda number: number.item())  # Of NumPy.
        self.model.save(path)
        with zipfile.ZipFile(path, "a") as file:
            file.writestr(STATE, text)

    @classmethod
    def load(cls, path: Any) -> "TableModel":
        """Load what `save` saved."""
        with zipfile.ZipFile(path) as file:
            if STATE not in file.namelist():
                raise ValueError(
                    f"The file must be one of `TableModel.save`. Received: {path}. "
                    "Other models load with `keras.saving.load_model`."
                )
            state = json.loads(file.read(STATE))
        found = cls(**state["params"])
        found.model, found.loss_ = keras.saving.load_model(path), state["loss"]
        found.settings_ = Settings(**state["settings"])
        if state["is_built"]:
            found.build = _no_build
        found.targets_ = [
            Target(**{**each, "classes": tuple(each["classes"])})
            for each in state["targets"]
        ]
        return found


def _no_build(*_):
    """What a file has in place of the function of a user."""
    raise ValueError(
        "The model was built by a function, which its file does not have. Set it "
        "before `fit`, by `set_params(build=...)`; `None` is for the networks."
    )


def printing(verbose: int) -> Any:
    """A context in which lines about columns and labels are printed, or not."""
    return contextlib.nullcontext() if verbose else contextlib.redirect_stdout(None)


def split_targets(frame: Any, targets: Any) -> tuple:
    """Split a table into columns and labels, by names or by a table of labels."""
    frame = as_table(frame)
    if isinstance(targets, import_pandas().Index):  # Names.
        targets = targets.tolist()
    if hasattr(targets, "to_frame"):  # A series.
        targets = targets.to_frame()
    if hasattr(targets, "shape"):
        targets, names = as_table(targets), [*targets.columns]
        rows, index = frame.index, targets.index
        if len(rows) != len(index) or ({*rows} == {*index} and not rows.equals(index)):
            raise ValueError(
                "The labels must be those of the rows of the table, in their order. "
                f"Received: {len(rows)} rows, and {len(index)} labels with another "
                "index. Pass `labels.loc[frame.index]`."
            )
        return frame[[x for x in frame if x not in names]], targets
    names = [targets] if isinstance(targets, str) else [*dict.fromkeys(targets)]
    if lacking := [name for name in names if name not in frame.columns]:
        raise ValueError(
            f"Targets must name columns of the table: {', '.join(map(str, frame))}. "
            f"Received: {', '.join(map(str, lacking))}."
        )
    return frame.drop(columns=names), frame[names]


def split_validation(validation: Any, names: Sequence[str]) -> tuple:
    """Split a table, or a pair of tables, into columns and labels of all targets."""
    is_pair = isinstance(validation, tuple)
    columns, labels = split_targets(*(validation if is_pair else (validation, names)))
    if lacking := [name for name in names if name not in labels]:
        raise ValueError(
            f"`validation` must have labels of {', '.join(names)}. Received: none of "
            f"{', '.join(lacking)}."
        )
    return columns, labels


def folds_of(labels: Any, number: int, seed: int) -> np.ndarray:
    """Part rows into folds, each with as many of each class as among all rows.

    Returns:
        The fold of each row.
    """
    pd, n = import_pandas(), len(labels)
    few = [name for name in labels if labels[name].nunique() <= max(2, n // 50)]
    rng = np.random.default_rng(seed)
    # Rows with the same labels follow each other, the rarest labels first.
    codes = [pd.factorize(labels[name])[0] for name in few]
    codes.sort(key=lambda each: np.bincount(each + 1)[np.unique(each + 1)].min())
    folds = np.empty(n, "int64")
    folds[np.lexsort([rng.random(n), *codes[::-1]])] = np.arange(n) % number
    return folds


class Networks:
    """Networks for all targets, which are trained together.

    Args:
        targets: A list of `Target`.
        labels: The labels of the rows to train on, a table.
        settings: The `Settings`.
    """

    def __init__(self, targets, labels, settings):
        self.targets, self.settings, self.trees = targets, settings, {}
        self.names = [plain_name(target.name) for target in targets]
        # A constant prediction has the loss 1.
        self.weights = [
            1 / baseline(target, column[~np.isnan(column)]) / len(targets)
            for target, column in zip(targets, self.encode(labels).T, strict=True)
        ]

    def encode(self, labels):
        """Labels `(rows, targets)`, numbers standardized."""
        columns = []
        for target in self.targets:
            column = target.encode(labels[target.name]).astype("float64")
            if target.kind == "number":
                column = (column - target.mean) / target.deviation
            columns.append(column)
        return np.stack(columns, axis=1).astype("float32")

    def tasks(self, members):
        """The tasks of each network, one after the other."""
        return [
            dataclasses.replace(
                target.task,
                name=f"{member}_{name}" if members > 1 else name,
                weight=float(weight) / members,
                metrics=(),
            )
            for member in range(members)
            for name, target, weight in zip(
                self.names, self.targets, self.weights, strict=True
            )
        ]

    def build_members(self, encoder, members):
        """Build networks that share the encoder, side by side in one bank."""
        settings, self.members = self.settings, members
        tasks = self.tasks(members)
        form = settings.units, settings.activation, settings.dropout
        bank = DenseExperts(members, *form)
        x = bank(encoder.output)
        if settings.dropout:
            x = keras.layers.Dropout(settings.dropout)(x)
        x = ops.repeat(x, len(self.targets), axis=1)
        outputs = add_towers(x, tasks, stacked=False)
        self.trained = MultitaskModel(
            encoder.input, outputs, tasks=tasks, label_average="labels"
        )

    def build_by(self, build, encoder):
        """Build the network by a function of the encoder and the tasks."""
        self.members = 1
        self.trained = build(encoder, self.tasks(1))

    def of_members(self, outputs, name):
        """The outputs of each member for a target."""
        if self.members == 1:
            return [outputs[name]]
        return [outputs[f"{member}_{name}"] for member in range(self.members)]

    def judge(self, x, labels):
        """Find the scale of each target, and the validation loss with it, by number.

        Args:
            x: The inputs of rows.
            labels: Labels `(rows, members * targets)`, NaN where they do not count.
        """
        found = self.trained.predict(x, batch_size=4096, verbose=0)
        scales, losses = [1.0] * len(self.targets), {}
        for number, target in enumerate(self.targets):
            own = labels[:, number :: len(self.targets)]
            known = ~np.isnan(own)
            if known.any():
                outputs = np.stack(self.of_members(found, self.names[number]), axis=1)
                best = fit_scale(target, outputs[known], own[known])
                scales[number], losses[number] = best
        return scales, losses

    def mean_of(self, losses):
        """The geometric mean of losses by target, each 1 for a constant prediction."""
        logs = [
            math.log(max(loss * self.weights[number] * len(self.targets), SMALLEST))
            for number, loss in losses.items()
        ]
        return math.exp(np.mean(logs)) if logs else math.nan

    def add_trees(self, seed, verbose):
        """Fit boosted trees, and find their share in the prediction of each target."""
        x, y, held_out = self.data
        predicted = self.trained.predict(x, batch_size=4096, verbose=0)
        for number, target in enumerate(self.targets):
            name, labels, rounds = self.names[number], y[:, number], self.settings.trees
            known = held_out & ~np.isnan(labels)[:, None]
            found = fit_trees(target, x, labels, held_out, rounds, seed)
            if found is None or not known.any():
                continue
            outputs = np.stack(self.of_members(predicted, name), axis=1)[known]
            outputs = ops.convert_to_numpy(self.scale_outputs(number, outputs))
            labels = np.broadcast_to(labels[:, None], known.shape)[known]
            share, loss = fit_share(target, outputs, found[1][known], labels)
            self.losses[number] = loss
            if share:
                self.trees[name] = found[0], share
            if verbose:
                print(  # noqa: T201
                    f"{target.name}: boosted trees have a share of {share:.2f}."
                )
        self.loss = self.mean_of(self.losses)

    def scale_outputs(self, number, outputs):
        """Scale outputs for a target as is best for the rows that are held out."""
        target, scale = self.targets[number], self.scales[number]
        return (
            outputs * scale
            if target.kind == "number"
            else scaled(target, outputs, scale)
        )

    def in_units_of_labels(self):
        """A model that predicts the mean of the members, in the units of the labels."""
        found, inputs = {}, self.trained.input
        for number, (name, target) in enumerate(
            zip(self.names, self.targets, strict=True)
        ):
            outputs = self.of_members(self.trained.output, name)
            outputs = [self.scale_outputs(number, each) for each in outputs]
            mean = keras.layers.Average(dtype="float32")
            found[name] = mean(outputs) if len(outputs) > 1 else outputs[0]
            if name in self.trees:
                trees, share = self.trees[name]
                own = trees({each: inputs[each] for each in trees.names})
                found[name] = (1 - share) * found[name] + share * own
            if target.kind == "number":
                moments = target.deviation, target.mean
                rescaling = keras.layers.Rescaling(*moments, dtype="float32")
                found[name] = rescaling(found[name])
        tasks = [target.task for target in self.targets]
        return MultitaskModel(inputs, found, tasks=tasks)

    def fit(self, parts, validation, callbacks, verbose):
        """Train up to the best epoch, whose loss and scales are kept.

        To validate, there is a pair of tables; or an array `(rows, members)` says which
        rows each member holds out.
        """
        settings, (frame, labels) = self.settings, parts
        x, y = self.trained.prepare(frame)[0], self.encode(labels)
        if isinstance(validation, tuple):
            own = self.trained.prepare(validation[0])[0]
            with printing(verbose):
                new = self.encode(validation[1])
            if np.isnan(new).all():
                raise ValueError(
                    "`validation` must have labels. Received: missing labels in all "
                    f"{len(new)} rows."
                )
            x = keras.tree.map_structure(lambda *both: np.concatenate(both), x, own)
            y = np.concatenate([y, new])
            is_new = np.arange(len(y))[:, None] >= len(frame)
            validation = np.repeat(is_new, self.members, axis=1)
        self.data = x, y, validation
        held = np.repeat(validation, len(self.targets), axis=1)
        y = np.tile(y, (1, self.members))
        held_out = part_of(x, np.where(held, y, np.nan), validation.any(axis=1))
        x, y = part_of(x, np.where(held, np.nan, y), ~validation.all(axis=1))
        batch_size, epochs = settings.lengths(len(y))
        steps = epochs * math.ceil(len(y) / batch_size)
        rate = keras.optimizers.schedules.CosineDecay(settings.learning_rate, steps)
        self.trained.compile(
            keras.optimizers.AdamW(rate, weight_decay=settings.weight_decay)
        )
        judge = Judge(self, held_out, verbose)
        stopping = keras.callbacks.EarlyStopping(
            "val_loss",
            mode="min",
            patience=max(3, epochs // 4),
            restore_best_weights=True,
        )
        with warnings.catch_warnings():
            # A member may hold out all rows of a rare class.
            warnings.filterwarnings("ignore", "All labels are equal")
            self.trained.fit(
                x,
                y,
                batch_size=batch_size,
                epochs=epochs,
                callbacks=[judge, *callbacks, stopping],
                verbose=0,
            )
        self.scales, self.losses = judge.found[stopping.best_epoch]
        self.loss = self.mean_of(self.losses)


def part_of(x, y, rows):
    """Some of the rows of inputs by name, and of labels."""
    return keras.tree.map_structure(lambda array: array[rows], (x, y))


class Judge(keras.callbacks.Callback):
    """Adds the validation loss to the logs of an epoch, as `val_loss`.

    Args:
        networks: The `Networks`.
        held_out: The inputs and labels of the rows that are held out.
        verbose: Whether to print a line per epoch.
    """

    def __init__(self, networks, held_out, verbose):
        super().__init__()
        self.networks, self.held_out, self.verbose = networks, held_out, verbose

    def on_train_begin(self, logs=None):
        """Begin to count the seconds."""
        self.begin, self.found = time.monotonic(), []

    def on_epoch_end(self, epoch, logs=None):
        """Compute the loss in units of that of a constant."""
        self.found.append(self.networks.judge(*self.held_out))
        logs["val_loss"] = loss = self.networks.mean_of(self.found[-1][1])
        if self.verbose:
            print(  # noqa: T201
                f"Epoch {epoch + 1} of at most {self.params['epochs']}, "
                f"{time.monotonic() - self.begin:.0f} seconds: {loss:.4f} of the "
                "validation loss of a constant."
            )


def baseline(target: Target, labels: np.ndarray) -> float:
    """The loss of a constant: 1 of standardized numbers, the entropy of classes."""
    if target.kind == "number":
        return 1.0
    counts = np.unique(labels, return_counts=True)[1]
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())
