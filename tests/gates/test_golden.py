"""Against the numbers of the original release (see tests/golden/README.md)."""

import functools

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from golden.loader import assert_golden, load
from helpers import differentiated, gradient, numpy
from keras import ops

from dselectk_keras import DSelectKGate, EntropyRegularizer
from dselectk_keras.ops import smooth_step

pytestmark = pytest.mark.usefixtures("full_precision")


def cases(name):
    return [pytest.param(case, id=case["id"]) for case in load(name)]


def entropy_regularizer(config, calls=lambda step: step):
    """The regularizer of a case; `calls` says how many calls its schedule has seen."""
    if config is None:
        return None
    if config["kind"] == "default":
        return EntropyRegularizer()
    if config["kind"] == "linear":
        return EntropyRegularizer(lambda step: config["slope"] * calls(step))
    return EntropyRegularizer(config["value"])


def weight_names(case):
    if case["per_example"]:
        return ["z_kernel", "z_bias", "w_kernel", "w_bias"]
    return ["z_logits", "w_logits"]


@functools.cache
def rig(num_experts, num_nonzeros, experts_shape, routing_shape):
    """A gate with inputs, and a training call of it that is compiled once.

    What else differs between cases is in variables: the gate's `settings`, which
    are its gamma and the constant and slope of its entropy regularizer.
    """
    settings = {
        name: keras.Variable(1.0, trainable=False)
        for name in ("gamma", "constant", "slope")
    }
    gate = DSelectKGate(
        num_nonzeros,
        gamma=lambda _: ops.convert_to_tensor(settings["gamma"]),
        entropy_reg=lambda calls: settings["constant"] + settings["slope"] * calls,
        z_initializer="zeros",
        w_initializer="zeros",
    )
    given = {"experts": keras.Variable(np.zeros(experts_shape))}
    shapes = [experts_shape[1:]] * num_experts
    if routing_shape is None:
        gate.build(shapes)
    else:
        given["routing_inputs"] = keras.Variable(np.zeros(routing_shape))
        gate.build(shapes, routing_shape)
    names = []

    def compute():
        experts, *routing_inputs = map(ops.convert_to_tensor, given.values())
        experts = [experts[i] for i in range(num_experts)]
        found = {"inference": gate(experts, *routing_inputs, training=False)}
        assert gate.losses == []
        found["output"] = gate(experts, *routing_inputs, training=True)
        found["losses"] = ops.stack(gate.losses)
        found["expert_weights"] = gate.expert_weights(*routing_inputs)
        found["selector_outputs"] = gate.selector_outputs(*routing_inputs)
        names[:] = found
        return [sum(gate.losses, ops.sum(found["output"] ** 2)), *found.values()]

    variables = [*gate.trainable_variables, *given.values()]
    state = [*settings.values(), gate.step]
    return gate, given, settings, names, differentiated(compute, variables, state)


def run(case):
    """All that a case has numbers for, and the output at inference."""
    arrays = case["arrays"]
    routing = arrays.get("routing_inputs")
    gate, given, settings, names, call = rig(
        case["num_experts"],
        case["num_nonzeros"],
        arrays["experts"].shape,
        None if routing is None else routing.shape,
    )
    gate.set_weights([arrays[name] for name in weight_names(case)])
    gate.step.assign(0)
    for name, variable in given.items():
        variable.assign(arrays[name])
    entropy = case["entropy_reg"] or {"kind": "none"}
    settings["gamma"].assign(case["gamma"])
    settings["constant"].assign(
        {"const": entropy.get("value"), "default": 1e-6}.get(entropy["kind"], 0.0)
    )
    settings["slope"].assign(entropy.get("slope", 0.0))

    losses = []
    for _ in range(case["num_calls"]):
        (_, *values), gradients = call()
        found = dict(zip(names, values, strict=True))
        # A regularizer of weight 0 stands for none.
        losses.append(found["losses"][entropy["kind"] == "none" :])
    found["losses"] = losses
    names = [f"grad_{name}" for name in [*weight_names(case), *given]]
    return found | dict(zip(names, gradients, strict=True))


GIVEN = {"experts", "routing_inputs"}


def results(case):
    return set(case["arrays"]) - GIVEN - set(weight_names(case))


@pytest.mark.parametrize("case", cases("gates"))
def test_gate_computes_what_the_release_does(case):
    found = run(case)
    assert set(found) == results(case) | {"inference"}
    assert_golden(case, "output", found["inference"])
    for name in results(case):
        assert_golden(case, name, found[name])


@pytest.mark.parametrize("case", cases("edge"))
def test_gate_computes_what_the_release_does_at_the_rim(case):
    found = run(case)
    wanted = case["arrays"]
    assert_golden(case, "output", found["inference"])
    for name in results(case) - {"losses"}:
        assert_golden(case, name, found[name])
    if case["id"] == "unreachable-only-selector":
        # The release divides by a mass of 0; ours has a floor. No gradient in both.
        assert np.isinf(wanted["losses"]).all()
        assert_close(found["losses"], [[1e6]], rtol=1e-5)
        assert_equal(found["grad_z_logits"][0], 0)
        assert_equal(wanted["grad_z_logits"][0], 0)
    else:
        assert_golden(case, "losses", found["losses"])


