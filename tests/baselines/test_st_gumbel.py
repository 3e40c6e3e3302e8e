import keras
import numpy as np
import pytest
from gate_cases import Case
from helpers import numbers, numpy, value_and_gradients
from keras import ops

from dselectk_keras import Ramp, STGumbelGate
from dselectk_keras.ops import gumbel_noise

CASES = [
    Case(
        "straight-through Gumbel",
        lambda **kwargs: STGumbelGate(temperature=Ramp(2.0, 0.5, end=9), **kwargs),
        training_only=("gate",),
    ),
]


N, SEED = 4, 3


def built(logits=None, *, routing=None, **settings):
    gate = STGumbelGate(seed=SEED, **settings)
    gate.build((None, N), (None, routing) if routing else None)
    if logits is not None:
        gate.set_weights([np.asarray(logits, "float32")])
    return gate


def noisy(logits):
    """The logits with the noise of the first training call."""
    generator = keras.random.SeedGenerator(SEED)
    return logits + numpy(gumbel_noise(np.shape(logits), generator))


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("temperature", [5.0, 1.0, 1e-16])
def test_training_gives_one_to_the_largest_noisy_logit(temperature):
    logits = numbers((500, N))
    gate = built(logits, num_gates=500, temperature=temperature)
    found = numpy(gate.route(training=True).weights)
    wanted = np.eye(N)[noisy(logits).argmax(axis=-1)]
    np.testing.assert_array_equal(found, wanted)
    assert (found.argmax(axis=-1) != logits.argmax(axis=-1)).mean() > 0.2


def test_the_gradient_is_that_of_the_relaxed_weight():
    logits, tau = numbers((50, N)), 0.7
    gate = built(logits, num_gates=50, temperature=tau)
    upstream = numbers((50, N), seed=1)
    _, (found,) = value_and_gradients(
        lambda: [
            ops.sum(gate.route(training=True).weights * ops.convert_to_tensor(upstream))
        ],
        gate.trainable_variables,
        [v for v in gate.variables if not v.trainable],
    )
    p = softmax(noisy(logits) / tau)
    chosen = np.eye(N)[p.argmax(axis=-1)]
    p_j, u_j = ((x * chosen).sum(-1, keepdims=True) for x in (p, upstream))
    np.testing.assert_allclose(found, u_j * p_j * (chosen - p) / tau, atol=1e-5)
    assert (found != 0).all()


@pytest.mark.parametrize("logits", [[0.0, -1, -2, -3], [0, 0, 0, 0], [-1, 2, 0, 1]])
def test_inference_has_no_noise(logits):
    weights = numpy(built(logits).expert_weights())
    np.testing.assert_array_equal(weights, np.eye(N)[np.argmax(logits)])


def test_draws_follow_the_softmax():
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    gate = built(np.tile(logits, (5000, 1)), num_gates=5000, temperature=0.5)
    found = numpy(gate.route(training=True).weights).mean(axis=0)
    np.testing.assert_allclose(found, [0.4, 0.3, 0.2, 0.1], atol=0.025)


def test_every_example_draws_for_itself_and_a_static_gate_for_all():
    experts = np.tile(np.eye(N, dtype="float32"), (200, 1, 1))
    per_example = built(np.zeros((3, N)), routing=3)
    found = numpy(per_example((experts, numbers((200, 3))), training=True))
    assert len(np.unique(found, axis=0)) == N
    static = numpy(built(np.zeros(N))(experts, training=True))
    assert len(np.unique(static, axis=0)) == 1


def test_a_batch_of_one():
    gate = built(routing=3)
    mixed = gate((numbers((1, N, 2)), numbers((1, 3))), training=True)
    assert mixed.shape == (1, 2)


def test_smears_schedule():
    schedule = STGumbelGate(temperature=Ramp(10.0, 0.5, end=2_995_732)).temperature
    for step in (0, 1000, 10**6, 2 * 10**6, 4 * 10**6):
        wanted = max(10 * np.exp(-1e-6 * step), 0.5)
        np.testing.assert_allclose(float(schedule(step)), wanted, rtol=1e-4)


@pytest.mark.parametrize("policy", ["float16", "bfloat16"])
def test_half_precision_draws_the_same(policy):
    logits = numbers((50, N))
    outputs = [
        numpy(built(logits, num_gates=50, dtype=dtype).route(training=True).weights)
        for dtype in (policy, "float32")
    ]
    np.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize(
    ("temperature", "wanted"),
    [
        (0, "positive"),
        (-1.0, "positive"),
        (np.inf, "a finite number"),
        (np.nan, "a finite number"),
    ],
)
def test_temperatures_that_cannot_be_are_refused(temperature, wanted):
    message = f"`temperature` must be {wanted}.*Received: temperature={temperature}"
    with pytest.raises(ValueError, match=message):
        STGumbelGate(temperature=temperature)


def test_a_bare_function_is_refused_at_saving():
    gate = built(temperature=lambda calls: 1.0 / (1.0 + calls))
    gate.route(training=True)
    with pytest.raises(ValueError, match="`temperature` is a function that is not"):
        gate.get_config()
