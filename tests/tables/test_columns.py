"""What columns hold is found in the rows to train on, and holds for all rows."""

import decimal

import numpy as np
import pandas as pd
import pytest
from helpers import refusals

from dselectk_keras.tables import (
    column_kinds,
    convert_columns,
    describe_columns,
    sort_rows,
)

pytestmark = pytest.mark.backend_independent
NAN = np.nan


def kind(values, name="x", hashed=()):
    return column_kinds(pd.DataFrame({name: values}), hashed)[name]


def converted(values, kind, name="x"):
    found = convert_columns(pd.DataFrame({name: values}), {name: kind})
    return found[name].astype("float64").tolist() if kind == "number" else found


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1.5, None, 2], "number"),
        (pd.Categorical([1, None, 3]), "string"),
        ([decimal.Decimal("0.5"), None, decimal.Decimal(2)], "number"),
        (pd.to_timedelta([1, 2, 3], "s"), "number"),
        ([1, NAN, NAN], "number"),
        ([True, None, False], "boolean"),
        (pd.Categorical([True, None, False]), "boolean"),
        (["a", None, "b"], "string"),
        (pd.Categorical(["a", None, "b"]), "string"),
        ([["a"], None, []], "list"),
        ([[1, 2], None, [np.int64(3), NAN, None]], "list"),
        ([["a"], ["a"], ["a"]], "constant"),
        (["a", "a", "a"], "constant"),
        ([None, None, None], "constant"),
        (["2020-01-05", None, "2020-01-06"], "date"),
        (["1.2.3.4", "1.2.3.5", "1.2.3.4"], "string"),
        (["2020-01", "2020-02", "2020-01"], "string"),
        (["v1.2.30", "555-1234", "555-1234"], "string"),
        (["2020-01-05", None, "a"], "string"),
        (pd.Categorical(["20-45-77", "30-12-01", "20-45-77"]), "string"),
    ],
)
def test_a_kind_is_found_by_the_values(values, wanted):
    assert kind(values) == wanted


DAYS = [
    (["2020-01-05", "2020-01-06"], "date"),
    (["2020-01-05 10:30:00", "2020-01-06T23:59:59Z"], "date"),
    (["2020.01.05", "2020.01.06"], "date"),
    (["1/5/20", "1/6/20"], "date"),
    (["1/5/2020 10:30", "1/6/2020 23:59"], "date"),
    (["05.01.2020", "06.01.2020"], "day-first date"),
    (["5/1/2020", "13/1/2020"], "day-first date"),
    (["1/5/2020", "12/31/2020"], "date"),
    (pd.to_datetime(["2020-01-05", "2020-01-06"]), "date"),
    (list(pd.to_datetime(["2020-01-05", "2020-01-06"]).date), "date"),
]


@pytest.mark.parametrize(("dates", "wanted"), DAYS)
def test_dates_become_days_month_weekday_and_hour(dates, wanted):
    frame = pd.DataFrame({"day": [*dates, None]})
    assert column_kinds(frame) == {"day": wanted}
    found = convert_columns(frame, {"day": wanted})
    assert list(found) == ["day_days", "day_month", "day_weekday", "day_hour"]
    # The fifth of January 2020 is a Sunday, 18,266 days after the first of 1970.
    hour = 10.5 if "10:30" in str(dates[0]) else 0
    assert found.iloc[0].tolist() == [18_266, 1, 6, hour]
    assert found.iloc[2].isna().all()
    if not str(dates[1]).startswith(("12", "13", "31")):
        assert found.iloc[1]["day_weekday"] == 0
    (line,) = describe_columns(frame, {"day": wanted})
    assert f"day: dates, such as {dates[0]} for 05 January 2020." in line


def test_days_and_months_up_to_12_say_nothing_and_13_does():
    assert kind(["12/1/2020", "1/12/2020"]) == "date"
    assert kind(["13/1/2020", "1/12/2020"]) == "day-first date"
    assert kind(["1/13/2020", "1/12/2020"]) == "date"
    # The rows to train on have said that the month comes first.
    assert converted(["1/2/2020"], "date")["x_month"].tolist() == [1]
    assert converted(["1/2/2020"], "day-first date")["x_month"].tolist() == [2]
    assert converted(["12/2/2020"], "date")["x_month"].tolist() == [12]
    # The month is always the second number after a year.
    mixed = ["13/1/2020", "2020-03-01", "2020/4/5", "9999.12.31"]
    assert converted(mixed, kind(mixed))["x_month"].tolist() == [1, 3, 4, 12]


