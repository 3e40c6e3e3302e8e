"""Boosted trees for a target of a table, as a layer."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras._keras import boosted_trees
from dselectk_keras.tables.targets import Target
from dselectk_keras.utils import Configured, optional_import

DEPTH, LEAVES, FEWEST_ROWS = 6, 16, 10
RATE, PATIENCE = 0.1, 30
MOST_TREES = 3_000  # Of a member: a round has one tree for each class.
# Trees read a number that is missing as this one.
MISSING = -1e30
# The probability of a class that the rows to train on do not have.
LEAST = 1e-6
LINKS = {"number": "linear", "binary": "sigmoid", "classes": "softmax"}


@keras.saving.register_keras_serializable(package="dselectk_keras")
class Trees(Configured, keras.Layer):
    r"""Predicts by boosted trees that were fitted before.

    $$
    f(x) = \frac{1}{M} \sum_m h\Bigl(b_m + \sum_r v_{mr}(x)\Bigr)
    $$

    where $v_{mr}(x)$ is the value of the leaf of tree $r$ of member $m$ that $x$ is in,
    $b_m$ a constant, and $h$ the identity, the sigmoid or the softmax function.

    A tree is complete: it has `2 ** depth` leaves. The features, thresholds and leaves
    of all trees are weights, which training does not change.

    Args:
        names: The names of the inputs that trees read, a number per row each.
        shape: The numbers of members, of rounds, and of outputs.
        kind: The kind of the target (see `Target`).
        depth: The number of decisions of a tree.
        **kwargs: `name` and the other arguments of `keras.Layer`.

    Example:
        >>> trees = Trees(["x"], (2, 1, 1), "number", depth=1)
        >>> trees.build(None)
        >>> _ = trees.parts["leaves"].assign([[1.0, 5.0], [2.0, 4.0]])
        >>> print(keras.ops.convert_to_numpy(trees({"x": np.array([[-1.0], [1.0]])})))
        [[1.5]
         [4.5]]
    """

    def __init__(
        self,
        names: Sequence[str],
        shape: Sequence[int],
        kind: str,
        depth: int = DEPTH,
        **kwargs: Any,
    ):
        super().__init__(**{"dtype": "float32", "trainable": False, **kwargs})
        self.names, self.shape, self.kind = [*names], [*shape], kind
        self.depth = depth

    def build(self, input_shape: Any) -> None:
        """Create the features, thresholds and leaves."""
        trees = int(np.prod(self.shape))
        shapes = {
            "features": (trees, 2**self.depth - 1),
            "thresholds": (trees, 2**self.depth - 1),
            "leaves": (trees, 2**self.depth),
            "constants": (self.shape[0], self.shape[2]),
        }
        self.parts = {
            name: self.add_weight(shape, "zeros", name=name)
            for name, shape in shapes.items()
        }
        self.built = True

    def call(self, inputs: Mapping[str, Any]) -> Any:
        """Predict numbers `(batch, 1)`, or probabilities."""
        x = joined(inputs, self.names)
        trees, inner = self.parts["features"].shape
        features = ops.cast(ops.reshape(self.parts["features"], (-1,)), "int32")
        thresholds = ops.reshape(self.parts["thresholds"], (-1,))
        first = ops.arange(trees, dtype="int32")
        node: Any = ops.zeros_like(ops.cast(x[:, :1], "int32"))
        for _ in range(self.depth):
            place = node + first * inner
            own = ops.take_along_axis(x, ops.take(features, place, axis=0), axis=1)
            is_right = own > ops.take(thresholds, place, axis=0)
            node = 2 * node + 1 + ops.cast(is_right, "int32")
        place = node - inner + first * (inner + 1)
        leaves = ops.take(ops.reshape(self.parts["leaves"], (-1,)), place, axis=0)
        scores = ops.sum(ops.reshape(leaves, (-1, *self.shape)), axis=2)
        link = keras.activations.get(LINKS[self.kind])
        return ops.mean(link(scores + self.parts["constants"]), axis=1)

    def compute_output_shape(self, input_shape: Any) -> tuple:
        """Compute the shape of the predictions."""
        return (None, self.shape[2])


def joined(inputs: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Join inputs by name to one tensor `(batch, names)`, without gaps."""
    columns = [ops.reshape(inputs[name], (-1, 1)) for name in names]
    x = ops.concatenate([ops.cast(each, "float32") for each in columns], axis=1)
    return ops.where(ops.isfinite(x), x, MISSING)


