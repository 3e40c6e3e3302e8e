"""Ratios of errors, their intervals, verdicts, tables and pictures, by hand."""

import numpy as np
import pytest

from research.benches import page
from research.benches.gates import page as gates
from research.benches.gates.problems import PROBLEMS
from research.benches.statistics import ratio, verdict

pytestmark = pytest.mark.backend_independent


def logged(**logs):
    """The logarithms of the ratio of errors in families a (a, b and c) and z."""
    errors = {
        ("z" if name == "z" else "a", name, draw): np.exp(log)
        for name, own in logs.items()
        for draw, log in enumerate(own)
    }
    return np.log(ratio(errors)[:3])


def test_the_highest_level_is_drawn():
    # Student's t is 12.71 with one degree of freedom, and 4.303 with two.
    half = 12.706 * 0.5
    wanted = [2.5, 2.5 - half, 2.5 + half]
    # Two families, of which one has problems with means of 2 and 4.
    np.testing.assert_allclose(logged(a=[1, 3], b=[4], z=[2]), wanted, rtol=1e-4)
    # One family: two problems with means of 2 and 3; and one problem: its draws.
    np.testing.assert_allclose(logged(a=[1, 3], b=[3]), wanted, rtol=1e-4)
    reach = 4.3027 / 3**0.5
    np.testing.assert_allclose(
        logged(a=[1, 2, 3]), [2, 2 - reach, 2 + reach], rtol=1e-4
    )


def test_ratios_are_paired_and_are_texts():
    one = {("a", "a", draw): 1.0 + draw for draw in range(3)}
    found = ratio({key: 2 * value for key, value in one.items()}, one)
    assert (str(found), f"{found:.1f}") == ("2.000 [2.00, 2.00]", "2.0")
    # Of a single draw, there is no interval; of none, nothing.
    assert str(ratio({("a", "a", 0): 2.0})) == "2.000"
    nothing = ratio({("z", "z", 0): 1.0}, one)
    assert (str(nothing), f"{nothing:.2f}") == ("", "")
    assert str(ratio({**one, ("a", "a", 0): np.inf}, one)) == "no result"


@pytest.mark.parametrize("part", ["all problems", "added later"])
def test_intervals_cover_the_true_ratio(part):
    """The logarithms are sums of normal numbers: of family, problem and draw."""
    rng, covered = np.random.default_rng(0), []
    for _ in range(1000):
        families, errors = {}, {}
        for name in gates.PARTS[part]:
            family = PROBLEMS[name].family
            mean = families.setdefault(family, 0.1 * rng.normal()) + 0.1 * rng.normal()
            for draw in range(PROBLEMS[name].draws):
                error = float(np.exp(mean + 0.05 * rng.normal()))
                errors[family, name, draw] = error
        found = ratio(errors)
        covered.append(found.low <= 1 <= found.high)
    assert 0.93 < np.mean(covered) < 0.97


@pytest.mark.parametrize(("draws", "overlap"), [(3, 0.2), (10, 0.2), (5, 0.6)])
def test_intervals_cover_where_draws_share_rows(draws, overlap):
    """Errors of rows are drawn; each draw has some rows of one table."""
    rng, covered, count = np.random.default_rng(0), [], 200
    for _ in range(1000):
        logs, found = 0.1 * rng.normal(size=count), {}
        for draw in range(draws):
            rows = rng.permutation(count)[: int(overlap * count)]
            found["a", "a", draw] = float(np.exp(logs[rows].mean()))
        interval = ratio(found, overlap=overlap)
        covered.append(interval.low <= 1 <= interval.high)
    assert 0.93 < np.mean(covered) < 0.97
    # Draws of the same rows say nothing of others, and families are independent.
    assert str(ratio(found, overlap=1.0)) == f"{interval.mean:.3f}"
    same = dict.fromkeys(found, 2.0)
    assert str(ratio(same, overlap=1.0)) == "2.000"
    found["b", "b", 0] = 1.0
    assert ratio(found, overlap=1.0) == ratio(found)


@pytest.mark.parametrize(
    ("own", "word"),
    [
        ([0.8, 0.82, 0.82], "yes"),
        ([0.99, 1.0, 1.0], "no"),
        ([0.9, 1.0, 1.1], "undecided"),
        ([0.5, 0.5], "undecided"),
    ],
)
def test_a_verdict_is_of_the_interval_over_three_draws(own, word):
    errors = {("a", "a", draw): error for draw, error in enumerate(own)}
    others = dict.fromkeys(errors, 1.0)
    assert verdict((errors, others)) == word
    assert verdict((errors, others), overlap=1.0) == "undecided"
    # One of several pairs is enough for a yes, and needs a wider interval.
    same = (others, others)
    assert verdict((errors, others), same) == word
    assert verdict(({}, others), (errors, others)) == word
    if word == "no":
        assert verdict((errors, others), no_below=0.99) == "undecided"
    assert verdict() == "undecided"


