"""The base class serves a gate of one's own."""

import keras
import pytest
from helpers import built, numbers, numpy
from keras import ops

from dselectk_keras import Ramp, SoftmaxGate
from dselectk_keras.gates import Gate, Routing
from dselectk_keras.gates.logits import Logits
from dselectk_keras.schedules import value_at


@keras.saving.register_keras_serializable(package="tests")
class HeatedGate(Gate):
    """A softmax with a temperature, which says nothing of how it is saved."""

    def __init__(self, temperature=1.0, **kwargs):
        super().__init__(**kwargs)
        self.temperature = temperature

    def build_logits(self):
        shape = (*self.gate_shape, self.num_experts)
        self._logits = Logits(self, "gate", shape, "random_uniform", use_bias=False)

    def compute_weights(self, inputs, training, step):
        temperature = value_at(self.temperature, step)
        return Routing(ops.softmax(self._logits(inputs.routing_inputs) / temperature))


@pytest.mark.backend_independent
def test_a_schedule_of_a_gate_of_ones_own_is_read_back(tmp_path):
    x = keras.Input((3,))
    gate = HeatedGate(Ramp(1.0, 0.1, end=10), name="gate")
    model = keras.Model(x, gate([keras.layers.Dense(2)(x) for _ in range(4)], x))
    inputs = numbers((5, 3))
    for _ in range(3):
        model(inputs, training=True)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    copy = loaded.get_layer("gate")
    assert isinstance(copy.temperature, Ramp)
    assert copy.temperature.get_config() == gate.temperature.get_config()
    assert (numpy(loaded(inputs)) == numpy(model(inputs))).all()
    assert HeatedGate.from_config({"temperature": 0.5}).temperature == 0.5


@pytest.mark.backend_independent
@pytest.mark.parametrize("shapes", [(5,), ({"a": 3},), ((None, 4), 3)])
def test_what_is_no_shape_is_refused_by_name(shapes):
    name = "routing_inputs_shape" if len(shapes) > 1 else "experts_shape"
    with pytest.raises(ValueError, match=f"`{name}` must be a shape.*{name}="):
        SoftmaxGate().build(*shapes)


class Own(HeatedGate):
    """A gate that returns what a function makes of its weights."""

    def __init__(self, change, **kwargs):
        super().__init__(**kwargs)
        self.change = change

    def compute_weights(self, inputs, training, step):
        return self.change(super().compute_weights(inputs, training, step))


@pytest.mark.backend_independent
@pytest.mark.parametrize("features", [None, 3])
@pytest.mark.parametrize(
    ("change", "received"),
    [
        (lambda routing: routing.weights, ""),
        (lambda routing: Routing(routing.weights[..., :2]), r"weights of shape \("),
        (lambda routing: Routing(routing.weights[0]), r"weights of shape \("),
        (lambda routing: Routing(routing.weights[None]), r"weights of shape \("),
    ],
    ids=["tensor", "experts", "few axes", "many axes"],
)
def test_what_is_no_routing_of_the_gate_is_refused(change, received, features):
    gate = built(Own(change, num_gates=2), 3, features)
    axes = r"\(2, 3\)" if features is None else r"\(batch, 2, 3\)"
    text = rf"Own.compute_weights must .* shape {axes}. Received: {received}"
    x = None if features is None else numbers((5, 3))
    for use in (gate.route, gate.report, gate.expert_weights):
        with pytest.raises(ValueError, match=text):
            use(x)


def test_negative_weights_are_refused_where_a_user_reads_them():
    gate = built(Own(lambda routing: Routing(-routing.weights)), 2)
    with pytest.raises(ValueError, match=r"that are not negative\. Received: -0\.5"):
        gate.expert_weights()


@pytest.mark.backend_independent
def test_experts_in_the_place_of_routing_inputs_are_refused():
    x, experts = numbers((5, 3)), numbers((5, 4, 2))
    for second in (experts, [experts[:, i] for i in range(4)]):
        with pytest.raises(
            ValueError, match=r"come first, gate\(experts, routing_inputs"
        ):
            SoftmaxGate()(x, second)
