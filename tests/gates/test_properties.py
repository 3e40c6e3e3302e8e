"""Properties of every gate, whatever its inputs, its weights and its step."""

import keras
import numpy as np
import pytest
from checks import assert_close
from gate_cases import all_cases
from helpers import built, differentiated, gradient, numbers, numpy, spread
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from keras import ops

from dselectk_keras import DSelectKGate, Ramp
from dselectk_keras.gates.selector_gate import SelectorGate

BATCH, DIM, UNITS, EXPERTS = 4, 3, 2, 5
CASES = [case for case in all_cases() if "x" in case.looks]
LAST_STEP = 2**31 - 2
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
few = settings(max_examples=10, deadline=None, derandomize=True, database=None)
# As large as half precision holds them, and zeros, which leave ties.
inputs = hnp.arrays("float32", (BATCH, DIM), elements=st.floats(-6e4, 6e4, width=16))
scales = st.sampled_from([0.0, 0.1, 10.0, 1e4])


@every_case
def test_weights_are_a_choice_for_each_example_alone(case):
    gate = built(case.make(dtype="float16"), EXPERTS, DIM)
    decides = isinstance(gate, SelectorGate)
    if decides:
        gate.decide_between(1, 2)
    steps = st.sampled_from([3 if decides else 0, 10**6])

    @few
    @given(x=inputs, scale=scales, order=st.permutations(range(BATCH)), step=steps)
    def holds(x, scale, order, step):
        spread(gate, scale)
        gate.step.assign(step)
        weights = numpy(gate.expert_weights(x))
        assert (weights >= 0).all()  # And not NaN.
        total = weights.sum(axis=-1)
        assert (total <= 1 + 1e-5).all()
        if case.sums_to_one:
            assert_close(total, 1, atol=1e-5)
        if most := gate.max_experts(once_decided=decides):
            assert ((weights > 0).sum(axis=-1) <= most).all()
        moved = numpy(gate.expert_weights(x[np.array(order)]))
        assert_close(moved, weights[np.array(order)], atol=1e-5)

    holds()


@every_case
def test_gradients_are_finite_for_all_inputs(case):
    gate = built(case.make(), EXPERTS, DIM)
    x = keras.Variable(np.zeros((BATCH, DIM), "float32"))
    experts = numbers((BATCH, EXPERTS, UNITS))
    upstream = ops.convert_to_tensor(numbers((BATCH, UNITS)))

    def loss():
        mixed = gate(experts, ops.convert_to_tensor(x), training=True)
        total = ops.sum(mixed * upstream) + sum(gate.losses)
        if hasattr(gate, "policy_loss"):
            total = total + gate.policy_loss(ops.sum(mixed, axis=-1))
        return [total]

    counters = [each for each in gate.variables if not each.trainable]
    compute = differentiated(loss, gate.trainable_variables, [*counters, x])

    @settings(few, max_examples=5)
    @given(values=inputs, scale=scales)
    def holds(values, scale):
        x.assign(values)
        spread(gate, scale)
        for found in compute()[1]:
            assert np.isfinite(found).all()

    holds()


@every_case
def test_gradients_at_inference_are_finite_differences(case):
    gate = built(case.make(), EXPERTS, DIM)
    spread(gate, 0.3)
    upstream = numbers((BATCH, EXPERTS), seed=3)
    x, direction = numbers((BATCH, DIM), seed=1), numbers((BATCH, DIM), seed=2)

    def value(x):
        return ops.sum(gate.expert_weights(x) * ops.convert_to_tensor(upstream))

    slope = (gradient(value, x) * direction).sum()
    ahead, behind = (numpy(value(x + h * direction)) for h in (1e-3, -1e-3))
    assert slope == pytest.approx((ahead - behind) / 2e-3, abs=2e-3)


@pytest.mark.parametrize("step", [10**6, 2**24, LAST_STEP])
def test_the_step_and_what_depends_on_it_are_exact_in_long_runs(step):
    ramp = Ramp(1.0, 0.5, end=step, begin=step // 2, kind="linear")
    gate = DSelectKGate(2, gamma=ramp, unreachable="assign", entropy_reg=ramp)
    gate.build((None, EXPERTS, UNITS), (None, DIM))
    x = numbers((BATCH, DIM))
    gate.decide_between(step - 8, step + 1)
    gate.step.assign(step - 1)
    for count in (step, step + 1):
        assert gate.has_decided == (count > step + 1)
        gate(numbers((BATCH, EXPERTS, UNITS)), x, training=True)
        assert int(gate.step) == count
        weights = numpy(gate.expert_weights(x))
        assert_close(weights.sum(axis=-1), 1, atol=1e-6)
        assert np.isfinite(numpy(gate.losses[0]))
    assert gate.has_decided
    assert ((weights > 0).sum(axis=-1) <= 2).all()
    assert float(ramp(step)) == pytest.approx(0.5, abs=1e-6)
