import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, dtype_of
from helpers import gradient, model_of, numbers, numpy
from keras import ops

from dselectk_keras.ops import mix

BATCH, N = 4, 5


@pytest.mark.parametrize("trailing", [(), (1,), (3,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("gates", [(), (1,), (4,)])
@pytest.mark.parametrize("per_example", [False, True])
class TestShapes:
    def test_values_follow_the_formula(self, trailing, gates, per_example):
        experts = numbers((BATCH, N, *trailing))
        weights = numbers((*[BATCH] * per_example, *gates, N), seed=1)
        g = "g" * len(gates)
        formula = f"{'b' * per_example}{g}n,bn...->b{g}..."
        found = numpy(mix(experts, weights, per_example))
        assert_close(found, np.einsum(formula, weights, experts), rtol=1e-5, atol=1e-5)
        assert found.shape == (BATCH, *gates, *trailing)

    def test_shapes_may_be_unknown_until_the_call(self, trailing, gates, per_example):
        experts = keras.Input((N, *trailing))
        weights = keras.Input((*gates, N)) if per_example else ops.ones((*gates, N)) / N
        assert mix(experts, weights, per_example).shape == (None, *gates, *trailing)


@pytest.mark.parametrize("per_example", [False, True])
def test_gradients_are_the_transposed_products(per_example):
    experts = numbers((BATCH, N, 3))
    weights = numbers((BATCH, N) if per_example else (N,), seed=1)
    upstream = numbers((BATCH, 3), seed=2)
    by_experts, by_weights = gradient(
        lambda *given: ops.multiply(mix(*given, per_example), upstream),
        *(experts, weights),
    )
    wanted = np.broadcast_to(weights, (BATCH, N))[:, :, None] * upstream[:, None]
    assert_close(by_experts, wanted, rtol=1e-5, atol=1e-6)
    per_row = np.einsum("bnd,bd->bn", experts, upstream)
    wanted = per_row if per_example else per_row.sum(axis=0)
    assert_close(by_weights, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gates", [(), (4,)])
@pytest.mark.parametrize("per_example", [False, True])
@pytest.mark.parametrize("trailing", [(), (3,)])
def test_float64_is_not_rounded(trailing, gates, per_example):
    if keras.backend.backend() == "jax":
        pytest.skip("JAX has no float64 by default.")
    experts = np.full((BATCH, N, *trailing), 1 / 3)
    weights = np.full((*[BATCH] * per_example, *gates, N), 1 / N)
    weights = ops.convert_to_tensor(weights, "float64")
    found = mix(ops.convert_to_tensor(experts, "float64"), weights, per_example)
    assert dtype_of(found) == "float64"
    assert_close(found, 1 / 3, rtol=1e-15)


@pytest.mark.parametrize("count", [2, 4])
def test_a_weight_too_few_or_too_many_is_an_error(count):
    experts = [np.ones((BATCH, 3), "float32")] * 3
    with pytest.raises(ValueError, match=f"each of 3 experts. Received: {count} w"):
        mix(experts, np.ones(count))


def test_trailing_axes_of_unknown_length():
    model = model_of(keras.layers.Lambda(lambda x: mix(x, np.eye(N))), N, None, 3)
    experts = numbers((BATCH, N, 7, 3))
    assert_close(model(experts), experts, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_mixture_has_the_dtype_of_the_experts(dtype):
    mixed = mix(ops.ones((BATCH, N, 2), dtype), ops.ones((N,), "float32"))
    assert dtype_of(mixed) == dtype


@pytest.mark.parametrize("is_list", [False, True], ids=["stacked", "list"])
def test_integers_are_mixed_in_float32(is_list):
    experts = np.array([[[1], [4]]])
    given = [experts[:, 0], experts[:, 1]] if is_list else experts
    assert_close(mix(given, [0.75, 0.25]), [[1.75]])


@pytest.mark.parametrize("per_example", [False, True])
def test_a_list_of_experts_is_mixed_like_their_stack(per_example):
    experts = numbers((BATCH, N, 3))
    weights = numbers((BATCH, 2, N) if per_example else (2, N), seed=1)
    given = [experts[:, i] for i in range(N)]
    assert_equal(*(mix(each, weights, per_example) for each in (given, experts)))


@pytest.mark.traced
def test_compiled_mixtures_of_sums_equal_the_formula():
    # JAX 0.10.2 makes one wrong sum of the two (see `pyproject.toml`).
    def mixture(x):
        return mix(ops.sum(x, axis=-1, keepdims=True), ops.full((16, 4), 0.25))

    x = numbers((256, 4, 4))
    found = model_of(mixture, 4, 4).predict(x, batch_size=256, verbose=0)
    expected = np.repeat(0.25 * x.sum(axis=(1, 2))[:, None, None], 16, axis=1)
    assert_close(found, expected, rtol=1e-4, atol=1e-4)
