import re
import warnings
from functools import partial

import helpers
import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from gate_cases import Case
from helpers import numbers, numpy, refusals, spread, weight_gradients
from keras import ops

import dselectk_keras as dk
from dselectk_keras.ops import binary_codes

UNSURE = {"sums_to_one": False, "dense": True}
CASES = [
    Case(
        "DSelect-k", partial(dk.DSelectKGate, 2), penalties=("reachability",), **UNSURE
    ),
    Case(
        "DSelect-k that assigns",
        partial(dk.DSelectKGate, 2, unreachable="assign", reduction="mean"),
        dense=True,
    ),
    Case(
        "DSelect-k with entropy",
        partial(
            dk.DSelectKGate,
            3,
            entropy_reg=0.01,
            weights_regularizer=dk.ImportanceRegularizer(0.1),
        ),
        penalties=("entropy", "reachability", "weights"),
        **UNSURE,
    ),
    Case(
        "DSelect-k with schedules",
        partial(
            dk.DSelectKGate,
            2,
            gamma=dk.Ramp(1.0, 0.1, end=9),
            entropy_reg=dk.EntropyRegularizer(dk.Ramp(1e-3, 0.1, end=9), target="bits"),
            unreachable=dk.Ramp(0.5, 1.0, end=9, kind="linear"),
        ),
        penalties=("entropy", "reachability"),
        **UNSURE,
    ),
]
BATCH, DIM = 4, 3


def built(num_experts, num_nonzeros=2, *, per_example=False, weights=None, **settings):
    gate = dk.DSelectKGate(num_nonzeros, **settings)
    return helpers.built(gate, num_experts, DIM if per_example else None, weights)


def train_call(gate, *routing_inputs):
    return gate(numbers((BATCH, gate.num_experts, 2)), *routing_inputs, training=True)


@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_weights_by_hand(gamma):
    gate = built(4, num_nonzeros=2, gamma=gamma)
    # Bits 1, S(-1/4) = 5/32; and S(1/4) = 27/32, 0. Shares 1/4 and 3/4.
    z = np.array([[[9.0, -gamma / 4]], [[gamma / 4, -9.0]]])
    gate.set_weights([z, np.log([[1.0], [3.0]])])
    selectors = np.array([[0, 0, 27, 5], [5, 0, 27, 0]]) / 32
    assert_close(gate.selector_outputs(), selectors, atol=1e-6)
    assert_close(gate.expert_weights(), [0.25, 0.75] @ selectors, atol=1e-6)


def test_normalized_logits_by_hand():
    gate = built(2, num_nonzeros=2, per_example=True, normalize=True)
    names = [weight.name for weight in gate.trainable_weights]
    for name, value in {
        # Columns normalize to (-a, 0, a) and (a, 0, -a), with a = sqrt(3 / 2).
        "z_kernel": [[1, 5], [2, 4], [3, 3]],
        "w_kernel": [[1, 9], [3, 6], [5, 3]],
        "z_kernel_scale": [0.1] * 3,
        "w_kernel_scale": [0.2] * 3,
        "z_bias": [0, 0],
        "w_bias": [0, 0],
    }.items():
        gate.trainable_weights[names.index(name)].assign(value)
    # As does the input, so that z is 0.3 and -0.3, and w is 0.6 and -0.6.
    weights = numpy(gate.expert_weights(np.array([[4.0, 7.0, 10.0]], "float32")))
    bit, share = 0.5 + 1.5 * 0.3 - 2 * 0.3**3, 1 / (1 + np.exp(-1.2))
    second = share * bit + (1 - share) * (1 - bit)
    assert_close(weights, [[1 - second, second]], atol=1e-5)


def test_several_gates_are_the_gates_side_by_side():
    z, w = numbers((3, 2, 1, 3), scale=0.3), numbers((3, 2, 1))
    several = numpy(built(5, num_gates=3, weights=[z, w]).expert_weights())
    for found, *weights in zip(several, z, w, strict=True):
        assert_close(found, built(5, weights=weights).expert_weights(), atol=1e-6)


