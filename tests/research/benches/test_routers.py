"""The comparison of routers: its problems, arms, rule, page and command."""

import functools
import json
import types

import gatebench
import numpy as np
import pytest
from checks import assert_close
from helpers import gradient, numpy
from keras import ops

from research.benches.routers import arms, bench, page, problems, training
from research.benches.routers.by_losses import (
    choice_loss,
    free_energy,
    posterior_loss,
)
from research.engine import Job

# Two examples, two experts, one task.
GATES = np.array([[[0.5], [0.5]], [[0.8], [0.2]]], "float32")
LOSSES = np.array([[[0.0], [1.0]], [[2.0], [1.0]]], "float32")
LOG_GATES, EACH = map(ops.convert_to_tensor, (np.log(GATES), LOSSES))
needs_jax = pytest.mark.backends("jax", reason="the runs are one program of JAX")


@pytest.mark.parametrize(
    ("inverse", "wanted"),
    [
        # -log(1/2 + e^-1 / 2) and -log(4/5 e^-2 + 1/5 e^-1).
        (1.0, [0.3798854930, 1.7046056]),
        (0.0, [0.5, 1.8]),
        # The lowest loss, and log 2 / 1000 or log 5 / 1000.
        (1000.0, [0.000693147, 1.001609]),
    ],
)
def test_the_free_energy_is_between_the_lowest_and_the_expected_loss(inverse, wanted):
    assert_close(free_energy(LOG_GATES, EACH, inverse)[:, 0], wanted, rtol=1e-4)


@pytest.mark.parametrize("inverse", [0.0, 1.0, 1000.0])
def test_an_expert_learns_as_much_as_it_has_probably_made_the_label(inverse):
    chosen = GATES * np.exp(-inverse * (LOSSES - LOSSES.min(axis=1, keepdims=True)))
    chosen = chosen / chosen.sum(axis=1, keepdims=True)
    found = gradient(lambda losses: free_energy(LOG_GATES, losses, inverse), LOSSES)
    assert_close(found, chosen, rtol=1e-3, atol=1e-6)
    mean = posterior_loss(LOG_GATES, EACH, inverse)
    assert_close(mean, (chosen * LOSSES).sum(axis=1), rtol=1e-5)


def test_the_gradient_of_the_gates_is_that_of_the_expected_loss_in_the_end():
    found = gradient(lambda logs: free_energy(logs, EACH, 0.0), np.log(GATES))
    assert_close(found, GATES * LOSSES, rtol=1e-5)


def test_a_warm_start_trains_the_expert_that_fits_best_and_the_router():
    # The first expert for the first example, and the second for the second, with T 2.
    expected = [0 - 2 * np.log(0.5), 1 - 2 * np.log(0.2)]
    assert_close(choice_loss(LOG_GATES, EACH, 0.5)[:, 0], expected, rtol=1e-5)
    found = gradient(lambda losses: choice_loss(LOG_GATES, losses, 0.5), LOSSES)
    assert_close(found[..., 0], [[1, 0], [0, 1]])
    found = gradient(lambda logs: choice_loss(logs, EACH, 0.5), np.log(GATES))
    assert_close(found[..., 0], [[-2, 0], [0, -2]])


