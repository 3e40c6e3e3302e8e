from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from gate_cases import Case
from helpers import built, numbers, numpy, refusals, softmax, weight_gradients
from keras import ops

from dselectk_keras import Ramp
from dselectk_keras.baselines import STGumbelGate
from dselectk_keras.ops import gumbel_noise

MAKE = partial(STGumbelGate, temperature=Ramp(2.0, 0.5, end=9))
CASES = [Case("straight-through Gumbel", MAKE, training_only=("gate",))]
N, SEED = 4, 3


def gumbel(logits=None, *, routing=None, **settings):
    weights = None if logits is None else [np.asarray(logits, "float32")]
    return built(STGumbelGate(seed=SEED, **settings), N, routing, weights)


def noisy(logits):
    """The logits with the noise of the first training call."""
    generator = keras.random.SeedGenerator(SEED)
    return logits + numpy(gumbel_noise(np.shape(logits), generator))


@pytest.mark.parametrize("temperature", [5.0, 1.0, 1e-16])
def test_training_gives_one_to_the_largest_noisy_logit(temperature):
    logits = numbers((500, N))
    gate = gumbel(logits, num_gates=500, temperature=temperature)
    found = numpy(gate.route(training=True).weights)
    assert_equal(found, np.eye(N)[noisy(logits).argmax(axis=-1)])
    assert (found.argmax(axis=-1) != logits.argmax(axis=-1)).mean() > 0.2


def test_the_gradient_is_that_of_the_relaxed_weight():
    logits, tau = numbers((50, N)), 0.7
    gate = gumbel(logits, num_gates=50, temperature=tau)
    upstream = numbers((50, N), seed=1)
    (found,) = weight_gradients(
        gate, lambda: ops.sum(ops.multiply(gate.route(training=True).weights, upstream))
    )
    p = softmax(noisy(logits) / tau)
    chosen = np.eye(N)[p.argmax(axis=-1)]
    p_j, u_j = ((x * chosen).sum(-1, keepdims=True) for x in (p, upstream))
    assert_close(found, u_j * p_j * (chosen - p) / tau, atol=1e-5)
    assert (found != 0).all()


@pytest.mark.parametrize("logits", [[0.0, -1, -2, -3], [0, 0, 0, 0], [-1, 2, 0, 1]])
def test_inference_has_no_noise(logits):
    assert_equal(gumbel(logits).expert_weights(), np.eye(N)[np.argmax(logits)])


def test_every_example_draws_for_itself_and_a_static_gate_for_all():
    experts = np.tile(np.eye(N, dtype="float32"), (200, 1, 1))
    per_example = gumbel(np.zeros((3, N)), routing=3)
    found = numpy(per_example((experts, numbers((200, 3))), training=True))
    assert len(np.unique(found, axis=0)) == N
    static = numpy(gumbel(np.zeros(N))(experts, training=True))
    assert len(np.unique(static, axis=0)) == 1


test_temperatures_that_cannot_be_are_refused = refusals(
    *(
        (
            STGumbelGate,
            f"`temperature` must be {wanted}.*Received: temperature={value}",
            {"temperature": value},
        )
        for wanted, values in [
            (".* above 0", (0, -1.0)),
            ("a finite", (np.inf, np.nan)),
        ]
        for value in values
    )
)
