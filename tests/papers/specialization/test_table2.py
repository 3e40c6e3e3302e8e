"""The claims and the rows of Tables 2, 3 and 7, on made-up runs."""

import pytest

from experiments import Results, Run
from papers import EXPERIMENTS
from papers.specialization._ways import EVERY, STUDENTS, place_of
from papers.specialization.table2 import Table2
from papers.specialization.table3 import Table3
from papers.specialization.table7 import Table7

SEEDS = 3


def results_of(kind, changed):
    """Runs in which all ways are alike, but for what is changed."""
    experiment = kind(seeds=SEEDS)
    results = Results(experiment, "test")
    found = {}
    for row, way in enumerate(EVERY):
        arm, prefix = place_of(way)
        own = {
            "error": 0.05,
            "mutual_information": 1.0,
            "sample_entropy": 0.5,
            "utilization_entropy": 2.0,
            **changed.get(way, {}),
        }
        for seed in range(SEEDS):
            noise = 0.001 * ((seed + row) % SEEDS)
            numbers = {prefix + name: value + noise for name, value in own.items()}
            numbers[prefix + "train_error"] = abs(seed - 1)
            found.setdefault((arm, seed), {}).update(numbers)
    for (arm, seed), numbers in found.items():
        results.add(Run(arm, seed, {}, numbers, 1.0), {})
    return results


def changed(number, *ways, by=-0.02):
    base = {"error": 0.05, "sample_entropy": 0.5, "utilization_entropy": 2.0}
    return {way: {number: base[number] + by} for way in ways}


NEW = ("original, L_s", "attentive, L_s", "distilled, L_s")


@pytest.mark.parametrize(
    ("change", "which", "holds"),
    [
        (changed("error", "attentive"), 0, True),
        (changed("error", "attentive", by=0.02), 0, False),
        (changed("utilization_entropy", *STUDENTS.values(), by=0.3), 1, True),
        (changed("utilization_entropy", "attentive, L_s", by=0.3), 1, None),
        (changed("sample_entropy", *STUDENTS.values()), 2, True),
        # Not lower than the attentive gate alone.
        (changed("sample_entropy", "attentive", *STUDENTS.values()), 2, None),
        (changed("error", *NEW), 3, True),
        (changed("error", *NEW, by=0.02), 3, False),
        ({}, 4, True),
        (changed("utilization_entropy", NEW[1], by=-0.3), 4, False),
        (changed("sample_entropy", *NEW), 5, True),
        # Pairs for which the paper's table is against its text are not judged.
        (changed("utilization_entropy", NEW[0], by=-0.3), 4, True),
        (changed("sample_entropy", *NEW[:2]), 5, True),
        (changed("sample_entropy", "attentive"), 6, True),
        ({}, 7, True),
        (changed("error", "distilled, L_s", by=0.02), 7, False),
        (changed("error", "attentive, L_s"), 8, True),
        ({"attentive, L_s": {"mutual_information": 1.5}}, 9, True),
        (changed("sample_entropy", "attentive, L_s"), 10, True),
    ],
)
def test_claims(change, which, holds):
    results = results_of(Table2, change)
    claims = results.experiment.report(results).claims
    assert len(claims) == 11
    assert claims[which].holds is holds
    assert all(claim.source and claim.paper for claim in claims)


def test_numbers_of_the_paper_are_beside_those_of_the_claims():
    results = results_of(Table2, {})
    claims = results.experiment.report(results).claims
    assert claims[0].paper == "0.033 against 0.038"
    assert claims[1].paper == (
        "2.266 against 2.172; 2.321 against 2.172; "
        "2.266 against 2.055; 2.321 against 2.055"
    )
    assert claims[4].paper.startswith("2.246 against 2.32 (contrary); 2.321")
    assert claims[5].paper.endswith("0.056 against 0.036 (contrary)")
    assert claims[9].paper == "2.275 against 2.022"
    assert claims[10].paper == "0.039 against 0.092"


def test_a_way_that_was_left_out_fails():
    experiment = Table2(seeds=1, ways=("original",))
    results = Results(experiment, "test")
    for arm in experiment.arms:
        numbers = {"error": 0.1, "train_error": 0.1, "mutual_information": 1.0}
        numbers |= {"sample_entropy": 0.5, "utilization_entropy": 2.0}
        results.add(Run(arm, 0, {}, numbers, 1.0), {})
    claim = experiment.report(results).claims[0]
    assert (claim.ours, claim.holds) == ("attentive against original: not run.", False)


def test_the_run_with_the_lowest_training_error_is_reported():
    results = results_of(Table2, {})
    best, means = results.experiment.report(results).tables
    rows = {row[0]: row[1:] for row in best.rows}
    assert list(rows) == list(EVERY)
    # Seed 1: the noise of the second way is 0.002.
    assert rows["original"][:4] == ["0.052 ± 0.001", 1.002, 0.502, 2.002]
    assert rows["original"][4:] == ["0.038 ± 0.009", "2.022", "0.092", "2.172"]
    assert rows["single"][1:4] == ["", "", ""]
    assert rows["single"][4:] == ["0.096 ± 0.071", "", "", ""]
    assert {row[0]: row[1] for row in means.rows}["single"] == "0.0510 ± 0.0006"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # With L_s the paper's table has a lower error with the original gate.
        (changed("error", "attentive", "attentive, importance"), [True, False, False]),
        (changed("error", "attentive", "attentive, L_s"), [None, None, False]),
        (changed("error", *NEW), [None, True, False]),
        (changed("error", *STUDENTS), [None, None, True]),
    ],
)
def test_claims_of_table_7(change, expected):
    # Both students have to be lower than all others.
    results = results_of(Table7, change)
    claims = results.experiment.report(results).claims
    assert [claim.holds for claim in claims] == expected


def test_what_table_3_says_the_contrary_of_is_left_open():
    results = results_of(Table3, changed("sample_entropy", *STUDENTS.values()))
    report = results.experiment.report(results)
    for number in (2, 6, 7, 10):
        assert report.claims[number].holds is None
        texts = report.claims[number].paper.split("; ")
        assert all(text.endswith("(contrary)") for text in texts)
    assert report.claims[5].holds is None  # L_s has no lower H_s here.


def test_the_protocol_of_table_3_names_the_stand_in():
    presets = Table3.presets()
    assert presets["paper"].data_set == "cifar100"
    assert presets["cpu"].data_set == "multi_mnist"
    facts = {fact.what: fact for fact in presets["cpu"].protocol()}
    assert "Multi-MNIST" in facts["Images"].here
    assert facts["Training images"].here == "cpu: 10,000; paper: 50,000"
    assert facts["Networks"].here.startswith("cpu: experts of Appendix B.4")
    assert facts["beta_d tried"].here.startswith("cpu: 1, 0.1, 0.01, 0.001, 0.0001;")


def test_the_grids_are_those_of_table_6():
    for kind, sizes in ((Table2, (2, 6)), (Table3, (3, 7)), (Table7, (2, 7))):
        paper = kind.presets()["paper"]
        assert paper.grid("original, importance") == {
            "importance": (0.2, 0.4, 0.6, 0.8, 1.0)
        }
        grid = paper.space("attentive, L_s")
        assert tuple(map(len, grid.values())) == sizes
        assert paper.space("single") == paper.space("original") == {}
    assert EXPERIMENTS["specialization-table3"].presets()["paper"].epochs == 40
