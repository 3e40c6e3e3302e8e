"""Metrics of how gates use experts.

Functions take plain arrays; classes are Keras metrics that accumulate over batches.
"""

import abc
import math
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from dselectk_keras.ops import sum_segments
from dselectk_keras.utils import (
    MAX_EXPERTS,
    Configured,
    Tensor,
    check_choice,
    check_count,
    check_number,
    convert,
)

__all__ = [
    "JaccardIndex",
    "MutualInformation",
    "SampleEntropy",
    "SelectionTable",
    "UtilizationEntropy",
    "active_experts",
    "jaccard_index",
]


_TINY = float(np.finfo("float32").tiny)


class GateMetric(Configured, keras.metrics.Metric, abc.ABC):
    """A metric with a sum of this shape; float32 under any dtype policy."""

    def __init__(self, name, shape=()):
        super().__init__(dtype="float32", name=name)
        self.total = self.add_variable(shape, "zeros", dtype="float32", name="total")


class MeanMetric(GateMetric):
    """The mean over all examples of values that a subclass computes."""

    num_experts: int | None = None

    def __init__(self, name, shape=()):
        super().__init__(name, shape)
        self.count = self.add_variable((), "zeros", dtype="float32", name="count")

    @abc.abstractmethod
    def values(self, weights: Tensor) -> Any:
        """Compute the values `(batch, ..., *shape)` of the weights of a batch."""

    def update_state(self, weights: Tensor, sample_weight: Tensor = None) -> None:
        """Add the values of a batch, with the mean over the axes between.

        With sample weights `(batch, length)` each token counts as an example.
        """
        weights = gate_tensor(weights, (2, 3), self.num_experts)
        values, trailing = self.values(weights), len(self.total.shape)
        tokens = tuple(getattr(sample_weight, "shape", ()))
        if len(tokens) > 1 and tokens == tuple(values.shape[: len(tokens)]):
            values = ops.reshape(values, (-1, *values.shape[len(tokens) :]))
            sample_weight = ops.reshape(sample_weight, (-1,))
        between = tuple(range(1, len(values.shape) - trailing))
        values = ops.mean(values, axis=between) if between else values
        amounts = example_weights(sample_weight, values)
        self.count.assign(self.count + ops.sum(amounts))
        amounts = ops.reshape(amounts, (-1, *[1] * trailing))
        # Padding may be NaN, and 0 * NaN is NaN.
        values = ops.where(amounts == 0, 0.0, amounts * values)
        self.total.assign(self.total + ops.sum(values, axis=0))

    def result(self) -> Tensor:
        """The mean so far; 0 before the first example."""
        return ops.divide_no_nan(self.total, self.count)


class SelectionMetric(GateMetric):
    """Counts how often examples, or tokens, of each class choose each expert.

    An example chooses the expert with its largest weight, the first one if tied.
    """

    def __init__(self, num_experts, num_classes, name):
        check_count("num_experts", num_experts, maximum=MAX_EXPERTS)
        check_count("num_classes", num_classes, maximum=MAX_EXPERTS)
        super().__init__(name, (num_classes, num_experts))
        self.num_experts = num_experts
        self.num_classes = num_classes

    def update_state(
        self, labels: Tensor, weights: Tensor, sample_weight: Tensor = None
    ) -> None:
        n = self.num_experts
        weights, labels = as_float("weights", weights), as_float("labels", labels)
        if len(weights.shape) == 3 and len(labels.shape) == 2:
            weights, labels = ops.reshape(weights, (-1, n)), ops.reshape(labels, (-1,))
            if sample_weight is not None:
                sample_weight = ops.reshape(sample_weight, (-1,))
        weights = gate_tensor(weights, (2,), n)
        # As floats, since NaN has no integer. The classes are exact.
        labels = example_vector("labels", labels, weights)
        amounts = example_weights(sample_weight, weights)
        known = ops.logical_and(labels >= 0, labels < self.num_classes)
        labels = ops.cast(ops.where(known, labels, 0), "int32")
        # Not a product of one-hot matrices, which would round the sample weights on
        # devices that multiply in lower precision.
        counts = sum_segments(
            ops.where(known, amounts, 0.0),
            labels * n + ops.argmax(weights, axis=-1),
            self.num_classes * n,
        )
        self.total.assign(self.total + ops.reshape(counts, self.total.shape))


