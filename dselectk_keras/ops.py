"""Equations as pure functions of tensors, computed in float32 on any backend."""

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.utils import MAX_EXPERTS, Tensor, check_count, check_number

__all__ = [
    "binary_codes",
    "choose_by_fit",
    "coefficient_of_variation",
    "entropy",
    "first_largest",
    "gumbel_noise",
    "keep_largest",
    "keep_top_k",
    "mix",
    "relaxed_bernoulli",
    "selector_product",
    "smooth_step",
    "softmax",
    "top_k_probability",
    "unstack",
]

# At tied logits the gradient is of the order of 1 / temperature and must not overflow.
MIN_TEMPERATURE = 1e-16
# For a larger k, sorting is faster than k passes.
_MOST_PASSES = 8
_NO_NOISE = 1e-9
# Uniform float32 numbers are multiples of 2^-24 or 2^-23.
SMALLEST_UNIFORM = 2.0**-24


def softmax(logits: Tensor, temperature: Tensor = None, axis: int = -1) -> Tensor:
    r"""Softmax in float32, also along an axis of length one, finite at any temperature.

    $$
    \mathrm{softmax}(v / \tau)_i = \frac{e^{v_i / \tau}}{\sum_j e^{v_j / \tau}}
    $$

    `keras.ops.softmax` warns about an axis of length one, where the result is 1 and
    the gradient 0. Gates have such an axis with one selector or one expert.

    Temperatures below $10^{-16}$ are replaced by it. There the result is one-hot for
    all float32 logits that differ, with a gradient of exactly 0. Tied logits share
    their weight equally, with a finite gradient of the order of $1/\tau$.

    Args:
        logits: Tensor; minus infinity gives a weight of exactly 0.
        temperature: $\tau$: a positive number or a scalar tensor; `None` is 1.
        axis: The axis along which the result sums to one.

    Returns:
        A float32 tensor of the shape of `logits`.

    Example:
        >>> found = softmax([0.0, 0.0, -float("inf")])
        >>> keras.ops.convert_to_numpy(found).tolist()
        [0.5, 0.5, 0.0]
        >>> found = softmax([1.0, 2.0, 2.0], temperature=1e-16)
        >>> keras.ops.convert_to_numpy(found).tolist()
        [0.0, 0.5, 0.5]
    """
    logits = ops.cast(logits, "float32")
    if temperature is not None:
        temperature = ops.maximum(ops.cast(temperature, "float32"), MIN_TEMPERATURE)
        # Subtract the largest before dividing, so that no quotient overflows.
        logits = (logits - ops.stop_gradient(largest(logits, axis))) / temperature
    if logits.shape[axis] == 1:
        return ops.exp(ops.log_softmax(logits, axis=axis))
    return ops.softmax(logits, axis=axis)


def first_largest(x: Tensor) -> Tensor:
    r"""Find the largest entry along the last axis; of equal entries, the first.

    $$
    \mathrm{FirstLargest}(x)_i = 1\bigl[i = \min \{j : x_j = \max_l x_l\}\bigr]
    $$

    It has no gradient. With NaN among the entries, none is the largest.

    Args:
        x: Tensor `(..., n)`.

    Returns:
        A boolean tensor of the shape of `x`.

    Example:
        >>> found = first_largest([1.0, 3.0, 3.0])
        >>> keras.ops.convert_to_numpy(found).tolist()
        [False, True, False]
    """
    # Not `ops.argmax`: TensorFlow's cannot be exported, and JAX's takes 6 times longer.
    x = ops.convert_to_tensor(x)
    # The first place is the largest one if places are counted from the end.
    places = ops.arange(x.shape[-1], 0, -1, dtype="float32")
    found = places * ops.cast(x == largest(x), "float32")
    return ops.logical_and(found > 0, found == largest(found))


def largest(x: Tensor, axis: int = -1) -> Tensor:
    """Find the largest value along an axis, which is kept, also of an empty batch."""
    if keras.backend.backend() == "tensorflow":
        # Without an initial value it refuses an empty batch. Torch refuses it with one.
        dtype = keras.backend.standardize_dtype(x.dtype)
        is_int = keras.backend.is_int_dtype(dtype)
        lowest = np.iinfo(dtype).min if is_int else -np.inf
        return ops.max(x, axis=axis, keepdims=True, initial=lowest)
    return ops.amax(x, axis=axis, keepdims=True)


