"""The latent skills gate."""

from typing import Any

import keras
from keras import ops

from dselectk_keras.baselines._ids import look_up, require_ids
from dselectk_keras.gates.gate import Gate
from dselectk_keras.gates.logits import float32_weight
from dselectk_keras.gates.registry import GATES
from dselectk_keras.gates.routing import Routing
from dselectk_keras.ops import relaxed_bernoulli
from dselectk_keras.schedules import check_schedule, value_at
from dselectk_keras.utils import MAX_EXPERTS, check_count, check_number


@GATES.register("latent_skills")
class LatentSkillsGate(Gate):
    r"""Weights from a learned binary matrix of tasks by skills.

    $$
    g_i = \frac{Z_{t,i}}{\sum_j Z_{t,j}}, \qquad
    Z = \mathrm{sigmoid}\Bigl(\frac{z + \log u - \log(1 - u)}{\tau}\Bigr)
    $$

    in training, with $u$ uniform and drawn once per call for the whole matrix. At
    inference $Z = \mathrm{sigmoid}(z)$. At first, $z$ is uniform in ±0.001. The skills
    are the experts. A static gate has one task, or one task per gate with `num_gates`.
    A per-example gate looks up the row of each example's task.

    Args:
        num_tasks: The number of tasks of a per-example gate.
        temperature: $\tau$: a number, or a schedule of the step.
        learning_rate_ratio: The learning rate of the logits $z$ relative to that of
            other weights, with any optimizer.
        **kwargs: The arguments of `Gate`.

    Call arguments:
        routing_inputs: The tasks: integers `(batch,)` or `(batch, 1)`, or
            `(batch, num_gates, 1)` with one task for each gate. A task out of range
            raises a `ValueError`; in compiled code, such as `fit`, its weights are NaN.
        experts, training: See `Gate`.

    Example:
        >>> gate = LatentSkillsGate(num_tasks=4)
        >>> tasks = keras.ops.convert_to_tensor([3, 0])
        >>> mixed = gate(keras.ops.ones((2, 8, 5)), tasks)
        >>> gate.expert_weights(tasks).shape
        (2, 8)

    Reference:
        Ponti et al., "Combining Modular Skills in Multitask Learning" (2022), Section
        2; Muqeeth et al., "SMEAR" (2023), Section 2.
    """

    def __init__(
        self,
        num_tasks: int | None = None,
        temperature: Any = 1.0,
        learning_rate_ratio: float = 10.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if num_tasks is not None:
            num_tasks = check_count("num_tasks", num_tasks, maximum=MAX_EXPERTS)
        self.num_tasks: Any = num_tasks
        self.learning_rate_ratio = check_number(
            "learning_rate_ratio", learning_rate_ratio, above=0
        )
        self.temperature = check_schedule(temperature, "temperature", positive=True)
        self.make_generator()

    def build_logits(self) -> None:
        if self.per_example:
            require_ids(self, "task")
        if self.per_example != (self.num_tasks is not None):
            raise ValueError(
                "A per-example gate needs `num_tasks`; a static gate must not have it, "
                "since each gate has one task. Received: "
                f"num_tasks={self.num_tasks} and "
                f"{'' if self.per_example else 'no '}routing inputs."
            )
        tasks = (self.num_tasks,) if self.per_example else ()
        shape = (*tasks, *self.gate_shape, self.num_experts)
        # An update of this variable moves z `learning_rate_ratio` times as far.
        limit = 1e-3 / self.learning_rate_ratio
        uniform = keras.initializers.RandomUniform(-limit, limit)
        self._scaled_logits = float32_weight(self, "scaled_logits", shape, uniform)

    def compute_weights(self, inputs, training, step) -> Routing:
        theta = ops.convert_to_tensor(self._scaled_logits)
        # The value is z = ratio * theta, but the gradient is the gradient by z, without
        # the ratio. So the ratio is the same for optimizers whose steps are
        # proportional to the gradient (SGD) and for others (Adam).
        z = theta + ops.stop_gradient((self.learning_rate_ratio - 1.0) * theta)
        if training:
            temperature = value_at(self.temperature, step)
            skills = relaxed_bernoulli(z, temperature, self.generator)
        else:
            skills = ops.sigmoid(z)
        weights = skills / (ops.sum(skills, axis=-1, keepdims=True) + 1e-12)
        if self.per_example:
            tasks = inputs.routing_inputs
            weights = look_up(weights, tasks, self.num_tasks, "task")
        return Routing(weights)
