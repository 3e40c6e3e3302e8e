import numpy as np
import pytest
from checks import assert_close, assert_equal, dtype_of
from helpers import gradient, numbers, numpy, refusals
from keras import ops

from dselectk_keras.ops import smooth_step

LARGEST = float(np.finfo("float32").max)


def test_values_by_hand():
    x = [-9.0, -0.5, -0.25, 0.0, 0.25, 0.5, 9.0]
    wanted = [0.0, 0.0, 0.15625, 0.5, 0.84375, 1.0, 1.0]
    assert_equal(smooth_step(x), wanted)
    for gamma in (3.0, 2e-7):
        found = numpy(smooth_step(np.multiply(x, gamma), gamma))
        assert_close(found, wanted, atol=1e-6)
    gamma = ops.convert_to_tensor(np.float32(2.0))
    assert float(smooth_step(0.5, gamma)) == 0.84375


@pytest.mark.parametrize("gamma", [1e-3, 0.1, 1.0, 7.0])
def test_value_and_derivative_follow_the_cubic(gamma):
    x = np.linspace(-0.7, 0.7, 141) * gamma
    inside = np.abs(x) < gamma / 2
    cubic = -2 / gamma**3 * x**3 + 3 / (2 * gamma) * x + 0.5
    slope = -6 / gamma**3 * x**2 + 3 / (2 * gamma)
    assert_close(smooth_step(x, gamma), np.where(inside, cubic, x > 0), atol=2e-6)
    found = gradient(lambda x: smooth_step(x, gamma), x)
    assert_close(found * gamma, np.where(inside, slope, 0) * gamma, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("gamma", [1e-4, 0.1, 1.0, 3.3, 1e4])
def test_no_rounding_leads_out_of_the_unit_interval(dtype, gamma):
    x = np.concatenate([numbers(20_000) * gamma, np.array([-0.5, 0.5]) * gamma])
    value = smooth_step(ops.cast(x, dtype), gamma)
    assert dtype_of(value) == "float32"
    assert 0 <= numpy(value).min() <= numpy(value).max() <= 1


@pytest.mark.parametrize("gamma", [1e-30, 0.1, 1.0, 10.0])
def test_huge_inputs_end_at_a_bound_and_gradients_are_finite_at_every_scale(gamma):
    x = np.array([-LARGEST, -1e30, -1e6, 1e6, 1e30, LARGEST])
    assert_equal(smooth_step(x, gamma), x > 0)
    assert_equal(gradient(lambda x: smooth_step(x, gamma), x), 0)
    x = np.concatenate([numbers(100, scale=10.0**e) for e in range(-30, 30, 3)])
    assert np.isfinite(gradient(smooth_step, x)).all()


REFUSED = "`gamma` must be a finite number above 0. Received: gamma={}"
test_a_width_that_is_no_positive_number_is_refused = refusals(
    *(
        (smooth_step, REFUSED.format(gamma), (0.5, gamma))
        for gamma in (0, -1.0, float("nan"), float("inf"))
    )
)