def clipped(x: Tensor, least: float, most: float | None = None) -> Tensor:
    """Bound the entries of a tensor by numbers.

    Keras copies the numbers to the device on torch.
    """
    if keras.backend.backend() == "torch":
        return x.clamp(least, most)
    return ops.maximum(x, least) if most is None else ops.clip(x, least, most)


def filled(x: Tensor, where: Tensor, number: float) -> Tensor:
    """Put a number in the place of some entries; on torch, without a copy of it."""
    if keras.backend.backend() == "torch":
        return x.masked_fill(where, number)
    return ops.where(where, number, x)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    r"""Keep the k largest logits and set the others to minus infinity.

    $$
    \mathrm{KeepTopK}(v, k)_i =
    \begin{cases} v_i & v_i \text{ is among the } k \text{ largest of } v \\
    -\infty & \text{otherwise} \end{cases}
    $$

    so that a softmax of the result has exactly $k$ nonzero entries. Of equal logits
    the first are kept. With NaN among the logits, none is kept. Only the kept logits
    receive gradients.

    Args:
        logits: Tensor `(..., n)`.
        k: How many to keep, at least 1; `n` or more keeps all.

    Returns:
        A float32 tensor of the shape of `logits`.

    Example:
        >>> found = keep_top_k([3.0, 1.0, 2.0], k=2)
        >>> keras.ops.convert_to_numpy(found).tolist()
        [3.0, -inf, 2.0]

    Reference:
        Shazeer et al., "Outrageously Large Neural Networks" (ICLR 2017),
        Equation 5.
    """
    check_count("k", k)
    logits = ops.cast(logits, "float32")
    n = logits.shape[-1]
    if k >= n:
        return logits
    # Not `ops.top_k`: which of equal logits it returns depends on the backend.
    if k > _MOST_PASSES:
        kept = ops.argsort(-logits)[..., :k]
        mask = ops.any(ops.expand_dims(kept, -1) == ops.arange(n), axis=-2)
        # With NaN, no comparison holds.
        mask = ops.logical_and(mask, logits <= largest(logits))
        return filled(logits, ops.logical_not(mask), -float("inf"))
    left, mask = logits, None
    for _ in range(k):
        found = first_largest(left)
        left = filled(left, found, -float("inf"))
        mask = found if mask is None else ops.logical_or(mask, found)
    return filled(logits, ops.logical_not(mask), -float("inf"))


def keep_largest(weights: Tensor, k: int) -> Tensor:
    r"""Keep the k largest weights, and scale them up so that they sum to one.

    $$
    \mathrm{KeepLargest}(g, k)_i =
    \begin{cases} g_i \, / \sum_{j \in T} g_j & i \in T \\
    0 & \text{otherwise} \end{cases}
    $$

    where $T$ are the $k$ largest weights; of equal weights, the first.

    Args:
        weights: Tensor `(..., n)` of weights that are not negative, with at least one
            that is positive.
        k: How many to keep, at least 1; `n` or more keeps all.

    Returns:
        A float32 tensor of the shape of `weights`.

    Example:
        >>> found = keep_largest([0.1, 0.6, 0.2, 0.1], k=2)
        >>> keras.ops.convert_to_numpy(found).round(2).tolist()
        [0.0, 0.75, 0.25, 0.0]
    """
    weights = ops.cast(weights, "float32")
    kept = ops.where(keep_top_k(weights, k) > -float("inf"), weights, 0.0)
    return kept / ops.sum(kept, axis=-1, keepdims=True)


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
    highest, _ = ops.top_k(noisy_logits, k + 1)
    kth, next_to_kth = highest[..., k - 1 : k], highest[..., k : k + 1]
    threshold = ops.where(noisy_logits > next_to_kth, next_to_kth, kth)
    margin, scale = logits - threshold, ops.cast(noise_scale, "float32")
    # At equal logits the gradient is of the order of 1 / scale.
    margin = ops.where(scale > _NO_NOISE, margin, ops.stop_gradient(margin))
    score = margin / ops.maximum(scale, _NO_NOISE)
    return 0.5 * (1.0 + ops.erf(score / math.sqrt(2.0)))


