"""Read a table from files."""

import csv
import itertools
import pathlib
from typing import Any

import numpy as np

from dselectk_keras.tables.columns import import_pandas
from dselectk_keras.utils import check_count, optional_import

TEXTS, PARQUETS = (".csv", ".tsv", ".txt", ".data"), (".parquet", ".pq")
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
# Lines that say which separator a file has, and whether its first line has names.
SAMPLE = 1000
MISSING = "?"
# Words for a gap among numbers and among booleans. Among texts they are texts.
GAPS = {"NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan"}
GAPS |= {"NULL", "Null", "null", "None"}
BOOLEANS = dict.fromkeys(["True", "TRUE", "true"], True)
BOOLEANS |= dict.fromkeys(["False", "FALSE", "false"], False)


def read_table(source: Any, encoding: str = "utf-8") -> Any:
    r"""Read a table of pandas from a file, a folder, or a list of files.

    A file is Parquet, or text with a common separator, which may be compressed: the end
    of its name says so, such as `.csv`, `.tsv`, `.csv.gz` or `.parquet`. A cell that is
    empty, or `?`, is missing, and among numbers one such as `NA` or `null`; in columns
    of texts, these are texts, with a line that says so. If the first line of a text has
    no names, the columns are `column_0`, `column_1`, ...

    Args:
        source: The path of a file; or of a folder, of which all such files are read,
            in the order of their names; or a list of paths. All have the same columns.
        encoding: The encoding of text files, such as `"latin-1"`.

    Returns:
        A data frame. Names of columns are strings.

    Example:
        >>> import pathlib
        >>> path = pathlib.Path("prices.csv")
        >>> _ = path.write_text("size;price\n1,5;10\n2,5;")
        >>> read_table(path)["size"].tolist()
        [1.5, 2.5]
        >>> path.unlink()
    """
    pd = import_pandas()
    paths = source if isinstance(source, (list, tuple)) else _files(source)
    frames = {path: _read_file(pathlib.Path(path), encoding) for path in paths}
    (first, frame), *others = frames.items()
    for path, other in others:
        if differing := {*frame} ^ {*other}:
            raise ValueError(
                f"The files of a table must have the same columns. Received: {path} "
                f"and {first}, of which one has no {min(differing)!r}."
            )
    return pd.concat([*frames.values()], ignore_index=True) if others else frame


def sample_table(source: Any, rows: int = 100_000, seed: int = 0) -> Any:
    """Draw rows of Parquet files that do not fit in memory, for an encoder.

    The files are read in batches. A string that the sample lacks is unknown to an
    encoder of it.

    Args:
        source: The path of a file or of a folder, or a list of paths.
        rows: The number of rows that are drawn; all if there are not as many.
        seed: The seed of the draw.

    Returns:
        A data frame of pandas, with the rows in the order of the files.

    Example:
        >>> import pathlib, pandas as pd
        >>> pd.DataFrame({"size": range(100)}).to_parquet("sizes.parquet")
        >>> len(sample_table("sizes.parquet", rows=10))
        10
        >>> pathlib.Path("sizes.parquet").unlink()
    """
    check_count("rows", rows)
    pyarrow = optional_import(
        "pyarrow.dataset", extra="tables", purpose="To sample Parquet files"
    )
    paths = [*map(str, source)] if isinstance(source, (list, tuple)) else str(source)
    files = pyarrow.dataset(paths, format="parquet", partitioning="hive")
    total = files.count_rows()
    draw = np.random.default_rng(seed).choice(total, min(rows, total), replace=False)
    return files.take(np.sort(draw)).to_pandas()


def _files(source):
    """List the files of a folder, or the file itself."""
    folder = pathlib.Path(source)
    if not folder.is_dir():
        return [folder]
    found = sorted(path for path in folder.rglob("*") if _kind(path))
    if not found:
        raise ValueError(
            "A folder must have .csv, .tsv or .parquet files. Received: none in "
            f"{folder}."
        )
    # Parquet may have columns in the names of folders, such as year=2020.
    return [folder] if all(_kind(path) in PARQUETS for path in found) else found


def _kind(path):
    """The end of a file's name that says how it is read; empty for other files."""
    ends = [end.lower() for end in path.suffixes]
    packed = ends[-1:] and ends[-1] in PACKED
    kind = "".join(ends[-2:-1] if packed else ends[-1:])
    known = TEXTS if packed else TEXTS + PARQUETS
    return kind if kind in known and not path.name.startswith((".", "_")) else ""


