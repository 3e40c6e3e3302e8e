"""Auxiliary losses: scalar terms that a gate or a layer adds to the training loss."""

import abc
import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from dselectk_keras.ops import clipped, coefficient_of_variation, entropy, softmax
from dselectk_keras.schedules import check_schedule, value_at
from dselectk_keras.utils import (
    Configured,
    Tensor,
    check_choice,
    check_flags,
    check_number,
)

__all__ = [
    "EntropyRegularizer",
    "ImportanceRegularizer",
    "LoadRegularizer",
    "ReachabilityRegularizer",
    "RouterZRegularizer",
    "SampleSimilarityRegularizer",
    "ScheduledRegularizer",
    "SparsityRegularizer",
    "SwitchLoadRegularizer",
    "WeightsRegularizer",
]


class ScheduledRegularizer(Configured, keras.regularizers.Regularizer, abc.ABC):
    """An auxiliary loss: a constant or scheduled weight times a term.

    A subclass defines the term. A regularizer has no state: the gate passes its step.
    Under `tf.distribute`, the term is that of each replica's part of the batch.

    Args:
        weight: A number, a `LearningRateSchedule`, or a callable of the step.
    """

    def __init__(self, weight: Any):
        self.weight = check_schedule(weight, "weight")

    @classmethod
    def get(cls, identifier: Any, name: str) -> Any:
        """Convert the argument of this name, perhaps a weight, to a regularizer."""
        if identifier is None or isinstance(identifier, cls):
            return identifier
        wanted = f"a `{cls.__name__}`, or its weight"
        if cls.__abstractmethods__:
            wanted = "a regularizer of a gate's weights, as `ImportanceRegularizer(1)`"
        # A regularizer of Keras is callable, but no schedule.
        elif not isinstance(identifier, keras.regularizers.Regularizer):
            try:
                return cls(identifier)
            except ValueError as error:
                raise ValueError(f"`{name}`: {error}") from None
        raise ValueError(f"`{name}` must be {wanted}. Received: {name}={identifier!r}.")

    @abc.abstractmethod
    def term(self, inputs: Any) -> Tensor:
        """Compute the scalar that is multiplied by the weight."""

    def __call__(self, inputs: Any, step: Any = 1) -> Tensor:
        """Compute the term times its weight at a training step, from 1, in float32."""
        return value_at(self.weight, step) * self.term(inputs)


class WeightsRegularizer(ScheduledRegularizer, abc.ABC):
    """A regularizer that may be the `weights_regularizer` of a gate.

    Its term is of a batch of weights, `(batch, [num_gates,] n)`, in which a static gate
    has one row, unless a subclass overrides `penalty`.

    Args:
        weight: A number, a schedule, or a callable of the step.
    """

    def penalty(self, routing: Any, step: Any) -> Tensor:
        """Compute the term times its weight at a step, from a `Routing`."""
        return self(learned_weights(routing), step)


def learned_weights(routing: Any) -> Tensor:
    """A batch of weights; of drawn ones their probabilities, which have a gradient."""
    drawn = routing.probabilities is not None
    return routing.as_batch(routing.probabilities if drawn else routing.weights)


@keras.saving.register_keras_serializable("dselectk_keras")
class EntropyRegularizer(WeightsRegularizer):
    r"""Penalizes the entropy of the selectors, so that they become binary earlier.

    $$
    \lambda(t) \sum_{s} \sum_i - r_{s,i} \log(r_{s,i} + 10^{-6})
    $$

    summed over all selectors at the gate's step $t$. As the `weights_regularizer` of a
    gate, it penalizes the entropy of the gate's weights. A per-example gate averages it
    over the examples, or by its argument `reduction`, if it has one, sums it.

    Args:
        weight: $\lambda$: a number, a schedule, or a callable of the step.
        target: `"selectors"` for the entropy of each selector's weights over the
            experts, as in the release; `"bits"` for the sum of the entropies of its
            relaxed bits, as in Section 3.1.3. The two are equal if the number of
            experts is a power of two; otherwise the first leaves out the codes of no
            expert.

    Example:
        >>> regularizer = EntropyRegularizer(0.5)
        >>> round(float(regularizer([[0.5, 0.5]])), 4)
        0.3466

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 3.1.3.
    """

    def __init__(self, weight: Any = 1e-6, target: str = "selectors"):
        check_choice("target", target, ("selectors", "bits"))
        super().__init__(weight)
        self.target = target

    def term(self, inputs: Tensor) -> Tensor:
        return ops.sum(entropy(inputs))

    def penalty(self, routing: Any, step: Any) -> Tensor:
        if self.target != "selectors":
            raise ValueError(
                "The weights of a gate have no bits. Received: a weights_regularizer "
                f'with target={self.target!r}. Use target="selectors", or the '
                "argument `entropy_reg` of `DSelectKGate`."
            )
        return routing.penalty(self, learned_weights(routing), step)


