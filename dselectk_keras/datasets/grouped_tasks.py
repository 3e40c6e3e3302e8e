"""Many regression tasks in groups, each group with features of its own."""

import numpy as np

from dselectk_keras.datasets import sampling
from dselectk_keras.datasets.dataset import Dataset, Split
from dselectk_keras.utils import check_count, check_number

_NUM_FEATURES = 4  # Of each group.
_FREQUENCY = 1.5
_INPUT_DIM = 30


def grouped_tasks(
    num_tasks: int = 64,
    num_groups: int = 8,
    num_train: int = 5_000,
    num_validation: int = 1_000,
    num_test: int = 5_000,
    seed: int = 0,
    noise: float = 0.0,
) -> Dataset:
    r"""Regression tasks that share nonlinear features only within their group.

    Group $u$ has four features of 30 standard normal inputs. Each of its tasks is
    another mixture of them, shifted and scaled to mean 0 and variance 1:

    $$
    y_t \propto \sum_{j=1}^{4} a_{tj} \sin(1.5\, w_{u(t)j}^\top x + b_{u(t)j})
    + \text{noise} \cdot \epsilon
    $$

    with $a_{tj} \sim N(0, 1)$, $w_{uj} \sim N(0, I/30)$ and $b_{uj} \sim N(0, 1)$. A
    model that serves a single task needs the features of one group, and a model of all
    tasks needs those of all groups. It is our own problem, from no paper.

    Args:
        num_tasks: Number of tasks, a multiple of `num_groups`.
        num_groups: Number of groups.
        num_train: Number of training samples.
        num_validation: Number of validation samples.
        num_test: Number of test samples.
        seed: Non-negative integer; determines the data.
        noise: Standard deviation of the noise on the labels of all splits.

    Returns:
        A `Dataset` with float32 inputs (samples, 30) and labels (samples, tasks). Its
        `info` holds `directions` (groups, 30, 4), `phases` (groups, 4) and `mixtures`
        (tasks, 4), which are scaled.

    Example:
        >>> data = grouped_tasks(num_tasks=6, num_groups=3, num_train=100)
        >>> data.train.y.shape, data.groups
        ((100, 6), (0, 0, 1, 1, 2, 2))
    """
    num_groups = check_count("num_groups", num_groups)
    num_tasks = check_count("num_tasks", num_tasks)
    if num_tasks % num_groups:
        raise ValueError(
            "`num_tasks` must be a multiple of `num_groups`. Received: "
            f"num_tasks={num_tasks} and num_groups={num_groups}."
        )
    sizes = sampling.check_sizes(num_train, num_validation, num_test)
    noise = float(check_number("noise", noise, minimum=0))
    groups = np.arange(num_tasks) // (num_tasks // num_groups)

    rng = sampling.random_stream(seed, 1)
    shape = (num_groups, _INPUT_DIM, _NUM_FEATURES)
    directions = rng.standard_normal(shape) / np.sqrt(_INPUT_DIM)
    phases = rng.standard_normal((num_groups, _NUM_FEATURES))
    mixtures = rng.standard_normal((num_tasks, _NUM_FEATURES))

    def labels(x):
        angles = _FREQUENCY * np.einsum("bd,udj->buj", x, directions) + phases
        return np.einsum("btj,tj->bt", np.sin(angles)[:, groups], mixtures)

    calibration = labels(sampling.calibration_inputs(seed, _INPUT_DIM))
    mean, std = calibration.mean(axis=0), calibration.std(axis=0)

    def split(stream, size):
        x = sampling.normal_inputs(seed, stream, size, _INPUT_DIM)
        errors = sampling.random_stream(seed, 2, stream).standard_normal
        y = (labels(x) - mean) / std + noise * errors((size, num_tasks))
        return Split(x.astype("float32"), y.astype("float32"))

    return Dataset(
        *(split(stream, size) for stream, size in enumerate(sizes)),
        task_names=tuple(f"task_{task}" for task in range(num_tasks)),
        task_kinds=("regression",) * num_tasks,
        groups=tuple(groups.tolist()),
        info={
            "directions": directions.astype("float32"),
            "phases": phases.astype("float32"),
            "mixtures": (mixtures / std[:, None]).astype("float32"),
        },
    )