def _read_file(path, encoding):
    """Read one file, or a folder of Parquet."""
    pd, kind = import_pandas(), _kind(path)
    if kind in PARQUETS or path.is_dir():
        frame = pd.read_parquet(path)
    elif not kind:
        raise ValueError(
            "A table must be a .csv, a .tsv or a .parquet file; texts may be packed, "
            f"as in .csv.gz. Received: {path}."
        )
    else:
        # With "utf-8-sig", marks of the order of bytes, as Excel writes them, are none.
        encoding = "utf-8-sig" if encoding.lower() in {"utf-8", "utf8"} else encoding
        try:
            frame = _read_text(path, kind, encoding)
        except (LookupError, UnicodeError) as error:
            raise ValueError(
                f"{path} must be text in its encoding. Received: {error}. Pass another "
                "one: `encoding`, in scripts `--encoding`, such as latin-1."
            ) from error
        except pd.errors.ParserError as error:
            raise ValueError(
                f"The lines of {path} must have as many cells as its first line. "
                f"Received: {error}. Correct the file, or name all columns."
            ) from error
        except pd.errors.EmptyDataError as error:
            raise ValueError(
                f"{path} must have a line of names, and rows. Received: an empty file."
            ) from error
    return frame.rename(columns=lambda name: str(name).strip())


def _read_text(path, kind, encoding):
    """Read a text with the separator that splits its first line into most cells."""
    pd = import_pandas()
    whole = {"sep": "\x01", "header": None, "quoting": csv.QUOTE_NONE, "dtype": str}
    whole |= {"keep_default_na": False, "encoding": encoding}
    lines = pd.read_csv(path, nrows=SAMPLE, **whole)[0]
    split = {
        mark: next(csv.reader([lines[0]], delimiter=mark, skipinitialspace=True))
        for mark in ("\t" if kind == ".tsv" else ",;\t|")
    }
    separator = max(split, key=lambda mark: len(split[mark]))
    names = split[separator]
    options = {
        "sep": separator,
        "encoding": encoding,
        "na_values": ["", MISSING],
        "keep_default_na": False,
        "skipinitialspace": True,
        "low_memory": False,
    }
    rows = csv.reader(lines[1:], delimiter=separator, skipinitialspace=True)
    if _is_row(names, [row for row in rows if len(row) == len(names)], separator):
        names = [f"column_{i}" for i in range(len(names))]
        options |= {"header": None, "names": names}
        print(  # noqa: T201
            f"The first line of {path.name} has numbers, and so no names: the columns "
            f"are column_0 to column_{len(names) - 1}."
        )
    elif twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(
            f"The columns of {path} must have different names. Received: {twice[0]!r} "
            f"{names.count(twice[0])} times. Rename them."
        )
    # A comma that is not the separator may be the decimal mark.
    marks = ".," if separator == ";" else "."
    frames = [
        _read_gaps(pd.read_csv(path, decimal=mark, **options), mark) for mark in marks
    ]
    frame = max(frames, key=lambda each: each.select_dtypes("number").shape[1])
    for name in frame:
        if words := [*GAPS.intersection(_texts(frame[name]).unique())]:
            print(  # noqa: T201
                f"{name}: {min(words)!r} is a text. If it is a gap, run "
                f"frame[{name!r}] = frame[{name!r}].mask(frame[{name!r}] == "
                f"{min(words)!r})."
            )
    if not frame.index.equals(pd.RangeIndex(len(frame))):
        raise ValueError(
            f"The lines of {path} have more cells than its first line, of "
            f"{len(names)}. Name all columns in the first line."
        )
    return frame


def _texts(column):
    """The texts of a column without gaps, none of other columns."""
    return column.dropna() if column.dtype.kind not in "biuf" else column[:0]


def _read_gaps(frame, mark):
    """Read words such as NA as gaps in columns of numbers or booleans beside them."""
    pd = import_pandas()
    for name in frame:
        texts = _texts(frame[name])
        if not texts.isin(GAPS).any():
            continue
        values = {*texts.unique()} - GAPS
        numbers = pd.Series([*values], dtype=object).str.replace(mark, ".")
        numbers = pd.to_numeric(numbers, errors="coerce")
        if values <= {*BOOLEANS}:
            frame[name] = frame[name].map(BOOLEANS)
        elif numbers.notna().all():
            read = dict(zip(values, numbers, strict=True))
            frame[name] = frame[name].map(read).astype("float64")
    return frame


def _is_row(cells, rows, separator):
    """Check whether the first line of a text is a row, and has no names.

    It is one if it has numbers where all others have them, unless the numbers count the
    columns, or no text of it is a text of another row.
    """
    point = "," if separator == ";" else "."

    def is_number(text):
        try:
            float(text.replace(point, "."))
        except ValueError:
            return False
        return True

    columns = [
        [each for each in column if each not in {"", MISSING}]
        for column in zip(*rows, strict=True)
    ]
    numbers = [
        cell
        for cell, column in zip(cells, columns, strict=False)
        if column and all(map(is_number, column))
    ]
    known = [cell for cell in numbers if cell not in {"", MISSING}]
    if not known or not all(map(is_number, known)):
        return False
    values = [float(cell.replace(point, ".")) for cell in known]
    if len(values) > 1 and all(b - a == 1 for a, b in itertools.pairwise(values)):
        return False
    texts = [i for i, cell in enumerate(cells) if cell not in {*numbers, "", MISSING}]
    return not texts or any(cells[i] in columns[i] for i in texts)
