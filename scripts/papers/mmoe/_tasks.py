"""Data sets with some of their tasks."""

import dataclasses

from dselectk_keras.datasets import Split


def only_tasks(data, names):
    """A data set with fewer tasks, under names of one's own.

    Args:
        data: A `Dataset`.
        names: A dict from each new name to the name in the data set, which may be there
            more than once.

    Returns:
        A `Dataset`.

    Example:
        >>> from experiments.stand_in import stand_in
        >>> data = stand_in((3,), {"a": "binary", "b": "regression"})
        >>> only_tasks(data, {"first": "b"}).task_kinds
        ('regression',)
    """
    columns = [data.task_names.index(name) for name in names.values()]

    def cut(split):
        return Split(split.x, split.y[:, columns])

    return dataclasses.replace(
        data,
        train=cut(data.train),
        validation=cut(data.validation),
        test=cut(data.test),
        task_names=tuple(names),
        task_kinds=tuple(data.task_kinds[column] for column in columns),
        groups=data.groups and tuple(data.groups[column] for column in columns),
        num_classes=tuple(data.num_classes[column] for column in columns),
    )
