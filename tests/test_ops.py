"""Equations: values, gradients and bounds, by hand or against the formula in NumPy."""

import itertools
import math
import warnings
from functools import partial

import helpers
import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal, dtype_of
from helpers import gradient, model_of, numbers, numpy, refusals
from keras import ops

from dselectk_keras.ops import (
    binary_codes,
    choose_by_fit,
    coefficient_of_variation,
    entropy,
    first_largest,
    gumbel_noise,
    keep_largest,
    keep_top_k,
    mix,
    relaxed_bernoulli,
    selector_product,
    smooth_step,
    softmax,
    top_k_probability,
    unstack,
)

# Softmax.

INF = float("inf")


@pytest.mark.parametrize("temperature", [None, 0.7])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_follows_the_formula(axis, temperature):
    logits = numbers((2, 3, 4))
    wanted = helpers.softmax(logits / (temperature or 1), axis)
    assert_close(softmax(logits, temperature, axis), wanted, rtol=1e-5)


def test_an_axis_of_length_one_gives_ones_without_a_warning_or_gradient():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = softmax([[1.0], [-1e30]])
    assert_equal(weights, [[1], [1]])
    assert_equal(gradient(softmax, np.array([[1.0], [-1e30]])), 0)


def test_infinite_and_huge_logits_have_finite_values_and_gradients():
    logits = np.array([1.0, -np.inf, 1.0])
    assert_equal(softmax(logits), [0.5, 0, 0.5])
    upstream = [[1.0], [2.0], [3.0]]
    found = gradient(lambda v: ops.matmul(softmax(v)[None], upstream), logits)
    assert_close(found, [-0.5, 0, 0.5], rtol=1e-6)
    largest = float(np.finfo("float32").max)
    logits = np.array([-largest, 1e30, largest])
    assert_equal(softmax(logits), [0, 0, 1])
    assert np.isfinite(gradient(lambda v: softmax(v)[..., 0], logits)).all()


@pytest.mark.parametrize(
    ("logits", "wanted"),
    [
        ([1.0, 1.0000001, 0.0], [0, 1, 0]),
        ([2.0, 2.0, 1.0], [0.5, 0.5, 0]),
        ([0.0, 0.0, 0.0, 0.0], [0.25] * 4),
        ([1e30, -1e30, 1e29], [1, 0, 0]),
        ([-INF, 0.0, -INF], [0, 1, 0]),
        ([3.0], [1]),
    ],
)
@pytest.mark.parametrize("temperature", [1e-16, 0.0])
def test_the_coldest_is_hard_and_finite(logits, wanted, temperature):
    assert_close(softmax(logits, temperature), wanted, rtol=1e-6)


def slope(logits, temperature):
    upstream = ops.convert_to_tensor(numbers((len(logits),)))
    return gradient(lambda v: softmax(v, temperature) * upstream, np.array(logits))


def test_the_gradient_follows_the_formula_and_is_none_for_cold_logits_that_differ():
    p = numpy(softmax([0.1, -0.2, 0.5], 0.5))
    u = numbers((3,))
    assert_close(slope([0.1, -0.2, 0.5], 0.5), p * (u - (p * u).sum()) / 0.5, atol=1e-6)
    assert_equal(slope([0.1, -0.2, 0.1000001], 1e-16), 0)


@pytest.mark.parametrize("logits", [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1e30, 1e30, 0]])
def test_cold_ties_have_a_finite_gradient_that_parts_them(logits):
    found = slope(logits, 1e-16)
    assert np.isfinite(found).all()
    # Adam squares it.
    assert np.isfinite(np.square(found)).all()
    order = np.argsort(numbers((3,))[: sum(v == max(logits) for v in logits)])
    assert (np.diff(found[order]) > 0).all()


# The first largest.


def test_one_entry_of_each_row_is_the_largest_and_none_of_a_row_with_nan():
    x = numbers((5, 3, 6))
    found = numpy(first_largest(x))
    assert found.dtype == bool
    assert_equal(found, np.eye(6)[x.argmax(axis=-1)] == 1)
    rows = [[1, 3, 3], [2, 2, 2], [-INF, -INF, -INF], [0, INF, INF], [-0.0, 0.0, -1]]
    found = numpy(first_largest(np.array(rows, "float32"))).argmax(axis=-1)
    assert_equal(found, [1, 0, 0, 1, 0])
    assert not numpy(first_largest([1.0, float("nan"), 2.0])).any()
    found = gradient(lambda x: ops.cast(first_largest(x), "float32") + x, [1.0, 2.0])
    assert_equal(found, [1, 1])


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool", "float16"])
def test_entries_of_any_type_are_compared(dtype):
    x = np.array([[1, 0, 1], [0, 0, 0]], dtype)
    assert_equal(numpy(first_largest(x)).argmax(axis=-1), [0, 0])
    assert numpy(first_largest(x)).sum() == 2


