"""Quantization is Keras' own: banks refuse it, and models keep them in float32."""

import keras
import numpy as np
import pytest
from checks import assert_equal
from helpers import numbers, numpy

from dselectk_keras import DenseExperts, MoE, TopKGate
from dselectk_keras.baselines import TuckerExperts

X = numbers((8, 16))


@pytest.mark.backend_independent
@pytest.mark.parametrize("bank", [DenseExperts, TuckerExperts])
def test_a_bank_refuses_to_be_quantized(bank):
    experts = bank(6, 5)
    outputs = numpy(experts(X))
    with pytest.raises(NotImplementedError, match="quantize"):
        experts.quantize("int8")
    assert_equal(experts(X), outputs)


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
def test_a_quantized_model_keeps_its_banks_in_float32():
    inputs = keras.Input((16,))
    hidden = keras.layers.Dense(16)(inputs)
    model = keras.Model(inputs, MoE(DenseExperts(6, 5), TopKGate(2))(hidden))
    with pytest.warns(UserWarning, match="Layer DenseExperts"):
        model.quantize("int8")
    assert model.layers[1].kernel.dtype == "int8"
    assert {weight.dtype for weight in model.layers[-1].experts.weights} == {"float32"}
    assert np.isfinite(numpy(model(X))).all()
