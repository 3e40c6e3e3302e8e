"""Multi-task regression with labels from a mixture of experts."""

import numpy as np

from dselectk_keras.datasets import sampling
from dselectk_keras.datasets.dataset import Dataset, Split
from dselectk_keras.utils import check_choice, check_number

_TASKS_PER_GROUP = 16
_EXPERTS_PER_GROUP = 4
_CORRELATION = 0.8  # Of the mixture logits of two tasks of one group.


def synthetic_moe(
    num_tasks: int = 128,
    num_train: int = 100_000,
    num_validation: int = 20_000,
    num_test: int = 20_000,
    seed: int = 0,
    noise: float = 0.0,
) -> Dataset:
    r"""Regression tasks in groups; the tasks of a group share four experts.

    Expert $e$ is the sum of four ReLU units, and the tasks of one group are
    different mixtures of the four experts of that group. Tasks of different groups
    share nothing:

    $$y_t = \sum_e g_{t,e} f_e(x) + \text{noise}\cdot\epsilon,
    \qquad f_e(x) = \sum_{j=1}^{4} \max(0, k_{e,j}^\top x + b_{e,j})$$

    A mixture of the same number of such experts, without any other layer, can fit
    the labels exactly.

    From the paper: 10 standard normal inputs; the sizes of the splits; groups of 16
    tasks; four experts of four summed ReLU units per group, with standard normal
    weights; mixture weights $g_t$ that are the softmax of four normal logits, where
    the logits of two tasks of a group have a correlation of 0.8. The paper describes
    128 tasks as four groups of 16, which is inconsistent; here there are
    `num_tasks / 16` groups, so 128 tasks are eight groups with 32 experts.

    Ours: the biases are standard normal as well; the logits have unit variance, and
    those of different experts are independent; the noise, which is normal, in all
    splits, so the expected squared error of any model is at least `noise**2`; the
    seed. The labels have a mean near 5 and a standard deviation near 3.

    The problems are nested: with the same seed, the first 16 of 128 tasks are the
    problem of 16 tasks, with the same inputs and labels. A larger split begins with
    the samples of a smaller one, and the splits are independent of one another.

    Args:
        num_tasks: 16, 32, 64 or 128.
        num_train: Number of training samples.
        num_validation: Number of validation samples.
        num_test: Number of test samples.
        seed: Non-negative integer; determines the data.
        noise: Standard deviation of the noise on the labels.

    Returns:
        A `Dataset` with float32 inputs (samples, 10) and labels
        (samples, tasks). Its `info` holds the truth: `expert_weights`
        (tasks, n), `kernels` (n, 10, 4), `biases` (n, 4) and `noise`.

    Example:
        >>> data = synthetic_moe(num_tasks=16, num_train=100)
        >>> data.train.x.shape, data.train.y.shape
        ((100, 10), (100, 16))

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Appendix C.1.
    """
    check_choice("num_tasks", num_tasks, (16, 32, 64, 128))
    sizes = sampling.check_sizes(num_train, num_validation, num_test)
    noise = float(check_number("noise", noise, minimum=0))

    num_groups = num_tasks // _TASKS_PER_GROUP
    xs = [
        sampling.normal_inputs(seed, stream, size) for stream, size in enumerate(sizes)
    ]
    weights, kernels, biases, labels = zip(
        *(_make_group(seed, group, xs, noise) for group in range(num_groups)),
        strict=True,
    )
    # Of each group, a block on the diagonal.
    blocks = np.einsum("gte,gh->gthe", weights, np.eye(num_groups, dtype="float32"))
    return Dataset(
        *(
            Split(x.astype("float32"), np.concatenate(y, axis=1))
            for x, y in zip(xs, zip(*labels, strict=True), strict=True)
        ),
        task_names=tuple(f"task_{task}" for task in range(num_tasks)),
        task_kinds=("regression",) * num_tasks,
        groups=tuple(task // _TASKS_PER_GROUP for task in range(num_tasks)),
        info={
            "expert_weights": blocks.reshape(num_tasks, -1),
            "kernels": np.concatenate(kernels),
            "biases": np.concatenate(biases),
            "noise": noise,
        },
    )


def _make_group(seed, group, xs, noise):
    """The weights and experts of a group, and its labels for each split."""
    rng = sampling.random_stream(seed, 1, group)
    kernels, biases = sampling.relu_experts(rng, _EXPERTS_PER_GROUP, 1.0, 1.0)
    shared = rng.standard_normal(_EXPERTS_PER_GROUP)
    own = rng.standard_normal((_TASKS_PER_GROUP, _EXPERTS_PER_GROUP))
    logits = np.sqrt(_CORRELATION) * shared + np.sqrt(1.0 - _CORRELATION) * own
    weights = np.exp(logits)
    weights = (weights / weights.sum(axis=1, keepdims=True)).astype("float32")
    labels = []
    for stream, x in enumerate(xs):
        experts = sampling.apply_relu_experts(x, kernels, biases).sum(axis=-1)
        y = experts @ weights.T.astype("float64")
        rng = sampling.random_stream(seed, 2, group, stream)
        labels.append((y + noise * rng.standard_normal(y.shape)).astype("float32"))
    return weights, kernels, biases, labels