def binary_codes(num_experts: int) -> np.ndarray:
    r"""Binary codes of the experts, most significant bit first.

    Row $i$ holds $i$ in $m = \lceil \log_2 n \rceil$ bits.

    Args:
        num_experts: The number of experts, $n \ge 1$.

    Returns:
        A NumPy array of booleans, of shape `(num_experts, m)`.

    Example:
        >>> binary_codes(3).astype(int).tolist()
        [[0, 0], [0, 1], [1, 0]]

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 3.1.1.
    """
    check_count("num_experts", num_experts, maximum=MAX_EXPERTS)
    place = np.arange((int(num_experts) - 1).bit_length())[::-1]
    return (np.arange(num_experts)[:, None] >> place & 1).astype(bool)


def smooth_step(x: Tensor, gamma: Tensor = 1.0) -> Tensor:
    r"""A cubic S-curve that is exactly 0 and exactly 1 outside a band.

    $$
    S(x) = u^2 (3 - 2u), \qquad
    u = \min\bigl(1, \max(0, x / \gamma + 1/2)\bigr)
    $$

    Written in $x$, the middle piece is
    $-\frac{2}{\gamma^3} x^3 + \frac{3}{2\gamma} x + \frac12$. The factored form
    keeps every value inside [0, 1] and every derivative finite in float32.

    Args:
        x: Tensor of any shape.
        gamma: Width of the band in which the curve is strictly between 0 and 1; a
            positive number or a scalar tensor. As it goes to 0, the curve becomes a
            step.

    Returns:
        A float32 tensor of the shape of `x`, with values in [0, 1].

    Example:
        >>> found = smooth_step([-0.5, 0.0, 0.25, 0.5])
        >>> keras.ops.convert_to_numpy(found).tolist()
        [0.0, 0.5, 0.84375, 1.0]

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 3.1.3 and Appendix
        B.3.
    """
    if isinstance(gamma, numbers.Real) or not hasattr(gamma, "shape"):
        gamma = max(float(check_number("gamma", gamma, above=0)), 1e-7)
    else:
        gamma = clipped(ops.cast(gamma, "float32"), 1e-7)
    x = ops.cast(x, "float32")
    u = clipped(x / gamma + 0.5, 0.0, 1.0)
    return u * u * (3.0 - 2.0 * u)


def selector_product(bits: Tensor, num_experts: int) -> Tensor:
    r"""The weight that each selector gives to each expert.

    $$
    r_i = \prod_{j=1}^{m} s_j^{\,c_{ij}} \, (1 - s_j)^{1 - c_{ij}}
    $$

    where $c_i$ is the binary code of expert $i$ (see `binary_codes`). The products
    are built together, and each bit doubles their number: $2^{m+1}$ multiplications
    instead of $n m$, and an exact gradient where bits are 0.

    Args:
        bits: Tensor `(..., m)` with values in [0, 1], the most significant bit
            first.
        num_experts: The number $n$ of experts, at most $2^m$. Codes from $n$ on
            belong to no expert and are omitted.

    Returns:
        A float32 tensor `(..., num_experts)`. It sums to one along the last axis
        if `num_experts` is $2^m$, and to the reachable mass otherwise.

    Example:
        >>> found = selector_product([1.0, 0.25], num_experts=4)
        >>> keras.ops.convert_to_numpy(found).tolist()
        [0.0, 0.0, 0.75, 0.25]

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Equation 4.
    """
    bits = ops.cast(bits, "float32")
    num_bits = bits.shape[-1]
    if num_experts > 2**num_bits:
        raise ValueError(
            f"{num_bits} bits have codes for at most {2**num_bits} experts. "
            f"Received: num_experts={num_experts}. Pass more bits."
        )
    if num_bits == 0:
        return ops.ones_like(ops.sum(bits, axis=-1, keepdims=True))
    factors = ops.split(ops.stack([1.0 - bits, bits], axis=-2), num_bits, axis=-1)
    lead, products = ops.shape(bits)[:-1], factors[-1]
    for j, factor in enumerate(reversed(factors[:-1]), start=1):
        products = factor * ops.reshape(products, (*lead, 1, 2**j))
    products = ops.reshape(products, (*lead, 2**num_bits))
    return products if num_experts == 2**num_bits else products[..., :num_experts]


