"""Changes of data sets."""

import dataclasses

PARTS = ("train", "validation", "test")


def changed(data, change, **fields):
    """A data set of which every split is changed by a function, and some fields."""
    parts = {name: change(getattr(data, name)) for name in PARTS}
    return dataclasses.replace(data, **parts, **fields)


def only_tasks(data, names):
    """A data set with fewer tasks: new names, and those that they have in the data."""
    columns = [data.task_names.index(name) for name in names.values()]
    lists = ("task_kinds", "groups", "num_classes")
    found = {name: getattr(data, name) for name in lists}
    own = {n: v and tuple(v[column] for column in columns) for n, v in found.items()}
    own["task_names"] = tuple(names)
    return changed(data, lambda split: split._replace(y=split.y[:, columns]), **own)
