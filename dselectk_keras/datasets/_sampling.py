"""What the synthetic data sets share: random streams, checks, ReLU experts."""

import operator

import numpy as np

INPUT_DIM = 10
UNITS = 4
SPLITS = ("train", "validation", "test")

# Moments of the labels are taken over this many inputs of a stream of their own,
# so that they belong to the problem and not to the size of a split.
_CALIBRATION_SAMPLES = 10_000
_CALIBRATION_STREAM = len(SPLITS)


def generator(seed, *path):
    """A random stream of its own for every path below the seed.

    Streams do not see each other: drawing more from one, or adding another,
    changes nothing elsewhere. That is what makes problems nested.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=path))


def inputs(seed, stream, num_samples):
    """Standard normal inputs; more samples of a stream extend the fewer."""
    return generator(seed, 0, stream).standard_normal((num_samples, INPUT_DIM))


def calibration_inputs(seed):
    """Inputs of no split, to measure a problem on."""
    return inputs(seed, _CALIBRATION_STREAM, _CALIBRATION_SAMPLES)


def relu_experts(rng, num_experts):
    """Kernels (n, 10, 4) ~ N(0, 1/10) and biases (n, 4) ~ N(0, 1/4), float32."""
    kernels = rng.standard_normal((num_experts, INPUT_DIM, UNITS)) / np.sqrt(INPUT_DIM)
    biases = 0.5 * rng.standard_normal((num_experts, UNITS))
    return kernels.astype("float32"), biases.astype("float32")


def apply_relu_experts(x, kernels, biases):
    """The units' outputs (samples, n, 4) of all experts, in float64."""
    num_experts, _, units = kernels.shape
    flat = kernels.astype("float64").transpose(1, 0, 2).reshape(len(kernels[0]), -1)
    hidden = (x @ flat).reshape(len(x), num_experts, units)
    return np.maximum(hidden + biases, 0.0)


def check_count(name, value, minimum=1):
    """The value as an int, or an error that names the argument."""
    try:
        count = operator.index(value)
    except TypeError:
        count = None
    if count is None or isinstance(value, bool) or count < minimum:
        raise ValueError(
            f"`{name}` must be an integer of at least {minimum}. "
            f"Received: {name}={value!r}. Pass a whole number, such as "
            f"{name}={max(minimum, 1)}."
        )
    return count


def check_number(name, value, *, positive=False):
    """The value as a finite float, or an error that names the argument."""
    number = isinstance(value, int | float | np.number) and np.isfinite(value)
    if not number or value < 0 or (positive and value == 0):
        kind = "positive" if positive else "non-negative"
        raise ValueError(
            f"`{name}` must be a finite {kind} number. Received: {name}={value!r}. "
            f"Pass a {kind} float, such as {name}=1.0."
        )
    return float(value)
