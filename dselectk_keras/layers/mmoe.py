"""A mixture of experts for several tasks."""

import keras
from keras import ops

from dselectk_keras.layers._tasks import task_names
from dselectk_keras.layers.moe import MoE
from dselectk_keras.utils import with_name


@keras.saving.register_keras_serializable(package="dselectk_keras")
class MMoE(keras.Layer):
    r"""One bank of experts for all tasks, and one gate for each.

    $$
    y_t = \sum_{i=1}^{n} g_{t,i}(v) \, f_i(x)
    $$

    The gates of all tasks are one batched layer. A gate with `num_gates=1` serves
    all tasks alike: that is OMoE.

    Args:
        experts: A bank of experts, or a list of Keras layers.
        gate: A gate that is not built yet. Its `num_gates` becomes the number of
            tasks, unless it is set to 1.
        tasks: The number of tasks, or a list of their names.
        per_example: Whether the weights depend on the inputs.
        routing: A Keras layer between the inputs and per-example gates.
        dispatch: Whether experts are evaluated only for the examples that chose them
            (see `MoE`).
        stacked: Whether to give one tensor with an axis for the tasks.
        **kwargs: `name`, `dtype` and the other arguments of `keras.Layer`.

    Call arguments:
        inputs: The experts' input $x$, or a tuple `(inputs, routing_inputs)`.
        training: Passed on to the experts and the gates.

    Returns:
        A list of tensors `(batch, ...)`, one a task; a dict of them if the tasks
        have names; one tensor `(batch, tasks, ...)` if `stacked`.

    Example:
        >>> mmoe = MMoE(DenseExperts(4, [8]), DSelectKGate(2), ["click", "like"])
        >>> outputs = mmoe(keras.ops.ones((2, 3)))
        >>> {name: output.shape for name, output in outputs.items()}
        {'click': (2, 8), 'like': (2, 8)}

    Reference:
        Ma et al., "Modeling Task Relationships in Multi-task Learning with
        Multi-gate Mixture-of-Experts" (KDD 2018), Equation 6.
    """

    def __init__(
        self,
        experts,
        gate,
        tasks,
        per_example=False,
        routing=None,
        dispatch="auto",
        stacked=False,
        **kwargs,
    ):
        super().__init__(**with_name(kwargs, "mmoe"))
        self.task_names = task_names(tasks)
        self.tasks = tasks
        self.stacked = stacked
        self.moe = MoE(
            experts,
            gate,
            per_example,
            routing,
            dispatch,
            name="moe",
            dtype=self.dtype_policy,
        )
        gate = self.moe.gate
        if gate.num_gates is None and not gate.built:
            gate.num_gates = len(self.task_names)
        if gate.num_gates not in {1, len(self.task_names)}:
            raise ValueError(
                f"{len(self.task_names)} tasks need as many gates, or one for all. "
                f"Received: a gate with num_gates={gate.num_gates}"
                f"{', built already' if gate.built else ''}. Pass a new gate with "
                "num_gates=None."
            )

    @property
    def gate(self):
        """The layer that holds the gates of all tasks."""
        return self.moe.gate

    @property
    def experts(self):
        """The bank of experts."""
        return self.moe.experts

    @property
    def routing(self):
        """The layer between the inputs and per-example gates, or `None`."""
        return self.moe.routing

    @property
    def per_example(self):
        """Whether the weights depend on the inputs."""
        return self.moe.per_example

    def build(self, input_shape):
        """Build the experts and the gates."""
        self.moe.build(input_shape)
        self.built = True

    def call(self, inputs, training=None):
        """Evaluate the experts once and mix them for every task."""
        mixtures = self.moe(inputs, training=training)
        num_tasks = len(self.task_names)
        if self.gate.num_gates < num_tasks:
            mixtures = ops.repeat(mixtures, num_tasks, axis=1)
        if self.stacked:
            return mixtures
        mixtures = ops.unstack(mixtures, num_tasks, axis=1)
        if isinstance(self.tasks, int):
            return list(mixtures)
        return dict(zip(self.task_names, mixtures, strict=True))

    def replace(self, experts, gate):
        """Put another bank and another gate, both built, in the place of these."""
        self.moe.replace(experts, gate)

    def expert_weights(self, inputs=None):
        """The weights over the experts, as at inference.

        Args:
            inputs: What the layer is called on; needed if the gates are
                per-example.

        Returns:
            A float32 tensor `(tasks, n)`, or `(batch, tasks, n)`; with one gate for
            all tasks, the axis for the tasks has length one.
        """
        return self.moe.expert_weights(inputs)

    def routing_inputs(self, inputs):
        """What per-example gates look at when the layer is called on `inputs`."""
        return self.moe.routing_inputs(inputs)

    def get_config(self):
        """The arguments of `__init__`."""
        config = self.moe.get_config()
        return {
            **super().get_config(),
            "experts": config["experts"],
            "gate": config["gate"],
            "tasks": self.tasks,
            "per_example": self.per_example,
            "routing": config["routing"],
            "dispatch": config["dispatch"],
            "stacked": self.stacked,
        }
