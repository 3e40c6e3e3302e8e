"""Choose the experts whose outputs fit labels best."""

from typing import Any

import numpy as np

from dselectk_keras.utils import MAX_EXPERTS, check_count, check_number


def choose_by_fit(
    outputs: Any,
    labels: Any,
    k: int,
    ridge: float = 0.1,
    weights: Any = None,
    tasks: Any = None,
    always: int = 0,
) -> np.ndarray:
    r"""Choose k experts for each task, by a ridge regression of its labels.

    $$
    c_s = \operatorname*{argmax}_{i \notin C} \, R^2_{C \cup \{i\}}, \qquad
    R^2_C = b_C^\top (G_C + \lambda I)^{-1} b_C, \qquad C = \{c_1, \dots, c_{s-1}\}
    $$

    $G$ holds the covariances of the units of all experts, and $b$ those of the units
    and the labels. A task takes one expert after another: the one that, with the
    experts that it has, explains most of the variance of its labels. Choosing groups of
    columns in this way is group orthogonal matching pursuit.

    Args:
        outputs: The experts' outputs, an array `(samples, n, ...)`.
        labels: An array `(samples, columns)`. Missing labels are NaN.
        k: The number of experts per task.
        ridge: $\lambda$, as a multiple of the mean variance of the units.
        weights: Sample weights `(samples, columns)`; 0 leaves a label out.
        tasks: The task of each column; by default, each column is a task. The explained
            variances of the columns of a task are added up.
        always: The number of experts, the last ones, that each task has anyway. They
            are the last of its k experts.

    Returns:
        Integers `(tasks, k)`, in the order of the choice.

    Example:
        >>> units = np.random.default_rng(0).normal(size=(50, 4, 2))
        >>> labels = np.stack([units[:, 3, 0], units[:, 2, 0] + units[:, 1, 1]], axis=1)
        >>> np.sort(choose_by_fit(units, labels, k=2)).tolist()[1]
        [1, 2]

    Reference:
        The method is our own. Pati et al., "Orthogonal Matching Pursuit" (1993); Lozano
        et al., "Group Orthogonal Matching Pursuit" (NeurIPS 2009).
    """
    units = np.asarray(outputs, "float64")
    samples, n = units.shape[:2]
    units = units.reshape(samples, -1)
    size = units.shape[1] // n
    y = np.asarray(labels, "float64")
    check_count("k", k, minimum=always + 1, maximum=min(n, MAX_EXPERTS))
    check_number("ridge", ridge, minimum=0)
    tasks = np.arange(y.shape[1]) if tasks is None else np.asarray(tasks)
    weights = np.ones(y.shape) if weights is None else np.asarray(weights, "float64")
    weights = np.where(np.isnan(y), 0.0, weights)
    part = weights / np.maximum(weights.sum(axis=0), 1e-12)
    y = np.nan_to_num(y)
    weighted = part * (y - (part * y).sum(axis=0))
    chosen = np.zeros((int(tasks.max()) + 1, k), int)
    # Tasks with the same labels missing share the covariances of the units.
    patterns: dict[bytes, list] = {}
    for task in range(len(chosen)):
        pattern = weights[:, tasks == task].mean(axis=1)
        patterns.setdefault(pattern.tobytes(), [pattern]).append(task)
    for pattern, *members in patterns.values():
        rows = np.flatnonzero(pattern)
        part = pattern[rows] / max(pattern.sum(), 1e-12)
        centered = units[rows] - part @ units[rows]
        gram = (centered.T * part) @ centered
        scale = max(np.trace(gram) / len(gram), 1e-12)
        gram[np.diag_indices(len(gram))] += max(ridge, 1e-6) * scale
        # (n, n, units, units): the covariances of each pair of experts.
        gram = gram.reshape(n, size, n, size).transpose(0, 2, 1, 3)
        columns = np.flatnonzero(np.isin(tasks, members))
        target = (centered.T @ weighted[np.ix_(rows, columns)]).reshape(n, size, -1)
        chosen[members] = _choose(gram, target, tasks[columns], members, k, always)
    return chosen


def _choose(gram, target, tasks, members, k, always):
    """Choose the experts of some tasks from covariances, one after another.

    `tasks` are those of the columns of the targets `(n, size, columns)`.
    """
    n, size, _ = target.shape
    chosen = {task: [*range(n - always, n)] for task in members}
    for _ in range(k - always):
        # Tasks that have the same experts so far have the same rest.
        alike: dict[tuple, list] = {}
        for task, own in chosen.items():
            alike.setdefault(tuple(own), []).append(task)
        for own, same in alike.items():
            columns = np.isin(tasks, same)
            rest, left = gram[range(n), range(n)], target[..., columns]
            if own:
                # What the chosen experts do not explain, of all experts and of labels.
                pairs = gram[:, own].transpose(0, 2, 1, 3).reshape(n, size, -1)
                known = pairs[[*own]].reshape(len(own) * size, -1)
                slopes = np.linalg.solve(known, pairs.reshape(n * size, -1).T)
                rest = rest - pairs @ slopes.reshape(-1, n, size).swapaxes(0, 1)
                known = np.linalg.solve(known, np.concatenate(left[[*own]]))
                left = left - pairs @ known
            free = np.setdiff1d(np.arange(n), own)
            gain = (np.linalg.solve(rest[free], left[free]) * left[free]).sum(axis=1)
            for task in same:
                total = gain[:, tasks[columns] == task].sum(axis=1)
                chosen[task].append(int(free[total.argmax()]))
    return [own[always:] + own[:always] for own in chosen.values()]
