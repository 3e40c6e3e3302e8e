"""Probability that a noisy logit is among the k largest."""

import math

from keras import ops

from dselectk_keras.utils import Tensor

_NO_NOISE = 1e-9


def top_k_probability(
    logits: Tensor, noisy_logits: Tensor, noise_scale: Tensor, k: int
) -> Tensor:
    r"""Probability that each expert stays among the k largest under fresh noise.

    $$
    P_i = \Phi\!\left(
    \frac{v_i - \mathrm{kth\_excluding}(\tilde v, k, i)}{\sigma_i}\right)
    $$

    where $\tilde v$ are the noisy logits, $\mathrm{kth\_excluding}$ is the k-th
    largest of them without the i-th, and only the i-th noise is drawn again. It is a
    smooth estimate of which experts an example uses. Without noise it is 1 for the k
    largest logits, 0 for the others and 1/2 for equal logits, with a gradient of 0.

    Args:
        logits: Tensor `(..., n)`, the logits without noise.
        noisy_logits: Tensor `(..., n)`, the logits with the noise of this call.
        noise_scale: Tensor `(..., n)`, the standard deviation of the noise.
        k: How many experts are kept.

    Returns:
        A float32 tensor `(..., n)` with values in [0, 1].

    Example:
        >>> ones = [1.0, 1.0]
        >>> found = top_k_probability(ones, ones, ones, k=1)
        >>> keras.ops.convert_to_numpy(found).tolist()
        [0.5, 0.5]

    Reference:
        Shazeer et al., "Outrageously Large Neural Networks" (ICLR 2017),
        Equations 8 and 9.
    """
    logits = ops.cast(logits, "float32")
    noisy_logits = ops.cast(noisy_logits, "float32")
    if k >= logits.shape[-1]:
        return ops.ones_like(logits)
    largest, _ = ops.top_k(noisy_logits, k + 1)
    kth, next_to_kth = largest[..., k - 1 : k], largest[..., k : k + 1]
    threshold = ops.where(noisy_logits > next_to_kth, next_to_kth, kth)
    margin, scale = logits - threshold, ops.cast(noise_scale, "float32")
    # At equal logits the gradient is of the order of 1 / scale.
    margin = ops.where(scale > _NO_NOISE, margin, ops.stop_gradient(margin))
    score = margin / ops.maximum(scale, _NO_NOISE)
    return 0.5 * (1.0 + ops.erf(score / math.sqrt(2.0)))
