"""A router that is trained by the losses of single experts."""

from keras import ops

from dselectk_keras.ops import softmax

FLOOR = 1e-3  # Below it, one over the temperature is 0.


def free_energy(log_gates, losses, inverse):
    r"""Compute the loss of a router whose experts compete for the examples.

    $$
    F_T = -T \log \sum_i g_i \, e^{-l_i / T}, \qquad
    F_0 = \min_i l_i, \quad F_\infty = \sum_i g_i \, l_i
    $$

    With T = 1 and cross-entropies it is the likelihood of a mixture (Jacobs et al.,
    "Adaptive Mixtures of Local Experts", 1991). With T infinite it is the expected loss
    of an expert that the router draws.

    Args:
        log_gates: The logarithms of the weights, `(batch, n, 1)`.
        losses: The losses of the experts for each label, `(batch, n, tasks)`.
        inverse: 1 / T, a number or `(tasks,)`.
    """
    finite = ops.maximum(inverse, FLOOR)
    free = -ops.logsumexp(log_gates - losses * finite, axis=1) / finite
    expected = ops.sum(ops.exp(log_gates) * losses, axis=1)
    return ops.where(inverse > FLOOR, free, expected)


def posterior_loss(log_gates, losses, inverse):
    """Compute the mean loss of the experts that have probably made the labels."""
    chosen = softmax(ops.moveaxis(log_gates - losses * inverse, 1, -1))
    return ops.sum(chosen * ops.moveaxis(losses, 1, -1), axis=-1)


def choice_loss(log_gates, losses, inverse):
    """Compute the loss of the experts that fit the labels best, and of their weights.

    The router learns which ones these are: it has a cross-entropy, times T.
    """
    best = ops.argmin(losses, axis=1)
    chosen = ops.one_hot(best, losses.shape[1], axis=1, dtype=losses.dtype)
    return ops.sum(chosen * (losses - log_gates / inverse), axis=1)