def as_float(name, value):
    """A float32 tensor, or an error with the name."""
    return convert(name, value, lambda given: ops.cast(given, "float32"))


def gate_tensor(weights, axes, num_experts=None):
    """Weights in float32, with one of the numbers of axes; the last is the experts."""
    weights = as_float("weights", weights)
    shape = tuple(weights.shape)
    if len(shape) not in axes or (num_experts and shape[-1] not in {None, num_experts}):
        layouts = "(batch, n)", "(batch, g, n)"
        experts = f" with n={num_experts} experts" if num_experts else ""
        raise ValueError(
            f"`weights` must have the shape {' or '.join(layouts[: len(axes)])}"
            f"{experts}. Received shape: {shape}. The last axis must be the experts."
        )
    return weights


def example_vector(name, value, like):
    """A float32 tensor `(batch,)` with one number per example of another tensor."""
    value = as_float(name, value)
    shape, batch = tuple(value.shape), like.shape[0]
    if shape[1:] not in {(), (1,)} or not shape or len({*shape[:1], batch, None}) > 2:
        raise ValueError(
            f"`{name}` must have the shape (batch,) or (batch, 1), with batch="
            f"{batch} as in the gate's result. Received shape: {shape}. "
            "Pass one number per example."
        )
    return ops.reshape(value, (-1,))


def example_weights(sample_weight, like):
    """The given sample weights, or ones, `(batch,)`."""
    if sample_weight is None:
        return ops.ones(ops.shape(like)[:1], "float32")
    return example_vector("sample_weight", sample_weight, like)


def used_experts(weights, tolerance):
    """Boolean array of the experts whose weight exceeds the tolerance."""
    weights = ops.convert_to_numpy(weights)
    if weights.ndim == 0 or weights.shape[-1] == 0 or np.isnan(weights).any():
        raise ValueError(
            "`weights` must be numbers, with the experts as the last axis, at least "
            f"one. Received: shape {weights.shape}, with {np.isnan(weights).sum()} NaN."
            " Pass the result of `gate.expert_weights()`."
        )
    check_number("tolerance", tolerance, minimum=0)
    return weights > tolerance


def shares(weights):
    """Weights over their sum, such as those of a `SwitchGate`; zeros stay zeros."""
    total = ops.sum(weights, axis=-1, keepdims=True)
    return weights / ops.where(total > 0, total, 1.0)


def exact_entropy(probabilities, base):
    """Entropy over the last axis to any base, with 0 log 0 = 0 exactly."""
    p = probabilities
    # Not a negation, which would give -0.0 for 0.
    return 0.0 - ops.sum(p * safe_log(p), axis=-1) / math.log(base)


def safe_log(x):
    """The natural logarithm, but 0 where `x` is 0."""
    # Some devices flush numbers below `_TINY` to zero.
    return ops.log(ops.where(x < _TINY, 1.0, x))


def active_experts(weights: Any, tolerance: float = 0.0) -> Any:
    r"""Number of experts with a weight above the tolerance.

    $$|\{e : g_e > \text{tolerance}\}|$$

    Args:
        weights: Array (..., n) of expert weights; any leading axes, such as examples,
            tasks or records.
        tolerance: Largest weight that counts as not used. Keep it at zero for gates
            with exact zeros; a softmax needs a small one.

    Returns:
        Integer array (...) of counts; a NumPy integer for weights (n,).

    Example:
        >>> active_experts([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]).tolist()
        [2, 1]

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 4 and Table 1.
    """
    return np.count_nonzero(used_experts(weights, tolerance), axis=-1)


class JaccardIndex(NamedTuple):
    """Mean Jaccard index of related and of unrelated pairs of tasks.

    Args:
        related: Mean over pairs of tasks in the same group; NaN without any.
        unrelated: Mean over pairs in different groups; NaN without any.
    """

    related: float
    unrelated: float


