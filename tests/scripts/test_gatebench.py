"""The comparison of gates: its command, its problems and its ranks."""

import importlib
import json
import pathlib

import numpy as np
import pytest

import experiments

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    return importlib.import_module


@pytest.mark.traced
def test_a_smoke_run_writes_ranks_and_tables(module, tmp_path):
    main = module("gatebench").main
    arguments = ["--preset", "smoke", "--out", str(tmp_path), "--data-dir", "/private"]
    arguments += ["--problems", "enb", "--methods", "Top-k", "DSelect-k, recipe"]
    assert main(arguments) == 0
    text = (tmp_path / "gatebench.md").read_text()
    assert "| DSelect-k, recipe | " in text
    assert "| Top-k | " in text
    kept = json.loads((tmp_path / "gatebench_smoke.json").read_text())
    assert "/private" not in json.dumps(kept) + text
    runs = [run["numbers"] for run in kept["runs"] if not run.get("tuning")]
    assert all(numbers["sparse"] and numbers["experts"] <= 2 for numbers in runs)
    # Nothing is run again.
    assert main([*arguments, "--pages-only"]) == 0


@pytest.mark.parametrize("option", ["--problems", "--methods"])
def test_unknown_names_are_refused(module, option):
    with pytest.raises(SystemExit, match=r"There is no .* 'x'\. Known: "):
        module("gatebench").main([option, "x"])


def test_a_table_is_read_and_split(module, tmp_path):
    problems = module("gate_comparison.problems")
    rows = "\n".join(f"{'ab'[i % 2]}, {i}, {i}.5" for i in range(10))
    text = (
        "% x\n@relation t\n@attribute c {a,b}\n@attribute n numeric\n"
        f"@ATTRIBUTE y real\n\n@data\n{rows}\n"
    )
    (tmp_path / "uci_multitarget").mkdir()
    (tmp_path / "uci_multitarget/t.arff").write_text(text)
    data = problems.table("t.arff", 1)(100, 0, tmp_path)
    assert [len(part.x) for part in (data.train, data.validation, data.test)] == [
        6,
        2,
        2,
    ]
    assert data.train.x.shape == (6, 3)
    np.testing.assert_allclose(data.train.x.mean(axis=0), 0.0, atol=1e-6)
    labels = np.concatenate([data.train.y, data.validation.y, data.test.y])
    np.testing.assert_array_equal(np.sort(labels[:, 0]), np.arange(10) + 0.5)


def test_the_committed_page_has_the_committed_results(module):
    experiments = module("experiments")
    pages = module("experiments.pages")
    preset = module("gate_comparison").GateComparison.presets()["small"]
    folder = SCRIPTS.parent / "docs/gatebench"
    results = experiments.Results(preset, "small", folder)
    text = pages.page(results)
    assert (folder / "gatebench.md").read_text(encoding="utf-8") == text


def test_experts_and_operations_of_an_example_are_counted(module):
    experiment = module("gate_comparison.experiment")
    layers = module("dselectk_keras")
    gate = layers.TopKGate(1)
    model = layers.build_multitask_model(
        5, ["a", "b"], experts=layers.DenseExperts(4, [3]), gate=gate, per_example=False
    )
    weights = np.array([[1.0, 0, 0, 0], [0, 0, 1.0, 0]])
    model.get_layer("mmoe").gate.assign_expert_weights(weights)
    split = module("dselectk_keras.datasets").Split(np.ones((7, 5), "float32"), None)
    assert experiment.count_experts(model, split) == 2.0
    # Half of the experts, 5 x 3 each; a tower for each task.
    expected = 2 * (0.5 * 4 * 5 * 3 + 2 * 3)
    assert experiment.count_operations(model, 0.5) == expected


def test_ranks_are_means_over_problems(module):
    ranks = module("gate_comparison.ranks")
    losses = np.array([[0.1, 0.2, 0.3], [0.5, 0.4, 0.4]])
    np.testing.assert_allclose(ranks.mean_ranks(losses), [2.0, 1.75, 2.25])
    # Demsar (2006), Table 5: the quantile for 4 classifiers is 2.569.
    found = ranks.critical_difference(4, 14)
    assert found == pytest.approx(2.569 * np.sqrt(20 / 84), abs=2e-3)


def test_a_method_with_a_failed_run_is_the_last(module):
    comparison = module("gate_comparison").GateComparison(
        problems=("enb",), methods=("DSelect-k, recipe", "random, fixed"), seeds=2
    )
    results = experiments.Results(comparison, "test")
    losses = {"DSelect-k, recipe": (0.1, float("nan")), "random, fixed": (0.5, 0.6)}
    for method, found in losses.items():
        for seed, loss in enumerate(found):
            numbers = {"loss": loss, "operations": 1, "sparse": True}
            run = experiments.Run(f"enb: {method}", seed, {}, numbers, 1.0)
            results.add(run, {})
    text = "\n".join(experiments.fill_template(results).blocks)
    ranks = ("| random, fixed | 1.00 |", "| DSelect-k, recipe | 2.00 |")
    assert text.index(ranks[0]) < text.index(ranks[1])
    assert "| DSelect-k, recipe | 0.100 (1 failed) |" in text
    assert "lower mean loss on 0 of 1 problems" in text


def test_seeds_take_turns_on_draws_of_the_data(module, monkeypatch):
    comparison = module("gate_comparison").GateComparison(draws=2)
    job = module("experiments").Job

    def run(self, problem, method, jobs, draw):
        return [{"seed": job.seed, "draw": draw} for job in jobs]

    monkeypatch.setattr(type(comparison), "_run", run)
    arm = next(iter(comparison.arms))
    found = comparison.run(arm, [job(seed, {}) for seed in range(3)])
    assert [(each["seed"], each["draw"]) for each in found] == [(0, 0), (1, 1), (2, 0)]