@keras.saving.register_keras_serializable("dselectk_keras")
class ImportanceRegularizer(WeightsRegularizer):
    r"""Load balancing: penalizes unequal total weights of the experts over a batch.

    $$
    w \, \mathrm{CV}\Bigl(\sum_x p_x\Bigr)
    $$

    where CV is the coefficient of variation, or with `squared` its square, and $p_x$
    are the gate's weights. Several gates' terms are summed.

    Args:
        weight: $w$: a number, a schedule, or a callable of the step.
        squared: Whether to square the coefficient of variation. Shazeer et al. do,
            Krishnamurthy et al. do not.

    Example:
        >>> float(ImportanceRegularizer(0.5)([[1.0, 0.0], [1.0, 0.0]]))
        0.5

    Reference:
        Krishnamurthy et al., "Improving Expert Specialization" (2023), Equation 7;
        Shazeer et al. (ICLR 2017), Equations 6 and 7.
    """

    def __init__(self, weight: Any, squared: bool = False):
        super().__init__(weight)
        check_flags(squared=squared)
        self.squared = squared

    def term(self, inputs: Tensor) -> Tensor:
        variation = _variation(inputs)
        return ops.sum(ops.square(variation) if self.squared else variation)


@keras.saving.register_keras_serializable("dselectk_keras")
class LoadRegularizer(ScheduledRegularizer):
    r"""Load balancing: penalizes unequal numbers of examples per expert in a batch.

    $$
    w \, \mathrm{CV}\Bigl(\sum_x P(x)\Bigr)^2
    $$

    where $P_i(x)$ is the probability that a noisy gate sends $x$ to expert $i$ (see
    `ops.top_k_probability`). Several gates' terms are summed. It is the `load_reg` of a
    `TopKGate`. Of a gate's weights, `ImportanceRegularizer` computes it.

    Args:
        weight: $w$: a number, a schedule, or a callable of the step.

    Example:
        >>> float(LoadRegularizer(0.5)([[1.0, 0.0], [1.0, 0.0]]))
        0.5

    Reference:
        Shazeer et al. (ICLR 2017), Equations 10 and 11.
    """

    def term(self, inputs: Tensor) -> Tensor:
        return ops.sum(ops.square(_variation(inputs)))


@keras.saving.register_keras_serializable("dselectk_keras")
class SwitchLoadRegularizer(WeightsRegularizer):
    r"""Load balancing: the auxiliary loss of the Switch Transformer.

    $$
    w \, n \sum_{i=1}^n f_i P_i
    $$

    where $f_i$, without a gradient, is the share of the choices in the batch that are
    expert $i$, and $P_i$ is the mean over the batch of its probability, a softmax over
    all logits without noise. Equal shares give $w$, and all tokens at one expert up to
    $w \, n$. Several gates' terms are summed.

    Args:
        weight: $w$: a number, a schedule, or a callable of the step. The paper uses
            0.01.

    Example:
        >>> weights = [[0.75, 0.0], [0.75, 0.0]]
        >>> probabilities = [[0.75, 0.25], [0.75, 0.25]]
        >>> float(SwitchLoadRegularizer(1.0)((weights, probabilities)))
        1.5

    Reference:
        Fedus et al., "Switch Transformers" (JMLR 2022), Equations 4 to 6.
    """

    def term(self, inputs: Sequence[Tensor]) -> Tensor:
        weights, probabilities = map(ops.convert_to_tensor, inputs)
        chosen = ops.stop_gradient(_shares(weights > 0))
        return weights.shape[-1] * ops.sum(chosen * _shares(probabilities))

    def penalty(self, routing: Any, step: Any) -> Tensor:
        if routing.logits is None or routing.max_experts is None:
            raise ValueError(
                "SwitchLoadRegularizer needs a sparse gate with one logit per expert, "
                "such as `SwitchGate` or `TopKGate`. Received: another gate. Use "
                "`ImportanceRegularizer`."
            )
        parts = routing.weights, softmax(routing.logits)
        return self(tuple(map(routing.as_batch, parts)), step)