def entropy(
    probabilities: Tensor, axis: int | Sequence[int] = -1, epsilon: float = 1e-6
) -> Tensor:
    r"""Entropy in nats.

    $$
    H(p) = -\sum_i p_i \log(p_i + \epsilon)
    $$

    Args:
        probabilities: Tensor of non-negative values.
        axis: The axis, or axes, to sum over.
        epsilon: Keeps the logarithm finite at 0. With the default, that of the
            original release, the entropy of a one-hot vector is about -1e-6, not 0.

    Returns:
        A float32 tensor without the axes summed over.

    Example:
        >>> round(float(entropy([0.5, 0.5], epsilon=0.0)), 6)
        0.693147

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 3.1.3.
    """
    p = ops.cast(probabilities, "float32")
    # The lower bound makes 0 log 0 zero when epsilon is 0.
    log = ops.log(clipped(ops.relu(p) + epsilon, 1e-30))
    return -ops.sum(p * log, axis=axis)


def coefficient_of_variation(x: Tensor, axis: int = -1) -> Tensor:
    r"""Standard deviation divided by the mean, with a gradient of 0 at perfect balance.

    $$
    \mathrm{CV}(x) = \frac{\sqrt{\frac1n \sum_i (x_i - \bar x)^2}}{\bar x}
    $$

    Args:
        x: Tensor of non-negative values.
        axis: The axis along which the values vary.

    Returns:
        A float32 tensor without `axis`.

    Example:
        >>> float(coefficient_of_variation([0.0, 2.0]))
        1.0

    Reference:
        Shazeer et al., "Outrageously Large Neural Networks" (ICLR 2017),
        Equation 7.
    """
    x = ops.cast(x, "float32")
    mean = ops.mean(x, axis=axis, keepdims=True)
    variance = ops.mean(ops.square(x - mean), axis=axis)
    # The derivative of the square root is infinite at 0: keep 0 away from it.
    spread = variance > 0
    deviation = ops.where(spread, ops.sqrt(ops.where(spread, variance, 1.0)), 0.0)
    return deviation / ops.maximum(ops.squeeze(mean, axis), 1e-9)


def gumbel_noise(shape: Any, seed: Any) -> Tensor:
    r"""Draws from the standard Gumbel distribution.

    $$
    \varepsilon = -\log(-\log u), \qquad u \sim \mathrm{Uniform}(0, 1)
    $$

    The argmax of logits plus this noise is a draw from their softmax. With float32
    numbers $u$, draws lie in [-2.9, 16.7].

    Args:
        shape: Shape of the draws.
        seed: A `keras.random.SeedGenerator`, or an integer for the same draws in
            every call.

    Returns:
        A float32 tensor.

    Example:
        >>> gumbel_noise((2, 3), seed=0).shape
        (2, 3)

    Reference:
        Jang et al., "Categorical Reparameterization with Gumbel-Softmax" (ICLR 2017),
        Equation 1.
    """
    u = keras.random.uniform(shape, seed=seed, dtype="float32")
    return -ops.log(-ops.log(ops.clip(u, SMALLEST_UNIFORM, 1.0 - SMALLEST_UNIFORM)))


def relaxed_bernoulli(logits: Tensor, temperature: Tensor, seed: Any) -> Tensor:
    r"""Draws in [0, 1] that approach Bernoulli draws as the temperature falls.

    $$
    U = \mathrm{sigmoid}\Bigl(\frac{z + \log u - \log(1 - u)}{\tau}\Bigr), \qquad
    u \sim \mathrm{Uniform}(0, 1)
    $$

    $U > 1/2$ with probability $\mathrm{sigmoid}(z)$ at any temperature. The gradient
    with respect to $z$ is taken at fixed $u$.

    Args:
        logits: Tensor of logits $z$, of any shape.
        temperature: $\tau$: a positive number or a scalar tensor.
        seed: A `keras.random.SeedGenerator`, or an integer for the same draws in
            every call.

    Returns:
        A float32 tensor of the shape of `logits`.

    Example:
        >>> found = relaxed_bernoulli([-99.0, 99.0], 1.0, seed=0)
        >>> keras.ops.convert_to_numpy(found).tolist()
        [0.0, 1.0]

    Reference:
        Maddison et al., "The Concrete Distribution" (ICLR 2017), Appendix B; Jang et
        al., "Categorical Reparameterization with Gumbel-Softmax" (ICLR 2017).
    """
    logits = ops.cast(logits, "float32")
    u = keras.random.uniform(ops.shape(logits), seed=seed, dtype="float32")
    u = ops.clip(u, SMALLEST_UNIFORM, 1.0 - SMALLEST_UNIFORM)
    temperature = ops.maximum(ops.cast(temperature, "float32"), MIN_TEMPERATURE)
    return ops.sigmoid((logits + ops.log(u) - ops.log(1.0 - u)) / temperature)