# The k largest logits.


@pytest.mark.parametrize("k", [1, 2, 8, 9])  # From 9 on, they are sorted.
def test_of_equal_logits_the_first_are_kept(k):
    kept = numpy(keep_top_k(np.zeros((2, 12)), k)) == 0
    assert_equal(kept, [np.arange(12) < k] * 2)


@pytest.mark.parametrize("k", [1, 8, 9, 12])
def test_a_row_with_nan_gives_nan(k):
    logits = np.zeros((2, 12), "float32")
    logits[0, 3] = np.nan
    found = np.isnan(numpy(softmax(keep_top_k(logits, k))))
    assert_equal(found, [[True] * 12, [False] * 12])


@pytest.mark.parametrize("k", [1, 2, 10, 12, 20])
def test_every_row_keeps_its_own(k):
    logits = numbers((2, 3, 12))
    kept = numpy(keep_top_k(logits, k))
    smallest = np.sort(logits, axis=-1)[..., -min(k, 12), None]
    assert_equal(kept, np.where(logits >= smallest, logits, -INF))


# The k largest weights.

WEIGHTS = [[0.1, 0.6, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25]]


@pytest.mark.parametrize(
    ("k", "wanted"),
    [
        (1, [[0, 1, 0, 0], [1, 0, 0, 0]]),
        (2, [[0, 0.75, 0.25, 0], [0.5, 0.5, 0, 0]]),
        (4, WEIGHTS),
        (9, WEIGHTS),
    ],
)
def test_weights_kept_by_hand(k, wanted):
    assert_close(keep_largest(WEIGHTS, k), wanted, rtol=1e-6)
    # There may be fewer positive weights than k.
    assert_equal(keep_largest([0.0, 1.0, 0.0], k + 1), [0, 1, 0])


def test_gradient_of_kept_weights_by_hand():
    upstream = ops.convert_to_tensor([1.0, 3.0, 7.0])
    found = gradient(lambda w: keep_largest(w, 2) * upstream, [0.5, 0.25, 0.25])
    # The weights kept are (2/3, 1/3), with the mean 5/3, of a sum of 3/4.
    assert_close(found, np.array([1 - 5 / 3, 3 - 5 / 3, 0]) / 0.75, rtol=1e-5)


# The probability to be among the k largest.


def by_sorting(logits, noisy, scale, k):
    """Leave each expert out, sort the others, and read the normal distribution."""
    result = np.empty(logits.shape)
    for index in np.ndindex(logits.shape):
        *row, i = index
        others = np.sort(np.delete(noisy[tuple(row)], i))
        score = (logits[index] - others[-k]) / scale[index]
        result[index] = 0.5 * (1 + math.erf(score / math.sqrt(2)))
    return result


@pytest.fixture
def draw():
    logits = numbers((3, 2, 5)).astype("float64")
    scale = 0.5 + np.abs(numbers(logits.shape, seed=1))
    return logits, logits + scale * numbers(logits.shape, seed=2), scale


@pytest.mark.parametrize("k", [1, 2, 4])
def test_probabilities_follow_the_formula(draw, k):
    assert_close(top_k_probability(*draw, k), by_sorting(*draw, k), atol=1e-6)


@pytest.mark.parametrize("k", [3, 4])
def test_equal_noisy_logits_share_the_threshold_and_all_that_are_kept_are_certain(k):
    assert_equal(top_k_probability([1.0, 2, 3], [1.0, 2, 3], [1.0, 1, 1], k), 1)
    assert_equal(top_k_probability([1.0] * 3, [1.0] * 3, [1.0] * 3, k=2), [0.5] * 3)