@pytest.mark.backend_independent
def test_settings_change_in_the_parts_of_the_training():
    change = {name: arm.more["change"] for name, arm in arms.ROUTERS.items()}
    narrowing, losses = change["DSelect-2, recipe"], change["by losses, 1"]
    assert [narrowing(0.6, done)["gamma"] for done in (0, 0.3, 0.45, 0.6, 1)] == (
        pytest.approx([3, 3, 0.3, 0.03, 0.03])
    )
    sharpness = [losses(0.6, done)["sharpness"] for done in (0, 0.3, 0.6, 1)]
    assert sharpness == pytest.approx([1, 0.5, 0, 0])
    warm = change["by losses, 1, warm start"]
    choice = [warm(0.6, done)["choice"] for done in (0, 1 / 12, 2 / 12, 1)]
    assert choice == [1, 1, 0, 0]
    assert warm(0.6, 0.3) == losses(0.6, 0.3)
    annealed = change["softmax, annealed"]
    temperatures = [annealed(0.5, done)["temperature"] for done in (0, 0.25, 0.5, 1)]
    assert temperatures == pytest.approx([1, 0.02**0.5, 0.02, 0.02])
    steps = []
    gate = types.SimpleNamespace(step=types.SimpleNamespace(assign=steps.append))
    trainer = types.SimpleNamespace(gate=gate, epochs=2)
    arms.first_steps(trainer, Job(0, {"own": 0.3}))
    assert steps == [arms.MANY - 0.3 * 2 * 150]


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("arm", "served", "trained"),
    [
        # An expert has 24 x 16, the last layer 16 x 2, and the router 24 x 8. Training
        # has two products of the inputs, and three others.
        ("one wide expert", 8 * (384 + 32), 8 * (2 * 384 + 3 * 32)),
        ("one expert, 40 units", 40 * (24 + 2), 40 * (2 * 24 + 3 * 2)),
        ("hash", 384 + 32, 2 * 384 + 3 * 32),
        # A weight multiplies the units of each expert.
        ("Top-2", 192 + 2 * 400 + 32, 2 * 192 + 2 * (2 * 384 + 3 * 16) + 3 * 32),
        ("DSelect-2, recipe", 192 + 2 * 400 + 32, 2 * 192 + 8 * 816 + 3 * 32),
        # All 8 in 0.45 of the training, in the mean, and then one: 4.15.
        ("Top-1, dense first", 192 + 400 + 32, 2 * 192 + 4.15 * 816 + 3 * 32),
        # Merging kernels and biases is a product, too.
        ("SMEAR", 192 + 9 * 400 + 16, 2 * 192 + 24 * 400 + 2 * 384 + 3 * 32),
        # In training, the last layer of each expert, and no mixture.
        ("by losses, 2", 192 + 2 * 400 + 32, 2 * 192 + 8 * 864),
        ("by losses, 1, expert always on", 192 + 2 * 384 + 48, 2 * 576 + 8 * 864),
        ("by losses, 1, shared kernel", 192 + 384 + 48, 2 * 576 + 8 * 864),
    ],
)
def test_multiplications_are_those_of_the_experts_that_run(arm, served, trained):
    assert bench.multiplications(arm, 24, 8, 2) == served
    ratio = trained / (2 * 384 + 3 * 32)
    assert page.cost(arm, (24, 8, 2), training=True) == pytest.approx(ratio)


@pytest.mark.backend_independent
def test_a_deeper_router_has_two_products_and_no_gradient_of_the_inputs():
    count = functools.partial(bench.multiplications, "Switch", 24, 8, 1)
    assert count(32) == 24 * 32 + 32 * 8 + 384 + 16 + 16
    more = (2 * 24 * 32 + 3 * 32 * 8) - 2 * 24 * 8
    assert count(32, training=True) - count(0, training=True) == more


@pytest.mark.backend_independent
def test_an_expert_that_is_always_on_is_one_more():
    names = [*arms.VARIANTS, "Switch", "Top-2", "softmax", arms.ONE, arms.WIDE]
    assert list(map(page.experts_of, names)) == [2, 1, 1, 1, 2, 0, 1, 0]


SIZES = training.Sizes(3, (False, True), 4, 0, 0)


def built(arm):
    """The model of an arm."""
    model, *_ = training.RouterTrainer(arms.ROUTERS[arm], SIZES, 1).build()
    return model