def mix(experts: Any, weights: Tensor, per_example: bool = False) -> Tensor:
    r"""The weighted sums of the experts' outputs, for all gates at once.

    $$
    y_g = \sum_{i=1}^{n} w_{g,i} \, f_i
    $$

    Args:
        experts: Tensor `(batch, n, ...)`, the outputs of the experts; or a list or
            tuple of n tensors `(batch, ...)`.
        weights: The weights of one gate, `(n,)`, or of several, `(g, n)`; with
            `per_example`, `(batch, n)` or `(batch, g, n)`.
        per_example: Whether `weights` have a batch axis.

    Returns:
        A tensor `(batch, ...)` for one gate, `(batch, g, ...)` for several, of
        the dtype of `experts`; of integers, in float32.

    Example:
        >>> found = mix([[[1.0], [2.0], [4.0]]], [0.5, 0.5, 0.0])
        >>> keras.ops.convert_to_numpy(found).tolist()
        [[1.5]]
    """
    if isinstance(experts, (list, tuple)) and hasattr(experts[0], "shape"):
        experts = ops.stack(experts, axis=1)
    experts = ops.convert_to_tensor(experts)
    if not keras.backend.is_float_dtype(experts.dtype):
        experts = ops.cast(experts, "float32")
    weights = ops.cast(weights, experts.dtype)
    if experts.shape[1] != weights.shape[-1]:
        raise ValueError(
            f"`weights` must have one weight for each of {experts.shape[1]} experts. "
            f"Received: {weights.shape[-1]} weights."
        )
    if len(weights.shape) > 1 + per_example:
        return _product(experts, weights, per_example)
    return _product(experts, ops.expand_dims(weights, -2), per_example)[:, 0]


def put_side_by_side(experts: Tensor, choices: Tensor) -> Tensor:
    """Put the chosen experts side by side: `(batch, [num_gates,] ..., k * units)`.

    The choices are integers `([num_gates,] k)`; -1 is no expert, and gives zeros.
    """
    *gates, k = choices.shape
    placed = ops.take(experts, ops.maximum(choices, 0), axis=1)
    exists = ops.reshape(choices >= 0, (*gates, k, *[1] * (len(experts.shape) - 2)))
    placed = ops.where(exists, placed, ops.zeros((), placed.dtype))
    placed = ops.moveaxis(placed, len(gates) + 1, -2)
    middle = list(ops.shape(placed)[1:-2])
    return ops.reshape(placed, (-1, *middle, k * experts.shape[-1]))


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """Compute a matrix product: on torch, Keras multiplies float64 in float32."""
    on_torch = keras.backend.backend() == "torch"
    if not on_torch or keras.backend.standardize_dtype(x.dtype) != "float64":
        return ops.matmul(x, y)
    return operator.matmul(x, ops.cast(y, "float64"))


def sum_segments(x: Tensor, segments: Tensor, number: int) -> Tensor:
    """Sum rows by their segments, integers; on torch, without a wait for the device.

    There Keras makes an index of the size of `x`, and reads a number on the host.
    """
    if keras.backend.backend() == "torch":
        return x.new_zeros(number, *x.shape[1:]).index_add(0, segments, x)
    return ops.segment_sum(x, segments, num_segments=number)


def mix_parameters(weights: Tensor, parameters: Tensor) -> Tensor:
    """Compute the weighted sums `(..., *shape)` of parameters `(n, *shape)`."""
    n, *shape = parameters.shape
    mixed = matmul(weights, ops.reshape(parameters, (n, math.prod(shape))))
    return ops.reshape(mixed, (*ops.shape(weights)[:-1], *shape))


