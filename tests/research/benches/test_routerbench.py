"""The comparison of routers: its problems, arms, rule, page and command."""

import functools
import itertools
import json
import types

import gatebench
import numpy as np
import pytest
from checks import assert_close
from helpers import gradient, numpy
from keras import ops

from research.benches.gate_comparison.statistics import Ratio
from research.benches.router_comparison import (
    arms,
    bench,
    page,
    problems,
    training,
)
from research.benches.router_comparison.by_losses import (
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


def test_the_largest_weights_get_the_weight_of_all():
    found = training.keep(np.array([[0.5, 0.3, 0.2], [0.0, 0.25, 0.25]]), 1)
    assert_close(found, [[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]], rtol=1e-6)
    found = training.keep(np.array([[0.5, 0.3, 0.2], [0.0, 0.0, 0.0]]), 2)
    assert_close(found, [[0.625, 0.375, 0.0], [0.0, 0.0, 0.0]], rtol=1e-6)


@pytest.mark.backend_independent
def test_regions_are_those_of_the_inputs():
    rng = np.random.default_rng(0)
    x, regions = problems.by_tag(noise=0.0, falling=0.5)(rng, 4000, 8)
    assert (x[:, problems.FEATURES :].argmax(axis=1) == regions).all()
    counts = np.bincount(regions, minlength=8)
    assert (np.diff(counts) < 0).all()
    for draw in (problems.by_signs, problems.by_products):
        _, regions = draw(np.random.default_rng(1), 4000, 8)
        assert np.bincount(regions).shape == (8,)
        _, opposite = draw(types.SimpleNamespace(normal=_mirrored(1)), 4000, 8)
        # Planes part an input from its mirror image; products of two do not.
        same = draw is problems.by_products
        assert (opposite == (regions if same else 7 - regions)).all()


def _mirrored(seed):
    """Normal numbers, the first array of which, the inputs, is mirrored."""
    rng, signs = np.random.default_rng(seed), itertools.chain([-1], itertools.repeat(1))
    return lambda size: next(signs) * rng.normal(size=size)


@pytest.mark.backend_independent
def test_each_region_has_a_function_of_its_own():
    table = problems.generated(problems.by_tag(), noise=0.0, tasks=2)(0, ".")
    again = problems.generated(problems.by_tag(), noise=0.0, tasks=2)(0, ".")
    assert [len(x) for x, _ in table.splits] == list(problems.SIZES)
    assert table.binary.tolist() == [False, True]
    (x, y), regions = table.splits[0], table.groups[0]
    np.testing.assert_array_equal(y, again.splits[0].y)
    assert set(np.unique(y[:, 1])) == {0.0, 1.0}

    # A line explains more within a region than over all of them.
    def unexplained(rows):
        known = np.hstack([x[rows, : problems.FEATURES], np.ones((rows.sum(), 1))])
        return np.linalg.lstsq(known, y[rows, 0])[1][0] / len(known)

    own = [unexplained(regions == region) for region in range(8)]
    assert np.mean(own) < 0.9 * unexplained(regions >= 0)


@pytest.mark.backend_independent
def test_a_domain_has_the_classes_in_an_order_of_its_own(monkeypatch):
    count = sum(problems.SIZES)
    classes = np.arange(count) % 10
    x = np.broadcast_to(classes[:, None, None], (count, 28, 28))
    data = types.SimpleNamespace(train=types.SimpleNamespace(x=x, y=classes[:, None]))
    monkeypatch.setattr(problems.research.papers.data, "load", lambda *_, **__: data)
    table = problems.images("mnist")(0, ".")
    (x, y), regions = table.splits[0], table.groups[0]
    assert x.shape[1] == 49 + 4
    triples = {*zip(regions, x[:, 0], y[:, 0], strict=True)}
    assert len(triples) == 40
    assert len({(region, label) for region, _, label in triples}) == 40


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
    gate = types.SimpleNamespace(step="step")
    start = arms.dense_first(1).more["start"]
    assert start(gate, 0.3, 100) == [("step", arms.MANY - 30)]


@pytest.mark.parametrize(
    ("arm", "count"),
    [
        # An expert has 24 x 16, the last layer 16 x 2, and the router 24 x 8.
        ("one expert", 384 + 32),
        ("one wide expert", 8 * (384 + 32)),
        ("one expert, 40 units", 40 * (24 + 2)),
        ("known regions", 384 + 32),
        # A weight multiplies the units of each expert.
        ("Top-2", 192 + 2 * (384 + 16) + 32),
        ("softmax", 192 + 8 * (384 + 16) + 32),
        ("SMEAR", 192 + 8 * (384 + 16) + 384 + 32),
        ("by losses, 1, expert always on", 192 + 2 * 384 + 16 + 32),
        ("by losses, 1, shared kernel", 192 + 384 + 16 + 32),
    ],
)
def test_multiplications_are_those_of_the_experts_that_run(arm, count):
    assert bench.multiplications(arm, 24, 8, 2) == count


def test_a_deeper_router_has_two_products_and_no_gradient_of_the_inputs():
    count = functools.partial(bench.multiplications, "Switch", 24, 8, 1)
    assert count(32) == 24 * 32 + 32 * 8 + 384 + 16 + 16
    more = (2 * 24 * 32 + 3 * 32 * 8) - 2 * 24 * 8
    assert count(32, training=True) - count(0, training=True) == more


@pytest.mark.backend_independent
def test_an_expert_that_is_always_on_is_one_more():
    counts = {name: page.experts_of(name) for name in arms.ROUTERS}
    assert [counts[name] for name in arms.VARIANTS] == [2, 1, 1]
    assert (counts["Switch"], counts["Top-2"], counts["softmax"]) == (1, 2, 0)
    assert (counts[arms.ONE], counts[arms.WIDE]) == (1, 0)


@pytest.mark.parametrize(
    ("arm", "count"),
    [
        # Forward, for the kernel, and but for products with the inputs, for the inputs.
        ("one wide expert", 8 * (2 * 384 + 3 * 32)),
        ("hash", 2 * 384 + 3 * 32),
        ("Top-2", 2 * 192 + 2 * (2 * 384 + 3 * 16) + 3 * 32),
        ("DSelect-2, recipe", 2 * 192 + 8 * (2 * 384 + 3 * 16) + 3 * 32),
        # All 8 in 0.45 of the training, in the mean, and then one: 4.15.
        ("Top-1, dense first", 2 * 192 + 4.15 * (2 * 384 + 3 * 16) + 3 * 32),
        # The last layer of each expert, and no mixture.
        ("by losses, 2", 2 * 192 + 8 * (2 * 384 + 3 * 32)),
        ("by losses, 1, shared kernel", 2 * 192 + 2 * 384 + 8 * (2 * 384 + 3 * 32)),
        # Merging kernels and biases is a product, too.
        ("SMEAR", 2 * 192 + 3 * 8 * (384 + 16) + 2 * 384 + 3 * 32),
    ],
)
def test_training_counts_the_backward_pass_of_the_experts_that_run(arm, count):
    assert bench.multiplications(arm, 24, 8, 2, training=True) == pytest.approx(count)
    ratio = count / (2 * 384 + 3 * 32)
    assert page.cost(arm, (24, 8, 2), training=True) == pytest.approx(ratio)


SIZES = training.Sizes(3, (False, True), 4, 0, 0)


@pytest.mark.parametrize("arm", arms.ROUTERS)
def test_every_arm_runs_its_experts_at_serving(arm):
    model = training.build(arm, SIZES, 0)
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
    model = training.build("by losses, 1", SIZES, 0)
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
    model = training.build("by losses, 1, warm start", SIZES, 0)
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
    model = training.build(f"by losses, 1, {name}", SIZES, 0)
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
    shared = {"problem": problem, "arm": arm}
    return [
        {**shared, "draw": draw, "test": test, "objective": objective}
        for draw, (test, objective) in enumerate(
            zip(tests, validation or tests, strict=True)
        )
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
    found = page.enters(rows, 1)
    one, other = (Ratio(each, each, each) for each in (regions, real))
    np.testing.assert_allclose(found[:2], [one, other])
    assert found[2] is holds
    only_regions = [row for row in rows if row["problem"] != "adult"]
    assert page.enters(only_regions, 1)[2] is None


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("routed", "word"),
    [
        ([0.8, 0.82, 0.82], "no"),
        ([0.99, 1.0, 1.0], "yes"),
        ([0.9, 1.0, 1.1], "undecided"),
        ([0.5, 0.5], "undecided"),
    ],
)
def test_one_expert_is_enough_if_no_router_is_better(routed, word):
    rows = invented("tag", "Top-2", routed)
    rows += invented("tag", "one expert", [1.0] * len(routed))
    # Neither runs one or two experts that it has chosen.
    rows += invented("tag", "softmax", [0.1] * len(routed))
    rows += invented("tag", "known regions", [0.1] * len(routed))
    assert page.is_one_enough(rows, "tag") == word
    # The same rule, of a wide expert.
    wide = [row | {"arm": "one wide expert"} for row in rows if row["arm"] == arms.ONE]
    assert page.does_width_do([*rows, *wide], "tag") == word
    assert page.does_width_do(rows, "tag") == "undecided"


@pytest.mark.backend_independent
def test_a_router_is_compared_with_the_dense_expert_of_its_cost():
    rows = invented("tag", "Top-2", [0.8] * 3) + invented("tag", arms.ONE, [1.0] * 3)
    small, large = arms.DENSE
    assert page.is_one_enough(rows, "tag") == "no"
    # Of 24 units, at 1.5 times the cost, and of 40, at 2.5 times.
    rows += invented("tag", small, [0.9] * 3)
    assert page.is_one_enough(rows, "tag") == "no"
    rows += invented("tag", large, [0.8] * 3)
    assert page.is_one_enough(rows, "tag") == "yes"
    # Which costs more than a router of one expert.
    rows += invented("tag", "Switch", [0.7] * 3)
    best = page.best_rows(rows, page.ROUTED)
    assert {row["arm"] for row in best.values()} == {"Switch"}
    assert set(page.rivals(rows, best).values()) == {0.9}


@pytest.mark.backend_independent
@pytest.mark.parametrize("validation", [[0.3, 0.1, 0.2], [np.nan, 0.1, np.inf]])
def test_the_stage_with_the_lowest_validation_error_is_reported(validation):
    found = training._best(np.array([validation, [1.0, 3.0, 2.0]]))
    assert found == {"objective": 0.1, "test": 3.0, "stage": 2}


@pytest.mark.backend_independent
def test_the_page_answers_three_questions_with_the_numbers_of_the_results():
    errors = {
        # Each problem: one expert, a wide one, and three routers on three draws.
        "tag": {"one expert": [1.0] * 3, "one wide expert": [0.9] * 3},
        "adult": {"one expert": [1.0] * 3, "one wide expert": [1.0] * 3},
        "energy": {"one expert": [1.0] * 3, "one wide expert": [0.5] * 3},
    }
    routers = {
        "Switch": {"tag": [0.5] * 3, "adult": [1.2] * 3, "energy": [0.9] * 3},
        "Top-2": {"tag": [0.4, 0.5, 0.6], "adult": [1.1] * 3, "energy": [0.8] * 3},
        "Top-2, noisy": {"tag": [0.8] * 3, "adult": [1.1] * 3, "energy": [0.8] * 3},
        "by losses, 1": {"tag": [0.1] * 3, "adult": [1.5] * 3, "energy": [1.5] * 3},
    }
    for arm, own in routers.items():
        for problem, tests in own.items():
            errors[problem][arm] = tests
    rows = [
        row
        for problem, own in errors.items()
        for arm, tests in own.items()
        for row in invented(problem, arm, tests)
    ]
    which, worth, enough = (
        " ".join(each.split())
        for each in page.answers(rows, page.verdicts(rows)).split("\n- ")
    )
    # (0.4 x 0.5 x 0.6)^(1/3) = 0.493; ours is not in the package.
    assert "*Top-2* has the lowest error where generated inputs" in which
    first, second = "*Switch*, *Top-2, noisy*", "*Top-2, noisy*, *Switch*"
    assert which.endswith(f"than the first: {first}; than the second: {second}.")
    assert "*Top-2* has 0.493 [0.30, 0.82] times the test error" in worth
    # (1.1 x 0.8)^(1/2) = 0.938, and (1 x 0.5)^(1/2) = 0.707; t is 12.7 for two
    # problems of one family.
    assert "on real tables 0.938 [0.12, 7.09], at 2.5 times its cost at" in worth
    assert (
        "serving and 2.5 in training; one wide expert has 0.900 [0.90, 0.90]" in worth
    )
    assert "and 0.707 [0.01, 57.80], at 8.0 times both costs." in worth
    assert "On 1 of 3 problems (adult); on 2, the best router" in enough
    assert "on 1 of these (energy)" in enough


@pytest.mark.backend_independent
def test_the_committed_page_has_the_committed_results():
    text = bench.COMMITTED.with_suffix(".md").read_text(encoding="utf-8")
    assert text == page.text(page.read(bench.COMMITTED))


@pytest.mark.backend_independent
def test_the_picture_has_a_colour_for_the_experts_that_run():
    errors = {"one expert": 1.0, "one wide expert": 0.9, "Switch": 0.8, "Top-2": 0.7}
    rows = [
        row
        for problem in ("tag", "signs")
        for arm, test in errors.items()
        for row in invented(problem, arm, [test, 1.1 * test])
    ]
    figure = page.draw({"regions": rows, "none": []})
    shown = [each.get_text() for each in figure.legends[0].get_texts()]
    assert shown == ["runs one expert, 95 %", "two", "all", "one problem"]
    axes = figure.axes[0]
    names = [each.get_text() for each in axes.get_yticklabels()]
    assert names == ["one wide expert", "Switch", "Top-2"]
    colors = [line.get_color() for line in axes.lines if line.get_linewidth() == 2]
    one, two, every = page.style.COLORS[:3]
    assert colors[:3] == [every, one, two]
    points = [line for line in axes.lines if line.get_color() == page.style.GREY]
    np.testing.assert_allclose(points[0].get_xdata(), [0.9, 0.9])


@needs_jax
def test_the_command_goes_on_and_writes_the_page(tmp_path, monkeypatch, capsys):
    def train(problem, arm, tables, jobs, stages):
        # The larger rate is better, but on the draw of the trials.
        errors = [
            len(arm) + 1 / job.settings["rate"] * (1 if job.is_trial else -1e-3)
            for job in jobs
        ]
        return [
            {"objective": error, "test": error, "stage": stages} for error in errors
        ]

    monkeypatch.setattr(bench, "train", train)
    # Those committed have all arms.
    monkeypatch.setattr(bench, "COMMITTED", tmp_path / "none")
    few = (arms.ONE, arms.WIDE, arms.KNOWN, arms.SWITCH, arms.SMEAR)
    few = (*few, *arms.DENSE, *page.OURS.values())
    monkeypatch.setattr(bench, "ROUTERS", {name: arms.ROUTERS[name] for name in few})
    monkeypatch.setattr(bench, "RATES", arms.RATES[-2:])
    monkeypatch.setattr(bench, "DECAYS", arms.DECAYS[:1])
    for name in ("tag", "adult"):
        kind = problems.PROBLEMS[name].kind
        problem = problems.Problem(kind, lambda *_: None)
        monkeypatch.setitem(problems.PROBLEMS, name, problem)
    given = ["--per-example", "--out", str(tmp_path / "runs")]
    both = [*given, "--problems", "tag", "adult"]
    gatebench.main([*both, "--draws", "1"])
    path = tmp_path / "runs" / "routers_tag.json"

    def reported():
        runs = json.loads(path.read_text())["runs"]
        return [run for run in runs if not run["tuning"]]

    first = reported()
    assert len(first) == len(few)
    assert {run["settings"]["rate"] for run in first} == {arms.RATES[-1]}
    capsys.readouterr()
    gatebench.main([*both, "--draws", "2", "--dry-run"])
    shown = capsys.readouterr().out
    assert f"tag: {len(few)} runs" in shown
    # Regions are not known of a real table.
    assert f"adult: {len(few) - 1} runs" in shown
    gatebench.main([*both, "--draws", "2"])
    assert reported()[: len(first)] == first
    assert len(reported()) == 2 * len(first)
    text = (tmp_path / "runs.md").read_text()
    assert f"{len(problems.PROBLEMS)} problems" in " ".join(text.split())
    assert (tmp_path / "images" / "routers.png").exists()
    gatebench.main([*given, "--problems", "tag", "--draws", "1", "--fresh"])
    assert len(reported()) == len(first)


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
    found = training.train(problem, page.OURS[1], tables, jobs, 2)
    alone = training.train(problem, page.OURS[1], tables, jobs[2:3], 2)
    assert len(found) == 5
    assert len({each["test"] for each in found}) == 5
    assert_close(found[2]["test"], alone[0]["test"], rtol=1e-3)
