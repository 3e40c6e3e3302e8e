"""What a user would try in place of a network on a table: one model per target.

Boosted trees are those of LightGBM if it is installed (the extra `bench`), and of
scikit-learn otherwise.
"""

import functools
import importlib.util
import itertools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dselectk_keras.tables.targets import find_targets

TREES, EXTRA, LINEAR = "boosted trees", "extra trees", "linear model"
MOST_ROUNDS, PATIENCE = 3_000, 50
NUM_TREES = 100  # Of the extra trees.
FREQUENT = 50  # The categories of a column that have an input of their own.
SMALLEST = 1e-6  # A probability in a log loss.
# The settings that are tried; the first ones are the defaults.
SPACES: dict[str, dict[str, tuple]] = {
    TREES: {
        "leaves": (31, 4, 8, 16, 64),
        "rate": (0.1, 0.05, 0.03),
        "rows": (20, 1, 3, 10, 50),  # The fewest of a leaf.
        "columns": (1.0, 0.7, 0.4, 0.2),  # The part that a split may read.
        "ridge": (0.0, 1.0, 10.0),
    },
    EXTRA: {"rows": (1, 3, 8), "columns": (0.5, 1.0)},
    LINEAR: {"ridge": (1.0, 0.1, 10.0, 100.0, 0.01, 1_000.0)},
}


class Rival(NamedTuple):
    """A model of one target.

    Args:
        settings: A dict of the settings that were chosen.
        loss: The validation loss with them: the log loss, or the root of the mean
            squared error.
        classes: The values of the target, sorted; of numbers, `None`.
        predict: A function of a frame that returns numbers `(rows,)`, or
            probabilities `(rows, classes)`.
    """

    settings: dict[str, Any]
    loss: float
    classes: np.ndarray | None
    predict: Callable


def rivals(
    train, validation, targets, settings=12, seed=0, kinds=tuple(SPACES), again=True
):
    """Train the rivals of a network: for each target, one model of each kind.

    The settings of a model are those with the lowest validation loss. With them, it is
    trained again on the rows of both frames, boosted trees with as many rounds as were
    best. Rows without a label of a target are left out for this target. What a target
    is, and its classes, is found in both frames, as `TableModel` does.

    Args:
        train: A table of pandas with the rows to train on, and the targets.
        validation: A table with rows that choose the settings.
        targets: The names of the columns that are targets.
        settings: The number of settings that are tried, the defaults first.
        seed: The seed of the settings and of the models.
        kinds: The kinds of models.
        again: Whether models are trained again on the rows of both frames.

    Returns:
        A dict from each target to a dict from the kind of model to a `Rival`.
    """
    both = find_targets(pd.concat([train, validation]), targets)
    labels = {target.name: target.kind for target in both}
    encode = Columns(train.drop(columns=[*labels]))
    tables = [encode(frame.drop(columns=[*labels])) for frame in (train, validation)]
    forms = {kind: [encode.form(kind, each) for each in tables] for kind in kinds}
    found = {target: {} for target in labels}
    for number, target in enumerate(labels):
        known = [frame[target].notna().to_numpy() for frame in (train, validation)]
        pairs = zip((train, validation), known, strict=True)
        y = [frame[target].to_numpy()[rows] for frame, rows in pairs]
        for kind in kinds:
            x = [form[rows] for form, rows in zip(forms[kind], known, strict=True)]
            draw = np.random.default_rng([seed, number])
            own = drawn(kind, settings, draw)
            model = _choose(kind, x, y, labels[target], own, seed, again)
            found[target][kind] = model._replace(
                predict=_of_frames(model.predict, encode, kind)
            )
    return found


def _of_frames(predict, encode, kind):
    """A function of a frame from one of its columns as they are encoded."""
    return lambda frame: predict(encode.form(kind, encode(frame)))


def best(models):
    """The kind of model with the lowest validation loss, of a dict of `Rival`."""
    return min(models, key=lambda kind: models[kind].loss)


