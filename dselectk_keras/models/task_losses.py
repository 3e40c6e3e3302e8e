"""The training loss of a model with several tasks."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.distribution import sum_over_replicas
from dselectk_keras.models.task import Task
from dselectk_keras.utils import Tensor, check_choice

KEPT = 0.99  # What a running count keeps per batch: it covers about 100 batches.
NEVER = -1e30  # The score of a task without labels so far.
TINY = 1e-8  # The smallest loss of which "famo" takes the logarithm.
DECAY = 0.01  # Of the logits of "famo", as in its release.


class TaskLosses(keras.Layer):
    r"""Averages the losses of the tasks over their labels, and weights the tasks.

    $$
    L = \sum_t \omega_t \, \lambda_t L_t + R, \qquad
    L_t = \frac{1}{n_t} \sum_b m_{tb} \, \ell_{tb}
    $$

    with the fixed weights $\omega_t$ of the tasks. `label_average` says what $n_t$ is
    (see `MultitaskModel`), and `task_weighting` what $\lambda_t$ and $R$ are. With
    `None`, they are 1 and 0.

    - `"uncertainty"` learns a log-variance $s_t$ per task. With $c_t$ labels of the
      task in the batch, and $f_t = 1/2$ for regression and 1 for classes,

      $$
      \lambda_t = f_t \, e^{-s_t}, \qquad
      R = \sum_t \omega_t \, \frac{c_t}{n_t} \, \frac{s_t}{2}.
      $$

    - `"famo"` learns logits $w$ with $z = \mathrm{softmax}(w)$, so that the losses of
      all $T$ tasks decrease at equal rates. They must be positive. $\bar L_t$ is the
      mean loss over the task's labels, in the last batch with any, and $\bar L'_t$ the
      one before it:

      $$
      \lambda_t = T \, \frac{z_t / \bar L_t}{\sum_u z_u / \bar L_u}, \qquad
      \nabla_w R = \nabla_w \Bigl( \sum_t z_t \, (\log \bar L'_t - \log \bar L_t)
      + \frac{\gamma}{2} \lVert w \rVert^2 \Bigr), \qquad R = 0,
      $$

      with $\gamma = 0.01$. $\lambda_t$ has no gradient.

    Args:
        tasks: The tasks, in the order of the losses.
        label_average: See above.
        task_weighting: See above.

    Reference:
        Kendall et al., "Multi-Task Learning Using Uncertainty to Weigh Losses" (CVPR
        2018), Section 3; Liu et al., "FAMO: Fast Adaptive Multitask Optimization"
        (NeurIPS 2023), Algorithm 1.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        label_average: str = "batch",
        task_weighting: str | None = None,
    ):
        super().__init__(name="task_losses", dtype="float32")
        check_choice("label_average", label_average, ("batch", "labels", "running"))
        check_choice("task_weighting", task_weighting, (None, "uncertainty", "famo"))
        self.label_average = label_average
        self.task_weighting = task_weighting
        self.fixed_weights = np.array([task.weight for task in tasks], "float32")
        shape = (len(tasks),)
        if label_average == "running":
            name, seen = "seen_labels_and_examples", (len(tasks) + 1,)
            self.seen = self.add_weight(seen, "zeros", trainable=False, name=name)
        if task_weighting == "uncertainty":
            halves = [0.5 if task.kind == "regression" else 1.0 for task in tasks]
            self._factors = np.array(halves, "float32")
            self.log_variances = self.add_weight(shape, "zeros", name="log_variances")
        if task_weighting == "famo":
            self.logits = self.add_weight(shape, "zeros", name="task_logits")
            # Infinite until the first label.
            never = keras.initializers.Constant(float("inf"))
            self.log_losses = self.add_weight(
                shape, never, trainable=False, name="log_losses"
            )
        self.built = True

    def weights_now(self) -> Tensor:
        """Compute the weight of each task, fixed and learned, without a gradient."""
        return ops.stop_gradient(ops.convert_to_tensor(self._weights()))

    def reported_loss(self, totals: Tensor, counts: Tensor) -> Tensor:
        """Compute the sum of the mean losses with the fixed weights.

        For each task it needs the sum of the losses and the number of labels.
        """
        totals, counts = sum_over_replicas([totals, counts])
        return ops.sum(ops.multiply(_mean(totals, counts), self.fixed_weights))

    def training_loss(self, totals: Tensor, counts: Tensor, examples: Any) -> Tensor:
        """Compute the training loss, and update the running counts and losses.

        The totals and counts are those of `reported_loss`, in the batch.
        """
        examples = ops.cast(ops.reshape(examples, (1,)), "float32")
        totals, counts, examples = sum_over_replicas([totals, counts, examples])
        divisors = self._divisors(counts, examples)
        extra: Any = 0.0
        if self.task_weighting == "uncertainty":
            terms = counts / divisors * self.log_variances / 2
            extra = ops.sum(ops.multiply(terms, self.fixed_weights))
        elif self.task_weighting == "famo":
            extra = self._compare_losses(_mean(totals, counts), counts > 0)
        losses = ops.multiply(totals, self._weights())
        return ops.sum(losses / divisors) + extra

    def _divisors(self, counts, examples):
        if self.label_average == "labels":
            return ops.maximum(counts, 1.0)
        if self.label_average == "batch":
            return examples
        self.seen.assign(KEPT * self.seen + ops.concatenate([counts, examples]))
        return ops.maximum(self.seen[:-1] / self.seen[-1] * examples, 1.0)

    def _weights(self):
        """Compute the weight of each task."""
        if self.task_weighting is None:
            return self.fixed_weights
        return ops.multiply(self._learned(), self.fixed_weights)

    def _learned(self):
        if self.task_weighting == "uncertainty":
            return ops.multiply(ops.exp(-self.log_variances), self._factors)
        scores = self.logits - self.log_losses
        labeled = ops.isfinite(self.log_losses)
        weights = ops.softmax(ops.where(labeled, scores, NEVER))
        return ops.stop_gradient(len(self.fixed_weights) * weights)

    def _compare_losses(self, means, labeled):
        """Return 0 with the gradient of the logits, and keep the losses."""
        before = ops.convert_to_tensor(self.log_losses)
        now = ops.where(labeled, ops.log(ops.maximum(means, TINY)), before)
        known = ops.logical_and(labeled, ops.isfinite(before))
        decrease = ops.stop_gradient(ops.where(known, before - now, 0.0))
        self.log_losses.assign(ops.stop_gradient(now))
        objective = ops.sum(ops.softmax(self.logits) * decrease)
        objective += DECAY / 2 * ops.sum(ops.square(self.logits))
        return objective - ops.stop_gradient(objective)


def _mean(totals, counts):
    return totals / ops.maximum(counts, 1.0)
