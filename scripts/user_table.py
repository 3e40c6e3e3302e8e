"""Read the table of a user: a file, and what its columns hold."""

import csv
import pathlib
import re

import numpy as np
import pandas as pd

TEXTS, PARQUETS = (".csv", ".tsv", ".txt", ".data"), (".parquet", ".pq")
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
# A column of strings with more values than this part of its rows tells rows apart.
MOST_VALUES, FEW_ROWS = 0.9, 10
# What float32 holds the square of, and the smallest spread that it tells apart.
LARGEST, SPREAD = 1e18, 1e-5
DATE = re.compile(
    r"(\d{4}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3(\d\d){1,2})([T ]\d.*)?"
)
ROW_NUMBERS = re.compile(r"(unnamed: \d+|index|(row_?)?id)", re.IGNORECASE)


def read_columns(path, targets):
    """Read a table: numbers in float32, strings with None where they are missing.

    Columns that can say nothing are left out. The targets stay as they are, but for
    booleans, which become numbers.

    Args:
        path: A Parquet file, or text with a separator, which may be packed.
        targets: The names of the columns to predict.

    Returns:
        The table, and the targets, each once.
    """
    frame = read_file(pathlib.Path(path))
    targets = list(dict.fromkeys(targets or []))
    unknown = [name for name in targets if name not in frame]
    if not targets or unknown:
        raise ValueError(
            f"`--targets` must name columns of {path}: {', '.join(frame.columns)}. "
            f"Received: {', '.join(unknown) or 'none'}."
        )
    columns = {}
    for name, column in frame.items():
        plain = _plain(column)
        if name in targets:
            columns[name] = plain
        elif plain.isna().all():
            print(f"Left out: {name}, which has no value.")
        elif _tells_rows_apart(name, plain):
            print(f"Left out: {name}, which has another value in almost every row.")
        else:
            is_number = pd.api.types.is_numeric_dtype(plain)
            what = f"column {name!r}"
            columns[name] = as_float32(what, plain) if is_number else plain
    if len(columns) == len(targets):
        raise ValueError(f"{path} must have columns beside the targets.")
    return pd.DataFrame(columns), targets


def read_file(path):
    """Read a file by the end of its name, with names of columns that are strings."""
    ends = [end.lower() for end in path.suffixes]
    kind = ends[-2] if ends[-1:] and ends[-1] in PACKED and ends[:-1] else ends[-1:]
    kind = kind if isinstance(kind, str) else "".join(kind)
    if kind in PARQUETS:
        frame = pd.read_parquet(path)
    elif kind in TEXTS:
        frame = _read_text(path, kind)
    else:
        raise ValueError(
            "A table must be a .csv, a .tsv or a .parquet file; texts may be packed, "
            f"as in .csv.gz. Received: {path}."
        )
    return frame.rename(columns=str)


def _read_text(path, kind):
    """Read a text with the separator that splits its first line into most cells."""
    whole = {"sep": "\x01", "quoting": csv.QUOTE_NONE, "encoding": "utf-8-sig"}
    first = pd.read_csv(path, header=None, nrows=1, dtype=str, **whole).iloc[0, 0]
    lines = {
        mark: next(csv.reader([first], delimiter=mark, skipinitialspace=True))
        for mark in ("\t" if kind == ".tsv" else ",;\t|")
    }
    separator = max(lines, key=lambda mark: len(lines[mark]))
    cells, options = lines[separator], {}
    if any(map(_is_number, cells)) and cells != [str(i) for i in range(len(cells))]:
        options = {"header": None, "names": [f"column_{i}" for i in range(len(cells))]}
        print(
            f"The first line of {path.name} has numbers, and so no names: the columns "
            f"are column_0 to column_{len(cells) - 1}."
        )

    def read(decimal):
        return pd.read_csv(
            path,
            sep=separator,
            decimal=decimal,
            skipinitialspace=True,
            low_memory=False,
            **options,
        )

    # Where a comma is not the separator, it may be in numbers.
    frames = [read(mark) for mark in (".," if separator == ";" else ".")]
    frame = max(frames, key=lambda each: each.select_dtypes("number").shape[1])
    if not frame.index.equals(pd.RangeIndex(len(frame))):
        raise ValueError(
            f"The lines of {path} have more cells than its first line, of "
            f"{len(cells)}. Name all columns in the first line."
        )
    return frame


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def _plain(column):
    """A column as numbers, or as strings; booleans are numbers."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    known = column.dropna()
    if len(known) and all(isinstance(value, (bool, np.bool_)) for value in known):
        return column.astype("boolean").astype("Float32")
    if pd.api.types.is_numeric_dtype(column) or not len(known):
        return column
    if all(map(_is_date, known)):
        raise ValueError(
            f"The column {column.name!r} has dates. Received: {str(known.iloc[0])!r}. "
            "Write numbers in their place, such as the days since the first one: "
            f"`(pd.to_datetime(frame[{column.name!r}]) - first).dt.days`. Or remove it."
        )
    other = [value for value in known if not isinstance(value, str)]
    if other:
        raise ValueError(
            f"The column {column.name!r} must have numbers, or strings alone. "
            f"Received: {other[0]!r}. Convert it, or remove it from the table."
        )
    return column.astype(object).where(column.notna(), None)


def _is_date(value):
    return hasattr(value, "year") or bool(DATE.fullmatch(str(value).strip()))


def _tells_rows_apart(name, column):
    """Whether a column has ids of the rows, or their numbers."""
    if pd.api.types.is_numeric_dtype(column):
        counts_rows = (column.diff()[1:] == 1).all()
        return bool(ROW_NUMBERS.fullmatch(name)) and counts_rows
    rows = column.notna().sum()
    return rows > FEW_ROWS and column.nunique() > MOST_VALUES * rows


def as_float32(what, column):
    """The numbers of a column in float32, or an error if they do not fit into it."""
    values = column.to_numpy("float64", na_value=np.nan)
    if np.isinf(values).any() or (np.abs(values) > LARGEST).any():
        raise ValueError(
            f"The {what} must have finite numbers up to {LARGEST:g}, whose squares "
            f"float32 holds. Received: {values[np.nanargmax(np.abs(values))]:g}. "
            "Divide them by a number, or remove them."
        )
    spread = np.nanstd(values)
    if 0 < spread < SPREAD * np.abs(np.nanmean(values)):
        raise ValueError(
            f"The {what} has numbers that float32 does not tell apart: their mean is "
            f"{np.nanmean(values):g}, and their standard deviation {spread:g}. "
            "Subtract the mean."
        )
    return values.astype("float32")
