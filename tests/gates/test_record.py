"""A record has what each call of a gate has routed and mixed, and ends."""

import threading

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from helpers import numbers, numpy
from keras import ops

import dselectk_keras as dk
from dselectk_keras.gates.record import recording

X = numbers((5, 3))


def mixture_layer(**settings):
    bank = dk.DenseExperts(4, [2], "tanh")
    layer = dk.MMoE(bank, dk.TopKGate(2), 3, True, stacked=True, **settings)
    layer.build(X.shape)
    return layer


def test_a_layer_records_logits_experts_and_mixture_of_a_call():
    layer, calls = mixture_layer(), []
    with recording(calls.append):
        outputs = layer(X, training=True)
    (call,) = calls
    assert call.gate is layer.gate
    logits = np.einsum("bd,dgn->bgn", X, numpy(layer.gate.weights[0]).reshape(3, 3, 4))
    assert_close(call.routing.logits, logits, rtol=1e-5, atol=1e-6)
    assert_equal(call.experts, layer.experts(X))
    assert_equal(call.mixture, outputs)
    by_hand = np.einsum(
        "bgn,bnu->bgu", *map(numpy, (call.routing.weights, call.experts))
    )
    assert_close(call.mixture, by_hand, rtol=1e-5, atol=1e-6)


def test_dispatched_and_merged_experts_have_no_outputs_for_all_examples():
    calls, x = [], X
    smear = dk.SmearExperts(dk.DenseExperts(2, [3]), dk.SoftmaxGate())
    with recording(calls.append):
        outputs = [mixture_layer(dispatch=True)(x), smear(x)]
    assert [call.experts for call in calls] == [None, None]
    for call, output in zip(calls, outputs, strict=True):
        assert_equal(call.mixture, output)


@pytest.mark.backend_independent
def test_a_record_ends_also_by_an_error_and_an_inner_one_goes_first():
    layer, outer, inner = mixture_layer(), [], []
    with recording(outer.append):
        with recording(inner.append):
            layer(X)
        assert (len(outer), len(inner)) == (0, 1)
        layer(X)
    with pytest.raises(ValueError, match="stop"), recording(outer.append):
        raise ValueError("stop")
    layer(X)
    assert (len(outer), len(inner)) == (1, 1)


@pytest.mark.backend_independent
def test_another_thread_is_not_recorded():
    layer, calls = mixture_layer(), []
    layer(X)
    with recording(calls.append):
        thread = threading.Thread(target=lambda: layer(X))
        thread.start()
        thread.join()
    assert calls == []


class FromRecord(keras.Model):
    """Learns from the outputs of single experts, and from the router's logits."""

    def __init__(self):
        super().__init__()
        self.mixed = mixture_layer()

    def call(self, x, training=False):
        calls = []
        with recording(calls.append):
            self.mixed(x, training=training)
        logs = ops.log_softmax(calls[0].routing.logits)
        return -ops.einsum("bgn,bnu->bg", logs, calls[0].experts)


@pytest.mark.traced
def test_a_compiled_step_learns_from_its_own_record():
    model = FromRecord()
    before = [numpy(weight) for weight in model.mixed.trainable_weights]
    model.compile("sgd", lambda y, found: ops.mean(found, axis=-1), jit_compile=False)
    y = np.zeros((5, 3), "float32")
    expected = numpy(model(X)).mean()
    assert_close(model.train_on_batch(X, y), expected, rtol=1e-4)
    after = model.mixed.trainable_weights
    assert all((numpy(b) != a).any() for a, b in zip(before, after, strict=True))
    model.predict(X, verbose=0)