def test_weights_start_in_the_release_s_ranges():
    z, w = map(numpy, built(16, num_nonzeros=4000, gamma=3.0).trainable_weights)
    for values, bound in ((z, 0.03), (w, 0.05)):
        assert -bound <= values.min() < -0.995 * bound
        assert 0.995 * bound < values.max() <= bound
    assert numpy(built(16, z_initializer="ones").weights[0]).max() == 1.0


def test_one_initializer_gives_every_variable_numbers_of_its_own():
    shared = keras.initializers.RandomNormal()
    gates = [built(4, w_initializer=shared) for _ in range(2)]
    assert not np.allclose(*(numpy(gate.trainable_weights[1]) for gate in gates))


@pytest.mark.parametrize("per_example", [False, True])
def test_one_expert_gets_all(per_example):
    gate = built(1, num_nonzeros=2, per_example=per_example)
    inputs = [numbers((BATCH, DIM))] if per_example else []
    mixed = train_call(gate, *inputs)
    assert gate.num_bits == 0
    assert_close(gate.expert_weights(*inputs), 1, rtol=1e-6)
    assert_close(mixed, numbers((BATCH, 1, 2))[:, 0], rtol=1e-6)
    assert gate.losses == []


@pytest.mark.backend_independent
@pytest.mark.parametrize(("k", "warns"), [(3, True), (2, False)])
def test_more_selectors_than_experts_are_a_warning(k, warns):
    # The release allows them, and so do its recorded cases.
    gate = dk.DSelectKGate(k)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            gate([ops.ones((1, 1))] * 2)
    texts = [str(each.message) for each in caught]
    wanted = "DSelectKGate has 3 selectors for 2 experts: .* Use num_nonzeros=1 or"
    assert [bool(re.match(wanted, text)) for text in texts] == [True] * warns
    # They share the experts.
    gate = built(2, num_nonzeros=5)
    assert numpy(gate.selector_outputs()).shape == (5, 2)
    assert_close(numpy(gate.expert_weights()).sum(), 1, rtol=1e-6)


@pytest.mark.parametrize("size", [1e6, 1e30, float(np.finfo("float32").max)])
def test_huge_logits_give_finite_values_and_gradients(size):
    z, w = np.sign(numbers((2, 1, 3))), np.sign(numbers((2, 1)))
    gate = built(5, entropy_reg=0.1, weights=[size * z, size * w])
    values, gradients = helpers.value_and_gradients(
        lambda: [ops.sum(train_call(gate) ** 2), *gate.losses],
        gate.trainable_variables,
    )
    assert all(np.isfinite(found).all() for found in (*values, *gradients))


test_settings_that_cannot_be_are_refused = refusals(
    (dk.DSelectKGate, "`gamma` must be .* above 0", {"gamma": 0.0}, {"gamma": -1.0}),
    (dk.DSelectKGate, "`gamma` must be a finite.*gamma=nan", {"gamma": float("nan")}),
    (dk.DSelectKGate, "`num_nonzeros` must be a positive", 0, -1, 1.5, True, "2"),
    (dk.DSelectKGate, "`num_nonzeros` must be at most 65,536", 2**16 + 1),
    (dk.DSelectKGate, "`reduction` must be one of 'sum', 'me", {"reduction": "max"}),
    (dk.DSelectKGate, 'must be "assign", or the wei', {"unreachable": "ignore"}),
)


def test_unreachable_codes_are_penalized_and_not_made_up_for():
    zeros = [np.zeros((1, 1, 2)), np.zeros((1, 1))]
    gate = built(3, num_nonzeros=1, unreachable=0.5, weights=zeros)
    assert_equal(gate.expert_weights(), [0.25, 0.25, 0.25])
    train_call(gate)
    assert_close(gate.losses, [0.5 / 0.75])


@pytest.mark.parametrize("num_experts", [3, 5, 6, 9, 20])
@pytest.mark.parametrize("per_example", [False, True])
def test_assigned_codes_make_the_weights_sum_to_one(num_experts, per_example):
    gate = built(num_experts, 3, per_example=per_example, unreachable="assign")
    inputs = [numbers((50, DIM))] if per_example else []
    spread(gate, 0.5)
    assert_close(numpy(gate.expert_weights(*inputs)).sum(axis=-1), 1, atol=1e-6)
    assert_close(numpy(gate.selector_outputs(*inputs)).sum(axis=-1), 1, atol=1e-6)
    assert gate.report(*inputs)["penalties"] == {}


