"""Files are read as people have them, or an error names the file."""

import gzip

import numpy as np
import pandas as pd
import pytest

from dselectk_keras.tables import read_table, sample_table

pytestmark = pytest.mark.backend_independent
TABLE = "size,price,kind,y\n1.5,10,a,0\n2.5,,b,1\n3.5,30,a,0\n"


def read(path, text, encoding="utf-8"):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_table(path, encoding)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("t.csv", lambda text: text),
        ("t.csv", lambda text: text.replace(",", ", ")),
        ("t.csv", lambda text: text.replace(",", " , ")),
        ("t.csv", lambda text: "\ufeff" + text),
        ("t.csv", lambda text: text.replace(",", ";")),
        ("t.csv", lambda text: text.replace(",", ";").replace(".", ",")),
        ("t.csv", lambda text: text.replace(",", "\t")),
        ("t.csv", lambda text: text.replace(",,", ",?,")),
        ("t.csv", lambda text: text.replace("price", '"price; a|b"')),
        ("t.txt", lambda text: text.replace(",", "|")),
        ("t.TSV", lambda text: text.replace(",", "\t").replace("kind", "kind, a,b,c")),
        ("t.v2.csv.gz", lambda text: gzip.compress(text.encode())),
    ],
)
def test_separators_are_found_in_the_first_line(tmp_path, name, change):
    found = read(tmp_path / name, change(TABLE))
    np.testing.assert_array_equal(found.iloc[:, 0], [1.5, 2.5, 3.5])
    np.testing.assert_array_equal(found.iloc[:, 1], [10, np.nan, 30])
    assert found.iloc[:, 2].str.strip().tolist() == ["a", "b", "a"]
    assert found.columns[0] == "size"
    assert found.shape == (3, 4)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        # Names: no numbers; a number over texts, or not over all numbers; counts.
        ("a,b\n1,2\n", ["a", "b"]),
        ("country,2020\nA,3\nB,4\n", ["country", "2020"]),
        ("size,2020,kind\n1,2,a\n", ["size", "2020", "kind"]),
        ("country,2019,2020\nA,3,5\nA,4,6\n", ["country", "2019", "2020"]),
        ("0,1\n5,6\n7,8\n", ["0", "1"]),
        ("7;9,5;b\nx;1,5;a\n", ["7", "9,5", "b"]),
        # Rows: numbers over all numbers, some of which may be missing.
        ("39, gov, <=50K\n50, Private, >50K\n38, Private, <=50K\n", None),
        ("39, ?, <=50K\n50, Private, >50K\n38, Private, <=50K\n", None),
        ("0,2\n5,6\n", None),
        ("1,5;a\n2,5;a\n", None),
        ("1,\n2,3\n", None),
    ],
)
def test_a_first_line_of_numbers_is_a_row_and_one_of_names_is_none(
    tmp_path, capsys, text, names
):
    found, lines = read(tmp_path / "t.csv", text), text.count("\n")
    assert len(found) == lines - (names is not None)
    assert list(found) == (names or [f"column_{i}" for i in range(found.shape[1])])
    last = f"column_{found.shape[1] - 1}"
    said = f"t.csv has numbers, and so no names: the columns are column_0 to {last}."
    assert (said in capsys.readouterr().out) == (names is None)


@pytest.mark.parametrize("word", ["NA", "null", "None", "nan", "#N/A"])
def test_a_word_for_a_gap_is_a_text_among_texts(tmp_path, capsys, word):
    lines = f"kind;count;share;old\na;1;0,5;True\n{word};{word};{word};{word}\n"
    found = read(tmp_path / "t.csv", lines + "b;3;1,5;False\n;;;\n")
    assert found["kind"].fillna("").tolist() == ["a", word, "b", ""]
    gap = np.nan
    np.testing.assert_array_equal(found["count"], [1, gap, 3, gap])
    np.testing.assert_array_equal(found["share"], [0.5, gap, 1.5, gap])
    assert found["old"].isna().tolist() == [False, True, False, True]
    assert found["old"].dropna().tolist() == [True, False]
    shown = capsys.readouterr().out
    assert shown.startswith(f"kind: {word!r} is a text. If it is a gap, run frame[")
    assert len(shown.splitlines()) == 1


