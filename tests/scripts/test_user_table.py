"""Tables are read as people have them, or an error names the column."""

import gzip

import numpy as np
import pandas as pd
import pytest
from user_table import read_columns

pytestmark = pytest.mark.backend_independent
TABLE = "size,price,kind,y\n1.5,10,a,0\n2.5,,b,1\n3.5,30,a,0\n"


def read(path, text, targets=("y",)):
    path.write_text(text, encoding="utf-8")
    return read_columns(path, targets)[0]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("t.csv", lambda text: text),
        ("t.csv", lambda text: text.replace(",", ", ")),
        ("t.csv", lambda text: "\ufeff" + text),
        ("t.csv", lambda text: text.replace(",", ";")),
        ("t.csv", lambda text: text.replace(",", ";").replace(".", ",")),
        ("t.csv", lambda text: text.replace(",", "\t")),
        ("t.csv", lambda text: text.replace("price", '"price; a|b"')),
        ("t.txt", lambda text: text.replace(",", "|")),
        ("t.TSV", lambda text: text.replace(",", "\t").replace("kind", "kind, a,b,c")),
    ],
)
def test_separators_are_found_in_the_first_line(tmp_path, name, change):
    found = read(tmp_path / name, change(TABLE))
    np.testing.assert_array_equal(found.iloc[:, 0], [1.5, 2.5, 3.5])
    np.testing.assert_array_equal(found.iloc[:, 1], [10, np.nan, 30])
    assert found.iloc[:, 2].tolist() == ["a", "b", "a"]
    assert found.columns[0] == "size"
    assert found.dtypes.iloc[0] == found.dtypes.iloc[1] == "float32"


def test_packed_files_are_read(tmp_path):
    path = tmp_path / "t.v2.csv.gz"
    path.write_bytes(gzip.compress(TABLE.encode()))
    assert list(read_columns(path, ["y"])[0]) == ["size", "price", "kind", "y"]


def test_a_file_without_names_has_columns_by_number(tmp_path, capsys):
    text = "39, State-gov, <=50K\n50, Private, >50K\n38, Private, <=50K\n"
    found = read(tmp_path / "adult.data", text, ["column_2"])
    assert list(found) == ["column_0", "column_1", "column_2"]
    assert found["column_2"].tolist() == ["<=50K", ">50K", "<=50K"]
    assert "no names: the columns are column_0 to column_2" in capsys.readouterr().out
    # As pandas writes a table without names.
    assert list(read(tmp_path / "t.csv", "0,1\n5,6\n7,8\n", ["1"])) == ["0", "1"]


@pytest.mark.parametrize("kind", [object, "boolean", "category"])
def test_booleans_with_gaps_are_numbers(tmp_path, kind):
    frame = pd.DataFrame({"flag": [True, None, False], "y": [True, False, None]})
    frame = frame.astype(kind)
    frame.to_csv(tmp_path / "t.csv", index=False)
    pytest.importorskip("pyarrow")
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        found, _ = read_columns(tmp_path / name, ["y"])
        np.testing.assert_array_equal(found["flag"], [1.0, np.nan, 0.0])
        assert found["flag"].dtype == "float32"
        np.testing.assert_array_equal(found["y"].astype("float32"), [1.0, 0.0, np.nan])


@pytest.mark.parametrize(
    ("dates", "month"),
    [
        (("2020-01-05", "2020-01-06"), 1),
        (("2020-01-05 10:30:00", "2020-01-06T23:59:59Z"), 1),
        (("2020/1/5", "2020/1/6"), 1),
        (("05.01.2020", "06.01.2020"), 1),
        (("1/5/20", "1/6/20"), 1),
        (("5/1/2020", "13/1/2020"), 1),
    ],
)
def test_dates_become_days_month_and_weekday(tmp_path, capsys, dates, month):
    rows = "".join(f"{date},{i}\n" for i, date in enumerate([*dates, ""] * 4))
    found = read(tmp_path / "t.csv", f"day,y\n{rows}")
    assert list(found) == ["day_days", "day_month", "day_weekday", "y"]
    # The fifth of January 2020 is a Sunday, 18,266 days after the first of 1970.
    np.testing.assert_array_equal(found.iloc[0, :3], [18_266, month, 6])
    assert found.iloc[2, :3].isna().all()
    assert found.iloc[1]["day_weekday"] == 0
    shown = capsys.readouterr().out
    assert f"day: dates, such as {dates[0]} for 05 January 2020." in shown