@pytest.mark.backends("jax", reason="JAX prints programs.")
def test_codes_get_their_owners_without_a_product_whose_factors_a_gpu_rounds():
    import jax

    gate = built(20, 3, unreachable="assign")
    program = str(jax.make_jaxpr(gate.compute_selectors)(numbers((1, 1, 3, 5))))
    assert "gather" in program
    assert "dot_general" not in program


@pytest.mark.backend_independent
def test_every_code_belongs_to_one_expert_and_experts_keep_their_own():
    def owners(num_experts, codes, **settings):
        z = np.where(binary_codes(codes), 9.0, -9.0)[:, None]
        settings |= {"unreachable": "assign", "weights": [z, np.zeros((codes, 1))]}
        return numpy(built(num_experts, codes, **settings).selector_outputs())

    found = owners(5, 8)
    assert_equal(found.sum(axis=1), 1)
    assert_equal(found[:5], np.eye(5))
    assert_equal(found, owners(5, 8))
    # A seed changes which expert has an unused code.
    found = [owners(9, 16), owners(9, 16, seed=1), owners(9, 16, seed=2)]
    assert len({tuple(each.argmax(axis=1)) for each in found}) == 3
    assert_equal(owners(9, 16, seed=2), found[2])
    assert_equal([each[:9] for each in found], [np.eye(9)] * 3)


@pytest.mark.parametrize("num_gates", [None, 3])
def test_penalties_of_a_static_gate_by_hand(num_gates):
    gate = built(3, 2, entropy_reg=0.1, num_gates=num_gates)
    z, _ = gate.trainable_weights
    z.assign(np.zeros(z.shape))
    train_call(gate)
    selectors = 2 * (num_gates or 1)
    entropy = 0.1 * selectors * 0.75 * np.log(4)
    assert_close(gate.losses, [entropy, selectors / 0.75], rtol=1e-4)


def test_the_entropy_of_bits_has_two_terms_a_bit():
    # Bits of 1/2 and 5/32.
    weights = [np.array([[[0.0, -0.25]]]), np.zeros((1, 1))]
    bits = dk.EntropyRegularizer(0.5, target="bits")
    gate = built(4, 1, entropy_reg=bits, weights=weights)
    train_call(gate)
    p = np.array([1 / 2, 1 / 2, 5 / 32, 27 / 32])
    assert_close(gate.losses, [-0.5 * (p * np.log(p)).sum()], rtol=1e-4)


@pytest.mark.parametrize("target", ["selectors", "bits"])
def test_mean_reduction_divides_the_penalties_by_the_batch(target):
    losses = {}
    x = numbers((BATCH, DIM))
    for reduction in ("sum", "mean"):
        regularizer = dk.EntropyRegularizer(0.1, target=target)
        gate = built(5, per_example=True, entropy_reg=regularizer, reduction=reduction)
        gate.set_weights([numbers(w.shape, scale=0.3) for w in gate.trainable_weights])
        train_call(gate, x)
        losses[reduction] = np.array([numpy(loss) for loss in gate.losses])
    assert len(losses["sum"]) == 2
    assert_close(losses["mean"], losses["sum"] / BATCH, rtol=1e-5)


def test_gamma_follows_its_schedule_in_training_calls_only():
    weights = [np.full((1, 1, 2), 0.5), np.zeros((1, 1))]
    gate = built(4, 1, gamma=dk.Ramp(4.0, 1.0, end=2), weights=weights)
    seen = []
    for training in (False, True, False, True, True):
        gate(numbers((BATCH, 4, 2)), training=training)
        seen.append(numpy(gate.expert_weights())[-1])

    def last(gamma):
        u = min(1.0, 0.5 / gamma + 0.5)
        return (u * u * (3 - 2 * u)) ** 2

    assert_close(seen, [*map(last, (4, 2, 2, 1, 1))], rtol=1e-5)