def _variation(values):
    """The coefficient of variation of sums over the batch."""
    return coefficient_of_variation(ops.sum(ops.cast(values, "float32"), axis=0))


def _shares(values):
    """The experts' shares of a sum over the batch."""
    total = ops.sum(ops.cast(values, "float32"), axis=0)
    return total / ops.maximum(ops.sum(total, axis=-1, keepdims=True), 1e-7)


@keras.saving.register_keras_serializable("dselectk_keras")
class RouterZRegularizer(ScheduledRegularizer):
    r"""Penalizes large logits of a gate, which are imprecise in half precision.

    $$
    w \sum_x \Bigl(\log \sum_{i=1}^n e^{z_i(x)}\Bigr)^2
    $$

    where $z_i(x)$ are the logits of the experts, without noise. A gate divides the sum
    by the number of examples. Several gates' terms are summed.

    Args:
        weight: $w$: a number, a schedule, or a callable of the step. The paper uses
            0.001.

    Example:
        >>> round(float(RouterZRegularizer(0.5)([[0.0, 0.0]])), 4)
        0.2402

    Reference:
        Zoph et al., "ST-MoE" (2022), Equation 5.
    """

    def term(self, inputs: Tensor) -> Tensor:
        logits = ops.cast(inputs, "float32")
        return ops.sum(ops.square(ops.logsumexp(logits, axis=-1)))


@keras.saving.register_keras_serializable("dselectk_keras")
class SparsityRegularizer(ScheduledRegularizer):
    r"""Penalizes the logarithm of each expert's probability of being open.

    $$
    \lambda \sum_i \log \psi_i
    $$

    It is called on the logarithms $\log \psi$. The term lowers small probabilities
    most. It has no lower bound: without a task loss, they converge to 0.

    Args:
        weight: $\lambda$: a number, a schedule, or a callable of the step.

    Example:
        >>> float(SparsityRegularizer(0.5)([-1.0, -2.0]))
        -1.5

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix D.
    """

    def term(self, inputs: Tensor) -> Tensor:
        return ops.sum(ops.cast(inputs, "float32"))


@keras.saving.register_keras_serializable("dselectk_keras")
class ReachabilityRegularizer(ScheduledRegularizer):
    r"""Penalizes selectors whose codes belong to no expert.

    $$
    \xi \sum_s \frac{1}{\max(\sum_i r_{s,i}, 10^{-6})}
    $$

    over the weights $r_s$ of each selector. If the number of experts is not a power of
    two, some binary codes belong to no expert. The term is 1 for a selector without
    weight on these codes, and at most $10^6$ for one with all of its weight on them.

    Args:
        weight: $\xi$: a number, a schedule, or a callable of the step.

    Example:
        >>> float(ReachabilityRegularizer(1.0)([[0.25, 0.25, 0.0]]))
        2.0

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix B.2.
    """

    def term(self, inputs: Tensor) -> Tensor:
        mass = ops.sum(ops.cast(inputs, "float32"), axis=-1)
        return ops.sum(1.0 / clipped(mass, 1e-6))