def _product(experts, weights, per_example):
    """One product of `(b, n, ...)` and `([b,] g, n)` to `(b, g, ...)`."""
    n, *trailing = experts.shape[1:]
    # Unknown sizes are symbols on JAX, and None elsewhere.
    static = all(isinstance(size, int) for size in trailing)
    size = math.prod(trailing) if static else -1
    batch = -1 if static else ops.shape(experts)[0]
    num_gates = weights.shape[-2]
    flat = ops.reshape(experts, (batch, n, size))
    if static and not per_example and size < num_gates:
        # With many gates and few features, (features, n) by (n, gates) is 2 to 13 times
        # as fast as (gates, n) by (n, features) on a CPU.
        mixed = matmul(ops.transpose(flat, (0, 2, 1)), ops.transpose(weights))
        mixed = ops.transpose(mixed, (0, 2, 1))
    else:
        mixed = matmul(weights, flat)
    tail = trailing if static else list(ops.shape(experts)[2:])
    return ops.reshape(mixed, (batch, num_gates, *tail))


def unstack(x: Tensor, axis: int) -> list[Tensor]:
    """The slices of a tensor along an axis, with a gradient that is fast on JAX.

    There the gradient of `keras.ops.unstack` adds up n whole tensors.

    Args:
        x: Tensor with a static size along `axis`.
        axis: The axis that the slices lack.

    Returns:
        A list of tensors.

    Example:
        >>> columns = unstack(np.eye(2), axis=1)
        >>> [keras.ops.convert_to_numpy(each).tolist() for each in columns]
        [[1.0, 0.0], [0.0, 1.0]]
    """
    if keras.backend.backend() != "jax":
        return list(ops.unstack(ops.convert_to_tensor(x), axis=axis))
    return [ops.squeeze(each, axis) for each in ops.split(x, int(x.shape[axis]), axis)]


def choose_by_fit(
    outputs: Any,
    labels: Any,
    k: int,
    ridge: float = 0.1,
    weights: Any = None,
    tasks: Any = None,
    always: int = 0,
) -> np.ndarray:
    r"""Choose k experts for each task, by a ridge regression of its labels.

    $$
    c_s = \operatorname*{argmax}_{i \notin C} \, R^2_{C \cup \{i\}}, \qquad
    R^2_C = b_C^\top (G_C + \lambda I)^{-1} b_C, \qquad C = \{c_1, \dots, c_{s-1}\}
    $$

    $G$ holds the covariances of the units of all experts, and $b$ those of the units
    and the labels. A task takes one expert after another: the one that, with the
    experts that it has, explains most of the variance of its labels. Choosing groups of
    columns in this way is group orthogonal matching pursuit.

    Args:
        outputs: The experts' outputs, an array `(samples, n, ...)`, all finite.
        labels: An array `(samples, columns)`. Missing labels are NaN.
        k: The number of experts per task.
        ridge: $\lambda$, as a multiple of the mean variance of the units.
        weights: Sample weights `(samples, columns)`; 0 leaves a label out.
        tasks: The task of each column, integers from 0 without a gap; by default, each
            column is a task. The explained variances of the columns of a task are added
            up.
        always: The number of experts, the last ones, that each task has anyway. They
            are the last of its k experts.

    Returns:
        Integers `(tasks, k)`, in the order of the choice.

    Example:
        >>> units = np.random.default_rng(0).normal(size=(50, 4, 2))
        >>> labels = np.stack([units[:, 3, 0], units[:, 2, 0] + units[:, 1, 1]], axis=1)
        >>> np.sort(choose_by_fit(units, labels, k=2)).tolist()[1]
        [1, 2]

    Reference:
        The method is our own. Pati et al., "Orthogonal Matching Pursuit" (1993); Lozano
        et al., "Group Orthogonal Matching Pursuit" (NeurIPS 2009).
    """
    units, y, weights, tasks = _checked_fit(outputs, labels, weights, tasks)
    samples, n = units.shape[:2]
    units = units.reshape(samples, -1)
    size = units.shape[1] // n
    check_count("always", always, minimum=0)
    check_count("k", k, minimum=always + 1, maximum=min(n, MAX_EXPERTS))
    check_number("ridge", ridge, minimum=0)
    weights = np.where(np.isnan(y), 0.0, weights)
    part = weights / np.maximum(weights.sum(axis=0), 1e-12)
    y = np.nan_to_num(y)
    weighted = part * (y - (part * y).sum(axis=0))
    chosen = np.zeros((int(tasks.max()) + 1, k), int)
    # Tasks with the same labels missing share the covariances of the units.
    patterns: dict[bytes, list] = {}
    for task in range(len(chosen)):
        pattern = weights[:, tasks == task].mean(axis=1)
        patterns.setdefault(pattern.tobytes(), [pattern]).append(task)
    for pattern, *members in patterns.values():
        rows = np.flatnonzero(pattern)
        part = pattern[rows] / max(pattern.sum(), 1e-12)
        centered = units[rows] - part @ units[rows]
        gram = (centered.T * part) @ centered
        scale = max(np.trace(gram) / len(gram), 1e-12)
        gram[np.diag_indices(len(gram))] += max(ridge, 1e-6) * scale
        # (n, n, units, units): the covariances of each pair of experts.
        gram = gram.reshape(n, size, n, size).transpose(0, 2, 1, 3)
        columns = np.flatnonzero(np.isin(tasks, members))
        target = (centered.T @ weighted[np.ix_(rows, columns)]).reshape(n, size, -1)
        chosen[members] = _choose(gram, target, tasks[columns], members, k, always)
    return chosen


