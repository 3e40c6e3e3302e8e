"""The names of tasks."""

from dselectk_keras.utils import check_count


def task_names(tasks):
    """The names of tasks that are given by their number or by name.

    Args:
        tasks: A number, or a list of names.

    Returns:
        A list of names.
    """
    if not isinstance(tasks, (list, tuple)):
        check_count("tasks", tasks)
        return [f"task_{i}" for i in range(tasks)]
    if not tasks or len(set(tasks)) < len(tasks):
        raise ValueError(
            "`tasks` must be a number, or one name or more, each once. "
            f"Received: tasks={list(tasks)}."
        )
    return list(tasks)