def fit_trees(
    target: Target, inputs: Any, labels: Any, held_out: Any, rounds: int, seed: int
) -> tuple[Trees, np.ndarray] | None:
    """Fit boosted trees for a target: one member per part of the rows held out.

    Args:
        target: A `Target`.
        inputs: The inputs of all rows, by name. Trees read those with a number per row.
        labels: Numbers of classes, or standardized numbers, `(rows,)`. Missing ones are
            NaN.
        held_out: Which rows each member holds out, `(rows, members)`. Their loss says
            how many rounds a member has.
        rounds: The most rounds; fewer of more than ten classes.
        seed: The seed of the columns that a split may read.

    Returns:
        The layer; and predictions `(rows, members, outputs)`, of members for the rows
        that they hold out. `None` if the labels that a member reads are all equal, or
        if all columns have lists.
    """
    known = ~np.isnan(labels)
    names = [name for name, each in inputs.items() if each.size == len(labels)]
    differ = [len(np.unique(labels[known & ~held])) > 1 for held in held_out.T]
    if not names or not all(differ):
        return None
    x = ops.convert_to_numpy(joined(inputs, names))
    width = len(target.classes) if target.kind == "classes" else 1
    found, members = np.full((*held_out.shape, width), np.nan), []
    rounds = min(rounds, MOST_TREES // width)
    for member, held in enumerate(held_out.T):
        model = _boost(target, x, labels, held, rounds, seed + member)
        seen = getattr(model, "classes_", np.zeros(1, int))
        own = np.full((np.sum(held), width), LEAST)
        if target.kind == "number":
            own[:, 0] = model.predict(x[held])
        elif target.kind == "binary":
            own, seen = model.predict_proba(x[held])[:, 1:], np.zeros(1, int)
        else:
            own[:, seen] = model.predict_proba(x[held])
        found[held, member] = own
        members.append((*boosted_trees(model), seen))
    shape = len(members), max(len(trees) for trees, *_ in members), width
    parts = {
        "features": np.zeros((*shape, 2**DEPTH - 1)),
        "thresholds": np.full((*shape, 2**DEPTH - 1), np.inf),
        "leaves": np.zeros((*shape, 2**DEPTH)),
        "constants": np.full((shape[0], width), np.log(LEAST)),
    }
    for member, (trees, constants, seen) in enumerate(members):
        parts["constants"][member, seen] = 0.0
        # Of two classes, the second one has trees.
        places = seen[-np.size(constants) :]
        parts["constants"][member, places] = np.ravel(constants)
        for number, each in enumerate(trees):
            for place, tree in zip(places, each, strict=True):
                for name, values in _complete(tree.nodes).items():
                    parts[name][member, number, place] = values
    layer = Trees(names, shape, target.kind)
    layer.build(None)
    for name, variable in layer.parts.items():
        variable.assign(parts[name].reshape(variable.shape))
    return layer, found


def _boost(target, x, labels, held, rounds, seed):
    """Fit the trees of a member with scikit-learn."""
    ensemble = optional_import("sklearn.ensemble", extra="tables", purpose="trees")
    rows, held = (~np.isnan(labels) & part for part in (~held, held))
    y, kind = labels, ensemble.HistGradientBoostingRegressor
    if target.kind != "number":
        kind = ensemble.HistGradientBoostingClassifier
        y = np.nan_to_num(labels, nan=-1.0).astype(int)
        held &= np.isin(y, y[rows])
    model = kind(
        learning_rate=RATE,
        max_iter=rounds,
        max_depth=DEPTH,
        max_leaf_nodes=LEAVES,
        min_samples_leaf=FEWEST_ROWS,
        l2_regularization=1.0,
        max_features=0.5,
        early_stopping=bool(held.any()),
        n_iter_no_change=PATIENCE,
        random_state=seed,
    )
    others = {"X_val": x[held], "y_val": y[held]} if held.any() else {}
    model.fit(x[rows], y[rows], **others)
    if held.any():  # The first score is from before the first round.
        del boosted_trees(model)[0][max(1, int(np.argmax(model.validation_score_))) :]
    return model


def _complete(nodes):
    """The parts of a complete tree, from the nodes of one of scikit-learn."""
    features, thresholds, level = [], [], np.zeros(1, int)
    for _ in range(DEPTH):
        own = nodes[level]
        is_leaf = own["is_leaf"].astype(bool)
        # All go left at a leaf. A number in float32 is at most a threshold if it is at
        # most the largest one in float32 that is not above the threshold.
        below = own["num_threshold"].astype("float32")
        above = below > own["num_threshold"]
        below[above] = np.nextafter(below[above], np.float32(-np.inf))
        features.append(np.where(is_leaf, 0, own["feature_idx"]))
        thresholds.append(np.where(is_leaf, np.inf, below))
        children = [np.where(is_leaf, level, own[side]) for side in ("left", "right")]
        level = np.stack(children, axis=1).ravel()
    return {
        "features": np.concatenate(features),
        "thresholds": np.concatenate(thresholds),
        "leaves": nodes["value"][level],
    }