def test_the_first_bits_are_within_a_hundredth_of_the_first_gamma():
    z = numpy(built(16, 500, gamma=dk.Ramp(4.0, 0.1, end=9)).weights[0])
    assert 0.038 < np.abs(z).max() <= 0.04


def test_report_tells_binary_selectors_and_their_reachable_mass():
    z = np.array([[[9.0, -9.0]], [[9.0, 9.0]], [[9.0, 0.0]]])
    found = built(3, 3, weights=[z, np.zeros((3, 1))]).report()["selectors"]
    assert_equal(found, {"binary": [1, 1, 0], "reachable": [1, 0, 0.5]})


@pytest.mark.backend_independent
@pytest.mark.parametrize("entropy_reg", [None, 0.1])
@pytest.mark.parametrize("per_example", [False, True])
@pytest.mark.parametrize("calls", [[], [np.float32(7.0)]], ids=["uncounted", "counted"])
def test_set_weights_takes_the_list_of_the_release(per_example, entropy_reg, calls):
    gate = built(5, 2, per_example=per_example, entropy_reg=entropy_reg)
    shapes = [(DIM, 6), (6,), (DIM, 2), (2,)] if per_example else [(2, 1, 3), (2, 1)]
    arrays = [numbers(shape, seed=i) for i, shape in enumerate(shapes)]
    gate.set_weights([*arrays, *calls])
    *weights, step, _ = gate.get_weights()
    assert_equal(weights, arrays)
    assert step == sum(calls)
    assert step.dtype == keras.backend.standardize_dtype("int")


@pytest.mark.backend_independent
def test_a_gate_that_has_decided_is_soft_with_the_list_of_the_release():
    gate, new = built(4, 2), built(4, 2)
    gate.assign_expert_weights([0.5, 0.5, 0.0, 0.0])
    gate.decide()
    new.assign_expert_weights([0.0, 0.0, 0.5, 0.5], slack=0.5)
    gate.set_weights(new.get_weights()[:2])
    assert not gate.has_decided
    assert_equal(gate.expert_weights(), new.expert_weights())
    gate = built(4, 2, per_example=True)
    gate.decide_between(0, 1)
    gate.step.assign(1)
    assert gate.has_decided
    gate.set_weights(gate.get_weights()[:4])
    assert not gate.has_decided
    # The whole list decides.
    gate.decide_between(0, 1)
    gate.set_weights(gate.get_weights())
    assert gate.has_decided


PER_EXAMPLE = built(4, 2, per_example=True)
test_a_decision_that_cannot_be_is_refused = refusals(
    (PER_EXAMPLE.decide_between, "`end` must be an integer >= 5", (5, 2)),
    (PER_EXAMPLE.decide_between, "`begin` must be an integer >= 0", (-1, 2)),
    (PER_EXAMPLE.decide_between, "`begin` must be an integer >= 0", (0.5, 2)),
    *(
        (gate.decide_between, "Only a per-example gate that is built", (1, 2))
        for gate in (built(4, 2), dk.DSelectKGate(2))
    ),
)
test_a_list_of_another_length_is_refused = refusals(
    (lambda count: built(4, weights=[np.zeros(())] * count), "weight", 1, 4)
)


def test_spare_selectors_share_the_smallest_weight_as_in_proposition_1():
    gate = built(4, num_nonzeros=4)
    gate.assign_expert_weights([0.25, 0, 0, 0.75])
    z, w = map(numpy, gate.trainable_weights)
    # Experts 3, 0, 0, 0 with the codes 11, 00, 00, 00.
    assert_equal(np.squeeze(z) > 0, [[1, 1], [0, 0], [0, 0], [0, 0]])
    assert_close(np.exp(np.squeeze(w)), [0.75, 0.25 / 3, 0.25 / 3, 0.25 / 3], rtol=1e-6)


def test_assigned_weights_meet_the_present_gamma():
    gate = built(4, gamma=dk.Ramp(4.0, 0.5, end=1))
    train_call(gate)
    gate.assign_expert_weights([0, 0.25, 0, 0.75])
    assert np.abs(numpy(gate.trainable_weights[0])).max() == 0.25


