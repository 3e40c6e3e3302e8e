import numpy as np
import pytest
from gate_cases import Case
from helpers import numbers, numpy, value_and_gradients
from keras import ops

from dselectk_keras import ImportanceRegularizer, Ramp, TopKGate

CASES = [
    Case(
        "top-k",
        lambda **kwargs: TopKGate(2, use_bias=True, **kwargs),
        sparse_gradient=True,
    ),
    Case(
        "noisy top-k",
        lambda **kwargs: TopKGate(2, noise=True, **{"seed": 1, **kwargs}),
        sparse_gradient=True,
        training_only=("noise",),
    ),
    Case(
        "top-k with load",
        lambda **kwargs: TopKGate(
            2,
            noise=True,
            load_reg=Ramp(0.1, 0.2, end=9),
            weights_regularizer=ImportanceRegularizer(0.1, squared=True),
            **kwargs,
        ),
        penalties=("load", "weights"),
        sparse_gradient=True,
        training_only=("noise",),
    ),
]


N, BATCH, DIM = 5, 64, 4


def built(num_nonzeros=2, *, per_example=False, **settings):
    gate = TopKGate(num_nonzeros, **settings)
    gate.build((None, N), (None, DIM) if per_example else None)
    return gate


def test_weights_by_hand():
    gate = built(2)
    gate.set_weights([np.log([1.0, 3.0, 0.5, 1.0, 0.1])])
    np.testing.assert_allclose(
        numpy(gate.expert_weights()), [0.25, 0.75, 0, 0, 0], rtol=1e-5
    )


@pytest.mark.parametrize("num_nonzeros", [1, 2, N])
def test_every_example_keeps_exactly_k(num_nonzeros):
    gate = built(num_nonzeros, per_example=True)
    weights = numpy(gate.expert_weights(numbers((BATCH, DIM))))
    np.testing.assert_array_equal((weights > 0).sum(axis=1), num_nonzeros)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)


def test_equal_logits_still_keep_exactly_k():
    gate = built(2, kernel_initializer="zeros")
    np.testing.assert_array_equal(numpy(gate.expert_weights()), [0.5, 0.5, 0, 0, 0])


def test_dropped_logits_get_no_gradient():
    gate = built(2)
    gate.set_weights([numbers((N,))])
    experts = numbers((BATCH, N, 3))
    _, (found,) = value_and_gradients(
        lambda: [ops.sum(gate(experts) ** 2)], gate.trainable_variables
    )
    np.testing.assert_array_equal(found != 0, numpy(gate.expert_weights()) > 0)


def test_noise_is_there_in_training_only():
    gate = built(2, per_example=True, noise=True, seed=0)
    quiet = built(2, per_example=True)
    gate.set_weights([numbers(w.shape) for w in gate.trainable_weights])
    quiet.set_weights(gate.get_weights()[:1])
    inputs = (numbers((BATCH, N, 3)), numbers((BATCH, DIM)))
    wanted = numpy(quiet(inputs))
    np.testing.assert_array_equal(numpy(gate(inputs, training=False)), wanted)
    noisy = [numpy(gate(inputs, training=True)) for _ in range(2)]
    assert not np.allclose(noisy[0], wanted)
    assert not np.allclose(noisy[0], noisy[1])


def test_the_noise_starts_at_softplus_of_zero():
    gate = built(N, per_example=True, noise=True, kernel_initializer="zeros", seed=0)
    weights = gate.weigh_experts(numbers((5000, DIM)), training=True)
    # Equal logits and nothing dropped: the log weights differ by the noise alone.
    first, second, *_ = np.log(numpy(weights)).T
    spread = (first - second) / np.sqrt(2)
    np.testing.assert_allclose(spread.std(), np.log(2), rtol=0.03)
    np.testing.assert_allclose(spread.mean(), 0, atol=0.02)


def test_one_seed_gives_the_same_noise():
    experts = numbers((BATCH, N, 3))
    outputs = []
    for seed in (3, 3, 4):
        gate = built(2, noise=True, seed=seed)
        gate.set_weights([numbers((N,)), numbers((N,), seed=1)])
        outputs.append(numpy(gate(experts, training=True)))
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert not np.allclose(outputs[0], outputs[2])


def test_the_load_of_equal_logits_is_balanced():
    gate = built(
        2, per_example=True, noise=True, load_reg=1.0, kernel_initializer="zeros"
    )
    gate((numbers((4096, N, 1)), numbers((4096, DIM))), training=True)
    assert 0 < numpy(gate.losses[0]) < 0.01


def test_the_load_of_one_favourite_is_not():
    gate = built(1, noise=True, load_reg=0.5)
    gate.set_weights([np.array([50.0, 0, 0, 0, 0]), np.zeros(N)])
    gate(numbers((BATCH, N, 1)), training=True)
    # All on one of n: the squared coefficient of variation is n - 1.
    np.testing.assert_allclose(numpy(gate.losses[0]), 0.5 * (N - 1), rtol=1e-5)


def test_more_nonzeros_than_experts_are_refused():
    with pytest.raises(ValueError, match=r"must not exceed the 5 experts.*nonzeros=6"):
        built(6)


def test_a_load_without_noise_is_refused():
    with pytest.raises(ValueError, match="needs noise=True"):
        TopKGate(2, load_reg=0.1)
