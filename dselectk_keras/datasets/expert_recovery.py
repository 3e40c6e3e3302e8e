"""Binary classification with labels from a few of many known experts."""

import numpy as np

from dselectk_keras.datasets import sampling
from dselectk_keras.datasets.dataset import Dataset, Split
from dselectk_keras.utils import check_count

_LOGIT_SCALE = 5.0  # The standard deviation of the logits.


def expert_recovery(
    num_experts: int = 16,
    num_true_experts: int = 4,
    num_train: int = 10_000,
    num_validation: int = 10_000,
    num_test: int = 2_000,
    seed: int = 0,
) -> Dataset:
    r"""Labels from the mean of a few frozen experts, which a gate has to find.

    The model is given all experts, frozen; only the gate is trained. Expert $e$ is a
    dense layer of four ReLU units, $T$ is the set of true experts, and

    $$y = 1 \quad\text{if}\quad a^\top \frac{1}{|T|}
    \sum_{e \in T} \max(0, K_e^\top x + b_e) + c > 0, \quad\text{else } 0$$

    From the paper: binary labels by the sign of a logistic unit on the mean of 4 of
    16 random experts of four ReLU units, which are frozen while gates are compared;
    10 normal inputs; 10,000 samples each for training and validation. Ours: the
    inputs have unit variance; kernels N(0, 1/10), biases N(0, 1/4); $a$ in a random
    direction, scaled so that the logits have the standard deviation 5,
    and $c$ so that they have mean zero (both measured on 10,000 further inputs); the
    test split; the seed.

    Args:
        num_experts: Number of experts, true and false.
        num_true_experts: Number of experts of which the labels are made.
        num_train: Number of training samples.
        num_validation: Number of validation samples.
        num_test: Number of test samples.
        seed: Non-negative integer; determines the data.

    Returns:
        A `Dataset` of one task with float32 inputs (samples, 10) and labels
        (samples, 1) of zeros and ones. Its `info` holds the truth:
        `true_experts` (sorted tuple of indices), `expert_weights` (n,),
        `kernels` (n, 10, 4), `biases` (n, 4), `logistic_kernel` (4, 1) and
        `logistic_bias` (1,), in the shapes that Keras layers hold.

    Example:
        >>> data = expert_recovery(num_train=100)
        >>> len(data.info["true_experts"]), data.info["kernels"].shape
        (4, (16, 10, 4))

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix C.2.2.
    """
    num_experts = check_count("num_experts", num_experts)
    num_true_experts = check_count("num_true_experts", num_true_experts, 1, num_experts)
    sizes = sampling.check_sizes(num_train, num_validation, num_test)

    rng = sampling.random_stream(seed, 1)
    scale = sampling.INPUT_DIM**-0.5
    kernels, biases = sampling.relu_experts(rng, num_experts, scale, 0.5)
    chosen = np.sort(rng.choice(num_experts, num_true_experts, replace=False))
    direction = rng.standard_normal((sampling.UNITS, 1))

    def mixture(x):
        return sampling.apply_relu_experts(x, kernels[chosen], biases[chosen]).mean(1)

    measured = mixture(sampling.calibration_inputs(seed)) @ direction
    logistic_kernel = (direction * _LOGIT_SCALE / measured.std()).astype("float32")
    logistic_bias = -measured.mean(axis=0) * _LOGIT_SCALE / measured.std()
    logistic_bias = logistic_bias.astype("float32")

    def split(stream, size):
        x = sampling.normal_inputs(seed, stream, size)
        logits = mixture(x) @ logistic_kernel + logistic_bias
        return Split(x.astype("float32"), (logits > 0.0).astype("float32"))

    expert_weights = np.zeros(num_experts, "float32")
    expert_weights[chosen] = 1 / num_true_experts

    return Dataset(
        *(split(stream, size) for stream, size in enumerate(sizes)),
        task_names=("label",),
        task_kinds=("binary",),
        info={
            "true_experts": tuple(int(expert) for expert in chosen),
            "expert_weights": expert_weights,
            "kernels": kernels,
            "biases": biases,
            "logistic_kernel": logistic_kernel,
            "logistic_bias": logistic_bias,
        },
    )