@pytest.mark.parametrize("arm", arms.ROUTERS)
def test_every_arm_runs_its_experts_at_serving(arm):
    model = built(arm)
    x = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    tags = np.stack([np.arange(6) % 4, np.arange(6) % 2, np.zeros(6)], axis=1)
    y = np.array([[0.5, 1.0], [np.nan, 0.0]] * 3, "float32")
    served = model((x, tags.astype("int32")), training=False)
    assert served.shape == (6, 2)
    loss = model.compute_loss(None, y, served)
    expected = numpy(served)
    squares = np.mean((expected[::2, 0] - 0.5) ** 2)
    entropies = np.mean(np.logaddexp(0, expected[:, 1]) - y[:, 1] * expected[:, 1])
    assert_close(loss, (squares + entropies) / 2, rtol=1e-5)


def test_experts_compete_in_training():
    model = built("by losses, 1")
    x = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    inputs, y = (x, np.zeros((6, 3), "int32")), np.ones((6, 2), "float32")
    outputs, logs = model(inputs, training=True)
    assert (outputs.shape, logs.shape) == ((6, 4, 2), (6, 4))
    each = model.losses_of(ops.convert_to_tensor(y)[:, None], outputs)
    # At the end, that is the expected loss.
    expected = (np.exp(numpy(logs))[..., None] * numpy(each)).sum(axis=1).mean()
    assert_close(model.compute_loss(None, y, (outputs, logs)), expected, rtol=1e-5)
    # Both tasks' noise is that of the first batch now.
    first = ops.convert_to_tensor([0.5, 1.0])
    posterior = numpy(posterior_loss(logs[..., None], each, first))
    assert_close(model.noise, posterior.mean(axis=0), rtol=1e-5)
    # Later, by 1 / step, and by a fiftieth at least.
    for step, rate in ((4, 0.25), (1000, 0.02)):
        before = numpy(model.noise)
        first = ops.convert_to_tensor([0.5 / before[0], 1.0])
        posterior = numpy(posterior_loss(logs[..., None], each, first)).mean(axis=0)
        model.layer.gate.step.assign(step)
        model.compute_loss(None, y, (outputs, logs))
        assert_close(model.noise, before + rate * (posterior - before), rtol=1e-4)


def test_a_warm_start_is_a_choice_by_the_losses_of_each_task():
    model = built("by losses, 1, warm start")
    x = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    y = ops.convert_to_tensor(np.ones((6, 2), "float32"))
    outputs = model((x, np.zeros((6, 3), "int32")), training=True)
    each = model.losses_of(y[:, None], outputs[0])
    model.numbers.numbers["choice"].assign(1.0)
    first = ops.convert_to_tensor([0.5, 1.0])
    expected = ops.mean(choice_loss(outputs[1][..., None], each, first))
    assert_close(model.compute_loss(None, y, outputs), expected, rtol=1e-5)


@pytest.mark.parametrize("shared", ["expert", "kernel"])
def test_what_experts_share_is_added_to_each(shared):
    name = {"expert": "expert always on", "kernel": "shared kernel"}[shared]
    model = built(f"by losses, 1, {name}")
    x = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    outputs, _ = model((x, np.zeros((6, 3), "int32")), training=True)
    kernels, _ = model.layer.experts.trainable_variables  # Biases start at zero.
    own = np.einsum("bf,nfu->bnu", x, numpy(kernels))
    common = (x @ numpy(model.shared.kernel))[:, None]
    if shared == "kernel":
        experts = np.maximum(own + common, 0)
    else:
        experts = np.maximum(own, 0) + np.maximum(common, 0)
    assert_close(outputs, experts @ numpy(model.head.kernel), rtol=1e-4, atol=1e-5)
    # Only deviations decay, with the layer of the tasks.
    optimizer = model.optimizer
    decays = [optimizer._use_weight_decay(v) for v in model.shared.trainable_variables]
    assert decays == ([False] if shared == "kernel" else [True, False])


