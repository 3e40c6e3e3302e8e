"""Claims of the papers are judged, on runs that are made up."""

from pathlib import Path

import pytest

from research.engine import NIL, Results, Run
from research.engine.results import NotRunError
from research.papers import EXPERIMENTS
from research.papers.dselectk._gates import lower, within_rules

ROOT = Path(__file__).parents[3]


def made_up(name, runs, preset="cpu"):
    """The experiment of a name, and `Results` of runs: (arm, seed, numbers)."""
    experiment = EXPERIMENTS[name].presets()[preset]
    results = Results(experiment, preset)
    results.runs = [
        Run(arm, seed, {}, numbers, 60.0, tuning=seed < 0)
        for arm, seed, numbers in runs
    ]
    return experiment, results


@pytest.mark.parametrize(
    ("name", "data", "papers"),
    [
        ("dselectk-fig3", *["the logs of a recommender"] * 2),
        ("dselectk-fig5", "", ""),
        ("specialization-table3", "CIFAR-100", ""),
        ("smear-table3-small", "DomainNet", ""),
        ("smear-table2-small", *["T5 on GLUE"] * 2),
    ],
)
def test_stand_ins_are_named(name, data, papers):
    presets = EXPERIMENTS[name].presets()
    assert presets["cpu"].stands_in_for == data
    assert presets["paper"].stands_in_for == papers


def test_the_papers_entropies_make_nothing_nil_on_a_stand_in():
    pairs = [("attentive", "original")]
    for name, wanted in (
        ("specialization-table2", NIL),
        ("specialization-table3", None),
    ):
        runs = [
            (method, seed, {"error": 0.3 + 1e-5 * (-1) ** (seed + place)})
            for place, method in enumerate(pairs[0])
            for seed in range(10)
        ]
        experiment, results = made_up(name, runs)
        *_, judged = experiment.compare(results, "error", pairs, -1)
        assert judged.holds == wanted, name


def test_a_share_below_a_step_is_not_testable():
    arm = "DSelect-k, static, alpha {}".format
    runs = [
        (arm(alpha), seed, {"decided": 0.1}) for alpha in (0.1, 0.9) for seed in (0, 1)
    ]
    experiment, results = made_up("dselectk-table4", runs)
    assert experiment.is_as_early(results, 0.1) is True  # 10 % is before 11.37 %.
    judged = experiment.is_as_early(results, 0.9)
    assert judged.holds == "not testable here"
    assert judged.why == "0.04 % of our 939 steps are less than one."
    runs = [(arm(0.1), seed, {"decided": 0.2}) for seed in (0, 1)]
    _, results = made_up("dselectk-table4", runs)
    assert experiment.is_as_early(results, 0.1) is False


def test_a_gate_without_experts_is_no_rival():
    ours, other = "DSelect-k, static, alpha 0.5", "Gumbel-softmax, static, alpha 0.5"
    for experts, wanted in ((0.0, "inadmissible"), (1.0, False)):
        runs = [
            (arm, seed, {"admissible": True, "experts": number + 0.01 * seed * number})
            for arm, number in ((ours, 2.0), (other, experts))
            for seed in range(5)
        ]
        _, results = made_up("dselectk-table1-5", runs)
        judged = lower(results, [(ours, other, "experts")])
        assert getattr(judged, "holds", judged) == wanted
        assert within_rules(results, other).all() == (experts > 0)


def figure5(kept, better):
    """Figure 5 where DSelect-k keeps the rules, and is better, for numbers of tasks."""
    runs = []
    for count in (16, 32, 64, 128):
        for seed in range(5):
            error = 0.5 + 0.01 * seed
            ours = {"mse": error - 0.1 if count in better else error + 0.1}
            ours["admissible"] = count in kept
            runs.append((f"DSelect-k, {count} tasks", seed, ours))
            theirs = {"mse": error + 0.001 * seed, "admissible": True}
            runs.append((f"Top-k, {count} tasks", seed, theirs))
    return made_up("dselectk-fig5", runs)


@pytest.mark.parametrize(
    ("kept", "better", "wanted"),
    [
        ((16, 32, 64, 128), (16, 32, 64, 128), True),
        ((16, 32, 64), (16, 32, 64, 128), "inadmissible"),
        ((), (), "inadmissible"),
        # One number of tasks refutes what is said of all.
        ((16, 32), (16, 64, 128), False),
    ],
)
def test_claims_of_figure_5_are_of_runs_within_the_rules(kept, better, wanted):
    experiment, results = figure5(kept, better)
    judged = experiment.is_better(results, "mse", ["Top-k"])
    assert getattr(judged, "holds", judged) == wanted
    results.runs = [run for run in results.runs if "Top-k" not in run.arm]
    with pytest.raises(NotRunError):
        experiment.is_better(results, "mse", ["Top-k"])


def census(lucky):
    """Two methods a little apart, whose trials were better by some area."""
    runs = []
    for arm, higher in (("MMoE", 1e-4), ("OMoE", 0.0)):
        for seed in range(8):
            area = 0.9 + higher * (1 + 8 * (-1) ** seed)
            runs.append((arm, seed, {"income": area, "objective": 0.1}))
        runs.append((arm, -1, {"objective": 0.1 - lucky}))
    return made_up("mmoe-table1", runs)


def test_seeds_do_not_decide_what_the_luck_of_tuning_does():
    experiment, results = census(lucky=0.0)
    judged = experiment.is_above(results, ["MMoE"], ["OMoE"], known=False)
    assert (judged.holds, judged.why) == (None, "")
    assert 8 < judged.seeds < 1e6
    experiment, results = census(lucky=0.01)
    judged = experiment.is_above(results, ["MMoE"], ["OMoE"], known=False)
    assert judged.holds is None
    assert judged.seeds == float("inf")
    assert experiment.is_above(results, ["MMoE"], ["OMoE"], slack=1.0).holds is True
    # Two trials of a minute.
    assert judged.why == (
        "not seeds, but further searches of settings would decide; one of all methods "
        "takes 2 min"
    )


def test_times_of_serving_are_beside_the_operations_of_the_models_that_are_timed():
    # Those of the preset `paper`: 8 experts of 64 units behind 256, and two gates.
    shared = 20 * 256 + 256 * 64 + 2 * 64
    mixed = 20 * 256 + 8 * 256 * 64 + 2 * 256 * 8 + 2 * 64
    timed = EXPERIMENTS["mmoe-table3"].presets()["paper"]
    assert timed.kernels("MMoE") == mixed / shared
    page = (ROOT / "docs/reproduction/mmoe-table3.md").read_text(encoding="utf-8")
    assert page.count(f"it has {mixed / shared:.1f} times the multiplications") == 3