@pytest.mark.parametrize("case", cases("smoothstep"))
def test_smooth_step_computes_what_the_release_does(case):
    x, gamma = case["arrays"]["x"], case["gamma"]
    assert_golden(case, "value", numpy(smooth_step(x, gamma)))
    assert_golden(case, "derivative", gradient(lambda x: smooth_step(x, gamma), x))


@pytest.mark.parametrize("case", cases("entropy"))
def test_entropy_regularizer_computes_what_the_release_does(case):
    regularizer = entropy_regularizer(case["entropy_reg"])
    inputs = case["arrays"]["inputs"]
    last = case["num_calls"]
    assert last == case["arrays"]["num_calls_after"][0]
    values = [float(regularizer(inputs, step)) for step in range(1, last + 1)]
    assert_golden(case, "values", values)
    assert_golden(case, "grad_last", gradient(lambda x: regularizer(x, last), inputs))


class TwoTasks(keras.Model):
    """Dense experts, and a gate and a head for each task."""

    def __init__(self, case):
        super().__init__()
        tasks, self.per_example = range(case["num_tasks"]), case["per_example"]

        def calls(task):
            # A regularizer that two gates share counts the calls of both in the
            # release; here every gate has its own step.
            if case["shared_reg"]:
                return lambda step: len(tasks) * (step - 1) + task + 1
            return lambda step: step

        self.experts = [
            keras.layers.Dense(case["expert_units"], activation="relu")
            for _ in range(case["num_experts"])
        ]
        self.gates = [
            DSelectKGate(
                case["num_nonzeros"],
                gamma=case["gamma"],
                entropy_reg=entropy_regularizer(case["entropy_reg"], calls(task)),
            )
            for task in tasks
        ]
        self.heads = [keras.layers.Dense(1) for _ in tasks]

    def call(self, inputs, training=None):
        outputs = [expert(inputs) for expert in self.experts]
        routing_inputs = [inputs] if self.per_example else []
        mixtures = [
            gate(outputs, *routing_inputs, training=training) for gate in self.gates
        ]
        return {
            f"task_{t}": head(mixture)
            for t, (head, mixture) in enumerate(zip(self.heads, mixtures, strict=True))
        }

    def groups(self, case):
        """The variables, by the names that the case has for them."""
        gates = zip(*(gate.trainable_weights for gate in self.gates), strict=True)
        return {
            "expert_kernel": [expert.kernel for expert in self.experts],
            "expert_bias": [expert.bias for expert in self.experts],
            **dict(zip(weight_names(case), gates, strict=True)),
            "head_kernel": [head.kernel for head in self.heads],
            "head_bias": [head.bias for head in self.heads],
        }


def trajectories():
    """Cases, of which TensorFlow compiles those with the simpler optimizer."""
    traced = {"sgd": pytest.mark.traced, "adam": ()}
    return [
        pytest.param(case, id=case["id"], marks=traced[case["optimizer"]])
        for case in load("trajectories")
    ]


@pytest.mark.parametrize("case", trajectories())
def test_training_follows_the_release(case):
    arrays = case["arrays"]
    model = TwoTasks(case)
    model(arrays["X"])
    variables = model.groups(case)
    for name, group in variables.items():
        for variable, value in zip(group, arrays[f"traj_{name}"][0], strict=True):
            variable.assign(value)
    optimizer = {
        "adam": keras.optimizers.Adam(case["lr"], epsilon=1e-7),
        "sgd": keras.optimizers.SGD(case["lr"]),
    }[case["optimizer"]]
    targets = {f"task_{t}": arrays["Y"][:, t, None] for t in range(case["num_tasks"])}
    model.compile(optimizer, dict.fromkeys(targets, "mse"))
    losses = []
    for step in range(case["steps"] + 1):
        if step % 10 == 0:
            for name, group in variables.items():
                found = [numpy(variable) for variable in group]
                assert_golden(
                    case, f"traj_{name}", found, arrays[f"traj_{name}"][step // 10]
                )
        if step < case["steps"]:
            model.reset_metrics()
            logs = model.train_on_batch(arrays["X"], targets, return_dict=True)
            losses.append([logs["loss"], *(logs[f"{task}_loss"] for task in targets)])

    losses = np.array(losses)
    assert_golden(case, "total", losses[:, 0])
    assert_golden(case, "mse", losses[:, 1:])
    routing_inputs = [arrays["X"]] if case["per_example"] else []
    found = [numpy(gate.expert_weights(*routing_inputs)) for gate in model.gates]
    assert_golden(case, "final_expert_weights", found)
