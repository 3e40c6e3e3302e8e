"""A compiled step on JAX copies nothing between host and device."""

import numpy as np
import pytest
from accelerators.parts import data, every_part
from helpers import QUICK_FOR_JAX
from keras import ops

pytestmark = pytest.mark.backends("jax", reason="Only JAX can forbid copies.")


def test_a_compiled_step_copies_nothing_to_or_from_the_host():
    import jax

    model, _ = every_part()

    settings = {"training": True, "return_losses": True}

    def loss(*given):
        outputs, others, losses = model.stateless_call(*given, **settings)
        return ops.mean(ops.square(outputs - 1.0)) + sum(losses), others

    def step(trained, *rest):
        differentiate = jax.value_and_grad(loss, has_aux=True)
        (value, others), gradients = differentiate(trained, *rest)
        moved = jax.tree.map(lambda v, g: v - 1e-3 * g, trained, gradients)
        return value, moved, others

    groups = model.trainable_variables, model.non_trainable_variables
    state = [[variable.value for variable in group] for group in groups]
    x = jax.device_put(data(8))
    traced = jax.jit(step).trace(*state, x)
    assert "callback" not in str(traced.jaxpr)
    compiled = traced.lower().compile(compiler_options=QUICK_FOR_JAX)
    values = []
    with jax.transfer_guard("disallow"):
        for _ in range(3):
            value, *state = compiled(*state, x)
            values.append(value)
    assert np.isfinite(values).all()
    assert values[2] < values[0]
