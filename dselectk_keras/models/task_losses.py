"""The training loss of a model with several tasks."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from dselectk_keras.distribution import sum_over_replicas
from dselectk_keras.models.task import Task
from dselectk_keras.ops import clipped
from dselectk_keras.utils import Tensor, check_choice


class Uncertainty(keras.Layer):
    r"""Weights tasks by their learned variances: `task_weighting="uncertainty"`.

    $$
    \lambda_t = f_t \, e^{-s_t}, \qquad r_t = \frac{c_t}{n_t} \, \frac{s_t}{2}
    $$

    with a log-variance $s_t$ per task, $c_t$ labels of the task in the batch, and
    $f_t = 1/2$ for regression and 1 for classes.

    Args:
        factors: $f_t$ of each task.

    Reference:
        Kendall et al., "Multi-Task Learning Using Uncertainty to Weigh Losses" (CVPR
        2018), Section 3.
    """

    def __init__(self, factors: Sequence[float]):
        super().__init__(name="uncertainty", dtype="float32")
        self.factors = np.array(factors, "float32")

    def build(self, shape: Any) -> None:
        """Create the log-variances."""
        self.log_variances = self.add_weight(shape, "zeros", name="log_variances")

    def penalty(self, losses: Tensor, shares: Tensor) -> Tensor:
        """Compute the term of each task besides its loss."""
        return shares * self.log_variances / 2

    def weights_of_losses(self) -> Tensor:
        """Compute the factor of each task's weight."""
        return ops.multiply(ops.exp(-self.log_variances), self.factors)


class TaskLosses(keras.Layer):
    r"""Averages the losses of the tasks over their labels, and weights the tasks.

    $$
    L = \sum_t \omega_t \, (\lambda_t L_t + r_t), \qquad
    L_t = \frac{1}{n_t} \sum_b m_{tb} \, \ell_{tb}
    $$

    with the fixed weights $\omega_t$ of the tasks. `label_average` says what $n_t$ is,
    and `task_weighting` what $\lambda_t$ and $r_t$ are (see `MultitaskModel`). With
    `None`, they are 1 and 0.

    Args:
        tasks: The tasks, in the order of the losses.
        label_average: See above.
        task_weighting: See above; or the config of an object.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        label_average: str = "batch",
        task_weighting: Any = None,
    ):
        super().__init__(name="task_losses", dtype="float32")
        check_choice("label_average", label_average, ("batch", "labels"))
        if isinstance(task_weighting, dict):
            task_weighting = keras.saving.deserialize_keras_object(task_weighting)
        self.label_average = label_average
        self.task_weighting = self.weighting = task_weighting
        self.fixed_weights = np.array([task.weight for task in tasks], "float32")
        if task_weighting == "uncertainty":
            factors = [task.rules.factor for task in tasks]
            self.weighting = Uncertainty(factors)
        elif task_weighting is not None and not (
            hasattr(task_weighting, "penalty")
            and hasattr(task_weighting, "weights_of_losses")
        ):
            raise ValueError(
                "`task_weighting` must be None, 'uncertainty', or an object with the "
                "methods `penalty` and `weights_of_losses`. Received: "
                f"{task_weighting!r}. See `MultitaskModel`."
            )
        if isinstance(self.weighting, keras.Layer) and not self.weighting.built:
            self.weighting.build((len(tasks),))
        self.built = True

    def task_weights(self) -> Tensor:
        """Compute the weight of each task, fixed and learned."""
        weights = self._fixed_weights()
        if self.weighting is None:
            return weights
        return self.weighting.weights_of_losses() * weights

    def reported_loss(self, totals: Tensor, counts: Tensor) -> Tensor:
        """Compute the sum of the mean losses with the fixed weights.

        For each task it needs the sum of the losses and the number of labels.
        """
        totals, counts = sum_over_replicas([totals, counts])
        return self._sum_of_means(totals / clipped(counts, 1.0))

    def training_loss(self, totals: Tensor, counts: Tensor, examples: Any) -> Tensor:
        """Compute the training loss.

        The totals and counts are those of `reported_loss`, in the batch.
        """
        if hasattr(examples, "dtype"):
            examples = ops.cast(examples, "float32")
        examples = ops.ones((1,), "float32") * examples
        totals, counts, examples = sum_over_replicas([totals, counts, examples])
        labels = clipped(counts, 1.0)
        divisors = labels if self.label_average == "labels" else examples
        extra: Any = 0.0
        if self.weighting is not None:
            means = ops.stop_gradient(totals / labels)
            extra = self._sum_of_means(self.weighting.penalty(means, counts / divisors))
        losses = ops.multiply(totals, self.task_weights())
        return ops.sum(losses / divisors) + extra

    def _sum_of_means(self, means):
        return ops.sum(ops.multiply(means, self._fixed_weights()))

    def _fixed_weights(self):
        return as_factors(self.fixed_weights)


def as_factors(numbers: np.ndarray) -> Tensor:
    """A tensor of numbers, which needs no copy to the device if all are 1."""
    if (numbers == 1).all():
        return ops.ones(numbers.shape, "float32")
    return ops.convert_to_tensor(numbers)