def test_dates_are_in_the_time_of_greenwich_and_no_ids():
    day = pd.Timestamp("2020-01-05", tz="Europe/Paris")
    for value in (day, day.isoformat()):
        found = converted([value, None], "date")
        assert found.iloc[0].tolist() == [18_265, 1, 5, 23]
    dates = pd.date_range("2020-01-01", periods=40, freq="17min")
    for column in (dates, dates.astype(str)):
        assert kind(column) == "date"


def test_what_tells_rows_apart_is_an_id():
    ids = [f"u{i}" for i in range(40)]
    assert kind(ids) == "id"
    assert kind(ids, hashed=["x"]) == "string"
    # 36 of 40 values are no more than nine tenths, 37 are; missing ones do not count.
    assert kind([*ids[:36], *ids[:4]]) == "string"
    assert kind([*ids[:37], *ids[:3]]) == "id"
    assert kind([*ids[:20], *[None] * 80]) == "id"
    # Of ten rows, other values say little.
    assert kind(ids[:10]) == "string"
    assert kind(ids[:11]) == "id"


@pytest.mark.parametrize("name", ["Unnamed: 0", "index", "id", "ID", "row_id", "rowid"])
def test_numbers_of_rows_are_ids_in_any_order(name):
    assert kind([3, 1, 2], name) == "id"
    assert kind([3, 1, 1], name) == "number"
    assert kind([3.5, 1, 2], name) == "number"
    assert kind([3, 1, 2], f"{name}s") == "number"
    assert kind([3, 1, 2], name, [name]) == "string"


def test_lines_say_what_is_left_out_and_which_numbers_may_be_ids():
    frame = pd.DataFrame(
        {
            "one": 1,
            "none": None,
            "user": [f"u{i}" for i in range(20)],
            **{name: range(20) for name in ("user_id", "userId", "paid", "Lipid")},
        }
    )
    assert describe_columns(frame, column_kinds(frame)) == [
        "Left out: one, which has one value in the rows to train on.",
        "Left out: none, which has no value in the rows to train on.",
        "Left out: user, which has another value in almost every row.",
        *(
            f"{name}: numbers. If they are ids, pass `hashed` ({name!r} and a number "
            "of embeddings); in scripts `--hashed`."
            for name in ("user_id", "userId")
        ),
    ]


def test_numbers_keep_their_values():
    large = [2**53 + 1, 1_700_000_000]
    for column in (large, pd.array([*large, None], "Int64")):
        found = convert_columns(pd.DataFrame({"x": column}), {"x": "number"})
        assert found["x"].dropna().tolist() == large
    wanted = [0.5, NAN, NAN]
    for column in (
        [0.5, None, np.inf],
        [decimal.Decimal("0.5"), None, decimal.Decimal("-Inf")],
        pd.array([decimal.Decimal("0.5"), pd.NA, pd.NA], object),
    ):
        np.testing.assert_array_equal(converted(column, "number"), wanted)
    assert converted(pd.to_timedelta([1500], "ms"), "number") == [1.5]
    for given in ([True, None, False], pd.Categorical([True, None, False])):
        np.testing.assert_array_equal(converted(given, "number"), [1, NAN, 0])
        found = converted(given, "boolean")["x"].astype("float64")
        np.testing.assert_array_equal(found, [1, NAN, 0])
    for missing in ([None, None], pd.array([pd.NA, None], "string")):
        np.testing.assert_array_equal(converted(missing, "number"), [NAN, NAN])


def test_strings_of_other_rows_may_look_like_numbers():
    for given in ([1, None, 2], [1.0, NAN, 2.0], ["1", None, "2"]):
        assert converted(given, "string")["x"].tolist() == ["1", None, "2"]
    assert converted([1.5, "a"], "string")["x"].tolist() == ["1.5", "a"]
    assert converted([["a"], None, ("b", "c")], "list")["x"].tolist() == [
        ["a"],
        None,
        ["b", "c"],
    ]
    ids = converted([[1, np.int64(2), "c"], [None, NAN]], "list")["x"].tolist()
    assert ids == [["1", "2", "c"], [None, None]]


def test_columns_that_are_left_out_are_not_asked_for():
    kinds = {"a": "number", "b": "id", "c": "constant", "price/m2": "number"}
    frame = pd.DataFrame({"price/m2": [1.5], "a": [2.0], "more": [1]}, index=[7])
    found = convert_columns(frame, kinds)
    assert list(found) == ["a", "price_m2"]
    assert found.index.tolist() == [7]


