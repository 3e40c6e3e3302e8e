"""Checks that two things are equal: numbers, arrays, tensors, or structures of them."""

from collections.abc import Iterator, ValuesView

import keras
import numpy as np
from helpers import numpy


def assert_close(found, wanted, rtol=1e-7, atol=0.0, **settings):
    """As NumPy's `assert_allclose`; sequences and dicts have the same parts."""
    settings = {"rtol": rtol, "atol": atol, **settings}
    _compare(np.testing.assert_allclose, found, wanted, **settings)


def assert_equal(found, wanted, **settings):
    """As NumPy's `assert_array_equal`; sequences and dicts have the same parts."""
    _compare(np.testing.assert_array_equal, found, wanted, **settings)


def changed(variables, train):
    """Check, for each variable, whether `train()` changes its values."""
    before = [numpy(variable) for variable in variables]
    train()
    pairs = zip(before, map(numpy, variables), strict=True)
    return [bool((old != new).any()) for old, new in pairs]


def dtype_of(tensor):
    """The name of a tensor's dtype."""
    return keras.backend.standardize_dtype(tensor.dtype)


def _compare(check, found, wanted, **settings):
    if isinstance(wanted, dict):
        assert set(found) == set(wanted)
        found, wanted = [found[name] for name in wanted], [*wanted.values()]
    sequences = list | tuple | Iterator | ValuesView
    if isinstance(found, sequences) and isinstance(wanted, sequences):
        for one, other in zip(found, wanted, strict=True):
            _compare(check, one, other, **settings)
    else:
        check(numpy(found), numpy(wanted), **settings)