def test_selectors_narrow_to_a_hundredth_and_then_decide():
    gate = built(4, 1, per_example=True)
    gate.decide_between(10, 20)
    for step, factor, decided in [(5, 1, 0), (10, 1, 0), (15, 0.1, 0), (20, 0.01, 1)]:
        found = gate.width(step)
        assert_close(found[0], factor, rtol=1e-6)
        assert bool(found[1]) == decided
    gate.decide_between(0, 0)
    assert numpy(gate.width(30)[0]) == 1.0
    assert not bool(gate.width(30)[1])


@pytest.mark.parametrize(
    ("logits", "expert"),
    [
        ([-1.0, -1.0, 0.1], 1),
        ([0.3, -1.0, -1.0], 4),
        # The code 7 is no expert's. Expert 3 differs in the smallest logit.
        ([0.1, 1.0, 1.0], 3),
        ([2.0, 0.1, 0.1], 4),
    ],
)
def test_a_decided_selector_takes_the_nearest_expert(logits, expert):
    gate = built(5, 1, per_example=True)
    kernel, _, *shares = gate.get_weights()[:4]
    gate.set_weights([0 * kernel, np.array(logits), *shares])
    gate.step.assign(3)
    gate.decide_between(3, 3)
    weights = numpy(gate.expert_weights(numbers((2, DIM))))
    assert_equal(weights, np.eye(5)[[expert, expert]])


def test_choices_overrule_the_logits_of_their_selectors():
    weights = [np.full((2, 1, 3), 0.25), np.zeros((2, 1))]
    gate = built(5, 2, unreachable=1.0, entropy_reg=0.5, weights=weights)
    soft = numpy(gate.selector_outputs())
    gate.choices.assign([-1, 4])
    assert_equal(gate.selector_outputs(), [soft[0], np.eye(5)[4]])
    assert not gate.has_decided
    selection = gate.chosen_experts()
    assert selection.choices[1] == 4
    assert_equal(selection.distance > 0, [True, False])
    assert_equal(gate.report()["selectors"]["binary"], [0, 1])
    gate.choices.assign([0, 4])
    assert gate.has_decided
    assert_equal(gate.expert_weights(), [0.5, 0, 0, 0, 0.5])
    # A decided selector has no entropy, and is on an expert.
    penalties = gate.report()["penalties"]
    assert float(numpy(penalties["entropy"])) == pytest.approx(0, abs=1e-5)
    assert numpy(penalties["reachability"]) == 2.0


def test_assigned_weights_replace_choices():
    gate = built(4, 2)
    gate.choices.assign([3, -1])
    gate.assign_expert_weights([0.25, 0.75, 0, 0])
    assert numpy(gate.choices).tolist() == [1, -1]
    assert_close(gate.expert_weights(), [0.25, 0.75, 0, 0], 1e-6)


def test_only_the_shares_learn_after_the_decision():
    z, w = np.array([[[0.1, 0.2]], [[-0.3, 0.1]]]), np.array([[0.2], [0.1]])
    gate = built(4, weights=[z, w, np.array(5), np.array([1, 3])])
    experts = [numbers((3, 2), seed=i) for i in range(4)]
    of_z, of_w = weight_gradients(gate, lambda: ops.sum(gate(experts) ** 2))
    assert_equal(of_z, 0.0)
    assert np.abs(of_w).min() > 0


def test_without_reachability_a_gate_can_end_on_no_expert():
    # Code 7 belongs to no expert.
    weights = [np.full((2, 1, 3), 0.5), np.zeros((2, 1))]
    gate = built(5, entropy_reg=1.0, unreachable=0.0, weights=weights)
    train_call(gate)
    assert_equal(gate.expert_weights(), [0.0] * 5)
    assert_close(sum(gate.losses), 0.0, atol=1e-5)


@pytest.mark.traced
def test_a_compiled_first_step_builds_a_gate_with_a_scheduled_gamma():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.gate = dk.DSelectKGate(2, gamma=dk.Ramp(2.0, 0.1, end=100))

        def call(self, x):
            return self.gate([x] * 4, x)

    model = Model()
    model.compile("sgd", "mse")
    model.fit(numbers((8, DIM)), numbers((8, DIM)), verbose=0)
    assert model.built
