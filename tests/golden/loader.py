"""Reads the reference numbers beside this file; README.md tells what they are."""

import json
import math
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "dev"


def load(name):
    """The cases of one file, each a dict with its arrays as NumPy arrays."""
    with np.load(FOLDER / f"{name}.npz") as archive:
        data = archive["data"]
    cases = json.loads((FOLDER / f"{name}.json").read_text())
    for case in cases:
        case["arrays"] = {
            key: data[start : start + math.prod(shape)].reshape(shape)
            for key, (start, shape) in case["arrays"].items()
        }
    return cases


def assert_golden(case, name, value, wanted=None):
    """Compare with an array of a case, up to the reference's own rounding.

    The tolerance is ten times what the reference itself moves between float32 and
    float64, and no less than a few units of float32's last place.
    """
    wanted = case["arrays"][name] if wanted is None else wanted
    largest = np.abs(wanted).max(initial=0.0)
    atol = max(10 * case.get("f64_abs_err", {}).get(name, 0.0), 3e-6 * (1 + largest))
    np.testing.assert_allclose(
        value, wanted, rtol=0, atol=atol, err_msg=f"{case['id']}: {name}"
    )
