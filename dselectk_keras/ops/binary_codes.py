"""Binary codes of the experts."""

import numpy as np

from dselectk_keras.utils import MAX_EXPERTS, check_count


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