def drawn(kind, count, draw):
    """Settings of a kind of model without repetition, the defaults first."""
    space = SPACES[kind]
    first, *others = itertools.product(*space.values())
    order = draw.permutation(len(others))[: count - 1]
    return [
        dict(zip(space, values, strict=True))
        for values in (first, *(others[place] for place in order))
    ]


def error(labels, predicted, classes=None):
    """The root of the mean squared error, or the log loss of labels that are known.

    Labels of other classes are left out: no model can have a probability of them.
    """
    labels, predicted = np.asarray(labels), np.asarray(predicted, "float64")
    if classes is None:
        return float(np.sqrt(np.mean((labels - predicted) ** 2)))
    places = {value: place for place, value in enumerate(classes)}
    rows = [row for row, label in enumerate(labels) if label in places]
    own = predicted[rows, [places[labels[row]] for row in rows]]
    return float(-np.mean(np.log(np.clip(own, SMALLEST, 1.0))))


class Columns:
    """The columns of a table for trees, and as an array for other models.

    Args:
        frame: The rows to train on, without targets, from which categories are.
    """

    def __init__(self, frame):
        self.names = list(frame)
        self.categories = {
            name: list(_texts(column).value_counts().index)
            for name, column in frame.items()
            if not _numbers(column)
        }
        known = self(frame)
        counts = known.nunique()
        self.kept = list(counts.index[counts > 1])
        numbers = known[[n for n in self.kept if known[n].dtype.kind == "f"]]
        self.means, self.spreads = numbers.mean(), numbers.std()
        self.gaps = [name for name in numbers if numbers[name].isna().any()]

    def __call__(self, frame):
        """A table of numbers, NaN if missing, and categories, with plain names."""
        columns = {}
        for place, name in enumerate(self.names):
            column = frame[name]
            if name in self.categories:
                # Scikit-learn takes at most 255 categories.
                kinds, texts = self.categories[name][:254], _texts(column)
                known = texts.where(texts.isin(kinds))
                columns[f"c{place}"] = pd.Categorical(known, categories=kinds)
            else:
                numbers = pd.to_numeric(column).to_numpy("float64", na_value=np.nan)
                columns[f"c{place}"] = np.where(np.isfinite(numbers), numbers, np.nan)
        return pd.DataFrame(columns)

    def form(self, kind, columns):
        """The columns for a kind of model: as they are, as numbers, or standardized.

        Numbers are without gaps, and have whether they are missing, and one-hot
        categories, in the last form alone.
        """
        if kind == TREES:
            return columns
        if kind == EXTRA:
            codes = {
                name: columns[name].cat.codes
                for name in columns.select_dtypes("category")
            }
            return columns.assign(**codes).to_numpy("float64")
        numbers = (columns[self.means.index] - self.means) / self.spreads
        parts = [numbers.fillna(0.0), columns[self.gaps].isna()]
        for name in self.kept:
            if name not in self.means.index:
                codes = columns[name].cat.codes.to_numpy()
                size = min(len(columns[name].cat.categories), FREQUENT)
                parts.append(codes[:, None] == np.arange(size))
        return np.concatenate([np.asarray(part, "float64") for part in parts], axis=1)


def _numbers(column):
    return pd.api.types.is_numeric_dtype(column)


def _texts(column):
    return column.map(str, na_action="ignore").astype(object)


def _choose(kind, x, y, labels, settings, seed, again):
    """Try settings; train again with the best ones on the rows of both parts."""
    fit, every = FITS[kind], np.concatenate(y)
    classes = None if labels == "number" else np.unique(every)
    codes = [_codes(labels, classes) for labels in y]
    tried = []
    for own in settings:
        predict, rounds = fit(x[0], codes[0], classes, own, seed, (x[1], codes[1]))
        tried.append((error(y[1], predict(x[1]), classes), own | rounds, predict))
    loss, own, predict = min(tried, key=lambda each: each[0])
    if not again:
        return Rival(own, loss, classes, predict)
    concatenate = np.concatenate
    if isinstance(x[0], pd.DataFrame):
        concatenate = functools.partial(pd.concat, ignore_index=True)
    predict, _ = fit(concatenate(x), _codes(every, classes), classes, own, seed)
    return Rival(own, loss, classes, predict)


