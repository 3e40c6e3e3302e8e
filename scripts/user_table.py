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
# The largest number whose square float32 holds, and the smallest spread.
LARGEST, SPREAD = 1e18, 1e-5
DATE = re.compile(
    r"(\d{4}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3(\d\d){1,2})([T ]\d.*)?"
)
FILE = "file"
ROW_NUMBERS = re.compile(r"(unnamed: \d+|index|(row_?)?id)", re.IGNORECASE)


def read_columns(path, targets, drop=(), split_by=None, test=None):
    """Read a table: numbers in float32, strings with None where they are missing.

    Columns that can say nothing are left out, and dates become numbers. The targets
    stay as they are, but for booleans, which become numbers.

    Args:
        path: A Parquet file, or text with a separator, which may be packed.
        targets: The names of the columns to predict.
        drop: The names of columns to leave out.
        split_by: The name of a column of numbers or dates in whose order the rows are.
            It is left out, because later rows have values that no row before has.
        test: Another such file, whose rows come after those of the first.

    Returns:
        The table, and the targets, each once. With a `test`, the index has the number
        of the file, 0 or 1, and the name `FILE`.
    """
    frame = read_file(pathlib.Path(path))
    targets = list(dict.fromkeys(targets or []))
    others = {*drop, *([] if split_by is None else [split_by])}
    _check_names(path, frame, "--targets", targets)
    _check_names(path, frame, "--drop and --split-by", others or targets)
    # In the order of the file.
    row_numbers = {name for name in frame if _counts_rows(name, frame[name])}
    frame = _in_order(frame, split_by).drop(columns=others - {*targets})
    if test is not None:
        more = read_file(pathlib.Path(test))
        _check_names(test, more, f"the columns of {path} that are read", frame)
        parts = {0: frame, 1: more[[*frame]]}
        frame = pd.concat(parts, names=[FILE]).droplevel(1)
    columns = {}
    for name, column in frame.items():
        plain = _plain(column)
        found = {name: plain}
        if name not in targets:
            found = _features(name, column, plain, name in row_numbers)
        if same := [each for each in found if each != name and each in frame]:
            raise ValueError(
                f"The dates of the column {name!r} become columns that must have new "
                f"names. Received: there is a column {same[0]!r}. Rename one of them."
            )
        columns |= found
    if len(columns) == len(targets):
        raise ValueError(f"{path} must have columns beside the targets.")
    return pd.DataFrame(columns, index=frame.index), targets


def _check_names(path, frame, what, names):
    """Check that names are those of columns, and that there are some."""
    unknown = [name for name in names if name not in frame]
    if unknown or not len(names):
        raise ValueError(
            f"{what} must name columns of {path}: {', '.join(frame.columns)}. "
            f"Received: {', '.join(unknown) or 'none'}."
        )


def _features(name, column, plain, counts_rows):
    """The replacements of a column that is no target, by name."""
    if plain.isna().all():
        print(f"Left out: {name}, which has no value.")
        return {}
    if counts_rows or _tells_rows_apart(plain):
        print(f"Left out: {name}, which has another value in almost every row.")
        return {}
    if plain.dtype.kind == "M":
        return _numbers_of_dates(name, column, plain)
    is_number = pd.api.types.is_numeric_dtype(plain)
    return {name: as_float32(f"column {name!r}", plain) if is_number else plain}


def _in_order(frame, name):
    """The rows in the order of a column of numbers or dates."""
    if name is None:
        return frame
    column = _plain(frame[name])
    if column.dtype.kind not in "iufM" or column.isna().any():
        raise ValueError(
            f"`--split-by` must name a column of numbers or dates without gaps. "
            f"Received: {name!r}."
        )
    return frame.iloc[np.argsort(column.to_numpy(), kind="stable")]


def _numbers_of_dates(name, column, dates):
    """Days, month and weekday of a column of dates, by name."""
    first = column.dropna().iloc[0]
    print(
        f"{name}: dates, such as {first} for {dates.dropna().iloc[0]:%d %B %Y}. In "
        f"their place are {name}_days since 1970, {name}_month from 1, and "
        f"{name}_weekday, 0 for Monday."
    )
    parts = {
        "days": (dates - pd.Timestamp(0)).dt.days,
        "month": dates.dt.month,
        "weekday": dates.dt.day_of_week,
    }
    return {f"{name}_{part}": each.astype("float32") for part, each in parts.items()}


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

    # A comma that is not the separator may be the decimal mark.
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
        return _as_dates(column, known)
    other = [value for value in known if not isinstance(value, str)]
    if other:
        raise ValueError(
            f"The column {column.name!r} must have numbers, or strings alone. "
            f"Received: {other[0]!r}. Convert it, or remove it from the table."
        )
    return column.astype(object).where(column.notna(), None)


def _as_dates(column, known):
    """A column of dates or their texts as dates, without a time zone."""
    texts = known.astype(str).str.strip()
    # 05.01.2020 is the fifth of January, and 1/5/20 too, unless a first number is
    # more than 12.
    starts = texts.str.extract(r"^(\d\d?)[./-]")[0].astype(float)
    is_day = starts.max() > 12 or texts.str.contains(r"^\d\d?\.").any()
    try:
        dates = pd.to_datetime(texts, dayfirst=bool(is_day), format="mixed", utc=True)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"The column {column.name!r} has dates that cannot be read: {error}. "
            "Write numbers in their place, or pass `--drop`."
        ) from error
    # By place: rows of two files have the same index.
    found = pd.Series(pd.NaT, range(len(column)), dtype="datetime64[ns]")
    found[column.notna().to_numpy()] = dates.dt.tz_localize(None).to_numpy()
    return found.set_axis(column.index)


def _is_date(value):
    return hasattr(value, "year") or bool(DATE.fullmatch(str(value).strip()))


def _counts_rows(name, column):
    """Check whether a column has the numbers of the rows."""
    is_number = pd.api.types.is_numeric_dtype(column)
    is_named = is_number and ROW_NUMBERS.fullmatch(name)
    return bool(is_named) and (column.diff()[1:] == 1).all()


def _tells_rows_apart(column):
    """Check whether a column of strings has ids of the rows."""
    if pd.api.types.is_numeric_dtype(column):
        return False
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
