"""A simulated recommender with tasks of engagement and satisfaction."""

from dselectk_keras.datasets import sampling
from dselectk_keras.datasets.dataset import Dataset
from dselectk_keras.datasets.recommender_stream import (
    GROUPS,
    KINDS,
    RATES,
    SHARDS,
    TASKS,
    Recommender,
)


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

    `RecommenderStream` is an endless stream of the same data.

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
    # The training split is the beginning of shard 0.
    paths = ((SHARDS, 0), (0, 1), (0, 2))
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
