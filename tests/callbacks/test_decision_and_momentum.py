"""Momentum from before a decision does not undo it."""

import keras
import numpy as np
import pytest

from dselectk_keras import DecideGates, DSelectKGate, build_multitask_model


class ChoicesAtDecision(keras.callbacks.Callback):
    """Notes the choices of the gate in the first epoch in which it has decided."""

    first = None

    def on_epoch_begin(self, epoch, logs=None):
        gate = self.model.get_layer("mmoe").gate
        if self.first is None and gate.has_decided:
            self.first = np.sort(gate.selection().choices, axis=-1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("optimizer", ["Adam", "SGD"])
def test_momentum_does_not_undo_the_decision(optimizer, seed):
    keras.utils.set_random_seed(seed)
    kwargs = {"momentum": 0.9} if optimizer == "SGD" else {}
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(64, 3)), rng.normal(size=(64, 4))
    model = build_multitask_model(3, list("abcd"), gate=DSelectKGate(2, gamma=1.0))
    model.compile(getattr(keras.optimizers, optimizer)(0.1, **kwargs))
    noted = ChoicesAtDecision()
    callbacks = [DecideGates(by=0.1), noted]
    model.fit(x, y, batch_size=16, epochs=10, verbose=0, callbacks=callbacks)
    choices = model.get_layer("mmoe").gate.selection().choices
    assert noted.first is not None
    np.testing.assert_array_equal(np.sort(choices, axis=-1), noted.first)
