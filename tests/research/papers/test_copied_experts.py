"""The form of SMEAR's Appendix B computes what `MoE` does."""

import dataclasses

import keras
import numpy as np
import pytest
from helpers import numbers, numpy

from research.engine import reproduce
from research.papers.smear import _routers
from research.papers.smear.fig2 import CHOOSING, Copied


@pytest.mark.parametrize("router", CHOOSING)
def test_copied_parameters_give_the_outputs_of_the_mixture(router):
    found, weights = {}, []
    for copied in (False, True):
        keras.utils.set_random_seed(0)
        shared = _routers.Adapters(3, 2, num_steps=1, copied=copied)
        inputs = _routers.inputs_of(router, "features", (4, 5))
        outputs = shared.apply(router, inputs, inputs["features"], 0)
        model = keras.Model(inputs, outputs)
        # The adapters start so small that all outputs would be alike.
        shapes = [weight.shape for weight in model.get_weights()]
        if copied:
            assert shapes == [weight.shape for weight in weights]
        else:
            weights = [
                numbers(weight.shape, seed=i)
                if np.issubdtype(weight.dtype, np.floating)
                else weight
                for i, weight in enumerate(model.get_weights())
            ]
        model.set_weights(weights)
        batch = {"features": numbers((6, 4, 5))}
        if key := _routers.ROUTED_BY.get(router):
            batch[key] = np.arange(6, dtype="int32")[:, None] % 3
        found[copied] = numpy(model(batch, training=False))
    assert np.abs(found[False]).max() > 0.1
    np.testing.assert_allclose(found[True], found[False], rtol=1e-4, atol=1e-5)


def test_the_copied_form_is_timed():
    tiny = dataclasses.replace(Copied.presets()["smoke"], seeds=1)
    results = reproduce(tiny, progress=False)
    assert results.complete
    assert all(run.numbers["ratio"] > 0 for run in results.runs)
