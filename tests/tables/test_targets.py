"""What labels mean is found in the rows to train on."""

import dataclasses
import decimal
import json

import numpy as np
import pandas as pd
import pytest
from helpers import refusals

from dselectk_keras.tables import Target, find_targets

pytestmark = pytest.mark.backend_independent
NAN = np.nan


def target(values):
    (found,) = find_targets(pd.DataFrame({"y": values}), ["y"])
    return found


@pytest.mark.parametrize(
    ("values", "classes", "labels"),
    [
        ([0, 1, 1], (0, 1), [0, 1, 1]),
        ([2.0, NAN, 1.0], (1.0, 2.0), [1, NAN, 0]),
        (["no", None, "yes"], ("no", "yes"), [0, NAN, 1]),
        ([True, None, False], (False, True), [1, NAN, 0]),
        (pd.Categorical(["b", None, "a"]), ("a", "b"), [1, NAN, 0]),
    ],
)
def test_two_values_are_binary_and_the_larger_is_1(values, classes, labels):
    found = target(values)
    assert found == Target("y", "binary", classes)
    assert found.task.kind == "binary"
    encoded = found.encode(pd.Series(values))
    assert encoded.dtype == "float32"
    np.testing.assert_array_equal(encoded, labels)


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["c", "a", None, "b", "a"], ("a", "b", "c")),
        (pd.Categorical([7, 3, None, 5, 3]), (3, 5, 7)),
    ],
)
def test_texts_and_categories_are_classes(values, classes):
    found = target(values)
    assert found == Target("y", "classes", classes)
    assert (found.task.kind, found.task.num_classes) == ("multiclass", 3)
    np.testing.assert_array_equal(found.encode(pd.Series(values)), [2, 0, NAN, 1, 0])


def test_numbers_count_by_the_part_of_their_variance_that_is_left():
    found = target([1, 3, None, 8])
    # Mean 4; deviations -3, -1 and 4.
    assert (found.kind, found.mean) == ("number", 4.0)
    assert found.deviation**2 == pytest.approx(26 / 3)
    assert found.task.weight == pytest.approx(3 / 26)
    np.testing.assert_array_equal(found.encode(pd.Series([5, None])), [5, NAN])
    # Labels to score may be close to each other.
    close = target([1e5, 2e5, 9e5]).encode(pd.Series([5e5, 500_004.0]))
    np.testing.assert_array_equal(close, [5e5, 500_004])
    gaps = pd.Series([decimal.Decimal("0.5"), pd.NA, decimal.Decimal(2)] * 2)
    np.testing.assert_array_equal(target(gaps).encode(gaps[:2]), [0, NAN])
    assert Target(**json.loads(json.dumps(dataclasses.asdict(found)))).mean == 4.0


def test_values_that_the_rows_to_train_on_do_not_have_count_as_missing(capsys):
    found = target([0, 1]).encode(pd.Series([1, 7, None, 0]))
    np.testing.assert_array_equal(found, [1, NAN, NAN, 0])
    shown = capsys.readouterr().out
    assert shown == (
        "y: 1 labels, such as 7.0, are not in the rows to train on, and count as "
        "missing.\n"
    )


def test_lines_say_what_labels_mean_and_names_have_no_slash():
    frame = pd.DataFrame({"a/b": ["x", "y", "x"], "c": list("xyz"), "d": [0, 1, 5]})
    found = find_targets(frame, ["d", "a/b", "c", "d"])
    assert [*map(str, found)] == [
        "d: numbers of mean 2.",
        "a/b: 1 is 'y', and 0 is 'x'.",
        "c: 3 classes.",
    ]
    assert [each.task.name for each in found] == ["d", "a_b", "c"]


def encoded(values):
    return target([1.0, 2.0, 3.0]).encode(pd.Series(values))


test_targets_that_cannot_be_learned_are_refused = refusals(
    (find_targets, r"table: a\. Received: b", (pd.DataFrame({"a": [1]}), ["b"])),
    (find_targets, r"Received: none\.", (pd.DataFrame({"a": [1]}), [])),
    (find_targets, r"Received: none\.", (pd.DataFrame({"a": [1]}), None)),
    (
        target,
        r"'y' must have two values or more .*: 1, such as 7\.0, in 3",
        ([7, 7, None],),
    ),
    (target, r"'y' must have two values or more .* 0 in 2 rows", ([None, None],)),
    (target, r"up to 100 texts.* Received: 101", ([f"t{i}" for i in range(101)],)),
    (target, r"numbers, or up to", (pd.to_datetime(["2020-01-01", "2020-01-02"]),)),
    (target, r"must have finite numbers up to 1e\+18.*Divide", ([1e30, 1.0, 2.0],)),
    (target, r"must have finite .*Received: -1e\+30", ([-1e30, 1.0, 2.0],)),
    (target, r"must have finite numbers", ([np.inf, 1.0, 2.0],)),
    (
        target,
        r"float32 does not tell apart: .* 1e\+09.*Subtract the mean",
        ([1e9, 1e9 + 1, 1e9 + 2],),
    ),
    (target, r"deviation .*e-21\. Multiply by", ([1e-21, -1e-21, 3e-21],)),
    (target, r"float32 does not tell apart", ([-1e9, -1e9 - 1, -1e9 - 2],)),
    (encoded, r"'y' must have numbers, as .*Received: 'a'", (["a", "b"],)),
)
