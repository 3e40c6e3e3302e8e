"""The bench of static gates: its arms, models, costs and choice of an epoch."""

import dataclasses
import itertools
import types

import numpy as np
import pytest
from helpers import numpy

from dselectk_keras import DenseExperts, Task, TopKGate
from research.benches.bench import COMMITTED
from research.benches.data import split_rows
from research.benches.gates import arms, bench, problems, training
from research.benches.pruned_bottom import build_pruned_bottom, prune
from research.benches.training import best_epoch, falling, keep
from research.engine import Job

needs_jax = pytest.mark.backends("jax", reason="the runs are one program of JAX")


def of_problem(name):
    return bench.Gates(problem=problems.PROBLEMS[name])


@pytest.mark.backend_independent
def test_all_arms_have_the_same_rates_and_decays_that_turn_no_weight_over():
    pairs = set(itertools.product(problems.RATES, problems.DECAYS))
    pairs -= {(0.1, 10.0), (0.3, 10.0)}
    assert len(pairs) == 23
    every = of_problem("one group")
    for name, arm in arms.GATES.items():
        grid, last = every.grid(name), {key: own[-1] for key, own in arm.space.items()}
        assert {(each["rate"], each["decay"]) for each in grid} == pairs
        assert len(grid) == 23 * max(map(len, arm.space.values()), default=1)
        assert bench.ONE_SETTING | last in grid
    assert every.grid(arms.BEST) == [{"choice": i} for i in range(16)]


@pytest.mark.backend_independent
def test_arms_suit_the_problem():
    assert arms.KNOWN in of_problem("one group").arms
    assert arms.KNOWN not in of_problem("adult").arms
    assert not {*arms.NORMALIZED} & {*of_problem("experts for tokens").arms}
    assert {*of_problem("recommender, long").arms} == {*arms.FEW_ARMS}


@pytest.mark.backend_independent
@pytest.mark.parametrize("validation", [[0.3, 0.1, 0.2], [np.nan, 0.1, np.inf]])
def test_the_epoch_with_the_lowest_validation_error_is_reported(validation):
    test = np.array([1.0, 3.0, 2.0])
    assert best_epoch(np.array(validation), test) == (1, 0.1, 3.0)
    assert best_epoch(np.full(3, np.nan), test) == (0, np.inf, np.inf)


@pytest.mark.backend_independent
def test_a_sparse_gate_is_judged_on_its_sparse_epochs():
    # Errors on validation and test, and the mean and largest number of units.
    history = np.array(
        [[0.1, 0.3, 0.2], [1.0, 3.0, 2.0], [20.0, 6.0, 5.0], [24.0, 6.0, 6.0]]
    )
    trainer = types.SimpleNamespace(
        k=2,
        problem=types.SimpleNamespace(units=3),
        multiplications=lambda units: 10 * units,
    )
    row = bench.summarize(trainer, Job(0, {"rate": 0.01}), history)
    assert row == {
        "settings": {"rate": 0.01},
        "epoch": 2,
        "validation": 0.2,
        "test": 2.0,
        "multiplications": 50.0,
    }
    row = bench.summarize(trainer, Job(0, {}), history, dense=True)
    assert (row["epoch"], row["test"]) == (0, 1.0)


@pytest.mark.backend_independent
def test_the_learning_rate_falls_in_the_last_fifth():
    found = [falling(part) for part in (0.0, 0.8, 0.9, 29 / 30, 1.0)]
    np.testing.assert_allclose(found, [1.0, 1.0, 0.6, 1 / 3, 0.2])


@pytest.mark.backend_independent
def test_the_largest_weights_get_the_weight_of_all():
    found = numpy(keep(np.array([[0.5, 0.3, 0.2], [0.0, 0.25, 0.25]]), 1))
    np.testing.assert_allclose(found, [[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]], rtol=1e-6)
    found = numpy(keep(np.array([[0.5, 0.3, 0.2], [0.0, 0.0, 0.0]]), 2))
    np.testing.assert_allclose(found, [[0.625, 0.375, 0.0], [0, 0, 0]], rtol=1e-6)


@pytest.mark.backend_independent
@pytest.mark.parametrize(("epochs", "last"), [(1, 0), (3, 2), (30, 15)])
def test_no_change_of_a_short_training_replaces_another(epochs, last):
    self = types.SimpleNamespace(epochs=epochs)
    arm = arms.static(arms.selectors, events=arms.BY_FIT | {1.0: print})
    found = training.GateTrainer.changes(self, arm, Job(0, {}))
    assert max(epoch for epoch in found if arms.by_fit in found[epoch]) == last
    assert [*found[epochs - 1]][-1] is print


