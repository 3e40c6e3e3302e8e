"""All forms of a workload compute the same, and what is counted is counted right."""

import dataclasses
import functools
import json

import benchmark
import keras
import numpy as np
import pytest

from research.speed import WORKLOADS, replicated
from research.speed.labels import measure_labels
from research.speed.measure import check_forms, flops, labels_of, measure
from research.speed.release import measure_release
from research.speed.report import plain_ratios, write_page

W1, W4 = WORKLOADS["W1-static-128"], WORKLOADS["W4"]
TINY = dataclasses.replace(
    W1, input_shape=(6,), num_experts=6, units=5, batch_size=4, tower=(3,)
)
SPARSE = dataclasses.replace(
    TINY, num_experts=8, num_nonzeros=1, gate="top_k", per_example=True, tower=()
)
XLA = ["XLA"] if keras.backend.backend() == "tensorflow" else []


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_small_workload_has_all_forms(name):
    workload = WORKLOADS[name]
    assert workload.small().forms == workload.forms


@pytest.mark.parametrize(
    ("workload", "forms"),
    [
        (TINY, {"condensed", "one task"}),
        # JAX sorts the names of outputs: "task_10" comes before "task_2".
        (dataclasses.replace(TINY, num_tasks=11, tower="sum"), {"stacked"}),
        (SPARSE, {"dispatched"}),
    ],
)
def test_forms_predict_the_same(workload, forms):
    assert {"list", "plain", *XLA, *forms} <= set(check_forms(workload))


@pytest.mark.backends("tensorflow", reason="JAX compiles all by XLA, torch nothing.")
def test_xla_compiles_the_stacked_form_of_many_tasks():
    many = dataclasses.replace(TINY, num_tasks=8)
    one, two = (workload.model("XLA") for workload in (many, TINY))
    assert one.jit_compile
    assert two.jit_compile
    assert not isinstance(one.output, dict)
    assert isinstance(two.output, dict)


def test_forms_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"must predict the same, to -1.0\. Received"):
        check_forms(TINY, tolerance=-1.0)


def test_operations_by_hand():
    # An example: 6 experts of 6 x 5; 2 mixtures of 6 x 5; 2 towers of 5 x 3 and 3 x 1.
    experts, mixtures, towers = 2 * 6 * 30, 2 * 2 * 30, 2 * 2 * 18
    assert flops(TINY, "bank")["forward_flops"] == 4 * (experts + mixtures + towers)
    # The first layer has no gradient of its inputs.
    wanted = 4 * (2 * experts + 3 * (mixtures + towers))
    assert flops(TINY, "bank")["training_flops"] == wanted
    # Four of the six are used; one task alone has two.
    used = 2 * 4 * 30 + 2 * 2 * 20 + towers
    assert flops(TINY, "condensed")["forward_flops"] == 4 * used
    alone = 2 * 2 * 30 + 2 * 10 + towers // 2
    assert flops(TINY, "one task")["forward_flops"] == 4 * alone


def test_dispatch_counts_what_is_chosen():
    dense, sparse = (
        flops(W4, form)["forward_flops"] for form in ("bank", "dispatched")
    )
    assert 7 < dense / sparse < 8


