"""An optimizer's state from before a decision does not undo it."""

import keras
import numpy as np
import pytest
from checks import assert_close
from helpers import numpy

import dselectk_keras as dk


def gate_of(model):
    return model.get_layer("mmoe").gate


def small_model(optimizer, gate):
    model = dk.build_multitask_model(3, 1, experts=4, gate=gate)
    model.compile(optimizer)
    return model


def fit_without_gradients(model, *callbacks):
    """Train for four epochs of four steps in which all gradients are 0."""
    x, y, weights = np.ones((4, 3)), np.zeros((4, 1)), np.zeros(4)
    model.fit(x, y, 1, 4, verbose=0, sample_weight=weights, callbacks=callbacks)


def selectors_of_experts_0_and_3(optimizer):
    """Selectors at codes 0 and 3 with shares 0.02 and 0.98, nearly."""
    model = small_model(optimizer, dk.DSelectKGate(2))
    gate_of(model)._z.assign([[[[-0.5, -0.5]], [[0.5, 0.5]]]])
    gate_of(model).shares.assign([[[-2.0], [2.0]]])
    return model


class Push(keras.callbacks.Callback):
    """Gives the slots of the shares values, as earlier steps do."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            optimizer = self.model.optimizer
            optimizer = getattr(optimizer, "inner_optimizer", optimizer)
            shares = gate_of(self.model).shares.static
            for slot in optimizer.variables:
                if slot.shape == shares.shape:
                    sign = np.reshape([3.0, -3.0], shares.shape)
                    slot.assign(numpy(slot) + sign)


KEEPERS = {
    "averages": lambda: keras.optimizers.SGD(0.01, use_ema=True, ema_momentum=0.99),
    "averages that overwrite": lambda: keras.optimizers.SGD(
        0.01, use_ema=True, ema_momentum=0.99, ema_overwrite_frequency=3
    ),
    "momentum": lambda: keras.optimizers.SGD(0.01, momentum=0.9),
    "accumulation": lambda: keras.optimizers.SGD(0.01, gradient_accumulation_steps=3),
    "moments": lambda: keras.optimizers.Adam(0.01),
    "mixed precision": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.01, momentum=0.9), initial_scale=8.0
    ),
}


@pytest.mark.backend_independent
@pytest.mark.parametrize("make", KEEPERS.values(), ids=KEEPERS)
def test_the_shares_stay_as_they_were_decided(make):
    model = selectors_of_experts_0_and_3(make())
    decided = 1 / (1 + np.exp(4.0))
    fit_without_gradients(model, Push(), dk.DecideGates(0.25))
    weights = numpy(gate_of(model).expert_weights())
    assert_close(weights, [[decided, 0, 0, 1 - decided]], atol=1e-5)


@pytest.mark.backend_independent
@pytest.mark.parametrize("kind", ["averages", "momentum"])
def test_shares_of_chosen_experts_begin_anew(kind):
    model = small_model(
        KEEPERS[kind](), dk.ChosenGate(initial_choices=[[0, 1]], num_gates=1)
    )
    gate = gate_of(model)
    gate.shares.assign([[-2.0, 2.0]])

    class Choose(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            model = self.model
            if epoch == 1:
                gate_of(model).choose([[2, 3]], optimizer=model.optimizer)

    fit_without_gradients(model, Push(), Choose())
    assert_close(gate.shares.static, [[0.0, 0.0]], atol=1e-6)


def test_weights_that_a_user_assigns_within_a_training_stay():
    average = keras.optimizers.SGD(0.01, use_ema=True, ema_momentum=0.99)
    model = small_model(average, dk.SoftmaxGate())
    wanted = [[0.5, 0.25, 0.125, 0.125]]

    class Assign(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                optimizer = self.model.optimizer
                gate_of(self.model).assign_expert_weights(wanted, optimizer=optimizer)

    fit_without_gradients(model, Assign())
    assert_close(gate_of(model).expert_weights(), wanted, atol=1e-5)
