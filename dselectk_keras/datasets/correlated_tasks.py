"""Two regression tasks with an adjustable correlation."""

import numpy as np

from dselectk_keras.datasets import sampling
from dselectk_keras.datasets.dataset import Dataset, Split
from dselectk_keras.utils import check_count, check_number


def correlated_tasks(
    p: float = 0.5,
    c: float = 1.0,
    m: int = 5,
    num_train: int = 10_000,
    num_validation: int = 2_000,
    num_test: int = 2_000,
    seed: int = 0,
    noise: float = 0.1,
    *,
    input_dim: int = 100,
) -> Dataset:
    r"""Two tasks with weights at an angle whose cosine is `p`.

    $$y_k = w_k^\top x + \sum_{i=1}^m \sin(\alpha_i w_k^\top x + \beta_i) + \epsilon_k,
    \qquad w_1 = c\,u_1, \quad w_2 = c\,\bigl(p\,u_1 + \sqrt{1 - p^2}\,u_2\bigr)$$

    with orthogonal unit vectors $u_1$ and $u_2$. With `p=1` the tasks differ only in
    the noise, with `p=0` their linear parts are unrelated.

    From the paper: the equations; standard normal inputs, 100 of them; noise
    N(0, 0.01), where 0.01 is taken as the variance. The paper leaves $c$, $m$,
    $\alpha$ and $\beta$ open. Ours: the defaults; frequencies 1, 2, ..., m and phases
    0, 1, 4, ..., (m - 1)^2; $u_1$ and $u_2$ in random directions; the sizes of the
    splits; the seed.

    Args:
        p: Cosine of the angle between the tasks' weights, from -1 to 1.
        c: Length of the weights.
        m: Number of sines.
        num_train: Number of training samples.
        num_validation: Number of validation samples.
        num_test: Number of test samples.
        seed: Non-negative integer; determines the data.
        noise: Standard deviation of the noise on the labels.
        input_dim: Number of inputs, $d$, at least 2.

    Returns:
        A `Dataset` with float32 inputs (samples, d) and labels (samples, 2). Its
        `info` holds `w1` and `w2` (d,), `alphas` and `betas` (m,), and
        `label_correlation`: Pearson's, of the labels without noise, over 10,000
        further inputs.

    Example:
        >>> data = correlated_tasks(p=1.0, num_train=100)
        >>> round(data.info["label_correlation"], 3)
        1.0

    Reference:
        Ma et al., Modeling Task Relationships in Multi-task Learning with
        Multi-gate Mixture-of-Experts, KDD 2018, Section 3.2
        (https://doi.org/10.1145/3219819.3220007).
    """
    check_number("p", p, minimum=-1, maximum=1)
    check_number("c", c, above=0)
    m = check_count("m", m, minimum=0)
    frequencies, phases = 1.0 + np.arange(m), np.arange(m) ** 2.0
    sizes = sampling.check_sizes(num_train, num_validation, num_test)
    check_number("noise", noise, minimum=0)
    # Two unit vectors are orthogonal in two dimensions or more.
    input_dim = check_count("input_dim", input_dim, minimum=2)

    directions = sampling.random_stream(seed, 1).standard_normal((input_dim, 2))
    u = np.linalg.qr(directions)[0]
    w = c * u @ np.array([[1, p], [0, np.sqrt(1 - p**2)]])

    def labels(x):
        linear = x @ w
        return linear + np.sin(linear[..., None] * frequencies + phases).sum(axis=-1)

    def split(stream, size):
        x = sampling.normal_inputs(seed, stream, size, input_dim)
        errors = sampling.random_stream(seed, 2, stream).standard_normal((size, 2))
        y = labels(x) + noise * errors
        return Split(x.astype("float32"), y.astype("float32"))

    clean = labels(sampling.calibration_inputs(seed, input_dim))
    return Dataset(
        *(split(stream, size) for stream, size in enumerate(sizes)),
        task_names=("task_0", "task_1"),
        task_kinds=("regression", "regression"),
        info={
            "w1": w[:, 0].astype("float32"),
            "w2": w[:, 1].astype("float32"),
            "alphas": frequencies,
            "betas": phases,
            "label_correlation": float(np.corrcoef(clean.T)[0, 1]),
        },
    )