@pytest.mark.backends("jax", reason="Only JAX counts them.")
def test_operations_are_those_that_the_compiler_counts():
    workload = WORKLOADS["W1-per-example-128"].small()
    import jax

    model = workload.model("bank")
    x, y = workload.data()
    y = labels_of(model, y)
    model.fit(x, y, batch_size=len(x), verbose=0)
    state = [
        [np.array(variable.value) for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
    ]

    def count(function, *arguments):
        program = jax.jit(function).lower(*arguments).compile()
        return program.cost_analysis()["flops"]

    def predict(trainable, other, x):
        return model.stateless_call(trainable, other, x)[0]

    forward = count(predict, *state[:2], x)
    assert forward == pytest.approx(flops(workload, "bank")["forward_flops"], rel=0.1)
    training = count(model.train_step, state, (x, y))
    assert training == pytest.approx(flops(workload, "bank")["training_flops"], rel=0.2)


def keep(folder, *results):
    """The page, and the results of the only file, once these results are kept."""
    for kind, name, found in results:
        path = benchmark.keep(folder, kind, name, found, ["--workloads", "tiny"])
    return write_page(folder).read_text(), json.loads(path.read_text())


@pytest.fixture(scope="module")
def result():
    with pytest.MonkeyPatch.context() as patch:
        makers = {form: functools.partial(SPARSE.model, form) for form in SPARSE.forms}
        # Short turns: that there are times is tested, not how exact they are.
        patch.setattr("research.speed.measure.TURN_SECONDS", 0.01)
        return {"title": "tiny", **measure(SPARSE, makers, rounds=1)}


def test_every_form_has_its_times(result):
    forms = result["forms"]
    plain = ["list", "plain", "plain+metrics"]
    assert list(forms) == [*plain, "bank", *XLA, "dispatched"]
    measured = {
        name: [what for what in ("fit", "predict", "call") if f"{what}_ms" in form]
        for name, form in forms.items()
    }
    for name in ("list", *XLA):
        assert measured.pop(name) == ["fit", "predict"]
    assert measured.pop("plain+metrics") == ["fit"]
    assert set(map(len, measured.values())) == {3}
    assert all(form["fit_ms"] > 0 for form in forms.values())
    assert forms["list"]["fit_times_list"] == forms["plain"]["fit_times_plain"] == 1


def test_the_page_shows_what_was_measured(tmp_path, result):
    page, kept = keep(tmp_path, ("workloads", "tiny", result))
    backend = keras.backend.backend()
    assert kept["about"]["backend"] == backend
    # It opens with ratios to the plain model.
    ratios = plain_ratios([kept])["tiny"]
    fit, tracked = (
        result["forms"]["bank"][f"fit_times_{form}"]
        for form in ("plain", "plain+metrics")
    )
    assert ratios["fit", backend] == pytest.approx(1 / fit)
    assert f"{1 / fit:.2f} | {1 / tracked:.2f} |" in page
    assert page.index("| tiny |") < page.index("## Workloads")
    assert (tmp_path / "benchmark.png").stat().st_size > 1000
    details = page[page.index("### tiny") :]
    # The first row has the times of inference, the second those of training.
    _, row = (r for r in details.splitlines() if r.startswith("| dispatched"))
    times = result["forms"]["dispatched"]
    assert f"| {times['fit_times_bank']:.2f} |" in row
    assert row.endswith(f"| {times['first_seconds']:.1f} |")
    assert "`python scripts/benchmark.py --workloads tiny`" in details


def test_what_is_not_measured_again_stays(tmp_path, result):
    both = ("workloads", "tiny"), ("workloads", "other")
    keep(tmp_path, *((*place, result) for place in both))
    _, kept = keep(tmp_path, (*both[1], result | {"matrix_gflops": 7}))
    assert kept["workloads"]["tiny"]["forms"] == result["forms"]
    assert kept["workloads"]["other"]["matrix_gflops"] == 7


def test_every_part_runs_in_a_process_of_its_own():
    def parts(backend, *given):
        return benchmark.parts(backend, benchmark.parse(given))

    assert parts("jax", "--workloads", "W4") == [["workloads", "W4"]]
    for name in ("replicate", "labels"):
        assert [name, "W2"] in parts("jax")
    assert parts("jax", "--workloads", "W2", "--forms", "bank") == [["workloads", "W2"]]
    assert ["replicate", "W2"] not in parts("torch")
    assert parts("torch", "--quick", "--workloads", "W3") == [["check", "W3"]]
    # The release runs on its own backend.
    release = "--release", "a", "--workloads", "W2", "W3"
    assert parts("jax", *release) == []
    assert parts("tensorflow", *release) == [["release", "W2"]]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--forms", "bnak"], "There is no form 'bnak'. Known: "),
        (["--release", "a", "--workloads", "W3"], "Nothing to measure: the release"),
    ],
)
def test_what_would_measure_nothing_is_refused(given, text):
    with pytest.raises(SystemExit, match=text):
        benchmark.main([*given, "--backends", keras.backend.backend()])


