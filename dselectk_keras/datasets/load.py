"""Data sets by name."""

from dselectk_keras.datasets.expert_recovery import expert_recovery
from dselectk_keras.datasets.synthetic_moe import synthetic_moe

_DATASETS = {
    "expert_recovery": expert_recovery,
    "synthetic_moe": synthetic_moe,
}

NAMES = tuple(_DATASETS)


def load(name, **options):
    """The data set of that name.

    Args:
        name: `"expert_recovery"` or `"synthetic_moe"`.
        **options: the arguments of the function of that name.

    Returns:
        A `Dataset`.

    Example:
        >>> load("synthetic_moe", num_tasks=16, num_train=100).num_tasks
        16
    """
    if name not in _DATASETS:
        raise ValueError(
            f"`name` must be the name of a data set. Received: name={name!r}. "
            f"Known names: {', '.join(sorted(_DATASETS))}."
        )
    return _DATASETS[name](**options)