@pytest.mark.parametrize("head", ["day_days,day,y", "day,y,day_month"])
def test_columns_made_of_dates_do_not_replace_others(tmp_path, head):
    cell = {"day": "2020-01-05"}
    rows = "".join(
        ",".join(cell.get(name, str(i)) for name in head.split(",")) + "\n"
        for i in range(3)
    )
    with pytest.raises(ValueError, match=r"'day' become.*there is a column 'day_"):
        read(tmp_path / "t.csv", f"{head}\n{rows}")


def test_dates_that_do_not_exist_are_named(tmp_path):
    rows = "".join(f"2020-02-{day},1\n" for day in (1, 2, 31))
    with pytest.raises(
        ValueError, match=r"'day' has dates that cannot be read.*--drop"
    ):
        read(tmp_path / "t.csv", f"day,y\n{rows}")


@pytest.mark.parametrize("text", ["1.2.3.4", "2020-01", "555-1234", "v1.2.30", "a"])
def test_other_strings_are_no_dates(tmp_path, text):
    rows = "".join(f"{text},{i}\n" for i in range(20))
    assert read(tmp_path / "t.csv", f"day,y\n{rows}")["day"][0] == text


def test_dates_in_parquet_are_read_and_other_objects_are_named(tmp_path):
    pytest.importorskip("pyarrow")
    path, day = tmp_path / "t.parquet", pd.Timestamp("2020-01-05", tz="Europe/Paris")
    pd.DataFrame({"day": [day, None] * 10, "y": range(20)}).to_parquet(path)
    # In the time of Greenwich, it is the evening before.
    assert read_columns(path, ["y"])[0]["day_days"][0] == 18_265
    pd.DataFrame({"day": [[1, 2]] * 20, "y": range(20)}).to_parquet(path)
    with pytest.raises(ValueError, match=r"or strings alone\. Received: array"):
        read_columns(path, ["y"])


def test_columns_that_tell_rows_apart_are_left_out(tmp_path, capsys):
    size = 40
    frame = pd.DataFrame({"id": [f"u{i}" for i in range(size)], "y": range(size)})
    frame["user"] = [f"u{i // 2}" for i in range(size)]  # Two rows each.
    frame["year"] = np.arange(size)
    frame.to_csv(tmp_path / "t.csv")  # With the numbers of the rows.
    found, _ = read_columns(tmp_path / "t.csv", ["y"])
    assert list(found) == ["y", "user", "year"]
    shown = capsys.readouterr().out
    assert "Left out: id, which has another value in almost every row." in shown
    assert "Left out: Unnamed: 0, which has another value in" in shown


def test_numbers_of_rows_are_left_out_also_in_another_order_and_with_a_test(tmp_path):
    frame = pd.DataFrame({"id": range(9), "a": 1.5, "y": range(9)})
    frame["day"] = [3, 1, 2, 6, 5, 4, 9, 8, 7]
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame[:4].to_csv(tmp_path / "test.csv", index=False)
    found, _ = read_columns(tmp_path / "t.csv", ["y"], split_by="day")
    assert list(found) == ["a", "y"]
    found, _ = read_columns(tmp_path / "t.csv", ["y"], test=tmp_path / "test.csv")
    assert list(found) == ["a", "y", "day"]


def test_a_test_file_needs_no_column_that_is_left_out(tmp_path):
    table, test = tmp_path / "t.csv", tmp_path / "test.csv"
    frame = pd.DataFrame({"a": range(9), "b": 2, "day": range(9), "y": range(9)})
    frame.to_csv(table, index=False)
    frame[["a", "y"]].to_csv(test, index=False)
    found, _ = read_columns(table, ["y"], ["b"], "day", test)
    assert list(found) == ["a", "y"]
    assert len(found) == 18
    text = (
        r"columns of .*t\.csv that are read must name .*test\.csv: a, y.*Received: b\."
    )
    with pytest.raises(ValueError, match=text):
        read_columns(table, ["y"], split_by="day", test=test)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1e30, 1.0, 2.0], r"column 'x' must have finite .* Received: 1e\+30"),
        ([1e9, 1e9 + 1, 1e9 + 2], r"column 'x' has numbers that float32 does not"),
    ],
)
def test_numbers_that_float32_does_not_hold_are_named(tmp_path, values, text):
    rows = "".join(f"{value!r},{i}\n" for i, value in enumerate(values))
    with pytest.raises(ValueError, match=text):
        read(tmp_path / "t.csv", f"x,y\n{rows}")


def test_lines_with_more_cells_than_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"more cells than its first line, of 2\."):
        read(tmp_path / "t.csv", "x,y\n1,2,3\n4,5,6\n")


def test_other_files_are_refused(tmp_path):
    for name in ("table.xls", "table.gz", "table"):
        with pytest.raises(ValueError, match=r"a \.csv, a \.tsv or a \.parquet file"):
            read_columns(tmp_path / name, ["y"])