def jaccard_index(
    weights: Any, groups: Any = None, tolerance: float = 0.0
) -> JaccardIndex:
    r"""Mean Jaccard index of the expert sets of pairs of tasks.

    With $A_t$ the set of experts that task $t$ uses (weight above the
    tolerance), the mean over pairs $t < u$ of

    $$J(A_t, A_u) = \frac{|A_t \cap A_u|}{|A_t \cup A_u|}$$

    separately for pairs within a group (related tasks) and pairs across groups. It is
    one if two tasks use the same experts and zero if they share none; two empty sets
    count as equal. For per-example gates, take the mean over the examples.

    Args:
        weights: Array (tasks, n) of expert weights.
        groups: One group label per task, or `None`: all tasks are one group, so that
            `related` is the mean over all pairs.
        tolerance: Largest weight that counts as not used.

    Returns:
        A `JaccardIndex(related, unrelated)`; NaN if there are no such pairs.

    Example:
        >>> weights = [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
        >>> jaccard_index(weights, groups=[0, 0, 1])
        JaccardIndex(related=0.5, unrelated=0.0)

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix C.1.
    """
    sets = used_experts(weights, tolerance)
    if sets.ndim != 2:
        raise ValueError(
            "`weights` must have shape (tasks, experts). Received shape: "
            f"{sets.shape}. Average over the other axes first, or index them."
        )
    groups = np.zeros(len(sets)) if groups is None else np.asarray(groups)
    if groups.shape != (len(sets),):
        raise ValueError(
            f"`groups` must hold one label for each of the {len(sets)} tasks. "
            f"Received shape: {groups.shape}. Give one label per row of `weights`."
        )

    counts = sets.astype(int)
    shared = counts @ counts.T
    sizes = counts.sum(axis=1)
    union = sizes[:, None] + sizes[None, :] - shared
    index = np.where(union > 0, shared / np.maximum(union, 1), 1.0)

    first, second = np.triu_indices(len(sets), k=1)
    related = groups[first] == groups[second]
    index = index[first, second]
    means = (
        float(values.mean()) if values.size else math.nan
        for values in (index[related], index[~related])
    )
    return JaccardIndex(*means)


@keras.saving.register_keras_serializable("dselectk_keras")
class SampleEntropy(MeanMetric):
    r"""Mean over the examples of the entropy of their expert weights.

    $$
    H_s = -\frac{1}{N} \sum_x \sum_e p(e|x) \log_b p(e|x)
    $$

    It is 0 if every example uses a single expert. With several gates it is also the
    mean over the gates.

    Args:
        base: The base $b$ of the logarithm: 2 for bits, `math.e` for nats.
        name: The metric's name in logs.

    Call arguments:
        weights: Tensor `(batch, n)` or `(batch, g, n)`, the gate's weights, which are
            divided by their sum.
        sample_weight: One weight per example, or, such as a mask, one per token.

    Returns:
        A float32 scalar: the mean over the calls so far, 0 before the first.

    Example:
        >>> metric = SampleEntropy()
        >>> float(metric([[0.5, 0.5], [1.0, 0.0]]))
        0.5

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Equation 1.
    """

    def __init__(self, base: float = 2, name: str = "sample_entropy") -> None:
        super().__init__(name)
        self.base = check_number("base", base, above=1)

    def values(self, weights: Tensor) -> Tensor:
        return exact_entropy(shares(weights), self.base)


@keras.saving.register_keras_serializable("dselectk_keras")
class UtilizationEntropy(MeanMetric):
    r"""Entropy of the mean of the expert weights over all examples.

    $$
    H_u = -\sum_e p(e) \log_b p(e), \qquad p(e) = \frac{1}{N} \sum_x p(e|x)
    $$

    It is $\log_b n$ if all experts are used equally (perfect load balance), and 0 if
    one expert is used for everything; it is never less than `SampleEntropy`. With
    several gates the mean is also over the gates: for a single one, pass its weights
    alone.

    Args:
        num_experts: The number of experts, $n$.
        base: The base $b$ of the logarithm: 2 for bits, `math.e` for nats.
        name: The metric's name in logs.

    Call arguments:
        weights: Tensor `(batch, n)` or `(batch, g, n)`, the gate's weights, which are
            divided by their sum.
        sample_weight: One weight per example, or, such as a mask, one per token.

    Returns:
        A float32 scalar: the entropy for the calls so far, 0 before the first.

    Example:
        >>> metric = UtilizationEntropy(num_experts=2)
        >>> float(metric([[1.0, 0.0], [0.0, 1.0]]))
        1.0

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Equation 2.
    """

    def __init__(
        self, num_experts: int, base: float = 2, name: str = "utilization_entropy"
    ) -> None:
        check_count("num_experts", num_experts, maximum=MAX_EXPERTS)
        super().__init__(name, shape=(num_experts,))
        self.num_experts = num_experts
        self.base = check_number("base", base, above=1)

    def values(self, weights: Tensor) -> Tensor:
        return shares(weights)

    def result(self) -> Tensor:
        return exact_entropy(super().result(), self.base)


