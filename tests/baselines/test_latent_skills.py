from functools import partial

import keras
import numpy as np
import pytest
from checks import assert_close, assert_equal
from gate_cases import Case
from helpers import numbers, numpy, on_host, refusals, sigmoid, weight_gradients
from keras import ops

from dselectk_keras import Ramp
from dselectk_keras.baselines import LatentSkillsGate
from dselectk_keras.ops import relaxed_bernoulli

ANNEALED = partial(LatentSkillsGate, temperature=Ramp(2.0, 0.5, end=9))
OF_TASKS = partial(LatentSkillsGate, num_tasks=3)
CASES = [
    Case("latent skills", ANNEALED, looks=(None,), dense=True),
    Case("latent skills of tasks", OF_TASKS, looks=("ids",), dense=True),
]
N, SEED, TASKS = 4, 3, 5


def built(z=None, *, routing=None, **settings):
    """A gate, with the logits `z` if they are given."""
    if routing:
        settings["num_tasks"] = TASKS
    gate = LatentSkillsGate(seed=SEED, **settings)
    gate.build((None, N), routing)
    if z is not None:
        gate.set_weights([np.asarray(z, "float32") / gate.learning_rate_ratio])
    return gate


def test_inference_by_hand():
    # Skills of 1/2, 3/4, 3/4 and 0 sum to 2.
    gate = built([0.0, np.log(3), np.log(3), -200.0])
    assert_close(gate.expert_weights(), [0.25, 0.375, 0.375, 0], rtol=1e-5)
    gate = built(np.full(N, -200.0), temperature=1e-16)
    assert_equal(gate.route(training=True).weights, 0)


@pytest.mark.parametrize("temperature", [2.0, 0.3])
def test_training_draws_relaxed_skills(temperature):
    z = numbers((50, N))
    gate = built(z, num_gates=50, temperature=temperature)
    skills = numpy(relaxed_bernoulli(z, temperature, keras.random.SeedGenerator(SEED)))
    found = numpy(gate.route(training=True).weights)
    assert_close(found, skills / skills.sum(-1, keepdims=True), rtol=1e-4)


def test_the_gradient_by_hand():
    z, upstream = numbers((N,)), numbers((N,), seed=1)
    gate, tensor = built(z), ops.convert_to_tensor(upstream)
    (found,) = weight_gradients(gate, lambda: ops.sum(gate.route().weights * tensor))
    s = sigmoid(z)
    g = s / s.sum()
    wanted = (upstream - (g * upstream).sum()) / s.sum() * s * (1 - s)
    # By z, not by the variable, which is z over the ratio.
    assert_close(found, wanted, atol=1e-6)


def one_step(optimizer, ratio):
    """The distance by which one training step moves the logits z."""
    gate = built(learning_rate_ratio=ratio)
    gate.set_weights([numbers((N,), seed=2) / ratio])
    before = ratio * gate.get_weights()[0]
    upstream = ops.convert_to_tensor(numbers((N,), seed=1))
    gradients = weight_gradients(
        gate, lambda: ops.sum(gate.route(training=True).weights * upstream)
    )
    optimizer.build(gate.trainable_variables)
    optimizer.apply([ops.convert_to_tensor(g) for g in gradients])
    return before, ratio * gate.get_weights()[0] - before


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_an_optimizer_moves_the_logits_ratio_times_as_far(name):
    optimizers = (getattr(keras.optimizers, name)(1e-3) for _ in range(2))
    plain_z, plain = one_step(next(optimizers), 1.0)
    fast_z, fast = one_step(next(optimizers), 10.0)
    assert_close(fast_z, plain_z, rtol=1e-5)
    assert_close(fast, 10 * plain, rtol=1e-2)
    assert (abs(plain) > 1e-6).all()


def test_the_logits_start_small():
    gate = built(num_gates=100)
    z = 10 * gate.get_weights()[0]
    assert 0.9e-3 < z.max() < 1e-3
    assert -1e-3 < z.min() < -0.9e-3
    assert_close(gate.expert_weights(), 1 / N, atol=1e-3)


def test_an_example_has_its_tasks_skills_of_one_draw_per_call():
    z = numbers((TASKS, N))
    static = numpy(built(z, num_gates=TASKS).expert_weights())
    tasks = np.array([4, 0, 4, 2], "int32")
    for routing, ids in [((None,), tasks), ((None, 1), tasks[:, None])]:
        found = numpy(built(z, routing=routing).expert_weights(ids))
        assert_close(found, static[tasks], rtol=1e-6)
    gate = built(numbers((TASKS, N)), routing=(None,))
    ids = np.array([1, 1, 3, 1, 3], "int32")
    first, second = (numpy(gate.route(ids, training=True).weights) for _ in range(2))
    assert_equal(first[[0, 0, 2]], first[[1, 3, 4]])
    assert not np.allclose(first[0], first[2])
    assert not np.allclose(first, second)


def test_several_gates_have_a_matrix_each():
    z = numbers((TASKS, 3, N))
    ids = np.array([4, 0], "int32")
    shared = numpy(built(z, routing=(None,), num_gates=3).expert_weights(ids))
    for i in range(3):
        one = built(z[:, i], routing=(None,))
        assert_close(shared[:, i], one.expert_weights(ids), rtol=1e-6)


@pytest.mark.backend_independent
@pytest.mark.skipif(not on_host(), reason="On a GPU, wrong ids give NaN.")
def test_a_task_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"must be an integer from 0 to 4.*to 5"):
        built(routing=(None,)).expert_weights(np.array([0, 5], "int32"))


test_settings_that_cannot_be_are_refused = refusals(
    (LatentSkillsGate, "`num_tasks` must be a positive integer", {"num_tasks": 0}),
    (LatentSkillsGate, "`temperature` must be .* above 0.*=0", {"temperature": 0}),
    (
        LatentSkillsGate,
        "`learning_rate_ratio` must be .* above 0",
        *({"learning_rate_ratio": ratio} for ratio in (0, -10.0)),
    ),
    (
        LatentSkillsGate().build,
        "num_tasks=None and routing inputs",
        ((None, N), (None,)),
    ),
    (OF_TASKS().build, "num_tasks=3 and no routing inputs", ((None, N),)),
    (OF_TASKS().build, r"one task for each.*7 columns", ((None, N), (None, 7))),
)
