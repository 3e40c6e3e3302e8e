"""A model whose towers read the experts of a learned gate side by side."""

import keras
from keras import ops

from dselectk_keras import MMoE, MultitaskModel
from dselectk_keras.gates.record import record_call
from dselectk_keras.models.towers import add_towers


class Apart(MMoE):
    """Experts side by side, each times its weight, for a gate that learns its choice.

    A tower has a place for each of the n experts. Experts without a weight are zeros
    there, so that serving a task takes k of them.
    """

    def combine(self, inputs, router_inputs, training):
        """Map `(batch, features)` to `(batch, tasks, n * units)`."""
        outputs = self.experts(inputs, training=training)
        routing = self.gate.route(router_inputs, training)
        placed = ops.expand_dims(outputs, 1) * ops.expand_dims(routing.weights, -1)
        n, units = placed.shape[-2:]
        mixture = ops.reshape(placed, (-1, len(self.task_names), n * units))
        record_call(self.gate, routing, outputs, mixture)
        return mixture


def build_apart(num_inputs, tasks, experts, gate, **options):
    """Build a multi-task model whose towers read experts side by side."""
    inputs = keras.Input((num_inputs,))
    layer = Apart(experts, gate, len(tasks), stacked=True, name="mmoe")
    outputs = add_towers(layer(inputs), tasks, stacked=True)
    return MultitaskModel(inputs, outputs, tasks=tasks, **options)
