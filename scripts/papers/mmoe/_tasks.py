"""Data sets with some of their tasks."""

import dataclasses

from dselectk_keras.datasets import Split


def only_tasks(data, names):
    """A data set with fewer tasks, under new names.

    Args:
        data: A `Dataset`.
        names: A dict from each new name to the name in the data set, which may be there
            more than once.
    """
    columns = [data.task_names.index(name) for name in names.values()]

    def of(values):
        return values and tuple(values[column] for column in columns)

    parts = {
        name: Split(split.x, split.y[:, columns])
        for name in ("train", "validation", "test")
        for split in [getattr(data, name)]
    }
    return dataclasses.replace(
        data,
        **parts,
        task_names=tuple(names),
        task_kinds=of(data.task_kinds),
        groups=of(data.groups),
        num_classes=of(data.num_classes),
    )
