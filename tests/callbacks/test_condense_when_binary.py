"""Training drops the experts that no task uses, and goes on."""

import keras
import numpy as np
import pytest
from helpers import numbers, numpy

from dselectk_keras import (
    CondenseWhenBinary,
    DenseExperts,
    DSelectKGate,
    GateRecorder,
    MoE,
    TopKGate,
    build_multitask_model,
)
from dselectk_keras.models import condense

X, Y = numbers((32, 3)), numbers((32, 2), seed=1)


def make():
    model = build_multitask_model(
        3, 2, experts=DenseExperts(8, [4]), gate=DSelectKGate(1, entropy_reg=0.01)
    )
    model.compile(keras.optimizers.SGD(0.05))
    return model


def decide(model):
    weights = np.zeros((2, 8))
    weights[0, 2] = weights[1, 5] = 1.0
    model.get_layer("mmoe").gate.assign_expert_weights(weights)


class Decide(keras.callbacks.Callback):
    """Decides for the gates at the end of the first epoch."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 0:
            decide(self.model)


def test_fit_goes_on_with_the_experts_that_are_left(capsys):
    plain, model = make(), make()
    decide(plain)
    model.set_weights(plain.get_weights())
    callback = CondenseWhenBinary()
    arguments = {"batch_size": 16, "epochs": 4, "shuffle": False, "verbose": 0}
    wanted = plain.fit(X, Y, validation_data=(X, Y), **arguments).history
    found = model.fit(
        X, Y, validation_data=(X, Y), callbacks=[callback], **arguments
    ).history
    assert callback.epoch == 0
    (report,) = callback.reports
    assert (report.layer, report.kept) == ("mmoe", [2, 5])
    assert report.dropped == [0, 1, 3, 4, 6, 7]
    assert model.get_layer("mmoe").experts.num_experts == 2
    for name in ("task_loss", "val_task_loss"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4)
    assert "mmoe keeps 2 of 8 experts" in capsys.readouterr().out


def test_nothing_happens_before_all_have_decided():
    model, callback = make(), CondenseWhenBinary(verbose=0)
    model.fit(X, Y, epochs=1, verbose=0, callbacks=[callback])
    assert (callback.epoch, callback.reports) == (None, [])
    assert model.get_layer("mmoe").experts.num_experts == 8


def test_the_recorder_keeps_the_places_of_the_experts(tmp_path):
    model, recorder = make(), GateRecorder(every=1)
    callbacks = [recorder, Decide(), CondenseWhenBinary(verbose=0)]
    model.fit(X, Y, batch_size=16, epochs=3, verbose=0, callbacks=callbacks)
    record = recorder.history["mmoe"]
    assert record["weights"].shape[1:] == (2, 8)
    assert record["weights"][-1].argmax(axis=1).tolist() == [2, 5]
    assert {len(values) for values in record.values()} == {len(recorder.history.steps)}
    np.testing.assert_array_equal(record["binary"][-1], 1)

    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for name, value in model(X).items():
        np.testing.assert_array_equal(numpy(again(X)[name]), numpy(value))


@pytest.mark.backend_independent
@pytest.mark.parametrize("part", ["experts", "gate"])
def test_what_layers_share_is_refused_before_training(part):
    inputs = keras.Input((3,))
    bank, gate = DenseExperts(4, [3]), TopKGate(2)
    first = MoE(bank, gate, name="first")
    own = {"experts": DenseExperts(4, [3]), "gate": TopKGate(2)}
    second = MoE(**{**own, part: getattr(first, part)}, name="second")
    model = keras.Model(inputs, second(first(inputs)))
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=f"{part!r}.* shared by first, second"):
        model.fit(X, X, verbose=0, callbacks=[CondenseWhenBinary()])
    with pytest.raises(ValueError, match="share experts or a gate"):
        condense(model)