def invented(problem, arm, tests, validation=None):
    """Rows of the draws of an arm."""
    about = {"problem": problem, "kind": problems.PROBLEMS[problem].kind, "arm": arm}
    about["overlap"] = 0.0
    about["family"] = problems.PROBLEMS[problem].family
    pairs = zip(tests, validation or tests, strict=True)
    return [
        {**about, "draw": draw, "test": test, "objective": objective}
        for draw, (test, objective) in enumerate(pairs)
    ]


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("regions", "real", "holds"),
    [(0.8, 1.0, True), (0.95, 1.0, False), (0.8, 1.03, False), (0.8, 1.02, True)],
)
def test_the_rule_compares_with_the_best_of_the_same_cost(regions, real, holds):
    rows = []
    for problem, ours in (("tag", regions), ("signs", regions), ("adult", real)):
        rows += invented(problem, page.OURS[1], [ours, ours])
        rows += invented(problem, "Switch", [1.0, 1.0])
        # Two experts cost more, and this validation error is not the lowest.
        rows += invented(problem, "Top-2", [0.1, 0.1])
        rows += invented(problem, "hash", [0.1, 0.1], [2.0, 2.0])
    first, second, found = page.enters(rows, 1)
    assert (first.mean, second.mean, found) == pytest.approx((regions, real, holds))
    only_regions = [row for row in rows if row["problem"] != "adult"]
    assert page.enters(only_regions, 1)[2] is None


@pytest.mark.backend_independent
def test_a_router_is_compared_with_the_dense_expert_of_its_cost():
    rows = invented("tag", "Top-2", [0.8] * 3) + invented("tag", arms.ONE, [1.0] * 3)
    # Neither runs one or two experts that it has chosen.
    rows += invented("tag", "softmax", [0.1] * 3)
    rows += invented("tag", "known regions", [0.1] * 3)
    small, large = arms.DENSE
    assert page.is_one_enough(rows) == "no"
    # Of 24 units, at 1.5 times the cost, and of 40, at 2.5 times.
    rows += invented("tag", small, [0.9] * 3)
    assert page.is_one_enough(rows) == "no"
    rows += invented("tag", large, [0.8] * 3)
    assert page.is_one_enough(rows) == "yes"
    # Which costs more than a router of one expert.
    rows += invented("tag", "Switch", [0.7] * 3)
    assert page.best_of(rows, page.ROUTED) == dict.fromkeys(page.rivals(rows), 0.7)
    assert set(page.rivals(rows).values()) == {0.9}
    # The same rule, of a wide expert.
    assert page.does_width_do(rows) == "undecided"
    assert page.does_width_do(rows + invented("tag", arms.WIDE, [0.9] * 3)) == "no"
    assert page.does_width_do(rows + invented("tag", arms.WIDE, [0.6] * 3)) == "yes"


@pytest.mark.backend_independent
def test_the_page_answers_three_questions_with_the_numbers_of_the_results():
    # For each problem: one expert, a wide one, and four routers on three draws.
    errors = {
        "one expert": (1.0, 1.0, 1.0),
        "one wide expert": (0.9, 1.0, 0.5),
        "Switch": (0.5, 1.2, 0.9),
        "Top-2": ([0.4, 0.5, 0.6], 1.1, 0.8),
        "Top-2, noisy": (0.9, 1.1, 0.8),
        "by losses, 1": (0.1, 1.5, 1.5),
    }
    rows = [
        row
        for place, problem in enumerate(("tag", "adult", "energy"))
        for arm, own in errors.items()
        for row in invented(problem, arm, np.broadcast_to(own[place], 3).tolist())
    ]
    found = page.answers(rows, page.verdicts(rows))
    # (0.4 x 0.5 x 0.6)^(1/3) = 0.493; ours is not in the package. (1.1 x 0.8)^(1/2) =
    # 0.938, and (1 x 0.5)^(1/2) = 0.707; t is 12.7 for two problems of one family.
    assert found == {
        "best_regions": "*Top-2*",
        "near_regions": "*Switch*",
        "best_real": "*Top-2*",
        "near_real": "*Top-2, noisy*, *Switch*",
        "arm": "*Top-2*",
        "error_regions": "0.493 [0.30, 0.82]",
        "error_real": "0.938 [0.12, 7.09]",
        "serving": pytest.approx(2.5, abs=0.05),
        "training": pytest.approx(2.5, abs=0.05),
        "wide_regions": "0.900 [0.90, 0.90]",
        "wide_real": "0.707 [0.01, 57.80]",
        "wide": 8.0,
        "num_enough": 1,
        "enough": "adult",
        "num_better": 2,
        "better": "tag, energy",
        "num_undecided": "none",
        "undecided": "none",
        "num_wider": 1,
        "wider": "energy",
    }


