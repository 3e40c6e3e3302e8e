"""What an optimizer keeps from before a decision does not undo it."""

import keras
import numpy as np
import pytest
from checks import assert_equal

import dselectk_keras as dk


class Look(keras.callbacks.Callback):
    """Notes the experts of each task right after the decision."""

    first = None

    def on_epoch_begin(self, epoch, logs=None):
        if self.first is None and gate_of(self.model).has_decided:
            self.first = experts(self.model)


def gate_of(model):
    return model.get_layer("mmoe").gate


def experts(model):
    return np.sort(gate_of(model).chosen_experts().choices, axis=-1)


def check_that_choices_stay(gate, optimizer, seed, decide, epochs):
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(64, 3)), rng.normal(size=(64, 4))
    model = dk.build_multitask_model(3, list("abcd"), gate=gate)
    model.compile(optimizer)
    look = Look()
    model.fit(x, y, 16, epochs, verbose=0, callbacks=[decide, look])
    assert_equal(experts(model), look.first)


@pytest.mark.parametrize(
    ("name", "settings", "seed"),
    [
        ("SGD", {"learning_rate": 10.0, "momentum": 0.95}, 1),
        ("Adam", {}, 0),
        ("Adam", {"use_ema": True, "ema_momentum": 0.5}, 3),
        # Its step computes the variable from a slot alone.
        ("Ftrl", {"learning_rate": 1.0}, 0),
        # Selectors that have decided get no gradient, and still decay.
        ("AdamW", {"weight_decay": 5.0}, 2),
    ],
)
def test_an_optimizer_does_not_undo_the_decision(name, settings, seed):
    optimizer = getattr(keras.optimizers, name)(**{"learning_rate": 0.1, **settings})
    gate = dk.DSelectKGate(2, gamma=1.0)
    check_that_choices_stay(gate, optimizer, seed, dk.DecideGates(0.1), 10)


def test_neither_mixed_precision_nor_momentum_undoes_the_decision():
    adam = keras.optimizers.Adam(0.1)
    optimizer = keras.optimizers.LossScaleOptimizer(adam, initial_scale=8.0)
    gate = dk.DSelectKGate(2, gamma=1.0)
    check_that_choices_stay(gate, optimizer, 0, dk.DecideGates(0.1), 10)
    gate = dk.SoftmaxSelectorGate(2, temperature=dk.Ramp(1e-2, 1e-16, end=80))
    adam = keras.optimizers.Adam(0.01)
    check_that_choices_stay(gate, adam, 0, dk.DecideGates(0.5), 20)