def trainer_of(name, **sizes):
    """A trainer of an arm on three tasks, whose tables are two draws."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(100, 4)), rng.normal(size=(100, 3))
    tables = {seed: split_rows(x, y, [False] * 3, seed) for seed in range(2)}
    sizes = {"num_experts": 4, "units": 3, "epochs": 3, "tower": (2,)} | sizes
    problem, arm = problems.Problem("", None, **sizes), {**arms.GATES, **arms.CHOICES}
    form = bench.form_of(arm[name])
    trainer = training.GateTrainer(problem, tables[0], *form)
    trainer.tables = tables
    trainer.start(0)
    return trainer


def weights_of(trainer):
    return numpy(trainer.gate.expert_weights())


@needs_jax
def test_a_run_does_not_depend_on_its_neighbours():
    trainer, arm = trainer_of(arms.RECIPE), arms.GATES[arms.RECIPE]
    jobs = [
        Job(draw, {"rate": rate, "decay": 0.3, "by": 0.5})
        for draw in (0, 1)
        for rate in (0.1, 0.01)
    ]
    histories = trainer.train(arm, trainer.tables, jobs)
    (alone,) = trainer.train(arm, trainer.tables, jobs[3:])
    np.testing.assert_allclose(histories[3], alone, rtol=1e-4)
    assert abs(histories[3][0, -1] - histories[0][0, -1]) > 1e-4
    np.testing.assert_array_equal(alone[3], [12, 12, 6])


@needs_jax
def test_a_pruned_bottom_keeps_as_many_units_as_k_experts():
    name = "shared bottom, pruned"
    trainer = trainer_of(name, epochs=10)
    jobs = [Job(draw, {"rate": 0.1, "decay": 0.0}) for draw in (0, 1)]
    for _, _, units, most in trainer.train(arms.GATES[name], trainer.tables, jobs):
        np.testing.assert_array_equal(most[[0, 2, 7, 9]], [12, 12, 6, 6])
        assert (np.diff(units) <= 0).all()


def test_the_control_gives_other_experts_to_the_same_sharing():
    trainer, found = trainer_of("random"), {}
    for name, arm in arms.CHOICES.items():
        for choice in range(3):
            arm.more["events"][0](trainer, Job(0, {"choice": choice}))
            found.setdefault(name, []).append(weights_of(trainer))
            assert ((found[name][-1] > 0).sum(axis=-1) == 2).all()
    choices, one = found.values()
    overlaps = [weights @ weights.T for weights in one]
    np.testing.assert_allclose(overlaps[1:], overlaps[:-1], atol=1e-6)
    assert len({weights.tobytes() for weights in one}) > 1
    assert not np.allclose(choices[0] @ choices[0].T, choices[1] @ choices[1].T)


def test_random_experts_side_by_side_are_those_of_the_random_gate():
    trainer, other = trainer_of("random"), trainer_of("random, side by side")
    arms.random_experts(trainer, Job(1, {}))
    arms.random_places(other, Job(1, {}))
    weights = [weights_of(each) for each in (trainer, other)]
    np.testing.assert_array_equal(*(each > 0 for each in weights))
    assert (weights[1] > 0).sum(axis=-1).tolist() == [2, 2, 2]


def test_a_learned_gate_can_read_its_experts_side_by_side():
    experts, gate = DenseExperts(3, [2]), TopKGate(2)
    model = training.build_apart(4, [Task("a"), Task("b")], experts, gate)
    layer = model.get_layer("mmoe")
    x = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    weights, outputs = numpy(layer.gate.expert_weights()), numpy(experts(x))
    assert ((weights > 0).sum(axis=-1) == 2).all()
    expected = np.einsum("tn,bnu->btnu", weights, outputs).reshape(5, 2, 6)
    np.testing.assert_allclose(numpy(layer(x)), expected, rtol=1e-5)
    assert model(x).shape == (5, 2)


# An arm of each program.
FORMS = {bench.form_of(arm): name for name, arm in arms.GATES.items()}


@pytest.mark.backend_independent
@pytest.mark.parametrize("name", FORMS.values())
def test_costs_are_the_multiplications_of_one_task(name):
    trainer = trainer_of(name, layers=2)
    # Four inputs, two layers, and a tower of 2 units and one output.
    expected = {
        "side_by_side": 2 * (4 * 3 + 3 * 3) + 6 * 2 + 2,
        "apart": 2 * (4 * 3 + 3 * 3) + 6 * 2 + 2,
        "shared_bottom": 4 * 6 + 6 * 6 + 6 * 2 + 2,
        "wide_bottom": 4 * 12 + 12 * 6 + 6 * 2 + 2,
        "pruned_bottom": 4 * 12 + 12 * 6 + 6 * 2 + 2,
    }
    mixed = 2 * (4 * 3 + 3 * 3) + 3 * 2 + 2
    assert trainer.multiplications(6) == expected.get(trainer.architecture, mixed)


@pytest.mark.backend_independent
def test_an_expert_of_its_own_has_the_multiplications_of_its_layers():
    problem = problems.PROBLEMS["experts for tokens"]
    table = problems.in_groups(1, tokens=True)(0, ".")

    def cost(name, units):
        form = bench.form_of(arms.GATES[name])
        return training.GateTrainer(problem, table, *form).multiplications(units)

    # Of 12 tokens, 16 x 16 each, and 16 x 16 for their mean; then a tower.
    assert cost("Top-k", 2 * 16) == 2 * (12 * 256 + 256) + 16
    # The layer below the last one of a bottom of 32 units is whole.
    assert cost("shared bottom", 8) == 12 * 32 * 32 + 32 * 8 + 8


def test_a_normalized_expert_is_standardized_over_the_batch_before_its_swish():
    expert = training.normalized_expert(3, layers=2)
    x = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")
    found = numpy(expert(x, training=True))
    hidden = x @ numpy(expert.layers[0].kernel)
    z = np.maximum(hidden, 0) @ numpy(expert.layers[1].kernel)
    z = (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-3)
    np.testing.assert_allclose(found, z / (1 + np.exp(-z)), atol=1e-4)


def test_the_units_of_tasks_of_two_kinds_are_pruned_by_their_own_towers():
    tasks = [Task("a"), Task("b", "binary"), Task("c")]
    model = build_pruned_bottom(3, tasks, DenseExperts(1, [3]))
    x = np.array([[1, 1, 1], [2, 2, 2]], "float32")
    model.get_layer("bottom").kernel(0).assign(np.eye(3)[None])
    for name, kernels in (("a_c", [[1, 2, 3], [3, 2, 1]]), ("b", [[1, 3, 2]])):
        towers = model.get_layer(f"towers_{name}")
        towers.kernel(0).assign(np.array(kernels)[..., None])
    prune(model, x, 1)
    mask = numpy(model.get_layer("units").mask)
    np.testing.assert_array_equal(mask, [[0, 0, 1], [0, 1, 0], [1, 0, 0]])


@pytest.mark.backend_independent
def test_weight_decay_leaves_gates_alone_and_settings_are_those_of_the_job():
    trainer = trainer_of("DSelect-k, entropy")
    optimizer, gate = trainer.model.optimizer, trainer.gate
    decays = {
        variable.path: optimizer._use_weight_decay(variable)
        for variable in trainer.model.trainable_variables
    }
    assert not any(decays[variable.path] for variable in gate.trainable_variables)
    others = [path for path in decays if decays[path]]
    assert len(others) == 3
    assert all("/kernel" in path for path in others)
    job = Job(0, {"rate": 0.1, "decay": 0.3, "entropy": 0.01})
    found = trainer.numbers(None, job, 0.9)
    assert found.pop("rate") == pytest.approx(0.06)
    own = {"decay": 0.3, "entropy": 0.01, "gamma": 3.0, "noise": 0.0, "bias_rate": 0.0}
    assert found == own


@pytest.mark.backend_independent
def test_too_few_rows_are_refused():
    table = split_rows(np.zeros((16, 1)), np.zeros((16, 1)), [False], 0)
    with pytest.raises(SystemExit, match=r"at least 10 .*: 9 of 16 rows"):
        training.GateTrainer(problems.Problem("", None), table, None, "wide_bottom")


@pytest.mark.backend_independent
def test_results_of_other_sizes_are_not_continued():
    for sizes in ({"units": 3}, {"rates": (0.1,)}):
        problem = dataclasses.replace(problems.PROBLEMS["adult"], **sizes)
        with pytest.raises(ValueError, match="another config: sizes differ"):
            bench.Gates(problem=problem).results(COMMITTED / "gates")
