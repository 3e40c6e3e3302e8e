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
# The parts of a decision.
DECISION = ("features", "thresholds", "masks")
LINKS = {"number": "linear", "binary": "sigmoid", "classes": "softmax"}


@keras.saving.register_keras_serializable(package="dselectk_keras")
class Trees(Configured, keras.Layer):
    r"""Predicts by boosted trees that were fitted before.

    $$
    f(x) = \frac{1}{M} \sum_m h\Bigl(b_m + \sum_r v_{mr}(x)\Bigr)
    $$

    where $v_{mr}(x)$ is the value of the leaf of tree $r$ of member $m$ that $x$ is in,
    $b_m$ a constant, and $h$ the identity, the sigmoid or the softmax function.

    A decision of a tree compares one input with a threshold. If the input is larger,
    the leaves on the left of the decision are out, which are the bits that its mask
    lacks. The row is in the first leaf that is left. So all decisions of all trees are
    computed side by side. Their parts are weights, which training does not change.

    Args:
        names: The names of the inputs that trees read, a number per row each.
        shape: The numbers of members, of rounds, and of outputs.
        kind: The kind of the target (see `Target`).
        leaves: The number of leaves of a tree, at most 24.
        **kwargs: `name` and the other arguments of `keras.Layer`.

    Example:
        >>> trees = Trees(["x"], (2, 1, 1), "number", leaves=2)
        >>> trees.build(None)
        >>> _ = trees.parts["masks"].assign([[0b10, 0b10]])
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
        leaves: int = LEAVES,
        **kwargs: Any,
    ):
        super().__init__(**{"dtype": "float32", "trainable": False, **kwargs})
        self.names, self.shape, self.kind = [*names], [*shape], kind
        self.leaves = leaves

    def build(self, input_shape: Any) -> None:
        """Create the parts of the trees."""
        trees = int(np.prod(self.shape))
        decisions = self.leaves - 1, trees
        shapes = {
            "features": decisions,
            "thresholds": decisions,
            "masks": decisions,
            "leaves": (trees, self.leaves),
            "constants": (self.shape[0], self.shape[2]),
        }
        self.parts = {
            name: self.add_weight(shape, "zeros", name=name)
            for name, shape in shapes.items()
        }
        self.built = True

    def call(self, inputs: Mapping[str, Any]) -> Any:
        """Predict numbers `(batch, 1)`, or probabilities."""
        x = ops.transpose(joined(inputs, self.names))
        features, masks = (
            ops.cast(self.parts[name], "int32") for name in ("features", "masks")
        )
        left: Any = 2**self.leaves - 1
        for number in range(self.leaves - 1):
            own = ops.take(x, features[number], axis=0)
            is_right = own > self.parts["thresholds"][number][:, None]
            left &= ops.where(is_right, masks[number][:, None], 2**self.leaves - 1)
        left = ops.cast(left, "int")  # TensorFlow negates int32 on the host.
        first = ops.cast(left & -left, "float32")  # A power of two.
        place = ops.cast(ops.log2(1.5 * first), "int")
        leaves = ops.take_along_axis(self.parts["leaves"], place, axis=1)
        scores = ops.sum(ops.reshape(leaves, (*self.shape, -1)), axis=1)
        scores += self.parts["constants"][..., None]
        scores = ops.transpose(scores, (0, 2, 1))
        return ops.mean(keras.activations.get(LINKS[self.kind])(scores), axis=0)

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
    parts = {name: np.zeros((*shape, LEAVES - 1)) for name in DECISION}
    parts["thresholds"] += np.inf
    leaves = np.zeros((*shape, LEAVES))
    constants = np.full((shape[0], width), np.log(LEAST))
    for member, (trees, own, seen) in enumerate(members):
        constants[member, seen] = 0.0
        # Of two classes, the second one has trees.
        places = seen[-np.size(own) :]
        constants[member, places] = np.ravel(own)
        for number, each in enumerate(trees):
            for place, tree in zip(places, each, strict=True):
                decisions, values = [], []
                _read(tree.nodes, 0, decisions, values)
                leaves[member, number, place, : len(values)] = values
                columns = np.reshape(decisions, (-1, len(DECISION))).T
                for name, part in zip(DECISION, columns, strict=True):
                    parts[name][member, number, place, : len(part)] = part
    parts = {name: each.reshape(-1, LEAVES - 1).T for name, each in parts.items()}
    parts |= {"leaves": leaves.reshape(-1, LEAVES), "constants": constants}
    layer = Trees(names, shape, target.kind)
    layer.build(None)
    for name, variable in layer.parts.items():
        variable.assign(parts[name])
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


def _read(nodes, place, decisions, leaves):
    """Append the decisions and leaves below a node of scikit-learn, from the left."""
    node = nodes[place]
    if node["is_leaf"]:
        leaves.append(node["value"])
        return
    first = len(leaves)
    _read(nodes, node["left"], decisions, leaves)
    mask = 2**LEAVES - 1 - (2 ** len(leaves) - 2**first)
    # A number in float32 is at most a threshold if it is at most the largest one in
    # float32 that is not above the threshold.
    below = np.float32(node["num_threshold"])
    if below > node["num_threshold"]:
        below = np.nextafter(below, np.float32(-np.inf))
    decisions.append((node["feature_idx"], below, mask))
    _read(nodes, node["right"], decisions, leaves)