@keras.saving.register_keras_serializable("dselectk_keras")
class SampleSimilarityRegularizer(WeightsRegularizer):
    r"""Penalizes dissimilar examples that share an expert.

    $$
    L_s = \frac{w}{N^2 - N} \sum_{x \ne x'} \bigl(\beta_s S(x, x') - \beta_d D(x, x')
    \bigr)
    $$

    $$
    S(x, x') = \frac{1}{M} \sum_e p(e|x) \, p(e|x') \, \lVert x - x' \rVert^2, \qquad
    D(x, x') = \frac{1}{M^2 - M} \sum_{e \ne e'} p(e|x) \, p(e'|x') \,
    \lVert x - x' \rVert^2
    $$

    for the $N$ examples of a batch and $M$ experts, in $O(N^2)$ memory. The distances
    are between the gate's routing inputs or, with a layer's `routing_network`, between
    the inputs of that network. They get no gradient. Several gates' terms are summed.

    The squared distances come from float32 products. TensorFlow and JAX round the
    factors to 11 bits (TF32) on recent GPUs. Distances that are much smaller than the
    examples' distances from their mean are then wrong. Before training, call
    `tf.config.experimental.enable_tensor_float_32_execution(False)`, or
    `jax.config.update("jax_default_matmul_precision", "highest")`. Torch computes in
    full precision, unless you change it.

    Args:
        beta_s: Weight of the pairs at the same expert, $\beta_s$.
        beta_d: Weight of the pairs at different experts, $\beta_d$.
        weight: $w$: a number, a schedule, or a callable of the step.

    Example:
        >>> regularizer = SampleSimilarityRegularizer(beta_s=1.0, beta_d=1.0)
        >>> x = [[0.0], [1.0]]
        >>> float(regularizer(([[1.0, 0.0], [0.0, 1.0]], x)))
        -0.5
        >>> float(regularizer(([[1.0, 0.0], [1.0, 0.0]], x)))
        0.5

    Reference:
        Krishnamurthy et al. (2023), Equations 8 to 10.
    """

    def __init__(self, beta_s: float, beta_d: float, weight: Any = 1.0):
        super().__init__(weight)
        self.beta_s = check_number("beta_s", beta_s)
        self.beta_d = check_number("beta_d", beta_d)

    def term(self, inputs: Sequence[Tensor]) -> Tensor:
        """Compute the mean over the pairs of examples.

        The inputs are the weights, the examples, `(batch, [num_gates,] features)`, and
        the number of examples that count, if others have weights of zero.
        """
        weights, x, *count = (ops.cast(each, "float32") for each in inputs)
        if len(weights.shape) == 2:
            weights = ops.expand_dims(weights, 1)
        n = weights.shape[-1]
        by_gate = ops.transpose(weights, (1, 0, 2))
        same = ops.matmul(by_gate, ops.transpose(by_gate, (0, 2, 1)))
        total = ops.sum(by_gate, axis=-1)
        different = total[:, :, None] * total[:, None, :] - same
        pairs = self.beta_s / n * same
        if n > 1:
            pairs = pairs - self.beta_d / (n * n - n) * different
        batch = count[0] if count else ops.cast(ops.shape(weights)[0], "float32")
        distances = ops.stop_gradient(_distances(x, gates=by_gate.shape[0]))
        return ops.sum(pairs * distances) / ops.maximum(batch * (batch - 1.0), 1.0)

    def penalty(self, routing: Any, step: Any) -> Tensor:
        if not routing.per_example:
            raise ValueError(
                f"{type(self).__name__} compares the weights of examples. A static "
                "gate has the same weights for all examples. Pass routing inputs, or "
                "use another regularizer."
            )
        # Large numbers in padding would cost digits of all distances.
        examples = routing.only_valid(routing.examples)
        return self((learned_weights(routing), examples, routing.num_examples()), step)


def _distances(x, gates):
    """Squared distances, `([g,] batch, batch)`: per gate if each has its own x."""
    if len(x.shape) < 3 or x.shape[1] != gates:
        return squared_distances(x)
    return ops.stack([squared_distances(x[:, g]) for g in range(gates)])


def squared_distances(x: Tensor) -> Tensor:
    """Squared distances between the examples of `(batch, ...)`, without their pairs."""
    # Not -1, which is no size if the batch is empty.
    x = ops.reshape(x, (ops.shape(x)[0], math.prod(ops.shape(x)[1:])))
    x = x - ops.mean(x, axis=0, keepdims=True)  # Loses fewer digits.
    products = ops.matmul(x, ops.transpose(x))
    squares = ops.diagonal(products)
    # Not 2 * products: some processors round the two triangles differently.
    doubled = products + ops.transpose(products)
    return ops.relu(squares[:, None] + squares[None, :] - doubled)