def test_each_of_several_intervals_is_wider():
    errors = {("a", "a", draw): error for draw, error in enumerate([0.94, 0.95, 0.97])}
    others = dict.fromkeys(errors, 1.0)
    assert verdict((errors, others)) == "undecided"
    errors["a", "a", 2] = 0.96
    assert verdict((errors, others)) == "yes"
    assert verdict((errors, others), *[(others, others)] * 9) == "undecided"


@pytest.mark.parametrize("draws", [3, 5])
def test_a_verdict_without_an_effect_is_seldom_yes(row, draws):
    rng, found = np.random.default_rng(0), []
    for _ in range(500):
        rows = []
        for draw in range(draws):
            for arm in (gates.BEST, gates.CONTROL):
                choices = np.exp(0.06 * rng.normal(size=16))
                validated = choices * np.exp(0.06 * rng.normal(size=16))
                best = float(choices[validated.argmin()])
                rows.append(row("mine", arm, draw, best, choices=choices.tolist()))
            error = float(np.exp(0.06 * rng.normal()))
            rows.append(row("mine", gates.FIT, draw, error))
        found.append(gates.matters(rows))
    assert found.count("yes") < 0.05 * len(found)


def test_the_headline_is_given_for_real_data_and_for_what_was_made_or_added_later(row):
    errors = {"adult": 2.0, "one group": 3.0, "molecules": 4.0}
    rows = [
        row(name, arm, 0, test, untuned=5 * test, multiplications=2 * test)
        for name, error in errors.items()
        for arm, test in ((gates.FIT, 1.0), ("softmax", error))
        if (name, arm) != ("adult", "softmax")
    ]
    head, _, line, fit = gates.headline_table(rows).splitlines()
    assert head == (
        "| gate |  | all problems | cost | real data | made here | added later |"
    )
    assert line.startswith("| softmax | dense | 3.464 [0.56, 21.54], 2 problems | 1.00")
    # Without an interval, of one draw.
    assert line.endswith(" | 4.000, 1 problem | 3.000 | 4.000 |")
    assert fit.startswith("| chosen by fit | sparse | 1.000 [1.00, 1.00] | 0.29 | ")
    untuned = gates.headline_table(rows, "untuned")
    assert "2 problems | 17.321 [2.78, 107.72] | " in untuned
    assert gates.family_table(rows).endswith("\n| softmax |  | 3.00 | 4.00 |")


def test_the_edges_of_a_grid_are_those_of_the_problem():
    rates = [("STAR, mathematics", rate) for rate in (0.003, 0.01, 0.03)]
    rates += [("molecules", 0.01), ("adult", 0.3), ("adult", 0.1)]
    rows = [{"problem": name, "settings": {"rate": rate}} for name, rate in rates]
    assert gates.rate_edge(rows) == 0.5


def test_a_picture_has_colours_an_order_and_room_for_most_points():
    means = {"one": 1.0, "good": 0.8, "bad": 1.2, "lost": np.inf}
    errors = {
        arm: {(f"p{i:02}", f"p{i:02}", 0): mean * (1 + 0.001 * i) for i in range(60)}
        for arm, mean in means.items()
    }
    errors["bad"]["p00", "p00", 0] *= 5
    panels = {
        ("left", "label"): (errors, errors["one"]),
        ("", ""): (errors, errors["one"]),
    }
    colors = {"first": ["good", "one"], "second": ["bad"], "third": []}
    figure = page.draw(panels, colors)
    axes = figure.axes[0]
    assert [each.get_text() for each in axes.get_yticklabels()] == [
        "good",
        "one",
        "bad",
    ]
    shown = [each.get_text() for each in figure.legends[0].get_texts()]
    assert shown == ["first", "second", "one problem", "beyond the axis"]
    (low, high), (blue, orange) = axes.get_xlim(), page.style.COLORS[:2]
    assert 0.75 < low < 0.8
    assert 1.2 < high < 1.6
    points = [line for line in axes.lines if line.get_color() == page.style.GREY]
    assert [len(line.get_xdata()) for line in points] == [60, 60, 59, 1, 0, 0]
    for line in axes.lines:
        assert ((line.get_xdata() >= low) & (line.get_xdata() <= high)).all()
    wide = [line.get_color() for line in axes.lines if line.get_linewidth() == 2]
    assert wide[:6:2] == [blue, blue, orange]
    one = {arm: {key: own[key] for key in [*own][:1]} for arm, own in errors.items()}
    figure = page.draw({("", ""): (one, one["one"])}, colors)
    shown = [each.get_text() for each in figure.legends[0].get_texts()]
    assert shown == ["first", "second", "one draw"]
