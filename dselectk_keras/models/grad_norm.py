"""Task weights that balance the gradients of the tasks."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.gates.logits import float32_weight
from dselectk_keras.utils import Configured, Tensor, check_number

TINY = 1e-30


@keras.saving.register_keras_serializable(package="dselectk_keras")
class GradNorm(Configured, keras.Layer):
    r"""Weights tasks so that their gradients are of similar size, by GradNorm.

    $$
    \frac{\partial}{\partial s_t} = \mathrm{sign} \bigl( G_t - \bar G \, r_t^\alpha
    \bigr) \, \frac{G_t}{\bar G}, \qquad \lambda_t = T \, \mathrm{softmax}(s)_t, \qquad
    G_t = \lVert \nabla_{m_t} L \rVert
    $$

    The layer stands where the tasks part: between their mixtures $m_t$ and the towers.
    It changes nothing there, and measures the gradient of each task in the backward
    pass of the step. The relative rate $r_t$ is the loss of the task in the step
    before over its first loss, divided by the mean over the tasks. A task with a small
    gradient, or one that learns slowly, gets a larger weight.

    The paper takes the gradients of the last shared kernel, which needs a backward pass
    per task, and trains the weights with a rate of their own. Here the model's
    optimizer trains $s_t$. Fixed weights of the tasks are balanced too. A task without
    labels in a batch has a gradient of 0, which counts in the mean. Replicas of
    `tf.distribute` each compare the gradients of their part of a batch.

    Args:
        alpha: $\alpha$: 0 gives all tasks gradients of the same size. With a larger
            one, tasks that learn slowly get larger gradients.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        mixtures: A tensor `(batch, tasks, ...)`, in the order of the model's tasks.
        training: Whether to add a loss of 0, whose gradient tells the layer by how much
            the loss is scaled. A loop of your own adds `model.losses`.

    Returns:
        The mixtures.

    Example:
        >>> model = build_multitask_model(3, 2, task_weighting=GradNorm(0.5))
        >>> model.task_weights
        {'task_0': 1.0, 'task_1': 1.0}

    Reference:
        Chen et al., "GradNorm: Gradient Normalization for Adaptive Loss Balancing in
        Deep Multitask Networks" (ICML 2018), Section 3.
    """

    def __init__(self, alpha: float = 1.5, **kwargs: Any):
        super().__init__(**{"name": "gradnorm", **kwargs})
        self.alpha = check_number("alpha", alpha, minimum=0)

    def build(self, shape: Any) -> None:
        if len(shape) < 2:
            raise ValueError(
                "`GradNorm` must be called on the mixtures of the tasks, `(batch, "
                "tasks, ...)`, before the towers. Received: a layer that was not "
                "called. `build_multitask_model` calls it."
            )
        self.logits = float32_weight(self, "logits", shape[1:2])
        self.first, self.last = (
            float32_weight(self, f"{name}_losses", shape[1:2], trainable=False)
            for name in ("first", "last")
        )

    def call(self, mixtures: Tensor, training: bool | None = None) -> Tensor:
        first, last = map(ops.convert_to_tensor, (self.first, self.last))
        rates = ops.where(first > 0, last / ops.maximum(first, TINY), 1.0)
        rates = ops.maximum(rates, TINY)
        targets = ops.power(rates / ops.mean(rates), self.alpha)
        logits, zero = _scaled(self.logits + 0.0)
        if training:
            self.add_loss(zero)
        return _measure(mixtures, logits, targets)

    def penalty(self, losses: Tensor, shares: Tensor) -> Tensor:
        """Note the losses of the tasks that have labels."""
        first, last = map(ops.convert_to_tensor, (self.first, self.last))
        known = shares > 0
        self.first.assign(ops.where(ops.logical_and(known, first == 0), losses, first))
        self.last.assign(ops.where(known, losses, last))
        return ops.zeros_like(losses)

    def weights_of_losses(self) -> Tensor:
        """Compute the factor of each task's weight, without a gradient."""
        logits = ops.stop_gradient(ops.convert_to_tensor(self.logits))
        return self.logits.shape[0] * ops.softmax(logits)


def _scaled(logits):
    """Return the logits, and a 0 for the loss.

    The gradient of the logits is multiplied by that of the 0. So slopes are multiplied
    as the loss is: in half precision by a large factor, by which optimizers divide all
    gradients, and for replicas, whose gradients are added up, by their share.
    """

    @ops.custom_gradient
    def joined(logits):
        def gradient(*args, upstream=None):
            upstream = args[-1] if upstream is None else upstream
            return upstream[:-1] * upstream[-1]

        return ops.concatenate([logits, ops.zeros(1, "float32")]), gradient

    found = joined(logits)
    return found[:-1], found[-1]


def _measure(x, logits, targets):
    """Return `x`; the gradient of the logits compares the norms of that of `x`."""

    # JAX wants all tensors as arguments.
    @ops.custom_gradient
    def identity(x, _, targets):
        def gradient(*args, upstream=None):
            upstream = args[-1] if upstream is None else upstream
            sizes = ops.cast(upstream, "float32")
            # Squares of small numbers would be 0.
            sizes = sizes / ops.maximum(ops.max(ops.abs(sizes)), TINY)
            axes = [axis for axis in range(len(sizes.shape)) if axis != 1]
            norms = ops.sqrt(ops.sum(ops.square(sizes), axis=axes))
            mean = ops.maximum(ops.mean(norms), TINY)
            slopes = ops.sign(norms - mean * targets) * norms / mean
            return upstream, slopes, None

        return ops.copy(x), gradient

    return identity(x, logits, targets)
