"""Multi-task architectures by name."""

import keras

from dselectk_keras.experts import DenseExperts, ExpertBank
from dselectk_keras.gates import Gate, SoftmaxGate
from dselectk_keras.layers import MMoE
from dselectk_keras.models.multitask_model import MultitaskModel
from dselectk_keras.models.task import Task
from dselectk_keras.models.task_group import group_tasks
from dselectk_keras.models.task_layers import (
    NameTasks,
    Predict,
    RepeatTasks,
    TakeTasks,
)


def _single_task(features, tasks, experts, *_):
    return experts.resized(len(tasks))(features)


def _shared_bottom(features, tasks, experts, *_):
    return RepeatTasks(len(tasks))(experts.resized(1)(features))


def _mmoe(features, tasks, experts, gate, per_example):
    names = [task.name for task in tasks]
    mmoe = MMoE(experts, gate, names, per_example, stacked=True, name="mmoe")
    return mmoe(features)


def _omoe(features, tasks, experts, gate, per_example):
    gate.num_gates = 1
    return _mmoe(features, tasks, experts, gate, per_example)


ARCHITECTURES = {
    "single_task": _single_task,
    "shared_bottom": _shared_bottom,
    "moe": _omoe,
    "omoe": _omoe,
    "mmoe": _mmoe,
}


def build_multitask_model(
    inputs,
    tasks,
    architecture="mmoe",
    experts=None,
    gate=None,
    per_example=False,
    num_params=None,
):
    r"""A multi-task model: features, experts shared in some way, a tower a task.

    $$
    \hat y_t = h_t(m_t), \qquad
    m_t = \begin{cases}
    f_t(x) & \text{single\_task} \\
    f(x) & \text{shared\_bottom} \\
    \sum_i g_i f_i(x) & \text{omoe (or moe)} \\
    \sum_i g_{t,i} f_i(x) & \text{mmoe}
    \end{cases}
    $$

    The model is ready for `model.compile(optimizer)`: it knows its losses and
    metrics (see `MultitaskModel`). Tasks that are alike share a bank of towers.

    Args:
        inputs: What the model sees: a number of features, a shape, a `keras.Input`,
            or a `keras.Model` that encodes its inputs into features.
        tasks: A list of `Task`; a list of names, or a number, makes regressions.
        architecture: One of the names in `ARCHITECTURES`.
        experts: The bank of experts; `None` is 8 dense experts of 64 units. It is
            resized to one expert a task for `"single_task"` and to one for
            `"shared_bottom"`.
        gate: The gate of `"moe"`, `"omoe"` and `"mmoe"`; `None` is `SoftmaxGate()`.
        per_example: Whether the gates look at the features.
        num_params: If given, the widths of dense experts are scaled so that the
            model's number of parameters comes as close to this one as it can, as
            the comparisons of the MMoE paper do.

    Returns:
        A `MultitaskModel` with a dict of outputs `(batch, 1)`, or `(batch,
        num_classes)`, by task name.

    Example:
        >>> model = build_multitask_model(
        ...     inputs=16,
        ...     tasks=[Task("rating", tower=(8,)), Task("click", "binary")],
        ...     experts=DenseExperts(num_experts=4, units=[32]),
        ...     gate=DSelectKGate(num_nonzeros=2),
        ... )
        >>> model.compile("adam")
        >>> model(keras.ops.ones((2, 16)))["rating"].shape
        (2, 1)

    Reference:
        Ma et al., "Modeling Task Relationships in Multi-task Learning with
        Multi-gate Mixture-of-Experts" (KDD 2018), Section 2 and Figure 1.
    """
    if architecture not in ARCHITECTURES:
        raise ValueError(
            f"There is no architecture of the name {architecture!r}. "
            f"Known architectures: {', '.join(ARCHITECTURES)}."
        )
    tasks = _as_tasks(tasks)
    experts = DenseExperts(8, [64]) if experts is None else experts
    gate = SoftmaxGate() if gate is None else gate
    if not isinstance(experts, ExpertBank) or not isinstance(gate, Gate):
        raise ValueError(
            "`experts` must be a bank such as `DenseExperts(8, [64])`, and `gate` a "
            f"gate such as `DSelectKGate(2)`. Received: experts={experts!r}, "
            f"gate={gate!r}."
        )

    def build(experts, gate):
        model_inputs, features = _as_features(inputs)
        share = ARCHITECTURES[architecture]
        mixtures = share(features, tasks, experts, gate, per_example)
        outputs = _towers(mixtures, tasks)
        name = f"{architecture}_model"
        return MultitaskModel(model_inputs, outputs, tasks=tasks, name=name)

    if num_params is None:
        return build(experts, gate)
    if not isinstance(experts, DenseExperts):
        raise ValueError(
            "`num_params` scales the widths of `DenseExperts`. "
            f"Received: experts={experts!r}. Choose the size of the template yourself."
        )
    return _match(build, experts, gate, num_params)


