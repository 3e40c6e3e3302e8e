"""A compiled step on JAX copies nothing between host and device."""

import keras
import numpy as np
import pytest
from accelerators.parts import data, every_part
from keras import ops

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="Only JAX can forbid copies."
)


def test_a_compiled_step_copies_nothing_to_or_from_the_host():
    import jax

    model, _ = every_part()

    def loss(trained, others, x):
        outputs, others, losses = model.stateless_call(
            trained, others, x, training=True, return_losses=True
        )
        return ops.mean(ops.square(outputs - 1.0)) + sum(losses), others

    def step(trained, *rest):
        (value, others), gradients = jax.value_and_grad(loss, has_aux=True)(
            trained, *rest
        )
        moved = jax.tree.map(lambda v, g: v - 1e-3 * g, trained, gradients)
        return value, moved, others

    state = [
        [variable.value for variable in variables]
        for variables in (model.trainable_variables, model.non_trainable_variables)
    ]
    x = jax.device_put(data(8))
    traced = jax.jit(step).trace(*state, x)
    assert "callback" not in str(traced.jaxpr)
    options = {
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
    }
    compiled = traced.lower().compile(compiler_options=options)
    values = []
    with jax.transfer_guard("disallow"):
        for _ in range(3):
            value, *state = compiled(*state, x)
            values.append(value)
    assert np.isfinite(values).all()
    assert values[2] < values[0]
