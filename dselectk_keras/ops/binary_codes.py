"""Binary codes of the experts."""

import numpy as np


def binary_codes(num_experts):
    r"""The code of every expert: its number in binary, most significant bit first.

    Row $i$ holds $i$ written with $m = \lceil \log_2 n \rceil$ bits.

    Args:
        num_experts: The number of experts, $n \ge 1$.

    Returns:
        A NumPy array of booleans, of shape `(num_experts, m)`.

    Example:
        >>> binary_codes(3).astype(int).tolist()
        [[0, 0], [0, 1], [1, 0]]

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 3.1.
    """
    if num_experts != int(num_experts) or num_experts < 1:
        raise ValueError(
            "`num_experts` must be a positive integer. "
            f"Received: num_experts={num_experts}. Pass the number of experts."
        )
    num_bits = (int(num_experts) - 1).bit_length()
    place = np.arange(num_bits)[::-1]
    return (np.arange(num_experts)[:, None] >> place & 1).astype(bool)