def test_an_encoding_is_named_or_asked_for(tmp_path):
    text = "ort,y\nKöln,1\nBonn,0\n".encode("latin-1")
    assert read(tmp_path / "t.csv", text, "latin-1")["ort"].tolist() == ["Köln", "Bonn"]
    for encoding, why in (("utf-8", "0xf6"), ("foo", "unknown encoding: foo")):
        match = rf"t\.csv must be text in its encoding\..*{why}.*`--encoding`"
        with pytest.raises(ValueError, match=match):
            read(tmp_path / "t.csv", text, encoding)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", r"t\.csv must have a line of names, and rows\. Received: an empty file"),
        ("x,y\n1,2,3\n4,5,6\n", r"more cells than its first line, of 2\."),
        ("x,y\n1,2\n4,5,6\n", r"as many cells as its first line.*line 3, saw 3"),
        ("a,b,a\n1,2,3\n", r"must have different names\. Received: 'a' 2 times"),
    ],
)
def test_texts_that_are_no_tables_are_refused(tmp_path, text, match):
    with pytest.raises(ValueError, match=match):
        read(tmp_path / "t.csv", text)


def test_folders_and_lists_of_files_are_one_table(tmp_path):
    folder = tmp_path / "all"
    (folder / "more").mkdir(parents=True)
    for i, path in enumerate(["b.csv", "a.csv", "more/c.tsv"]):
        (folder / path).write_text(f"x\n{i}\n")
    (folder / "_SUCCESS.csv").write_text("no table")
    (folder / "notes.md").write_text("no table")
    assert read_table(folder)["x"].tolist() == [1, 0, 2]
    assert read_table([folder / "b.csv", folder / "a.csv"])["x"].tolist() == [0, 1]
    (folder / "d.csv").write_text("y\n1\n")
    with pytest.raises(
        ValueError, match=r"same columns\. Received: .*d\.csv and .*'x'"
    ):
        read_table(folder)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match=r"Received: none in .*none\."):
        read_table(tmp_path / "none")


def test_parquet_is_read_with_the_columns_in_names_of_folders(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({0: [1, 2, 3], "year": [2019, 2020, 2020]})
    frame.rename(columns=str).to_parquet(tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet")) == ["0", "year"]
    frame.rename(columns=str).to_parquet(tmp_path / "p", partition_cols=["year"])
    assert read_table(tmp_path / "p")["year"].astype(int).tolist() == [2019, 2020, 2020]


def test_rows_of_parquet_are_drawn_at_random_and_in_their_order(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"row": range(90), "year": np.repeat([2019, 2020, 2021], 30)})
    frame.to_parquet(tmp_path / "p", partition_cols=["year"])
    found = sample_table(tmp_path / "p", rows=40, seed=3)
    rows = found["row"].to_numpy()
    np.testing.assert_array_equal(found["year"], frame["year"][rows])
    assert len(set(rows)) == 40
    assert (np.diff(rows) > 0).all()
    assert 30 < rows.mean() < 60
    assert rows.tolist() != sample_table(tmp_path / "p", rows=40)["row"].tolist()
    paths = sorted((tmp_path / "p").rglob("*.parquet"))[1:]
    assert sample_table(paths, rows=100)["row"].tolist() == [*range(30, 90)]
    with pytest.raises(ValueError, match="`rows` must be a positive integer"):
        sample_table(paths, rows=0)


def test_other_files_are_refused(tmp_path):
    for name in ("table.xls", "table.gz", "table", "table.parquet.gz"):
        with pytest.raises(ValueError, match=r"a \.csv, a \.tsv or a \.parquet file"):
            read_table(tmp_path / name)