def kinds_of(columns, names=None, **options):
    frame = pd.DataFrame(columns)
    return column_kinds(
        frame if names is None else frame.set_axis(names, axis=1), **options
    )


test_columns_without_a_kind_are_refused = refusals(
    (column_kinds, r"must be a data frame of pandas\. Received: a dict", ({"a": [1]},)),
    (kinds_of, r"which are strings\. Received: 0\. .*rename", ({0: [1, 2]},)),
    (kinds_of, r"Received: 'a'\.", ({0: [1], 1: [2]}, ["a", "a"])),
    (kinds_of, r"Received: ''\.", ({"": [1, 2]},)),
    (
        kinds_of,
        r"`hashed` must name columns of the table: a\. Received: b",
        {"columns": {"a": [1, 2]}, "hashed": ["b"]},
    ),
    (
        kinds_of,
        r"'a' must have numbers, or strings alone, dates, or lists .* Received: ",
        ({"a": [1, "b"]},),
        ({"a": [1j, 2]},),
        ({"a": [{"b": 1}, {"b": 2}]},),
        ({"a": [b"b", b"c"]},),
    ),
    (
        kinds_of,
        r"'a' must have lists of strings or of integers\. Received: \[0\.5\]",
        ({"a": [[0.5], ["a"]]},),
    ),
)


@pytest.mark.parametrize(
    ("values", "kind", "text"),
    [
        (["a", "b"], "number", r"numbers, as in the rows to train on\. Received: 'a'"),
        (["a", "b"], "boolean", "numbers, as in .* Received: 'a'"),
        ([pd.Timestamp(0)], "number", "numbers, as .* Received: Timestamp"),
        ([1e300], "number", r"numbers that float32 holds.*1e\+300"),
        ([["a"]], "string", r"strings, as .* Received: \['a'\]"),
        ([b"a"], "string", "strings, as .* Received: b'a'"),
        (["a"], "list", "lists of strings, .* Received: 'a'"),
        (["a"], "date", "dates, .*month first.* Received: a"),
        (["13/1/2020"], "date", "dates, .* Received: 13/1/2020"),
        (["5.1.2020"], "date", r"dates, .* Received: 5\.1\.2020"),
        (["2020-02-31"], "date", "dates"),
        (["1/31/2020x"], "day-first date", "dates, .*the day first.*category.*--drop"),
        (["13/1/2020", "1/31/2020"], "day-first date", "dates, .*the day first"),
    ],
)
def test_rows_of_another_kind_are_refused(values, kind, text):
    with pytest.raises(ValueError, match=f"'x' must have {text}"):
        converted(values, kind)


@pytest.mark.parametrize("name", ["day_month", "day_days"])
def test_columns_that_are_missing_or_twice_are_refused(name):
    frame = pd.DataFrame({name: [1], "day": ["2020-01-05"]})
    text = rf"'day' becomes day_days, .* there is another '{name}'"
    with pytest.raises(ValueError, match=text):
        convert_columns(frame, {name: "number", "day": "date"})
    with pytest.raises(ValueError, match=r"must have the columns a, b\. .*: no b\."):
        convert_columns(pd.DataFrame({"a": [1]}), dict.fromkeys("ab", "number"))


@pytest.mark.parametrize(
    ("values", "order"),
    [
        ([3, 1, 2], [1, 2, 0]),
        (["2020-03-01", "2020-01-01", "2020-02-01"], [1, 2, 0]),
        # In the order of time, and not of the letters.
        (["3/1/2020", "20/1/2020", "1/2/2020"], [0, 1, 2]),
        (["1/5/2020 10:00", "1/5/2020 9:59:59.5", "1/5/2020 9:59:59"], [2, 1, 0]),
        # Equal values keep their order, also beyond what small sorts keep.
        ([5, 5, *range(5), *[5] * 40], [2, 3, 4, 5, 6, 0, 1, *range(7, 47)]),
    ],
)
def test_rows_are_sorted_by_numbers_or_time(values, order):
    assert sort_rows(pd.DataFrame({"x": values}), "x").index.tolist() == order


test_rows_are_not_sorted_by_other_columns = refusals(
    (sort_rows, r"one of the columns x\. Received: y", (pd.DataFrame({"x": [1]}), "y")),
    (
        sort_rows,
        r"numbers or dates without gaps\. Received: 'x'",
        (pd.DataFrame({"x": ["a", "b"]}), "x"),
        (pd.DataFrame({"x": [1.0, None]}), "x"),
    ),
)