@keras.saving.register_keras_serializable("dselectk_keras")
class SelectionTable(SelectionMetric):
    r"""Number of examples of each class that choose each expert.

    $$
    N_{ye} = |\{x : y(x) = y, \; \mathrm{argmax}_i \, p(i|x) = e\}|
    $$

    Of equal largest weights the first is chosen.

    Args:
        num_experts: The number of experts.
        num_classes: The number of classes.
        normalize: `None` for counts; `"classes"` for $p(e|y)$, which sums to one for
            each class; `"experts"` for $p(y|e)$, which sums to one for each expert. A
            class or expert without examples has zeros.
        name: The metric's name in logs.

    Call arguments:
        labels: Tensor `(batch,)` or `(batch, 1)` of classes. Examples with a label
            outside [0, num_classes), or NaN, are ignored.
        weights: Tensor `(batch, n)`, the weights of one gate.
        sample_weight: One weight per example, or, such as a mask, one per token.

    Returns:
        A float32 tensor `(num_classes, num_experts)`, of the calls so far.

    Example:
        >>> metric = SelectionTable(num_experts=2, num_classes=3)
        >>> table = metric([0, 2, 2], [[0.9, 0.1], [0.2, 0.8], [0.0, 1.0]])
        >>> keras.ops.convert_to_numpy(table).tolist()
        [[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]]

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Figure 2, and
        Table 4 transposed.
    """

    def __init__(
        self,
        num_experts: int,
        num_classes: int,
        normalize: str | None = None,
        name: str = "selection_table",
    ) -> None:
        super().__init__(num_experts, num_classes, name)
        check_choice("normalize", normalize, (None, "classes", "experts"))
        self.normalize = normalize

    def result(self) -> Tensor:
        if self.normalize is None:
            # A copy, which later updates do not change.
            return ops.copy(self.total)
        axis = 1 if self.normalize == "classes" else 0
        sums = ops.sum(self.total, axis=axis, keepdims=True)
        return ops.divide_no_nan(self.total, sums)


@keras.saving.register_keras_serializable("dselectk_keras")
class MutualInformation(SelectionMetric):
    r"""Mutual information of the chosen expert and the class.

    $$
    I(E;Y) = \sum_{e,y} p(e,y) \log_b \frac{p(e,y)}{p(e) \, p(y)}
    $$

    where an example chooses the expert with its largest weight, the first one if tied.
    It is 0 if the choice is independent of the class, and at most the smaller of the
    entropies $H(E)$ and $H(Y)$.

    Args:
        num_experts: The number of experts.
        num_classes: The number of classes.
        base: The base $b$ of the logarithm: 2 for bits, `math.e` for nats.
        name: The metric's name in logs.

    Call arguments:
        labels: Tensor `(batch,)` or `(batch, 1)` of classes. Examples with a label
            outside [0, num_classes), or NaN, are ignored.
        weights: Tensor `(batch, n)`, the weights of one gate.
        sample_weight: One weight per example, or, such as a mask, one per token.

    Returns:
        A float32 scalar: the mutual information so far, 0 before the first call.

    Example:
        >>> metric = MutualInformation(num_experts=2, num_classes=2)
        >>> float(metric([0, 1], [[0.9, 0.1], [0.2, 0.8]]))
        1.0

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Equations 3 and
        11 to 16.
    """

    def __init__(
        self,
        num_experts: int,
        num_classes: int,
        base: float = 2,
        name: str = "mutual_information",
    ) -> None:
        super().__init__(num_experts, num_classes, name)
        self.base = check_number("base", base, above=1)

    def result(self) -> Tensor:
        joint = ops.divide_no_nan(self.total, ops.sum(self.total))
        experts = ops.sum(joint, axis=0, keepdims=True)
        classes = ops.sum(joint, axis=1, keepdims=True)
        ratio = ops.divide_no_nan(joint, experts * classes)
        information = ops.sum(joint * safe_log(ratio)) / math.log(self.base)
        # Rounding gives about -1e-8 for independent counts.
        return ops.maximum(information, 0.0)