def test_a_part_keeps_its_result_and_no_folder(tmp_path, result, monkeypatch):
    monkeypatch.setattr(
        "research.speed.measure.check_forms", lambda workload: {"list": 0.0}
    )
    monkeypatch.setattr(
        "research.speed.measure.measure",
        lambda work, makers, *_: result | {"measured": list(makers)},
    )
    monkeypatch.setattr(
        "research.speed.release.measure_release", lambda *given: {"given": given[:2]}
    )
    out = ["--out", str(tmp_path)]
    part = ["--part", "workloads", "W4"]
    benchmark.main([*out, "--forms", "dispatched", *part])
    (path,) = tmp_path.glob("*.json")
    assert path.name == f"benchmark_cpu_{keras.backend.backend()}.json"
    found = json.loads(path.read_text())["workloads"]["W4"]
    assert found["measured"] == ["bank", "dispatched"]
    assert "differences" not in found
    benchmark.main([*out, *part])
    found = json.loads(path.read_text())["workloads"]["W4"]
    assert found["differences"] == {"list": 0.0}
    assert {*found["measured"]} > {"list", "plain", "bank"}
    release = ["--release", f"{tmp_path}/copy.py", "--part", "release", "W2"]
    benchmark.main([*out, *release])
    other = json.loads(path.read_text())["release"]["W2"]
    assert other["given"] == [f"{tmp_path}/copy.py", "W2"]
    assert other["about"]["command"].endswith("--release copy.py")


def test_the_page_shows_the_release_beside_the_fastest_form(tmp_path):
    theirs = {"fit_ms": 6.0, "predict_ms": 3.0, "call_ms": 2.0}
    ours = {"fit_ms": 2.0, "predict_ms": 1.0, "call_ms": 1.0}
    uncalled = {"fit_ms": 6.0, "predict_ms": 3.0}
    forms = {"release": theirs, "bank": theirs, "stacked": ours, "XLA": uncalled}
    page, _ = keep(tmp_path, ("release", "W2", {"forms": forms}))
    assert "| W2 | as it is | 3.0 | 3.0 | 2.0 | 6 | 2 |" in page
    assert "| W2 | with XLA | 1.0 | 1.0 | - | 6 | 6 |" in page
    assert "`python scripts/benchmark.py --workloads tiny`" in page


@pytest.mark.backends("tensorflow", reason="It needs Keras 2.")
def test_the_original_release_needs_keras_2(tmp_path):
    with pytest.raises(RuntimeError, match=r"needs Keras 2.*Received: Keras 3\."):
        measure_release(tmp_path, "W2", rounds=1)


def test_labels_by_name_are_timed_beside_one_array(tmp_path):
    many = dataclasses.replace(TINY, num_tasks=8, tower="sum")
    found = measure_labels(many, rows=8, rounds=1)
    assert (found["rows"], found["steps"], found["epochs"]) == (8, 2, 1)
    for times in (found["fit"], found["evaluate"]):
        ratio = times["by name"] / times["array"]
        assert times["by name / array"] == pytest.approx(ratio)
    page, _ = keep(tmp_path, ("labels", "W2", found))
    assert "of a call of one epoch, 8 rows." in page
    assert (
        "| call | plain | array | by name | by name / array | array / plain |" in page
    )


def test_a_copy_of_a_program_is_timed_beside_plain_runs(monkeypatch):
    monkeypatch.setattr(replicated, "COPIES", 2)
    monkeypatch.setattr(replicated, "ROUNDS", 1)
    build, load, _ = replicated.SHAPES["C.2.2"]
    sizes = {"num_train": 64, "num_validation": 8, "num_test": 8}
    shape = build, lambda: load(**sizes), 1
    monkeypatch.setitem(replicated.SHAPES, "tiny", shape)
    found = replicated.measure_replicate("tiny")
    assert found["copy_of_plain"] * found["plain_seconds"] == pytest.approx(
        found["copy_seconds"]
    )
    assert (found["copies"], found["epochs"]) == (2, 1)