def test_the_gradient_of_a_probability_raises_the_logit():
    logits, noisy = np.array([0.0, 1.0]), np.array([0.5, 0.2])
    found, *_ = gradient(partial(top_k_probability, k=1), logits, noisy, np.ones(2))
    density = np.exp(-0.5 * np.square([0.0 - 0.2, 1.0 - 0.5])) / math.sqrt(2 * math.pi)
    assert_close(found, density, rtol=1e-5)


def test_without_noise_values_and_gradients_are_finite_and_equal_logits_have_none():
    logits = np.array([1.0, 2.0, 3.0])
    found = gradient(partial(top_k_probability, k=1), logits, logits, np.zeros(3))
    assert np.isfinite(found).all()
    given = np.array([1.0, 1.0, 3.0]), np.array([1.0, 1.0, 3.0]), np.zeros(3)
    assert_equal(top_k_probability(*given, k=2), [0.5, 0.5, 1.0])
    assert_equal(np.array(gradient(partial(top_k_probability, k=2), *given)), 0)


# Binary codes.


@pytest.mark.parametrize("num_experts", [1, 2, 9])
def test_codes_are_the_numbers_of_the_experts(num_experts):
    codes = binary_codes(num_experts)
    num_bits = codes.shape[1]
    assert codes.dtype == bool
    assert num_bits == np.ceil(np.log2(num_experts))
    places = 2 ** np.arange(num_bits)[::-1]
    assert (codes @ places).tolist() == list(range(num_experts))


# The smooth step.

LARGEST = float(np.finfo("float32").max)


def test_steps_by_hand():
    x = [-9.0, -0.5, -0.25, 0.0, 0.25, 0.5, 9.0]
    wanted = [0.0, 0.0, 0.15625, 0.5, 0.84375, 1.0, 1.0]
    assert_equal(smooth_step(x), wanted)
    for gamma in (3.0, 2e-7):
        found = numpy(smooth_step(np.multiply(x, gamma), gamma))
        assert_close(found, wanted, atol=1e-6)
    gamma = ops.convert_to_tensor(np.float32(2.0))
    assert float(smooth_step(0.5, gamma)) == 0.84375


