"""Soft mixture of experts over tokens."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.gates.logits import float32_weight
from dselectk_keras.layers.arguments import as_bank
from dselectk_keras.ops import softmax
from dselectk_keras.utils import Configured, Tensor, check_count, with_name

PADDING = -1e30  # The logit of a token that does not count.


@keras.saving.register_keras_serializable(package="dselectk_keras")
class SoftMoE(Configured, keras.Layer):
    r"""Soft mixture of experts: the inputs of experts are mixtures of all tokens.

    $$
    D = \mathrm{softmax}_{\text{tokens}}(X \Phi), \quad
    C = \mathrm{softmax}_{\text{slots}}(X \Phi), \quad
    Y = C \, f(D^\top X)
    $$

    Each of the $n$ experts has `num_slots` slots, and each slot is a mixture of all
    tokens. The cost of the experts does not depend on the number of tokens. The output
    of each token is a mixture of all slots. Tokens and the columns of $\Phi$ are scaled
    to length one, and $\Phi$ by a trainable factor, as the paper advises.

    Args:
        experts: A bank of experts that is not built yet, or a list of Keras layers. A
            bank with `shared_input=True` is replaced by a copy with
            `shared_input=False`.
        num_slots: The number of slots per expert.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: The tokens, `(batch, tokens, features)`.
        training: Passed on to the experts.
        mask: Which tokens count, booleans `(batch, tokens)`; by default, the Keras mask
            of `inputs`. Padding has no part in the slots, and gets zeros. The mask is
            passed on.

    Returns:
        A tensor `(batch, tokens, units)`.

    Example:
        >>> layer = SoftMoE(DenseExperts(num_experts=4, units=[8]), num_slots=2)
        >>> layer(keras.ops.ones((2, 5, 3))).shape
        (2, 5, 8)

    Reference:
        Puigcerver et al., "From Sparse to Soft Mixtures of Experts" (ICLR 2024),
        Section 2.1. Muqeeth et al. compare SMEAR with it.
    """

    def __init__(self, experts: Any, num_slots: int = 1, **kwargs: Any):
        super().__init__(**with_name(kwargs, "soft_moe"))
        self.supports_masking = True
        experts = as_bank(experts, shared_input=False)
        if experts.shared_input:
            if experts.built:
                raise ValueError(
                    "Experts of slots have inputs of their own, so that a bank with "
                    "shared_input=True is replaced by a new one. Received: "
                    f"{experts.name!r}, built already. Pass one that is not built."
                )
            # Not `resized`, which copies one expert only.
            config = {**experts.get_config(), "shared_input": False}
            experts = type(experts).from_config(config)
        self.experts = experts
        self.num_slots = check_count("num_slots", num_slots)

    def build(self, input_shape: Any) -> None:
        if len(input_shape) != 3:
            raise ValueError(
                "Soft mixtures need tokens, (batch, tokens, features). "
                f"Received: {tuple(input_shape)}."
            )
        dim, num_experts = input_shape[-1], self.experts.num_experts
        shape = (dim, num_experts * self.num_slots)
        self._kernel = float32_weight(self, "kernel", shape, "lecun_normal")
        self._scale = float32_weight(self, "scale", (), "ones")
        if not self.experts.built:
            self.experts.build((input_shape[0], num_experts, self.num_slots, dim))
        self.built = True

    def call(
        self, inputs: Tensor, training: bool | None = None, mask: Tensor = None
    ) -> Tensor:
        if not keras.backend.is_float_dtype(inputs.dtype):
            inputs = ops.cast(inputs, self.compute_dtype)
        counts = None if mask is None else ops.expand_dims(ops.cast(mask, "bool"), -1)
        if counts is not None:
            inputs = ops.where(counts, inputs, 0.0)  # 0 * NaN is NaN.
        logits = self._logits(inputs)
        over_tokens, over_slots = logits, softmax(logits)
        if counts is not None:
            # Not infinite: an example may have nothing but padding.
            over_tokens = ops.where(counts, logits, PADDING)
            over_slots = ops.where(counts, over_slots, 0.0)
        dispatch = ops.cast(softmax(over_tokens, axis=1), inputs.dtype)
        combine = ops.cast(over_slots, inputs.dtype)
        slots = ops.matmul(ops.transpose(dispatch, (0, 2, 1)), inputs)
        dim = inputs.shape[-1]
        slots = ops.reshape(slots, (-1, self.experts.num_experts, self.num_slots, dim))
        filled = self.experts(slots, training=training)
        num_slots = self.experts.num_experts * self.num_slots
        filled = ops.reshape(filled, (-1, num_slots, filled.shape[-1]))
        return ops.cast(ops.matmul(combine, filled), self.compute_dtype)

    def expert_weights(self, inputs: Tensor) -> Tensor:
        """Compute the weights of the experts for each token, `(batch, tokens, n)`."""
        weights = softmax(self._logits(ops.convert_to_tensor(inputs)))
        shape = (-1, weights.shape[1], self.experts.num_experts, self.num_slots)
        return ops.sum(ops.reshape(weights, shape), axis=-1)

    def _logits(self, inputs):
        """Compute the logits of tokens and slots, `(batch, tokens, n s)`."""
        tokens = _to_length_one(ops.cast(inputs, "float32"), axis=-1)
        return ops.matmul(tokens, self._scale * _to_length_one(self._kernel, axis=0))


def _to_length_one(x, axis):
    # At zero, such as at padding, the gradient of `ops.normalize` is NaN, and that of a
    # quotient huge.
    squares = ops.sum(ops.square(x), axis=axis, keepdims=True)
    is_long = squares > 1e-12
    return x * ops.cast(is_long, x.dtype) * ops.rsqrt(ops.where(is_long, squares, 1.0))
