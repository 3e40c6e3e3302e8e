"""Random streams, argument checks and ReLU experts of the data sets."""

import numpy as np

from dselectk_keras.utils import check_count

INPUT_DIM = 10
UNITS = 4
SPLITS = ("train", "validation", "test")

# Moments of the labels are measured on this many inputs of a separate stream, so that
# they do not depend on the sizes of the splits.
_CALIBRATION_SAMPLES = 10_000
_CALIBRATION_STREAM = len(SPLITS)


def random_stream(seed, *path):
    """An independent random generator for every path of integers below the seed.

    Drawing more from one stream, or adding a stream, does not change the others.
    """
    check_count("seed", seed, minimum=0)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=path))


def normal_inputs(seed, stream, num_samples, dim=INPUT_DIM):
    """Standard normal inputs; more samples of a stream begin with the fewer."""
    return random_stream(seed, 0, stream).standard_normal((num_samples, dim))


def calibration_inputs(seed, dim=INPUT_DIM):
    """Inputs that belong to no split, on which a problem is measured."""
    return normal_inputs(seed, _CALIBRATION_STREAM, _CALIBRATION_SAMPLES, dim)


def relu_experts(rng, num_experts, kernel_scale, bias_scale):
    """Normal kernels (n, 10, 4) and biases (n, 4) of these scales, float32."""
    kernels = kernel_scale * rng.standard_normal((num_experts, INPUT_DIM, UNITS))
    biases = bias_scale * rng.standard_normal((num_experts, UNITS))
    return kernels.astype("float32"), biases.astype("float32")


def apply_relu_experts(x, kernels, biases):
    """The outputs (samples, n, 4) of the units of all experts, in float64."""
    num_experts, _, units = kernels.shape
    flat = kernels.astype("float64").transpose(1, 0, 2).reshape(len(kernels[0]), -1)
    hidden = (x @ flat).reshape(len(x), num_experts, units)
    return np.maximum(hidden + biases, 0.0)


def check_sizes(*sizes):
    """The sizes of the three splits as integers."""
    named = zip(SPLITS, sizes, strict=True)
    return [check_count(f"num_{name}", size) for name, size in named]