@pytest.mark.parametrize("gamma", [0.1, 7.0])
def test_a_step_and_its_derivative_follow_the_cubic(gamma):
    x = np.linspace(-0.7, 0.7, 141) * gamma
    inside = np.abs(x) < gamma / 2
    cubic = -2 / gamma**3 * x**3 + 3 / (2 * gamma) * x + 0.5
    slope = -6 / gamma**3 * x**2 + 3 / (2 * gamma)
    assert_close(smooth_step(x, gamma), np.where(inside, cubic, x > 0), atol=2e-6)
    found = gradient(lambda x: smooth_step(x, gamma), x)
    assert_close(found * gamma, np.where(inside, slope, 0) * gamma, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("gamma", [1e-4, 3.3, 1e4])
def test_no_rounding_leads_out_of_the_unit_interval(dtype, gamma):
    x = np.concatenate([numbers(20_000) * gamma, np.array([-0.5, 0.5]) * gamma])
    value = smooth_step(ops.cast(x, dtype), gamma)
    assert dtype_of(value) == "float32"
    assert 0 <= numpy(value).min() <= numpy(value).max() <= 1


@pytest.mark.parametrize("gamma", [1e-30, 1.0])
def test_huge_inputs_end_at_a_bound_and_gradients_are_finite_at_every_scale(gamma):
    x = np.array([-LARGEST, -1e30, -1e6, 1e6, 1e30, LARGEST])
    assert_equal(smooth_step(x, gamma), x > 0)
    assert_equal(gradient(lambda x: smooth_step(x, gamma), x), 0)
    x = np.concatenate([numbers(100, scale=10.0**e) for e in range(-30, 30, 3)])
    assert np.isfinite(gradient(smooth_step, x)).all()


# Selectors of one expert.


def selectors_by_codes(bits, num_experts):
    """The product over all bits of all codes, in float64."""
    bits = np.asarray(bits, "float64")[..., None, :]
    return np.where(binary_codes(num_experts), bits, 1 - bits).prod(axis=-1)


def gradient_by_bits(bits, num_experts, upstream):
    """A selector is linear in each bit: the difference of its values at 1 and 0."""
    result = np.zeros_like(bits)
    for j, bit in enumerate(np.eye(bits.shape[-1], dtype=bool)):
        one, zero = np.where(bit, 1, bits), np.where(bit, 0, bits)
        by_bit = selectors_by_codes(one, num_experts)
        by_bit -= selectors_by_codes(zero, num_experts)
        result[..., j] = by_bit @ upstream
    return result


@pytest.mark.parametrize("num_experts", [2, 3, 20])
def test_selectors_follow_the_formula(num_experts):
    num_bits = binary_codes(num_experts).shape[1]
    bits = np.random.default_rng(0).uniform(size=(4, 3, num_bits))
    found = numpy(selector_product(bits, num_experts))
    assert_close(found, selectors_by_codes(bits, num_experts), atol=1e-6)


@pytest.mark.parametrize("num_experts", [6, 8])
def test_the_gradient_of_bits_is_exact_also_where_they_are_binary(num_experts):
    num_bits = binary_codes(num_experts).shape[1]
    bits = np.array(list(itertools.product([0.0, 0.3, 1.0], repeat=num_bits)))
    upstream = np.random.default_rng(0).normal(size=num_experts)
    column = upstream[:, None].astype("float32")
    found = gradient(
        lambda bits: ops.matmul(selector_product(bits, num_experts), column), bits
    )
    assert_close(found, gradient_by_bits(bits, num_experts, upstream), atol=1e-6)


def test_one_expert_needs_no_bits():
    assert_equal(selector_product(np.zeros((5, 0)), num_experts=1), np.ones((5, 1)))


# Entropy.


def test_entropies_by_hand_along_the_axes_asked_for():
    p = [[0.5, 0.5, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.25, 0]]
    assert_close(entropy(p, epsilon=0.0), np.log(2) * np.array([1, 2, 1.5]), rtol=1e-6)
    p = np.array([0.1, 0.9])
    wanted = -(p * np.log(p + 0.01)).sum()
    assert_close(float(entropy(p, epsilon=0.01)), wanted, rtol=1e-5)
    assert float(entropy([0.0, 1.0, 0.0], epsilon=0.0)) == 0.0
    assert -2e-6 < float(entropy([0.0, 1.0, 0.0])) < 0.0
    p = np.array([0.5, 0.5], "float16")
    assert_close(float(entropy(p)), np.log(2), rtol=1e-5)
    p = np.random.default_rng(0).uniform(size=(2, 3, 4))
    for axis in (0, 1, (1, 2)):
        wanted = -(p * np.log(p + 1e-6)).sum(axis=axis)
        assert_close(entropy(p, axis=axis), wanted, rtol=1e-5)


def test_the_gradient_of_the_entropy_follows_the_formula():
    p = np.array([1e-3, 0.2, 0.5, 1.0])
    wanted = -np.log(p + 1e-6) - p / (p + 1e-6)
    assert_close(gradient(entropy, p), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
def test_the_gradient_of_the_entropy_is_finite_at_the_corners(epsilon):
    p = np.array([0.0, 1.0, 1e-30, 1e-45])
    assert np.isfinite(gradient(lambda p: entropy(p, epsilon=epsilon), p)).all()


# Coefficient of variation.


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_variation_along_any_axis(axis):
    x = np.random.default_rng(0).uniform(size=(3, 4, 5))
    found = numpy(coefficient_of_variation(x, axis=axis))
    assert_close(found, x.std(axis) / x.mean(axis), rtol=1e-5)


def test_the_gradient_of_the_variation_follows_the_formula():
    x = np.array([1.0, 2.0, 6.0])
    n, mean, std = len(x), x.mean(), x.std()
    wanted = (x - mean) / (n * std * mean) - std / (n * mean**2)
    assert_close(gradient(coefficient_of_variation, x), wanted, rtol=1e-5)


@pytest.mark.parametrize("x", [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [7.0]])
def test_perfect_balance_has_no_gradient(x):
    assert float(coefficient_of_variation(x)) == 0.0
    assert_equal(gradient(coefficient_of_variation, np.array(x)), 0)


# Gumbel noise.


def draw_always(u, monkeypatch):
    def always(shape, **_):
        return ops.full(shape, u, "float32")

    monkeypatch.setattr(keras.random, "uniform", always)


@pytest.mark.parametrize(("u", "wanted"), [(0.0, -2.811), (1.0, 16.636)])
def test_gumbel_noise_is_finite_at_the_ends(monkeypatch, u, wanted):
    draw_always(u, monkeypatch)
    assert_close(gumbel_noise((2,), seed=0), wanted, atol=1e-3)


# Relaxed draws.

Z = np.linspace(-3, 3, 7, dtype="float32")


def test_relaxed_draws_by_hand(monkeypatch):
    draw_always(0.75, monkeypatch)
    # log(0.75 / 0.25) = log 3: sigmoid(log 3 / 2) is sqrt(3) / (1 + sqrt(3)).
    found = numpy(relaxed_bernoulli([0.0, -np.log(3.0)], 2.0, seed=0))
    assert_close(found, [3**0.5 / (1 + 3**0.5), 0.5], rtol=1e-6)


@pytest.mark.parametrize("temperature", [2.0, 0.5])
def test_the_gradient_is_that_of_the_draw(temperature):
    draws = numpy(relaxed_bernoulli(Z, temperature, seed=4))
    found = gradient(lambda z: relaxed_bernoulli(z, temperature, seed=4), Z)
    assert_close(found, draws * (1 - draws) / temperature, atol=1e-5)
    assert (found > 0).all()


@pytest.mark.parametrize("u", [0.0, 1.0])
@pytest.mark.parametrize("temperature", [1.0, 1e-16])
def test_relaxed_draws_are_finite_at_the_ends(monkeypatch, u, temperature):
    draw_always(u, monkeypatch)
    assert_close(relaxed_bernoulli(Z, temperature, seed=0), u, atol=1e-4)
    slope = gradient(lambda z: relaxed_bernoulli(z, temperature, seed=0), Z)
    assert np.isfinite(slope).all()


# Mixtures.

BATCH, N = 4, 5


every_shape = pytest.mark.parametrize(
    ("trailing", "gates", "per_example"),
    [
        (*shapes, per_example)
        for shapes in [((), ()), ((), (4,)), ((3,), (1,)), ((2, 1, 3), (4,))]
        for per_example in (False, True)
    ],
)


@every_shape
def test_mixtures_follow_the_formula_also_of_shapes_not_known_yet(
    trailing, gates, per_example
):
    experts = numbers((BATCH, N, *trailing))
    weights = numbers((*[BATCH] * per_example, *gates, N), seed=1)
    g = "g" * len(gates)
    formula = f"{'b' * per_example}{g}n,bn...->b{g}..."
    found = numpy(mix(experts, weights, per_example))
    assert_close(found, np.einsum(formula, weights, experts), rtol=1e-5, atol=1e-5)
    experts = keras.Input((N, *trailing))
    weights = keras.Input((*gates, N)) if per_example else ops.ones((*gates, N)) / N
    assert mix(experts, weights, per_example).shape == (None, *gates, *trailing)


@pytest.mark.parametrize("per_example", [False, True])
def test_gradients_of_mixtures_are_the_transposed_products(per_example):
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


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("per_example", [False, True])
def test_the_mixture_has_the_dtype_of_the_experts_and_float64_is_not_rounded(
    dtype, per_example
):
    if (keras.backend.backend(), dtype) == ("jax", "float64"):
        pytest.skip("JAX has no float64 by default.")
    experts = ops.convert_to_tensor(np.full((BATCH, N, 2), 1 / 3), dtype)
    for gates in ((), (4,)):
        weights = np.full((*[BATCH] * per_example, *gates, N), 1 / N)
        weights = ops.cast(weights, "float32" if dtype == "float16" else dtype)
        found = mix(experts, weights, per_example)
        assert dtype_of(found) == dtype
        assert_close(found, 1 / 3, rtol=3 * np.finfo(dtype).eps)


def test_trailing_axes_of_unknown_length():
    model = model_of(keras.layers.Lambda(lambda x: mix(x, np.eye(N))), N, None, 3)
    experts = numbers((BATCH, N, 7, 3))
    assert_close(model(experts), experts, rtol=1e-6)


def test_integers_are_mixed_in_float32():
    experts = np.array([[[1], [4]]])
    for given in (experts, [experts[:, 0], experts[:, 1]]):
        assert_close(mix(given, [0.75, 0.25]), [[1.75]])


@pytest.mark.parametrize("per_example", [False, True])
def test_a_list_of_experts_is_mixed_like_their_stack(per_example):
    experts = numbers((BATCH, N, 3))
    weights = numbers((BATCH, 2, N) if per_example else (2, N), seed=1)
    given = [experts[:, i] for i in range(N)]
    wanted = mix(experts, weights, per_example)
    for each in (given, tuple(given)):
        assert_equal(mix(each, weights, per_example), wanted)


@pytest.mark.traced
def test_compiled_mixtures_of_sums_equal_the_formula():
    # JAX 0.10.2 makes one wrong sum of the two (see `pyproject.toml`).
    def mixture(x):
        return mix(ops.sum(x, axis=-1, keepdims=True), ops.full((16, 4), 0.25))

    x = numbers((256, 4, 4))
    found = model_of(mixture, 4, 4).predict(x, batch_size=256, verbose=0)
    expected = np.repeat(0.25 * x.sum(axis=(1, 2))[:, None, None], 16, axis=1)
    assert_close(found, expected, rtol=1e-4, atol=1e-4)


# Slices.


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_slices_are_those_of_numpy(axis):
    x = numbers((2, 3, 4))
    assert_equal(list(unstack(x, axis)), list(np.moveaxis(x, axis, 0)))


# Experts that fit labels best: against regressions by hand, and in edge cases.


def explained(units, labels, ridge=0.0):
    """The variance of labels that a ridge regression explains."""
    x = units.reshape(len(units), -1)
    x, y = x - x.mean(0), labels - labels.mean(0)
    gram = x.T @ x / len(x) + ridge * np.eye(x.shape[1])
    b = x.T @ y / len(x)
    return np.sum(b * np.linalg.solve(gram, b))


def drawn(samples=60, n=5, units=2, tasks=3, seed=0):
    rng = np.random.default_rng(seed)
    # Experts are correlated, so that the second choice depends on the first one.
    base = rng.normal(size=(samples, 1, units))
    outputs = base + rng.normal(size=(samples, n, units))
    return outputs, rng.normal(size=(samples, tasks))


def test_each_expert_explains_most_beside_those_chosen_before():
    units, labels = drawn()
    chosen = choose_by_fit(units, labels, k=3, ridge=0.0)
    images = np.repeat(units, 2, axis=2).reshape(60, 5, 2, 2)
    assert_equal(choose_by_fit(images, labels, k=3), chosen)
    for task, own in enumerate(chosen):
        for place in range(3):
            gains = [
                explained(units[:, [*own[:place], expert]], labels[:, [task]])
                if expert not in own[:place]
                else -1.0
                for expert in range(5)
            ]
            assert own[place] == np.argmax(gains)


def test_the_ridge_is_a_multiple_of_the_mean_variance():
    # With one unit each: b^2 / (v + r mean(v)), with v = (4, 1) and b = (1.2, 0.8).
    x = np.array([[2.0, 1.0], [-2.0, 1.0], [2.0, -1.0], [-2.0, -1.0]])[:, :, None]
    labels = (0.6 * x[:, 0] / 2 + 0.8 * x[:, 1]).reshape(-1, 1)
    # 1.44 / (4 + 2.5 r) against 0.64 / (1 + 2.5 r).
    for ridge, expert in ((0.01, 1), (0.5, 1), (0.8, 0), (10.0, 0)):
        assert choose_by_fit(x, labels, 1, ridge=ridge).tolist() == [[expert]]
        assert choose_by_fit(9 * x, labels, 1, ridge=ridge).tolist() == [[expert]]


def test_units_have_the_mean_of_the_weights_of_a_task():
    # Weights (1, 1, 1/2, 1/2): variances 2 and 3. Weights of 1 would give 5/2 for both.
    x = np.array([[1.0, 2.0], [-1.0, -2.0], [2.0, 1.0], [-2.0, -1.0]])[:, :, None]
    y = np.array([[1.1, 0.0], [-1.1, 0.0], [1.0, np.nan], [-1.0, np.nan]])
    # Covariances of 1.55 and 1.6 with the first column.
    assert choose_by_fit(x, y, 1, ridge=0.0, tasks=[0, 0]).tolist() == [[0]]


def test_missing_labels_and_weights_of_zero_count_as_absent():
    units, labels = drawn()
    some = np.arange(60) % 3 > 0
    gone = np.where(some[:, None], labels, np.nan)
    wanted = choose_by_fit(units[some], labels[some], k=2)
    assert_equal(choose_by_fit(units, gone, k=2), wanted)
    weights = np.repeat(some[:, None], 3, axis=1)
    assert_equal(choose_by_fit(units, 1e3 * labels, k=2, weights=weights), wanted)


def test_a_weight_of_two_counts_as_two_examples():
    units, labels = drawn()
    twice = np.arange(60) < 20
    weights = np.repeat(1.0 + twice[:, None], 3, axis=1)
    rows = np.r_[np.arange(60), np.arange(20)]
    found = choose_by_fit(units, labels, k=3, weights=weights)
    assert_equal(found, choose_by_fit(units[rows], labels[rows], k=3))


def test_columns_of_a_task_are_explained_together():
    units, _ = drawn(seed=2)
    # Expert 1 explains most of the column that varies, and 3 all of the other one.
    labels = np.stack([10 * units[:, 1, 0], units[:, 3, 0], units[:, 4, 1]], axis=1)
    assert choose_by_fit(units, labels, 1, tasks=[0, 0, 1]).tolist() == [[1], [4]]
    assert sorted(choose_by_fit(units, labels, 3, tasks=[0, 0, 0])[0]) == [1, 3, 4]


def test_experts_that_a_task_has_anyway_come_last_and_count():
    units, labels = drawn()
    found = choose_by_fit(units, labels, k=2, always=1, ridge=0.0)
    assert (found[:, 1] == 4).all()
    for task, (own, last) in enumerate(found):
        gains = [explained(units[:, [e, last]], labels[:, [task]]) for e in range(4)]
        assert own == np.argmax(gains)


def test_constant_labels_dead_experts_and_no_labels_give_some_experts():
    units, labels = drawn()
    units[:, 2] = 0.0
    labels[:, 0], labels[:, 1] = 1.0, np.nan
    found = choose_by_fit(units, labels, k=3, ridge=0.0)
    assert all(len({*own}) == 3 for own in found.tolist())
    assert 2 not in found[2]
    assert all(len({*own}) == 3 for own in choose_by_fit(0 * units, labels, 3).tolist())


def spoiled(array):
    return np.where(np.arange(60).reshape(-1, *[1] * (array.ndim - 1)) == 7, INF, array)


UNITS, LABELS = drawn()
FIT = partial(choose_by_fit, UNITS, LABELS)
SAMPLES = r"same number of samples, at least one, .* Received: \("
TASKS = "all from 0 to the largest. Received: .* tasks="
test_wrong_settings_are_refused = refusals(
    (partial(keep_top_k, [1.0, 2.0]), "`k` must be a positive integer", 0),
    (partial(keep_largest, [0.5, 0.5]), "`k` must be a positive integer", 0),
    (binary_codes, "`num_experts` must be a positive integer", 0),
    (
        partial(smooth_step, 0.5),
        "`gamma` must be a finite number above 0. Received: gamma=",
        *(0, float("nan")),
    ),
    (mix, "each of 3 experts. Received: 2 w", ([np.ones((4, 3))] * 3, np.ones(2))),
    (selector_product, "2 bits have codes for at most 4 experts", ([0.5, 0.5], 5)),
    (FIT, "`k` must be at most 5", 6),
    (FIT, "`k` must be an integer >= 3", {"k": 2, "always": 2}),
    (FIT, "`ridge` must be a finite number at least 0", {"k": 2, "ridge": -1.0}),
    (FIT, "`always` must be an integer >= 0", {"k": 2, "always": -1}),
    (choose_by_fit, SAMPLES, (UNITS, LABELS[:, 0], 2), (UNITS, LABELS[1:], 2)),
    (choose_by_fit, SAMPLES, (UNITS[:, 0, 0], LABELS, 2), (UNITS[:0], LABELS[:0], 2)),
    (FIT, SAMPLES, {"k": 2, "weights": np.ones(60)}),
    (FIT, "`weights` .*0 or more", {"k": 2, "weights": -np.ones((60, 3))}),
    (FIT, TASKS, *({"k": 2, "tasks": t} for t in ([0, 2, 2], [0, 1], [0.5, 1, 2]))),
    (FIT, TASKS, {"k": 2, "tasks": [-1, 0, 1]}),
    (choose_by_fit, r"`outputs` .*finite.* 1 rows, \[7\]", (spoiled(UNITS), LABELS, 2)),
    (choose_by_fit, r"`labels` .*finite.* 1 rows, \[7\]", (UNITS, spoiled(LABELS), 2)),
)
