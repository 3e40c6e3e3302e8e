"""The base class serves a gate of one's own."""

import keras
import pytest
from helpers import numbers, numpy
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


@pytest.mark.parametrize("shapes", [(5,), ({"a": 3},), ((None, 4), 3)])
def test_what_is_no_shape_is_refused_by_name(shapes):
    name = "routing_inputs_shape" if len(shapes) > 1 else "experts_shape"
    with pytest.raises(ValueError, match=f"`{name}` must be a shape.*{name}="):
        SoftmaxGate().build(*shapes)