@needs_jax
def test_the_command_tunes_runs_and_writes_the_page(tmp_path, monkeypatch, capsys):
    def train(self, arm, tables, jobs):
        # The larger rate is better, but on the draw of the trials.
        signs = [1 if job.is_trial else -1e-3 for job in jobs]
        pairs = zip(jobs, signs, strict=True)
        errors = [100 + sign / job.settings["rate"] for job, sign in pairs]
        return [np.full((2, 2), error) for error in errors]

    monkeypatch.setattr(training.RouterTrainer, "train", train)
    # Those committed have all arms.
    monkeypatch.setattr(bench.Routers, "committed", dict)
    few = (arms.ONE, arms.WIDE, arms.KNOWN, arms.SWITCH, arms.SMEAR)
    few = (*few, *arms.DENSE, *page.OURS.values())
    monkeypatch.setattr(bench, "ROUTERS", {name: arms.ROUTERS[name] for name in few})
    monkeypatch.setattr(bench, "RATES", arms.RATES[-2:])
    monkeypatch.setattr(bench, "DECAYS", arms.DECAYS[:1])
    table = problems.generated(problems.by_tag(), num_train=10)
    for name in ("tag", "adult"):
        kind = problems.PROBLEMS[name].kind
        problem = problems.Problem(kind, table, family=name, name=name)
        monkeypatch.setitem(problems.PROBLEMS, name, problem)
    given = ["--per-example", "--out", str(tmp_path), "--problems"]
    both = [*given, "tag", "adult"]
    gatebench.main([*both, "--draws", "1"])
    path = tmp_path / "routers" / "routers_tag.json"

    runs = json.loads(path.read_text())["runs"]
    runs = [run for run in runs if not run["tuning"]]
    assert len(runs) == len(few)
    assert {run["settings"]["rate"] for run in runs} == {arms.RATES[-1]}
    assert runs[0]["numbers"] == {"objective": 99.99, "test": 99.99, "stage": 1}
    capsys.readouterr()
    gatebench.main([*both, "--draws", "2", "--dry-run"])
    shown = capsys.readouterr().out
    assert f"tag: {len(few)} runs" in shown
    # Regions are not known of a real table.
    assert f"adult: {len(few) - 1} runs" in shown
    text = (tmp_path / "routers.md").read_text()
    assert f"{len(problems.PROBLEMS)} problems" in " ".join(text.split())
    assert (tmp_path / "images" / "routers.png").exists()


@needs_jax
def test_copies_are_trained_as_each_alone():
    # XLA compiles a program that trains and one that tests, which takes seconds.
    own = problems.generated(problems.by_tag(), num_train=200)
    problem = problems.Problem("regions", own)
    tables = {seed: own(seed, ".") for seed in (0, 1)}
    jobs = [
        Job(seed, {"rate": rate, "decay": 0.1, "own": 0.3})
        for seed, rate in ((0, 0.01), (1, 0.03), (1, 0.01), (0, 0.1), (1, 0.1))
    ]
    arm, sizes = arms.ROUTERS[page.OURS[1]], training.sizes_of(problem, tables[0])
    trainer = training.RouterTrainer(arm, sizes, 2)
    found = trainer.train(arm, tables, jobs)
    (alone,) = trainer.train(arm, tables, jobs[2:3])
    assert np.shape(found) == (5, 2, 2)
    assert len({each[1, 1] for each in found}) == 5
    assert_close(found[2], alone, rtol=1e-3)
