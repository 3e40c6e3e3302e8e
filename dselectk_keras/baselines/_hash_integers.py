"""Hashing of integers."""

import functools
import itertools
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from dselectk_keras.ops.unstack import unstack
from dselectk_keras.utils import Tensor


def hash_integers(
    ids: Tensor, num_buckets: int, salt: int | Sequence[int] = 0
) -> Tensor:
    r"""Hash rows of integers into buckets, the same on every backend and device.

    $$
    h(x) = \Bigl(\bigoplus_{j, b} T_{j, b}\bigl[\mathrm{byte}_b(x_j)\bigr]\Bigr)
    \bmod n
    $$

    Tabulation hashing: each byte $b$ of each column $j$ indexes its own table of
    random numbers, and the entries are combined by exclusive or. The tables depend
    only on the salt. No arithmetic overflows. An integer that fits in 32 bits has the
    same hash as int32 and as int64.

    `ids` are integers `(..., columns)`; the result is int32, `(...)`. `salt` may be a
    list of `s` integers for `s` hashes at once, where `ids` have an axis of length `s`
    or 1 before the last.

    Example:
        >>> np.asarray(hash_integers([[3], [6], [10], [12]], num_buckets=8)).tolist()
        [7, 4, 2, 3]

    Reference:
        Pătraşcu and Thorup, "The Power of Simple Tabulation Hashing" (Journal of the
        ACM, 2012), Section 1.
    """
    x = ops.convert_to_tensor(ids)
    dtype = keras.backend.standardize_dtype(x.dtype)
    low = ops.cast(x, "int32")
    words = [low]
    if dtype == "uint32":
        # As if it were int64, which torch makes of it.
        words.append(-ops.cast(low < 0, "int32"))
    elif dtype in {"int64", "uint64"}:
        # 0 for integers that fit in 32 bits. The division has no remainder.
        x = ops.cast(x, "int64")
        high = ops.floor_divide(x - ops.cast(low, "int64"), 2**32)
        words.append(ops.cast(ops.where(low < 0, -high, high), "int32"))
    bytes_ = [byte for word in words for byte in _bytes(word)]
    entries = ops.concatenate(bytes_, axis=-1)

    several = isinstance(salt, (list, tuple))
    tables = _tables(tuple(salt) if several else (salt,), int(x.shape[-1]))
    tables = tables[:, : len(bytes_)]
    starts = 256 * np.arange(tables.size // 256, dtype="int32")
    starts = starts.reshape(len(tables), -1) if several else starts
    found = ops.take(
        ops.convert_to_tensor(tables.reshape(-1)),
        entries + ops.convert_to_tensor(starts),
    )
    hashes = functools.reduce(ops.bitwise_xor, unstack(found, -1))
    return ops.mod(hashes, num_buckets)


def _bytes(word):
    """The four lower bytes of integers, the lowest first."""
    # Integers of 32 bits cannot be shifted by 32 at once.
    shifted = [ops.right_shift(word, shift) for shift in (0, 8, 16, 24, 31)]
    shifted[-1] = ops.right_shift(shifted[-1], 1)
    # Not `bitwise_and`, which LiteRT lacks. It is right if a shift fills in zeros too.
    return [low - 256 * high for low, high in itertools.pairwise(shifted)]


@functools.lru_cache(maxsize=32)
def _tables(salts, columns):
    """Random 31-bit numbers `(salts, bytes, columns, 256)`, the low bytes first."""
    # NumPy guarantees that the raw output of a bit generator never changes.
    size = (columns, 8, 256)
    draws = [np.random.PCG64(salt).random_raw(size) >> 33 for salt in salts]
    tables = np.stack(draws).astype("int32").transpose(0, 2, 1, 3)
    # An upper half of 0 belongs to a 32-bit integer and must not change the hash.
    tables[:, 4:] ^= tables[:, 4:, :, :1]
    return tables
