"""Single-expert selectors from relaxed bits."""

from keras import ops

from dselectk_keras.utils import Tensor


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
