import keras
import numpy as np
import pytest
from helpers import numpy

from dselectk_keras.baselines._hash_integers import hash_integers

backend = keras.backend.backend


def hashed(ids, n=8, **settings):
    return numpy(hash_integers(np.asarray(ids), n, **settings)).tolist()


def column(*ids, dtype="int32"):
    return np.array(ids, dtype)[:, None]


def test_it_never_changes():
    # What these numbers were when the hash was written. Models that are saved
    # depend on them: another process, backend or release has to give the same.
    assert hashed(column(0, 1, 2, 3, 255, 256, 65536, 2**31 - 1, -1)) == GOLDEN
    assert hashed(column(0, 1, 2, 3), n=1000, salt=7) == GOLDEN_SALT
    assert hashed([[1, 2, 3], [3, 2, 1]], n=1000) == GOLDEN_COLUMNS


GOLDEN = [3, 0, 0, 7, 6, 5, 7, 5, 3]
GOLDEN_SALT = [32, 842, 243, 593]
GOLDEN_COLUMNS = [211, 217]


def by_hand(row, salt):
    """The same hash, in Python's integers."""
    tables = np.random.PCG64(salt).random_raw((len(row), 8, 256)) >> 33
    value = 0
    for number, of_bytes in zip(row, tables, strict=True):
        for i in range(4):
            value ^= int(of_bytes[i, number % 2**32 // 256**i % 256])
    return value


def test_it_is_tabulation_hashing():
    rows = np.random.default_rng(0).integers(-(2**31), 2**31, size=(20, 3))
    rows = rows.astype("int32")
    wanted = [by_hand(row.tolist(), 5) % 1009 for row in rows]
    assert hashed(rows, n=1009, salt=5) == wanted


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int64"])
def test_the_kind_of_integer_does_not_matter(dtype):
    ids = [0, 1, 5, 127] if dtype.startswith("u") else [0, -1, 5, 127, -128]
    assert hashed(column(*ids, dtype=dtype)) == hashed(column(*ids))


@pytest.mark.parametrize("shift", [2**32, 2**40, -(2**35), 2**62])
def test_the_upper_half_counts_where_there_is_one(shift):
    low = column(*range(64), dtype="int64")
    same = hashed(low + shift) == hashed(low)
    assert same == (backend() == "jax")


def test_the_rim_of_32_bits_is_told_from_its_neighbours():
    ids = [2**31 - 1, -(2**31)]
    assert hashed(column(*ids, dtype="int64"), n=10**6) == hashed(column(*ids), n=10**6)
    if backend() != "jax":
        wrapped = column(-(2**31) - 1, 2**31, dtype="int64")
        assert hashed(wrapped, n=10**6) != hashed(column(*ids), n=10**6)


def test_unsigned_32_bits_are_those_of_64():
    ids = [0, 5, 2**31 - 1, 2**31, 2**32 - 1]
    found = hashed(column(*ids, dtype="uint32"), n=10**6)
    if backend() != "jax":
        assert found == hashed(column(*ids, dtype="int64"), n=10**6)
    assert found == [681547, 659344, 551381, 498214, 593244]


@pytest.mark.parametrize("salt", [0, 1, 2**40])
@pytest.mark.parametrize("start", [0, -500, 10**6])
def test_consecutive_ids_spread_evenly(salt, start):
    found = hashed(column(*range(start, start + 1000)), salt=salt)
    counts = np.bincount(found, minlength=8)
    # Each count has a standard deviation of 10.5 around 125.
    assert abs(counts - 125).max() < 42


def test_columns_are_hashed_together_and_in_order():
    rows = np.stack(np.meshgrid(range(20), range(20)), -1).reshape(-1, 2)
    rows = rows.astype("int32")
    found = np.array(hashed(rows, n=2**20))
    assert len(set(found.tolist())) > 398
    assert (found == np.array(hashed(rows[:, ::-1], n=2**20))).sum() == 20
    counts = np.bincount(hashed(rows), minlength=8)
    assert abs(counts - 50).max() < 28


def test_several_salts_are_several_hashes():
    ids = np.random.default_rng(0).integers(0, 10**6, size=(50, 2)).astype("int32")
    found = np.array(hashed(ids[:, None], salt=[3, 4, 5]))
    assert found.shape == (50, 3)
    for i, salt in enumerate((3, 4, 5)):
        assert found[:, i].tolist() == hashed(ids, salt=salt)
    each = np.array(hashed(np.stack([ids, ids + 1], axis=1), salt=[3, 4]))
    assert each[:, 1].tolist() == hashed(ids + 1, salt=4)


def test_salts_are_independent():
    ids = column(*range(4000))
    one, other = hashed(ids, salt=1), hashed(ids, salt=2)
    together = np.histogram2d(one, other, bins=8)[0]
    # 62.5 in each of 64 cells, with a standard deviation of 7.8.
    assert abs(together - 62.5).max() < 35
