"""Gates that look for the experts that made the labels: one problem for each seed."""

import keras
import numpy as np
from keras import ops

from dselectk_keras.batches import Batches
from dselectk_keras.callbacks import GateRecorder
from dselectk_keras.datasets import expert_recovery
from dselectk_keras.gates import DSelectKGate, TopKGate
from dselectk_keras.replicate import replicate

K = 4  # The experts that made the labels, and as many may a gate use.
USED = 0.01  # A smaller weight is none.


class Problems:
    """A problem of expert recovery for each seed, all trained in one model.

    The experts and the logistic unit are frozen: the experts' outputs are computed
    once, and are the model's input. A seed decides experts, labels and the start.
    """

    def __init__(self, seeds, num_train, num_validation):
        self.seeds = list(seeds)
        sizes = {"num_train": num_train, "num_validation": num_validation}
        each = [expert_recovery(num_test=1, seed=seed, **sizes) for seed in seeds]
        self.train = _beside([_seen(data.train, data.info) for data in each])
        self.validation = _beside([_seen(data.validation, data.info) for data in each])
        self.true_experts = [data.info["true_experts"] for data in each]
        self.units = [
            np.stack([np.ravel(data.info[name]) for data in each])
            for name in ("logistic_kernel", "logistic_bias")
        ]

    def top_k(self, learning_rate, start=0.05, noise=False):
        """A compiled model with Top-k gates, whose logits start in ±`start`."""
        gate = TopKGate(K, noise=noise, num_gates=len(self.seeds))
        return self._model(gate, [start, 0.0] if noise else [start], learning_rate)

    def dselect_k(self, learning_rate, gamma, entropy):
        """A compiled model with DSelect-k gates."""
        count = len(self.seeds)
        gate = DSelectKGate(K, gamma=gamma, entropy_reg=entropy, num_gates=count)
        return self._model(gate, [gamma / 100, 0.05], learning_rate)

    def search(self, build, settings, **length):
        """For each problem what `_judge` gives for each of a list of settings."""
        runs = replicate(
            lambda seed, **setting: build(**setting),  # noqa: ARG005
            self.train,
            seeds=[0] * len(settings),
            settings={name: [s[name] for s in settings] for name in settings[0]},
            verbose=0,
            **length,
        )
        judged = [self._judge(runs.copies[i].model) for i in range(len(settings))]
        return [[each[i] for each in judged] for i in range(len(self.seeds))]

    def follow(self, model, *, epochs, batch_size):
        """What `_judge` gives, with the weights after every step of training."""
        recorder = GateRecorder(every=1)
        batches = Batches(self.train, batch_size)
        options = {"epochs": epochs, "shuffle": False, "verbose": 0}
        model.fit(batches, callbacks=[recorder], **options)
        (name,) = recorder.history.tasks
        weights, steps = recorder.history[name]["weights"], recorder.history.steps
        return [
            judged | {"steps": steps, "weights": weights[:, i]}
            for i, judged in enumerate(self._judge(model))
        ]

    def _model(self, gate, limits, learning_rate):
        """A model that starts in the same place whatever is trained beside it."""
        layer = Recover(gate)
        inputs = keras.Input(self.train[0].shape[1:])
        model = keras.Model(inputs, layer(inputs))
        pairs = zip(gate.trainable_weights, limits, strict=True)
        for i, (variable, limit) in enumerate(pairs):
            variable.assign(self._draw(i, limit, variable.shape[1:]))
        layer.kernel.assign(self.units[0])
        layer.bias.assign(self.units[1][:, 0])
        layer.kernel.trainable = layer.bias.trainable = False
        model.compile(keras.optimizers.Adam(learning_rate), _summed)
        return model

    def _draw(self, number, limit, shape):
        rngs = [np.random.default_rng((seed, number)) for seed in self.seeds]
        return np.stack([rng.uniform(-limit, limit, tuple(shape)) for rng in rngs])

    def _judge(self, model):
        """What each gate has found, its validation loss, and whether it is binary."""
        layer = model.get_layer("recover")
        weights = ops.convert_to_numpy(layer.gate.expert_weights())
        x, y = self.validation
        kernel, bias = (ops.convert_to_numpy(v) for v in (layer.kernel, layer.bias))
        # With NumPy: a program for each setting would take longer to compile.
        logits = np.einsum("bngu,gn,gu->bg", x, weights, kernel, optimize=True) + bias
        # The cross-entropy of logits, without overflow.
        losses = (np.logaddexp(0.0, logits) - y * logits).mean(axis=0)
        decided = (layer.gate.chosen_experts().distance == 0).all(axis=1)
        return [
            {
                **recovered(weights[i], true),
                "loss": float(f"{losses[i]:.4g}"),
                "admissible": bool(decided[i]),
                "true_experts": list(true),
            }
            for i, true in enumerate(self.true_experts)
        ]


class Recover(keras.layers.Layer):
    """For each problem a gate over its experts, and a logistic unit on the mixture."""

    def __init__(self, gate):
        super().__init__(name="recover")
        self.gate = gate

    def build(self, shape):
        """Create the variables, for inputs (batch, experts, problems, units)."""
        self.gate.build(shape)
        self.kernel = self.add_weight(shape=shape[2:], name="unit_kernel")
        zeros = {"initializer": "zeros", "name": "unit_bias"}
        self.bias = self.add_weight(shape=shape[2:3], **zeros)

    def call(self, experts, training=None):
        """The logits of each problem's labels."""
        weights = self.gate.route(training=training).weights
        mixtures = ops.einsum("bngu,gn->bgu", experts, weights)
        return ops.sum(mixtures * self.kernel, axis=-1) + self.bias


def recovered(weights, true_experts):
    """How many true experts a gate has `"found"`, and how many `"others"` it uses.

    An expert is used if its weight exceeds `USED`. A true expert is found if it is used
    and has one of the `K` largest weights.
    """
    used = {int(expert) for expert in np.flatnonzero(weights > USED)}
    largest = {int(expert) for expert in np.argsort(-weights, kind="stable")[:K]}
    true = set(true_experts)
    return {"found": len(used & largest & true), "others": len(used - true)}


def _seen(split, info):
    """What the frozen experts give, and the labels."""
    hidden = np.einsum("bd,ndu->bnu", split.x, info["kernels"]) + info["biases"]
    return np.maximum(hidden, 0.0).astype("float32"), split.y


def _beside(pairs):
    """Experts' outputs (batch, experts, problems, units), labels (batch, problems)."""
    x, y = zip(*pairs, strict=True)
    return np.stack(x, axis=2), np.concatenate(y, axis=1)


def _summed(y, logits):
    """The sum of the problems' losses, for each example."""
    losses = ops.binary_crossentropy(y, logits, from_logits=True)
    return ops.sum(losses, axis=-1)