def _towers(mixtures, tasks):
    """A bank of towers for each group of like tasks; a dict of outputs."""
    if len(mixtures.shape) > 3:
        size = (mixtures.shape[1], -1)
        mixtures = keras.layers.Reshape(size, name="flatten_mixtures")(mixtures)
    outputs = {}
    for number, group in enumerate(group_tasks(tasks)):
        task = group.tasks[0]
        names = [member.name for member in group.tasks]
        x = TakeTasks(group.indices.tolist(), name=f"mixtures_{number}")(mixtures)
        if task.tower != "sum":
            x = DenseExperts(
                len(names),
                [*task.tower, task.num_outputs],
                ["relu"] * len(task.tower) + [None],
                shared_input=False,
                name=f"towers_{number}",
            )(x)
        predict = Predict(
            task.output_activation, task.tower == "sum", name=f"predict_{number}"
        )
        # In float32, or a half precision policy would cast the predictions back.
        name = NameTasks(names, name=f"names_{number}", dtype="float32")
        outputs.update(name(predict(x)))
    return {task.name: outputs[task.name] for task in tasks}


def _as_tasks(tasks):
    if isinstance(tasks, int):
        tasks = [f"task_{i}" for i in range(tasks)]
    tasks = [Task(task) if isinstance(task, str) else task for task in tasks]
    names: list = [getattr(task, "name", task) for task in tasks]
    if not tasks or not all(isinstance(task, Task) for task in tasks):
        raise ValueError(
            "`tasks` must be `Task` objects or names, one or more, or a number. "
            f"Received: {tasks}."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"Every task needs a name of its own. Received twice: {twice}."
        )
    return tasks


def _as_features(inputs):
    """The model's inputs and the features that experts see."""
    if isinstance(inputs, int):
        inputs = (inputs,)
    if isinstance(inputs, tuple):
        inputs = keras.Input(inputs, name="features")
    if isinstance(inputs, keras.Model):
        model_inputs = keras.tree.map_structure(
            lambda tensor: keras.Input(
                batch_shape=tensor.shape, dtype=tensor.dtype, name=tensor.name
            ),
            inputs.input,
        )
        return model_inputs, inputs(model_inputs)
    if not isinstance(inputs, keras.KerasTensor):
        raise ValueError(
            "`inputs` must be a number of features, a shape, a `keras.Input`, or a "
            f"`keras.Model` that encodes its inputs. Received: {inputs!r}."
        )
    return inputs, inputs


def _match(build, experts, gate, num_params):
    """The model whose experts are scaled to a number of parameters."""

    def count(scale):
        scaled = _scaled(experts, scale)
        copy = type(gate).from_config(gate.get_config())
        return build(scaled, copy).count_params(), scaled

    low, high = 0.0, 1.0
    while count(high)[0] < num_params:
        low, high = high, 2 * high
    while _scaled(experts, low).units != _scaled(experts, high).units and (
        high - low > 1e-3 * high
    ):
        middle = (low + high) / 2
        low, high = (middle, high) if count(middle)[0] < num_params else (low, middle)
    _, best = min(
        (count(scale) for scale in (low, high)),
        key=lambda found: abs(found[0] - num_params),
    )
    return build(best, gate)


def _scaled(experts, scale):
    config = experts.get_config()
    config.pop("name")
    config["units"] = [max(1, round(units * scale)) for units in experts.units]
    return DenseExperts.from_config(config)
