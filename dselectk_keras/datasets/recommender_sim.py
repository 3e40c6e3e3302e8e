"""A simulated recommender with tasks of engagement and satisfaction."""

import numpy as np

from dselectk_keras.datasets import sampling
from dselectk_keras.datasets.dataset import Dataset, Split

INPUT_DIM = 20  # 8 features of the user, 8 of the item and 4 of the situation.
TASKS = {
    # name: kind, group (0 is engagement, 1 satisfaction), share of positive labels
    "click": ("binary", 0, 0.3),
    "save": ("binary", 0, 0.1),
    "share": ("binary", 0, 0.02),
    "comment": ("binary", 0, 0.005),
    "engagement_time": ("regression", 0, None),
    "satisfied": ("binary", 1, 0.6),
    "like": ("binary", 1, 0.05),
    "rating": ("regression", 1, None),
}
KINDS, GROUPS, RATES = zip(*TASKS.values(), strict=True)
_BINARY = np.array(KINDS) == "binary"
_INTERESTS = 4  # Per group, and common to both groups.
_SIGNAL = 2.0  # Standard deviation of the predictable part of a utility.
_UTILITY_STD = np.sqrt(_SIGNAL**2 + np.pi**2 / 3)


def recommender_sim(
    num_train: int = 90_000,
    num_validation: int = 10_000,
    num_test: int = 10_000,
    seed: int = 0,
) -> Dataset:
    r"""Eight tasks about the engagement and satisfaction of a recommender's users.

    A task $t$ has a utility for a user $u$, an item $v$ and a situation $s$:

    $$U_t = \beta_t + \frac{1}{\sigma_t} \Bigl(\sum_j a_{tj}\,(P_j^\top u)(Q_j^\top v)
    + c_t^\top s - \mu_t\Bigr) + \epsilon, \qquad \epsilon \sim \text{Logistic}$$

    A binary label is whether the utility is positive, a regression label the utility
    over its standard deviation. Of 12 interests $j$, each group of tasks has four
    of its own, and four are common to both. The weights $a$ and $c$ of a task are sums
    of a part common to all tasks, a part common to its group and its own part, so that
    all tasks are related, and those of a group more closely. The rates of positive
    labels differ:

    `click` 30%, `save` 10%, `share` 2%, `comment` 0.5%, `engagement_time`
    (regression); `satisfied` 60%, `like` 5%, `rating` (regression).

    From the paper: the ranking model of a recommender has eight tasks, six of them
    binary and two regressions, five of engagement and three of satisfaction; the ratio
    of training to evaluation examples is nine. The paper's data are private. Ours:
    everything else, such as a regression of satisfaction (the paper's are both of
    engagement); 20 standard normal inputs (8 of the user, 8 of the item, 4 of the
    situation); P, Q and the parts of a and c normal; $\mu$, $\sigma$ and $\beta$ such
    that the predictable part of a utility has the standard deviation 2, and labels have
    the rates above (measured on 10,000 further inputs).

    Args:
        num_train: Number of training samples.
        num_validation: Number of validation samples.
        num_test: Number of test samples.
        seed: Non-negative integer; determines the data.

    Returns:
        A `Dataset` with float32 inputs (samples, 20) and labels (samples, 8), and the
        groups 0 (engagement) and 1 (satisfaction). Its `info` holds `rates`, the share
        of positive labels by binary task.

    Example:
        >>> data = recommender_sim(num_train=100)
        >>> data.task_names[:3], data.info["rates"]["share"]
        (('click', 'save', 'share'), 0.02)

    Reference:
        Hazimeh et al., "DSelect-k" (NeurIPS 2021), Section 4.3.
    """
    sizes = sampling.check_sizes(num_train, num_validation, num_test)
    recommender = Recommender(seed)
    paths = ((3, 0), (0, 1), (0, 2))  # Of the random streams of each split.
    return Dataset(
        *(
            next(recommender.batches(size, *path))
            for size, path in zip(sizes, paths, strict=True)
        ),
        task_names=tuple(TASKS),
        task_kinds=KINDS,
        groups=GROUPS,
        info={"rates": {name: r for name, r in zip(TASKS, RATES, strict=True) if r}},
    )


class Recommender:
    """The recommender of one seed."""

    def __init__(self, seed):
        self.seed = seed
        rng = sampling.random_stream(seed, 1)
        self.user, self.item = rng.standard_normal((2, 8, 3 * _INTERESTS)) / np.sqrt(8)
        # A part common to all tasks, one per group, and one per task.
        parts = [
            rng.standard_normal((3 * _INTERESTS + 4, n)) for n in (1, 2, len(TASKS))
        ]
        self.weights = parts[0] + parts[1][:, GROUPS] + parts[2]
        for group in (0, 1):
            others = np.array(GROUPS) != group
            self.weights[group * _INTERESTS : (group + 1) * _INTERESTS, others] = 0
        self.mean, self.scale, self.biases = 0.0, 1.0, 0.0
        measured = self.utilities(sampling.calibration_inputs(seed, INPUT_DIM))
        self.mean, self.scale = measured.mean(axis=0), measured.std(axis=0) / _SIGNAL
        rates = np.array([rate or 0.5 for rate in RATES])
        biases = _find_biases((measured - self.mean) / self.scale, rates)
        self.biases = np.where(_BINARY, biases, 0.0)

    def utilities(self, x):
        """The predictable part of the utilities (samples, tasks)."""
        user, item, situation = np.split(x, [8, 16], axis=1)
        interests = (user @ self.user) * (item @ self.item)
        raw = np.concatenate([interests, situation], axis=1) @ self.weights
        return (raw - self.mean) / self.scale + self.biases

    def batches(self, batch_size, *path):
        """An endless iterator of batches, from the random streams below a path."""
        x_rng = sampling.random_stream(self.seed, *path, 0)
        noise_rng = sampling.random_stream(self.seed, *path, 1)
        while True:
            x = x_rng.standard_normal((batch_size, INPUT_DIM))
            utilities = self.utilities(x) + noise_rng.logistic(
                size=(batch_size, len(TASKS))
            )
            y = np.where(_BINARY, utilities > 0, utilities / _UTILITY_STD)
            yield Split(x.astype("float32"), y.astype("float32"))


def _find_biases(logits, rates):
    """The biases that give the rates of positive labels, by bisection."""
    low, high = np.full(len(rates), -50.0), np.full(len(rates), 50.0)
    for _ in range(50):
        middle = (low + high) / 2
        too_low = (1 / (1 + np.exp(-logits - middle))).mean(axis=0) < rates
        low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
    return low
