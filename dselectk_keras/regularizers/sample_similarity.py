"""Sample similarity regularizer."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from dselectk_keras.regularizers.scheduled import (
    WeightsRegularizer,
    learned_weights,
)
from dselectk_keras.utils import Tensor, check_number


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
        """Compute the term of weights and examples (see `WeightsRegularizer`)."""
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
