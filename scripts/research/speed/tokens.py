"""A layer of experts for the tokens of sequences, and what others compute."""

import dataclasses
import math

import keras
import numpy as np
from keras import ops

from dselectk_keras.experts import DenseExperts
from dselectk_keras.gates import TopKGate
from dselectk_keras.layers import MoE

CAPACITY = 1.25


@dataclasses.dataclass(frozen=True)
class TokenWorkload:
    """A feed-forward network of a Transformer, with experts."""

    num_experts: int
    title: str = "tokens of a Transformer, Top-2"
    width: int = 128  # Of a token.
    units: int = 512  # Of an expert.
    num_nonzeros: int = 2  # Experts that a token chooses.
    length: int = 256  # Tokens of a sequence.
    batch_size: int = 4  # Sequences in a step.

    forms = ("bank", "dispatched", "capacity", "batched product", "one-hot", "FFN")

    def small(self):
        """The same with short sequences and narrow experts, to see that forms agree."""
        return dataclasses.replace(self, length=16, width=32, units=64)

    def data(self, num_steps=1, seed=0):
        """Random tokens, and a function of them to learn, for some steps."""
        rng = np.random.default_rng(seed)
        shape = (num_steps * self.batch_size, self.length, self.width)
        x = rng.standard_normal(shape, "float32")
        mixing = rng.standard_normal((self.width, self.width), "float32")
        return x, np.tanh(x @ mixing / np.sqrt(self.width))[:, None]

    def model(self, form, seed=0):
        """A compiled model of a form."""
        keras.utils.set_random_seed(seed)
        x = keras.Input((self.length, self.width))
        model = keras.Model(x, {"task_0": self._layer(form)(x)})
        model.compile(keras.optimizers.Adam(), {"task_0": "mse"})
        return model

    def _layer(self, form):
        if form == "FFN":
            return keras.Sequential(
                [
                    keras.layers.Dense(self.num_nonzeros * self.units, "relu"),
                    keras.layers.Dense(self.width),
                ],
                name="moe",
            )
        units, activations = [self.units, self.width], ["relu", None]
        bank = DenseExperts(self.num_experts, units, activations)
        gate = TopKGate(self.num_nonzeros, kernel_initializer="glorot_uniform")
        if form in ("batched product", "one-hot"):
            tokens = self.batch_size * self.length
            share = CAPACITY * tokens * self.num_nonzeros / self.num_experts
            slots = math.ceil(share) if form == "one-hot" else None
            return OtherMixture(bank, gate, slots, name="moe")
        dispatch = {"bank": False, "dispatched": True, "capacity": CAPACITY}[form]
        return MoE(bank, gate, True, dispatch=dispatch, name="moe")

    def differences(self):
        """The largest difference of each form to what it must equal."""
        x, _ = self.data()
        models = {form: self.model(form) for form in self.forms[:-1]}
        source = models["bank"].get_layer("moe")
        outputs = {}
        for form, model in models.items():
            layer = model.get_layer("moe")
            layer.experts.set_weights(source.experts.get_weights())
            layer.gate.set_weights(source.gate.get_weights())
            outputs[form] = model.predict_on_batch(x)["task_0"]
        wanted = {
            "dispatched": "bank",
            "batched product": "bank",
            "one-hot": "capacity",
        }
        return {
            form: float(np.abs(outputs[form] - outputs[equal]).max())
            for form, equal in wanted.items()
        }

    def products(self, form):
        """Operations of the products for a sequence: the first layers, and the rest."""
        evaluated = {
            "bank": self.num_experts,
            "batched product": self.num_experts,
            "capacity": CAPACITY * self.num_nonzeros,
            "one-hot": CAPACITY * self.num_nonzeros,
        }.get(form, self.num_nonzeros)
        layer = 2 * self.width * self.units * evaluated
        gate = 0 if form == "FFN" else 2 * self.width * self.num_experts
        mixture = 0 if form == "FFN" else 2 * self.width * self.num_nonzeros
        if form in ("bank", "batched product"):
            mixture = 2 * self.width * self.num_experts
        if form == "one-hot":
            # Both products with the table of tokens by slots.
            slots = CAPACITY * self.num_nonzeros * self.batch_size * self.length
            mixture = 4 * self.width * slots
        return [self.length * each for each in (layer, layer, gate, mixture)]


@keras.saving.register_keras_serializable(package="dselectk_keras.benchmark")
class OtherMixture(keras.layers.Layer):
    """The same mixture as others compute it, with the experts and the gate of `MoE`.

    Either one batched product of all tokens with all experts, as in the Mixtral block
    of KerasHub; or products with a one-hot table of tokens by experts by slots, as in
    GShard and in recipes after it, if the number of slots is given.
    """

    def __init__(self, experts, gate, slots=None, **kwargs):
        super().__init__(**kwargs)
        self.experts = experts
        self.gate = gate
        self.slots = slots

    def build(self, shape):
        """Build the experts and the gate."""
        flat = (None, shape[-1])
        self.experts.build(flat)
        self.gate.build((None, self.experts.num_experts), flat)

    def call(self, inputs, training=None):
        """Mix."""
        x = ops.reshape(inputs, (-1, inputs.shape[-1]))
        weights = self.gate.route(x, training).weights
        if self.slots:
            used = ops.cast(weights > 0, "int32")
            places = ops.cumsum(used, axis=0) * used - 1
            places = ops.where(places < self.slots, places, -1)
            table = ops.one_hot(places, self.slots)  # Zeros where it is -1.
            outputs = self._evaluate(ops.einsum("tnc,td->ncd", table, x))
            table = table * ops.expand_dims(weights, -1)
            mixture = ops.einsum("tnc,ncd->td", table, outputs)
        else:
            outputs = self._evaluate(ops.expand_dims(x, 0))
            mixture = ops.einsum("tn,ntd->td", weights, outputs)
        return ops.reshape(mixture, ops.shape(inputs))

    def _evaluate(self, x):
        kernel_0, bias_0, kernel_1, bias_1 = self.experts.parameters()
        hidden = ops.relu(ops.matmul(x, kernel_0) + bias_0[:, None])
        return ops.matmul(hidden, kernel_1) + bias_1[:, None]


TOKEN_WORKLOADS = {f"W5-tokens-{n}": TokenWorkload(n) for n in (8, 32, 64)}