def _codes(labels, classes):
    return labels if classes is None else np.searchsorted(classes, labels)


def _boosted(x, y, classes, own, seed, against=None):
    """Fit boosted trees, with so many rounds or up to the best one of other rows."""
    rounds = own.get("rounds", MOST_ROUNDS)
    if importlib.util.find_spec("lightgbm"):
        return _lightgbm(x, y, classes, own, seed, against, rounds)
    from sklearn import ensemble

    kind = ensemble.HistGradientBoostingRegressor
    if classes is not None:
        kind = ensemble.HistGradientBoostingClassifier
    model = kind(
        learning_rate=own["rate"],
        max_iter=rounds,
        max_leaf_nodes=own["leaves"],
        min_samples_leaf=own["rows"],
        l2_regularization=own["ridge"],
        max_features=own["columns"],
        categorical_features="from_dtype",
        early_stopping=against is not None,
        n_iter_no_change=PATIENCE,
        random_state=seed,
    )
    if against is None:
        model.fit(x, y)
        return _predict(model, classes), {}
    known = slice(None) if classes is None else np.isin(against[1], y)
    model.fit(x, y, X_val=against[0][known], y_val=against[1][known])
    # The first score is from before the first round.
    rounds = max(1, int(np.argmax(model.validation_score_)))
    return _predict(model, classes), {"rounds": rounds}


def _lightgbm(x, y, classes, own, seed, against, rounds):
    import lightgbm  # pyright: ignore[reportMissingImports]

    objective: dict[str, Any] = {"objective": "regression"}
    if classes is not None:
        objective = {"objective": "binary"}
        if len(classes) > 2:
            objective = {"objective": "multiclass", "num_class": len(classes)}
    settings = objective | {
        "num_leaves": own["leaves"],
        "learning_rate": own["rate"],
        "min_data_in_leaf": own["rows"],
        "feature_fraction": own["columns"],
        "lambda_l2": own["ridge"],
        "seed": seed,
        "num_threads": 1,
        "verbose": -1,
    }
    data, more = lightgbm.Dataset(x, y, free_raw_data=False), {}
    if against is not None:
        stop = lightgbm.early_stopping(PATIENCE, verbose=False)
        other = lightgbm.Dataset(*against, reference=data)
        more = {"valid_sets": [other], "callbacks": [stop]}
    model = lightgbm.train(settings, data, rounds, **more)

    def predict(x):
        found = np.asarray(model.predict(x))
        two = classes is not None and len(classes) == 2
        return np.stack([1 - found, found], axis=1) if two else found

    return predict, {} if against is None else {"rounds": model.best_iteration}


def _extra(x, y, classes, own, seed, against=None):  # noqa: ARG001
    from sklearn import ensemble

    kind = ensemble.ExtraTreesRegressor
    if classes is not None:
        kind = ensemble.ExtraTreesClassifier
    rows, columns = own["rows"], own["columns"]
    options: Any = {"min_samples_leaf": rows, "max_features": columns}
    model = kind(NUM_TREES, random_state=seed, **options)
    return _predict(model.fit(x, y), classes), {}


def _linear(x, y, classes, own, seed, against=None):  # noqa: ARG001
    from sklearn import exceptions, linear_model

    if classes is None:
        return linear_model.Ridge(own["ridge"]).fit(x, y).predict, {}
    model = linear_model.LogisticRegression(C=1 / own["ridge"], max_iter=200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", exceptions.ConvergenceWarning)
        return _predict(model.fit(x, y), classes), {}


def _predict(model, classes):
    """A function of rows: numbers, or the probabilities of all classes."""
    if classes is None:
        return model.predict

    def predict(x):
        found = np.zeros((len(x), len(classes)))
        found[:, model.classes_] = model.predict_proba(x)
        return found

    return predict


FITS = {TREES: _boosted, EXTRA: _extra, LINEAR: _linear}