def _checked_fit(outputs, labels, weights, tasks):
    """Return the arrays of `choose_by_fit`, or raise an error if they do not fit."""
    units, y = np.asarray(outputs, "float64"), np.asarray(labels, "float64")
    weights = np.ones(y.shape) if weights is None else np.asarray(weights, "float64")
    tasks = np.arange(y.shape[-1]) if tasks is None else np.asarray(tasks)
    if (
        (units.ndim < 2 or y.ndim != 2 or len(units) != len(y) or 0 in units.shape)
        or (weights.shape, tasks.shape) != (y.shape, y.shape[1:])
        or {*tasks.tolist()} != {*range(len({*tasks.tolist()}))}
    ):
        raise ValueError(
            "`outputs` (samples, n, ...), `labels` and `weights` (samples, columns) "
            "must have the same number of samples, at least one, and `tasks` a number "
            f"for each column, all from 0 to the largest. Received: {units.shape}, "
            f"{y.shape}, {weights.shape} and tasks={tasks.tolist()}. One column of "
            "labels is labels[:, None]."
        )
    bad = [~np.isfinite(units), np.isinf(y), ~((weights >= 0) & (weights < np.inf))]
    wrong = [each.reshape(len(y), -1).any(axis=1) for each in bad]
    for name, rows in zip(("outputs", "labels", "weights"), wrong, strict=True):
        if rows.any():
            raise ValueError(
                f"`{name}` must be finite, and weights 0 or more; only missing labels "
                f"are NaN. Received: others in {rows.sum()} rows, "
                f"{np.flatnonzero(rows)[:5].tolist()} first. Leave them out."
            )
    return units, y, weights, tasks


def _choose(gram, target, tasks, members, k, always):
    """Choose the experts of some tasks from covariances, one after another.

    `tasks` are those of the columns of the targets `(n, size, columns)`.
    """
    n, size, _ = target.shape
    chosen = {task: [*range(n - always, n)] for task in members}
    for _ in range(k - always):
        # Tasks that have the same experts so far have the same rest.
        alike: dict[tuple, list] = {}
        for task, own in chosen.items():
            alike.setdefault(tuple(own), []).append(task)
        for own, same in alike.items():
            columns = np.isin(tasks, same)
            rest, left = gram[range(n), range(n)], target[..., columns]
            if own:
                # What the chosen experts do not explain, of all experts and of labels.
                pairs = gram[:, own].transpose(0, 2, 1, 3).reshape(n, size, -1)
                known = pairs[[*own]].reshape(len(own) * size, -1)
                slopes = np.linalg.solve(known, pairs.reshape(n * size, -1).T)
                rest = rest - pairs @ slopes.reshape(-1, n, size).swapaxes(0, 1)
                known = np.linalg.solve(known, np.concatenate(left[[*own]]))
                left = left - pairs @ known
            free = np.setdiff1d(np.arange(n), own)
            gain = (np.linalg.solve(rest[free], left[free]) * left[free]).sum(axis=1)
            for task in same:
                total = gain[:, tasks[columns] == task].sum(axis=1)
                chosen[task].append(int(free[total.argmax()]))
    return [own[always:] + own[:always] for own in chosen.values()]
