"""The names of tasks."""

from collections.abc import Sequence

from dselectk_keras.utils import check_count


def task_names(tasks: int | Sequence[str]) -> list[str]:
    """List the names of tasks that are given by their number or by name.

    Args:
        tasks: A number, or a list of names.

    Returns:
        A list of names.
    """
    if not isinstance(tasks, (list, tuple)):
        return [f"task_{i}" for i in range(check_count("tasks", tasks))]
    if not tasks or len(set(tasks)) < len(tasks):
        raise ValueError(
            "`tasks` must be a number, or a list of one or more unique names. "
            f"Received: tasks={list(tasks)}."
        )
    return list(tasks)
