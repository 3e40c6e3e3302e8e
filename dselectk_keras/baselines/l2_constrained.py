"""Networks of several tasks, with a penalty on their differences."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.layers.arguments import as_bank
from dselectk_keras.models.architectures import ARCHITECTURES
from dselectk_keras.schedules import check_schedule, value_at
from dselectk_keras.utils import (
    CalledOnce,
    Configured,
    Tensor,
    add_counter,
    check_number,
)


@keras.saving.register_keras_serializable(package="dselectk_keras")
class L2Constrained(CalledOnce, Configured, keras.Layer):
    r"""One network per task, with an L2 penalty on the differences of their parameters.

    $$
    y_t = f(x; \theta_t), \qquad
    \alpha \sum_{t < u} \lVert \theta_t - \theta_u \rVert^2
    $$

    The penalty is added to the loss in training. With a strength of 0, the tasks are
    independent. With a very large strength, they share all parameters.

    Args:
        experts: A bank with one expert per task, all with the same structure.
        strength: $\alpha$: a number, a schedule, or a callable of the step.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: The inputs of the bank.
        training: Whether to add the penalty; passed on to the bank.

    Returns:
        The outputs of the bank, `(batch, tasks, ...)`.

    Example:
        >>> constrained = L2Constrained(DenseExperts(3, [4]), strength=0.1)
        >>> constrained(keras.ops.ones((2, 5)), training=True).shape
        (2, 3, 4)
        >>> len(constrained.losses)
        1

    Reference:
        Duong et al., "Low Resource Dependency Parsing" (ACL 2015); Ma et al., "MMoE"
        (KDD 2018), Section 6.1.
    """

    def __init__(self, experts: Any, strength: Any, **kwargs: Any):
        # The penalty is computed in float32. The bank has its own dtype policy.
        super().__init__(**{"dtype": "float32", **kwargs})
        self.experts = as_bank(experts)
        self.strength = check_schedule(strength, "strength")
        if not callable(self.strength):
            check_number("strength", strength, minimum=0)
        self.step: Any = None

    def build(self, input_shape: Any) -> None:
        if not self.experts.built:
            self.experts.build(input_shape)
        self.experts.parameters()
        self.step = add_counter(self, "step")
        self.built = True

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        if training:
            self.step.assign_add(1)
            distance = squared_distance(self.experts.parameters())
            self.add_loss(value_at(self.strength, self.step) * distance)
        return self.experts(inputs, training=training)


def squared_distance(parameters):
    r"""The sum of the squared distances of all pairs of $T$ networks.

    $$
    \sum_{t < u} \lVert \theta_t - \theta_u \rVert^2
    = T \sum_{t=1}^{T} \lVert \theta_t - \bar\theta \rVert^2
    $$

    The second form is computed, in float32, from stacked parameters `(T, ...)`.
    """
    total = 0.0
    for stacked in parameters:
        theta = ops.cast(stacked, "float32")
        centered = theta - ops.mean(theta, axis=0, keepdims=True)
        total = total + theta.shape[0] * ops.sum(ops.square(centered))
    return total


@ARCHITECTURES.register("l2_constrained")
def l2_constrained(inputs, tasks, experts, *_, strength=1e-3):
    """One network per task, and an L2 penalty on the differences of their parameters.

    The penalty includes the towers of tasks that are computed together. Tune its
    strength, as the papers do.

    Reference:
        Duong et al., "Low Resource Dependency Parsing" (ACL 2015), for any number of
        tasks; Ma et al., "MMoE" (KDD 2018), Section 6.1.
    """
    networks = experts.resized(len(tasks))

    def constrain(bank, name):
        return L2Constrained(bank, strength, name=name)

    mixtures = constrain(networks, "l2_constrained")(inputs[0])
    return mixtures, lambda towers: constrain(towers, towers.name)
